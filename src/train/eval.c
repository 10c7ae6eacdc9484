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
                return fail(ERR_DATA,
                            "the loss of token %lld of the row in line %lld is not finite: the weights are broken, or too large for this "
                            "type (try --dtype float32)",
                            (long long)i, (long long)data->rows[r].line);
            *sum += (double)losses[at++];
        }
    return OK;
}

static enum status run_batches(struct session *s, const struct data *data, const struct batch *batches, const int64_t *program,
                               int64_t count, float *losses, eval_progress *progress, void *context, struct eval_result *result)
{
    double start = clock_seconds(), sum = 0;
    int64_t tokens = 0;
    for (int64_t b = 0; b < count; b++) {
        const struct net *n = s->nets[program[b]];
        batch_write(&s->engine, n, data, &batches[b]);
        TRY(engine_run(&s->engine, program[b]));
        TRY(engine_read(&s->engine, n->result, losses));
        TRY(add_losses(data, &batches[b], losses, &sum));
        tokens += batches[b].tokens;
        if (progress && !progress(context, b + 1, count, tokens, clock_seconds() - start))
            return fail(ERR_STOPPED, "stopped after %lld of %lld batches", (long long)(b + 1), (long long)count);
    }
    result->seconds = clock_seconds() - start;
    result->loss = sum / (double)data->trained;
    return OK;
}

enum status eval_run(struct session *s, const struct data *data, int64_t slots, eval_progress *progress, void *context,
                     struct eval_result *result)
{
    struct batch *batches = NULL;
    int64_t count = 0, largest, *program = NULL;
    float *losses = NULL;
    enum status status;
    *result = (struct eval_result){.rows = data->row_count, .tokens = data->tokens, .trained_tokens = data->trained};
    TRY_GOTO(eval_add(s, slots, &largest), done);
    TRY_GOTO(batch_cut(data, slots, &batches, &count), done);
    program = memory_alloc(count * (int64_t)sizeof *program);
    losses = memory_alloc(slots * (int64_t)sizeof *losses);
    if (!program || !losses)
        TRY_GOTO(ERR_MEMORY, done);
    for (int64_t b = 0; b < count; b++)
        TRY_GOTO(add_bucket(s, slots, &batches[b], &program[b]), done);
    TRY_GOTO(session_plan(s), done);
    TRY_GOTO(session_prepare(s), done);
    result->startup_seconds = clock_since_start();
    status = run_batches(s, data, batches, program, count, losses, progress, context, result);
done:
    memory_free(batches);
    memory_free(program);
    memory_free(losses);
    return status;
}
