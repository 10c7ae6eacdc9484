/* Micro-batches that run: their inputs, and the losses that come out. */
#include "train/micro.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "device/cpu_pace.h"

enum status micro_open(struct stepper *st)
{
    const struct build *b = st->build;
    if (b->micro.logits >= 0) {
        st->host.seen = memory_alloc(b->session.nets[b->micro.logits]->R * b->session.model.config.vocabulary *
                                     (int64_t)sizeof *st->host.seen);
        if (!st->host.seen)
            return ERR_MEMORY;
    }
    st->host.losses = memory_alloc(st->build->slots * (int64_t)sizeof(float));
    st->host.nll = memory_alloc(st->build->slots * (int64_t)sizeof(float));
    st->host.weights = memory_alloc(st->build->slots * (int64_t)sizeof(float));
    st->host.counts = memory_alloc(group_size(st->build->group) * (int64_t)sizeof *st->host.counts);
    return st->host.losses && st->host.nll && st->host.weights && st->host.counts ? OK : ERR_MEMORY;
}

void micro_close(struct stepper *st)
{
    memory_free(st->host.losses);
    memory_free(st->host.nll);
    memory_free(st->host.weights);
    memory_free(st->host.seen);
    memory_free(st->host.counts);
}

void micro_start_over(struct stepper *st)
{
    st->sums = (struct micro_sums){0};
}

void micro_go_back(struct stepper *st, int64_t step, int64_t sequence)
{
    st->sums = (struct micro_sums){.sequences = sequence, .back = st->state->step + st->queue.ahead + 1 - step};
}

enum status stepper_at_rest(const struct stepper *st)
{
    return st->queue.ahead ? fail(ERR_ARGUMENT, "step %lld is in flight: wait until the run has reported it",
                                  (long long)(st->state->step + st->queue.ahead))
                           : OK;
}

/* --- running ------------------------------------------------------------------------------------------------------------ */

static void write_draw(const struct stepper *st, const struct net *n)
{
    if (!n->draw)
        return;
    uint64_t seed = (uint64_t)st->build->job->options->seed;
    int32_t *draw = engine_input((struct engine *)&st->build->session.engine, n->draw);
    draw[0] = (int32_t)(uint32_t)seed;
    draw[1] = (int32_t)(uint32_t)(seed >> 32);
    draw[2] = (int32_t)(st->state->step + st->queue.ahead - st->sums.back);
    draw[3] = 0;
}

static void write_settings(const struct stepper *st, const struct loss_use *loss, const struct net *n)
{
    if (!n->of_loss.settings)
        return;
    float *settings = engine_input((struct engine *)&st->build->session.engine, n->of_loss.settings);
    for (int i = 0; i < LOSS_NUMBERS; i++)
        settings[i] = (float)loss->setting[i];
}

enum status stepper_check(const struct stepper *st, enum loss_id id, const struct sequence *s)
{
    if (s->count < 1 || s->count > st->build->slots)
        return fail(ERR_ARGUMENT, "a sequence of %lld tokens, a micro-batch holds 1 to %lld: set micro_batch_tokens",
                    (long long)s->count, (long long)st->build->slots);
    const struct loss *loss = loss_of(id);
    if (loss->op >= 0 && (!s->old_logprobs || !s->advantages))
        return fail(ERR_ARGUMENT, "the loss %s needs the %s of each token", loss->name,
                    s->old_logprobs ? "advantage" : "old log-probability");
    return s->marked ? OK : data_check_ids(s->ids, s->count, st->build->session.model.config.vocabulary);
}

static void micro_begin(struct stepper *st)
{
    if (st->sums.sequences)
        return;
    st->sums.started = clock_seconds();
    st->sums.gemm_seconds = cpu_gemm_seconds(st->build->session.device);
}

enum status micro_run(struct stepper *st, const struct loss_use *loss, const struct sequence *sequences, int64_t count, bool ends,
                      struct micro *micro)
{
    struct engine *e = &st->build->session.engine;
    micro->ended = false;
    micro->sequences = micro_take(st->build, sequences, count, &micro->tokens, &micro->targets);
    int64_t program = micro_program(st->build, loss->id, micro->tokens, micro->targets);
    struct writer w = {.e = e, .n = st->build->session.nets[program]};
    for (int64_t i = 0; i < micro->sequences; i++) {
        struct sequence s = sequences[i];
        s.number = st->sums.numbered ? s.number : st->sums.sequences;
        st->sums.sequences++;
        batch_put(&w, &s);
    }
    batch_end(&w);
    write_draw(st, w.n);
    write_settings(st, loss, w.n);
    micro->net = w.n;
    return ends && micro->sequences == count ? engine_run_ending(e, program, &micro->ended) : engine_run(e, program);
}

void micro_weigh(struct stepper *st, const struct sequence *sequences, int64_t count)
{
    double weight = 0;
    for (int64_t i = 0; i < count; i++) {
        st->sums.tokens += sequences[i].count;
        for (int64_t k = 1; k < sequences[i].count; k++) {
            double each = (double)sequence_weight(&sequences[i], k);
            weight += each;
            st->sums.absolute += fabs(each);
            st->sums.targets += each != 0;
        }
    }
    st->sums.weight += weight;
}

/* Those of rows, in the order of the program's losses. */
static void put_logprobs(const struct sequence *sequences, int64_t count, const float *nll, float *const *logprobs)
{
    for (int64_t i = 0, row = 0; i < count; i++)
        for (int64_t k = 0; k < sequences[i].count; k++) {
            float found = sequence_asks(&sequences[i], k) ? -nll[row++] : 0;
            if (logprobs[i])
                logprobs[i][k] = found;
        }
}

