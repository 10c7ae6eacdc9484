/* Running a data set through loss programs. */
#include "run/evaluation.h"

#include <math.h>

#include "base/clock.h"
#include "base/number.h"
#include "data/cursor.h"

enum { SLOTS_DEFAULT = 1024, SLOTS_STEP = 64, BUCKETS = 4 };

int64_t eval_slots(int64_t asked, int64_t longest)
{
    return round_up(max(asked ? asked : SLOTS_DEFAULT, longest), SLOTS_STEP);
}

enum status eval_add(struct session *s, int64_t slots, int64_t *largest)
{
    return session_add(s, NET_LOSS, slots, slots, 0, largest);
}

/* The program of the smallest of four token buckets that holds the batch and its loss rows: a new one before session_prepare,
 * and the same one whenever it is asked for again. */
static enum status find_program(struct session *s, int64_t slots, const struct batch *batch, int64_t *index)
{
    int64_t T = slots;
    for (int i = 1; i < BUCKETS && T % (2 * SLOTS_STEP) == 0 && batch->tokens <= T / 2; i++)
        T /= 2;
    return session_add(s, NET_LOSS, T, batch_rows(T, batch->trained), 0, index);
}

/* Sums the losses of a batch; one that is not finite is an error that names its row. */
static enum status evaluation_add_losses(const struct data *data, const struct batch *batch, const float *losses, double *sum)
{
    int64_t at = 0;
    for (int64_t r = batch->first; r < batch->first + batch->count; r++) {
        struct sequence s = batch_sequence(data, r, 0);
        for (int64_t i = 1; i < s.count; i++) {
            if (sequence_weight(&s, i) == 0)
                continue;
            if (!isfinite(losses[at]))
                return fail(
                    ERR_DATA,
                    "%s:%lld: the loss of token %lld of this row is not finite: the trained weights are broken, or numbers are "
                    "too large for this type (try --dtype float32)",
                    data_file_of(data, r), (long long)data->rows[r].line, (long long)i);
            *sum += (double)losses[at++];
        }
    }
    return OK;
}

/* A program for every batch, and room for the losses of one. */
static enum status evaluation_add_programs(struct evaluation *v, struct session *s)
{
    int64_t program;
    TRY(eval_add(s, v->slots, &program));
    v->losses = memory_alloc(v->slots * (int64_t)sizeof *v->losses);
    if (!v->losses)
        return ERR_MEMORY;
    if (s->engine.gather.wanted)
        TRY(find_program(s, v->slots, &(struct batch){0}, &program)); /* run_empty's */
    struct row_cursor at = row_cursor(v->data, 0, v->data->row_count);
    for (struct batch batch = {0}; batch_next(v->data, v->slots, &batch); v->count++) {
        TRY(find_program(s, v->slots, &batch, &program));
        for (int64_t i = 0; i < batch.count; i++)
            row_next(&at); /* gives pages back */
    }
    return OK;
}

enum status eval_open(struct evaluation *v, struct session *s, struct data *data, int64_t slots)
{
    *v = (struct evaluation){.data = data, .slots = slots};
    enum status status = evaluation_add_programs(v, s);
    if (status != OK)
        eval_close(v);
    return status;
}

void eval_close(struct evaluation *v)
{
    memory_free(v->losses);
    *v = (struct evaluation){0};
}

static enum status run_batch(struct evaluation *v, struct session *s, const struct batch *batch, double *sum)
{
    int64_t program;
    for (int64_t r = batch->first; r < batch->first + batch->count; r++)
        TRY(data_use(v->data, r));
    TRY(find_program(s, v->slots, batch, &program));
    const struct net *n = s->nets[program];
    batch_write(&s->engine, n, v->data, batch);
    TRY(engine_run(&s->engine, program));
    TRY(engine_read(&s->engine, n->result, v->losses));
    enum status status = evaluation_add_losses(v->data, batch, v->losses, sum);
    if (status == ERR_DATA) /* unless the files are at fault */
        TRY(model_check_finite(&s->model, false));
    return status;
}

/* Each rank takes every so many-th batch. The sums of all are then added in the order of the batches, on every rank. */
/* A batch of nothing: for a rank that has none left, while the others gather weights from it. */
static enum status run_empty(struct evaluation *v, struct session *s)
{
    struct batch batch = {0};
    int64_t program;
    TRY(find_program(s, v->slots, &batch, &program));
    batch_write(&s->engine, s->nets[program], v->data, &batch);
    return engine_run(&s->engine, program);
}

static enum status run_own(struct evaluation *v, struct session *s, eval_progress *progress, void *context, double *sums)
{
    const struct group *g = s->device->group;
    double start = clock_seconds();
    int64_t tokens = 0, number = 0;
    for (struct batch batch = {0}; batch_next(v->data, v->slots, &batch); number++) {
        if (number % g->size != g->rank)
            continue;
        TRY(run_batch(v, s, &batch, &sums[number / g->size]));
        tokens += batch.tokens;
        if (progress) /* one that wants to stop waits until all ranks are done */
            progress(context, number + 1, v->count, tokens * g->size, clock_seconds() - start);
    }
    return s->engine.gather.wanted && number % g->size && g->rank >= number % g->size ? run_empty(v, s) : OK;
}

static enum status run_shares(struct evaluation *v, struct session *s, eval_progress *progress, void *context, double *loss)
{
    struct group *g = s->device->group;
    int64_t each = divide_up(v->count, g->size);
    double *own = memory_alloc((g->size + 1) * each * (int64_t)sizeof *own), *all = own + each, sum = 0;
    if (!own)
        return ERR_MEMORY;
    enum status status = run_own(v, s, progress, context, own);
    if (!s->engine.gather.wanted) /* otherwise the others cannot go on: they are told when this rank leaves */
        status = group_agree(g, status);
    if (status == OK)
        status = group_share(g, own, all, each * (int64_t)sizeof *own);
    for (int64_t i = 0; i < v->count && status == OK; i++)
        sum += all[i % g->size * each + i / g->size];
    memory_free(own);
    *loss = sum / (double)v->data->trained;
    return status;
}

enum status eval_run(struct evaluation *v, struct session *s, eval_progress *progress, void *context, double *loss)
{
    if (s->device->group)
        return run_shares(v, s, progress, context, loss);
    double start = clock_seconds(), sum = 0;
    int64_t tokens = 0, done = 0;
    for (struct batch batch = {0}; batch_next(v->data, v->slots, &batch);) {
        TRY(run_batch(v, s, &batch, &sum));
        tokens += batch.tokens;
        if (progress && !progress(context, ++done, v->count, tokens, clock_seconds() - start))
            return fail(ERR_STOPPED, "stopped after %lld of %lld batches", (long long)done, (long long)v->count);
    }
    *loss = sum / (double)v->data->trained;
    return OK;
}
