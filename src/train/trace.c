/* Computing the sequences of a step one by one, and looking for weights that are not finite. */
#include "train/trace.h"

#include <math.h>

#include "base/log.h"
#include "base/number.h"
#include "train/micro.h"

enum { PIECE = 4096 };

static enum status trace_one(struct trainer *t, const struct sequence *sequence, enum trace_fault *fault)
{
    struct micro micro;
    double norm;
    bool finite = true;
    TRY(micro_run(t, sequence, 1, false, &micro));
    TRY(engine_read(&t->session.engine, micro.net->result, t->micro.losses));
    int64_t rows = micro_weights(sequence, 1, t->micro.weights, NULL, 0);
    for (int64_t i = 0; i < rows; i++)
        finite = finite && isfinite((double)t->micro.weights[i] * (double)t->micro.losses[i]);
    TRY(optimizer_clear(&t->optimizer, &t->session, &norm));
    *fault = !finite ? TRACE_LOSS : !isfinite(norm) ? TRACE_GRADIENT : TRACE_NONE;
    return OK;
}

enum status trace_step(struct trainer *t, int64_t step, const struct sequence *sequences, int64_t count, enum trace_fault *faults)
{
    enum status status = OK;
    for (int64_t i = 0; i < count && status == OK; i++) {
        micro_go_back(t, step, i);
        status = trace_one(t, &sequences[i], &faults[i]);
    }
    micro_start_over(t);
    return status;
}

/* --- weights -------------------------------------------------------------------------------------------------------------- */

static enum status look_at_trained(struct trainer *t)
{
    const struct tensor *master = t->optimizer.master;
    int64_t bytes = tensor_bytes(master);
    float piece[PIECE];
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof piece) {
        int64_t size = min(bytes - at, (int64_t)sizeof piece);
        TRY(engine_download(&t->session.engine, master, at, piece, size));
        for (int64_t i = 0; i < size / (int64_t)sizeof *piece; i++)
            if (!isfinite(piece[i]))
                return fail(ERR_DATA,
                            "step %lld: trained weights are not finite any more, and nothing can be learned: an earlier step has "
                            "moved them too far. They are not saved: lower --learning-rate and start over (--resume none), or go "
                            "on from a checkpoint that is good (--resume)",
                            (long long)t->place.step);
    }
    return OK;
}

/* Of ranks that step together each may keep another part. */
enum status trace_weights(struct trainer *t, bool *base_is_finite)
{
    enum status status = look_at_trained(t);
    TRY(t->sync.on ? status : group_agree(t->group, status));
    if (*base_is_finite)
        return OK;
    status = model_check_finite(&t->session.model, false);
    if (status == ERR_MEMORY) {
        log_message(LOG_WARNING, "the base was not searched for numbers that are not finite: %s", status_message());
        return OK;
    }
    *base_is_finite = status == OK;
    return status;
}