int64_t micro_weights(const struct sequence *sequences, int64_t count, float *weights, int32_t *sequence, int64_t first)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 1; k < sequences[i].count; k++) {
            if (!sequence_asks(&sequences[i], k))
                continue;
            if (sequence)
                sequence[rows] = (int32_t)(first + i);
            weights[rows++] = sequence_weight(&sequences[i], k);
        }
    return rows;
}

enum status micro_even_out(struct stepper *st, const struct sequence *sequences, int64_t count)
{
    int64_t tokens, targets, own = 0, largest = 0, *all = st->host.counts;
    if (!engine_in_step(&st->build->session.engine))
        return OK;
    for (int64_t done = 0; done < count; own++)
        done += micro_take(st->build, sequences + done, count - done, &tokens, &targets);
    TRY(group_share(st->build->group, &own, all, (int64_t)sizeof own));
    for (int rank = 0; rank < st->build->group->size; rank++)
        largest = max(largest, all[rank]);
    for (; own < largest; own++) {
        struct micro empty;
        TRY(micro_run(st, &st->loss, sequences, 0, false, &empty));
    }
    return OK;
}

enum status stepper_add(struct stepper *st, const struct sequence *sequences, int64_t count, double *sum, double *weight)
{
    return stepper_add_for(st, &st->loss, sequences, count, NULL, sum, weight);
}

enum status stepper_add_for(struct stepper *st, const struct loss_use *loss, const struct sequence *sequences, int64_t count,
                            float *const *logprobs, double *sum, double *weight)
{
    struct engine *e = &st->build->session.engine;
    float *each = st->host.weights;
    struct micro micro;
    *sum = *weight = 0;
    TRY(stepper_at_rest(st));
    if (!(st->build->job->losses & LOSS_BIT(loss->id)))
        return fail(ERR_ARGUMENT, "this trainer was not opened for the loss %s (uses.losses)", loss_of(loss->id)->name);
    micro_begin(st);
    for (int64_t i = 0; i < count; i++)
        TRY(stepper_check(st, loss->id, &sequences[i]));
    for (int64_t done = 0; done < count; done += micro.sequences) {
        TRY(micro_run(st, loss, sequences + done, count - done, false, &micro));
        TRY(engine_read(e, micro.net->result, st->host.losses));
        if (logprobs)
            TRY(engine_read(e, micro.net->nll, st->host.nll));
        if (logprobs)
            put_logprobs(sequences + done, micro.sequences, st->host.nll, logprobs + done);
        st->sums.tokens += micro.tokens;
        st->sums.targets += micro.targets;
        int64_t rows = micro_weights(sequences + done, micro.sequences, each, NULL, 0);
        for (int64_t i = 0; i < rows; i++) {
            *sum += (double)each[i] * (double)st->host.losses[i];
            *weight += (double)each[i];
            st->sums.absolute += fabs((double)each[i]);
        }
    }
    st->sums.sum += *sum;
    st->sums.weight += *weight;
    return OK;
}

/* The forward pass runs twice: once for the logits that the caller sees, once with the backward pass from its gradient. */
static enum status micro_add_rows(struct stepper *st, const struct sequence *s, int64_t index, int64_t first, int64_t rows,
                                  logits_gradient *gradient, void *context, double *sum)
{
    struct engine *e = &st->build->session.engine;
    int64_t program[] = {st->build->micro.logits, st->build->micro.logits_backward},
            V = st->build->session.model.config.vocabulary;
    for (int pass = 0; pass < 2; pass++) {
        const struct net *n = st->build->session.nets[program[pass]];
        struct writer w = {.e = e, .n = n};
        int32_t *row = engine_input(e, n->rows);
        for (int64_t i = 0; i < rows; i++)
            row[i] = (int32_t)(first + i);
        w.row = rows;
        batch_place(&w, s);
        batch_end(&w);
        if (pass == 1) {
            float *d = engine_input(e, n->dlogits);
            memset(d, 0, (size_t)(n->R * V) * sizeof *d);
            if (!gradient(context, index, first, rows, V, st->host.seen, d, sum))
                return fail(ERR_STOPPED, "stopped by the caller's loss");
        }
        TRY(engine_run(e, program[pass]));
        if (pass == 0)
            TRY(engine_read(e, n->result, st->host.seen));
    }
    return OK;
}

enum status stepper_add_with(struct stepper *st, const struct sequence *sequences, int64_t count, logits_gradient *gradient,
                             void *context, double *sum, double *weight)
{
    *sum = *weight = 0;
    if (st->build->micro.logits < 0)
        return fail(ERR_ARGUMENT, "this trainer was not opened for the caller's own losses (uses.logits)");
    TRY(stepper_at_rest(st));
    micro_begin(st);
    for (int64_t i = 0; i < count; i++)
        TRY(stepper_check(st, LOSS_cross_entropy, &sequences[i]));
    for (int64_t i = 0; i < count; i++) {
        const struct sequence *s = &sequences[i];
        int64_t max = st->build->session.nets[st->build->micro.logits]->R;
        double loss = 0, each = 0;
        for (int64_t k = 1; k < s->count; k++)
            each += (double)sequence_weight(s, k), st->sums.absolute += fabs((double)sequence_weight(s, k));
        st->sums.sequences++;
        st->sums.tokens += s->count;
        st->sums.targets += sequence_targets(s);
        st->sums.weight += each;
        for (int64_t first = 0; first < s->count; first += max)
            TRY(micro_add_rows(st, s, i, first, s->count - first < max ? s->count - first : max, gradient, context, &loss));
        st->sums.sum += loss;
        *sum += loss;
        *weight += each;
    }
    return OK;
}
