/* Computing the sequences of a step one by one. */
#include "train/trace.h"

#include <math.h>

#include "train/micro.h"

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
