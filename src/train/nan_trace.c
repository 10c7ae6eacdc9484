/* Computing the sequences of a step one by one, and looking for weights that are not finite. */
#include "train/nan_trace.h"

#include <math.h>

#include "base/log.h"
#include "base/number.h"
#include "train/micro.h"

enum { PIECE = 4096 };

static enum status trace_one(struct stepper *st, const struct sequence *sequence, enum nan_trace_fault *fault)
{
    struct micro micro;
    double norm;
    bool finite = true;
    TRY(micro_run(st, &st->loss, sequence, 1, false, &micro));
    TRY(engine_read(&st->build->session.engine, micro.net->result, st->host.losses));
    int64_t rows = micro_weights(sequence, 1, st->host.weights, NULL, 0);
    for (int64_t i = 0; i < rows; i++)
        finite = finite && isfinite((double)st->host.weights[i] * (double)st->host.losses[i]);
    TRY(optimizer_clear(&st->build->optimizer, &st->build->session, &norm));
    *fault = !finite ? NAN_TRACE_LOSS : !isfinite(norm) ? NAN_TRACE_GRADIENT : NAN_TRACE_NONE;
    return OK;
}

enum status nan_trace_step(struct stepper *st, int64_t step, const struct sequence *sequences, int64_t count,
                           enum nan_trace_fault *faults)
{
    enum status status = OK;
    for (int64_t i = 0; i < count && status == OK; i++) {
        struct sequence sequence = sequences[i];
        sequence.number = i;
        micro_go_back(st, step);
        status = trace_one(st, &sequence, &faults[i]);
    }
    micro_start_over(st);
    st->stale |= status != OK;
    return status;
}

/* --- weights -------------------------------------------------------------------------------------------------------------- */

static enum status look_at_trained(struct stepper *st)
{
    const struct tensor *master = st->build->optimizer.master;
    int64_t bytes = tensor_bytes(master);
    float piece[PIECE];
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof piece) {
        int64_t size = min(bytes - at, (int64_t)sizeof piece);
        TRY(engine_download(&st->build->session.engine, master, at, piece, size));
        for (int64_t i = 0; i < size / (int64_t)sizeof *piece; i++)
            if (!isfinite(piece[i]))
                return fail(ERR_DATA,
                            "step %lld: trained weights are not finite any more, and nothing can be learned: an earlier step has "
                            "moved them too far. They are not saved: lower --learning-rate and start over (--resume none), or go "
                            "on from a checkpoint that is good (--resume)",
                            (long long)st->state->step);
    }
    return OK;
}

/* Of ranks that step together each may keep another part. */
enum status nan_trace_weights(struct stepper *st, bool *base_is_finite)
{
    enum status status = look_at_trained(st);
    TRY(st->diloco.on ? status : group_agree(st->build->group, status));
    if (*base_is_finite)
        return OK;
    status = model_check_finite(&st->build->session.model, false);
    if (status == ERR_MEMORY) {
        log_message(LOG_WARNING, "the base was not searched for numbers that are not finite: %s", status_message());
        return OK;
    }
    *base_is_finite = status == OK;
    return status;
}
