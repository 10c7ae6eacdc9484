/* Running a data set through loss programs. */
#include "train/eval.h"

#include <math.h>

#include "base/clock.h"

enum { SLOTS_USUAL = 1024, SLOTS_STEP = 64, BUCKETS = 4 };

int64_t eval_slots(int64_t asked, int64_t longest)
{
    int64_t slots = asked ? asked : SLOTS_USUAL;
    slots = slots > longest ? slots : longest;
    return (slots + SLOTS_STEP - 1) / SLOTS_STEP * SLOTS_STEP;
}

enum status eval_add(struct session *s, int64_t slots, int64_t *largest)
{
    return session_add(s, NET_LOSS, slots, slots, 0, largest);
}

/* The smallest of four token buckets that holds the batch, and its loss rows. */
static enum status add_bucket(struct session *s, int64_t slots, const struct batch *batch, int64_t *index)
{
    int64_t T = slots;
    for (int i = 1; i < BUCKETS && T % (2 * SLOTS_STEP) == 0 && batch->tokens <= T / 2; i++)
        T /= 2;
    return session_add(s, NET_LOSS, T, batch_rows(T, batch->trained), 0, index);
}

/* Sums the losses of a batch; one that is no number is an error that names the row it came from. */
static enum status add_losses(const struct data *data, const struct batch *batch, const float *losses, double *sum)
{
    int64_t at = 0;
    for (int64_t r = batch->first; r < batch->first + batch->count; r++)
        for (int64_t i = 0; i < data->rows[r].count; i++) {
            if (!data->mask[data->rows[r].begin + i])
                continue;
            if (!isfinite(losses[at]))
                return fail(
                    ERR_DATA,
                    "the loss of token %lld of the row in line %lld is not finite: the weights are broken, or too large for this "
                    "type (try --dtype float32)",
                    (long long)i, (long long)data->rows[r].line);
            *sum += (double)losses[at++];
        }
    return OK;
}

enum status eval_open(struct evaluation *v, struct session *s, const struct data *data, int64_t slots)
{
    int64_t largest;
    enum status status;
    *v = (struct evaluation){.data = data};
    TRY_GOTO(eval_add(s, slots, &largest), failed);
    TRY_GOTO(batch_cut(data, slots, &v->batches, &v->count), failed);
    v->program = memory_alloc(v->count * (int64_t)sizeof *v->program);
    v->losses = memory_alloc(slots * (int64_t)sizeof *v->losses);
    if (!v->program || !v->losses)
        TRY_GOTO(ERR_MEMORY, failed);
    for (int64_t b = 0; b < v->count; b++)
        TRY_GOTO(add_bucket(s, slots, &v->batches[b], &v->program[b]), failed);
    return OK;
failed:
    eval_close(v);
    return status;
}

void eval_close(struct evaluation *v)
{
    memory_free(v->batches);
    memory_free(v->program);
    memory_free(v->losses);
    *v = (struct evaluation){0};
}

enum status eval_run(struct evaluation *v, struct session *s, eval_progress *progress, void *context, double *loss)
{
    double start = clock_seconds(), sum = 0;
    int64_t tokens = 0;
    for (int64_t b = 0; b < v->count; b++) {
        const struct net *n = s->nets[v->program[b]];
        batch_write(&s->engine, n, v->data, &v->batches[b]);
        TRY(engine_run(&s->engine, v->program[b]));
        TRY(engine_read(&s->engine, n->result, v->losses));
        TRY(add_losses(v->data, &v->batches[b], v->losses, &sum));
        tokens += v->batches[b].tokens;
        if (progress && !progress(context, b + 1, v->count, tokens, clock_seconds() - start))
            return fail(ERR_STOPPED, "stopped after %lld of %lld batches", (long long)(b + 1), (long long)v->count);
    }
    *loss = sum / (double)v->data->trained;
    return OK;
}
