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

void micro_go_back(struct stepper *st, int64_t step)
{
    st->sums = (struct micro_sums){.numbered = true, .back = st->state->step + st->queue.ahead + 1 - step};
}

enum status stepper_clear_stale(struct stepper *st)
{
    double norm;
    if (st->stale)
        TRY(optimizer_clear(&st->build->optimizer, &st->build->session, &norm));
    st->stale = false;
    return OK;
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

/* In this step, among all ranks' sequences: no two draw the same. */
static int64_t next_number(const struct stepper *st, int64_t after)
{
    const struct group *g = st->build->group;
    return (st->sums.sequences + after) * group_size(g) + group_rank(g);
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
        s.number = st->sums.numbered ? s.number : next_number(st, i);
        batch_put(&w, &s);
    }
    batch_end(&w);
    write_draw(st, w.n);
    write_settings(st, loss, w.n);
    micro->net = w.n;
    TRY(ends && micro->sequences == count ? engine_run_ending(e, program, &micro->ended) : engine_run(e, program));
    st->sums.sequences += micro->sequences;
    return OK;
}

void micro_count_weight(struct micro_sums *sums, double weight)
{
    sums->weight += weight;
    sums->negative += weight < 0;
    sums->targets += weight != 0;
}

void micro_weigh(struct stepper *st, const struct sequence *sequences, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        st->sums.tokens += sequences[i].count;
        for (int64_t k = 1; k < sequences[i].count; k++)
            micro_count_weight(&st->sums, (double)sequence_weight(&sequences[i], k));
    }
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

enum status micro_largest_of(const struct stepper *st, int64_t *number)
{
    int64_t *all = st->host.counts;
    TRY(group_share(st->build->group, number, all, (int64_t)sizeof *number));
    for (int rank = 0; rank < group_size(st->build->group); rank++)
        *number = max(*number, all[rank]);
    return OK;
}

enum status micro_even_out(struct stepper *st, const struct loss_use *loss, const struct sequence *sequences, int64_t count)
{
    int64_t tokens, targets, own = 0, largest;
    if (!engine_in_step(&st->build->session.engine))
        return OK;
    for (int64_t done = 0; done < count; own++)
        done += micro_take(st->build, sequences + done, count - done, &tokens, &targets);
    largest = own;
    TRY(micro_largest_of(st, &largest));
    for (; own < largest; own++) {
        struct micro empty;
        TRY(micro_run(st, loss, sequences, 0, false, &empty));
    }
    return OK;
}

enum status stepper_join(const struct stepper *st, enum status status, int64_t *calls)
{
    if (!engine_in_step(&st->build->session.engine))
        return status;
    TRY(group_agree(st->build->group, status));
    return micro_largest_of(st, calls);
}

enum status stepper_clear(struct stepper *st)
{
    double norm;
    TRY(stepper_at_rest(st));
    TRY(optimizer_clear(&st->build->optimizer, &st->build->session, &norm));
    micro_start_over(st);
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
    TRY(stepper_clear_stale(st));
    micro_begin(st);
    for (int64_t i = 0; i < count; i++)
        TRY(stepper_check(st, loss->id, &sequences[i]));
    TRY(micro_even_out(st, loss, sequences, count));
    for (int64_t done = 0; done < count; done += micro.sequences) {
        TRY(micro_run(st, loss, sequences + done, count - done, false, &micro));
        TRY(engine_read(e, micro.net->result, st->host.losses));
        if (logprobs)
            TRY(engine_read(e, micro.net->nll, st->host.nll));
        if (logprobs)
            put_logprobs(sequences + done, micro.sequences, st->host.nll, logprobs + done);
        st->sums.tokens += micro.tokens;
        int64_t rows = micro_weights(sequences + done, micro.sequences, each, NULL, 0);
        for (int64_t i = 0; i < rows; i++) {
            double weighted = (double)each[i] * (double)st->host.losses[i];
            st->sums.sum += weighted;
            *sum += weighted;
            *weight += (double)each[i];
            micro_count_weight(&st->sums, (double)each[i]);
        }
    }
    return OK;
}

/* The rows [first, first + rows) of a sequence, and the caller's gradient of their logits. */
struct own_rows {
    const struct sequence *s;
    int64_t index, first, rows;
    logits_gradient *gradient; /* NULL: it is 0 */
    void *context;
    double loss;
};

/* The forward pass runs twice: once for the logits that the caller sees, once with the backward pass from its gradient. One that
 * stops has a gradient of 0, and the pass that other ranks may wait for. */
static enum status micro_add_rows(struct stepper *st, struct own_rows *own, bool *stopped)
{
    struct engine *e = &st->build->session.engine;
    int64_t program[] = {st->build->micro.logits, st->build->micro.logits_backward},
            V = st->build->session.model.config.vocabulary;
    for (int pass = 0; pass < 2; pass++) {
        const struct net *n = st->build->session.nets[program[pass]];
        struct writer w = {.e = e, .n = n};
        int32_t *row = engine_input(e, n->rows);
        for (int64_t i = 0; i < own->rows; i++)
            row[i] = (int32_t)(own->first + i);
        w.row = own->rows;
        batch_place(&w, own->s);
        batch_end(&w);
        if (pass == 1) {
            float *d = engine_input(e, n->dlogits);
            size_t bytes = (size_t)(n->R * V) * sizeof *d;
            memset(d, 0, bytes);
            *stopped =
                own->gradient && !own->gradient(own->context, own->index, own->first, own->rows, V, st->host.seen, d, &own->loss);
            if (*stopped && !engine_in_step(e))
                return OK;
            if (*stopped)
                memset(d, 0, bytes);
        }
        TRY(engine_run(e, program[pass]));
        if (pass == 0)
            TRY(engine_read(e, n->result, st->host.seen));
    }
    return OK;
}

/* Row `first` of the logits predicts the token after it. */
static void count_own_rows(struct stepper *st, const struct own_rows *own, double *sum, double *weight)
{
    struct micro_sums *sums = &st->sums;
    for (int64_t k = own->first + 1; k <= own->first + own->rows && k < own->s->count; k++) {
        double each = (double)sequence_weight(own->s, k);
        micro_count_weight(sums, each);
        *weight += each;
    }
    sums->sequences += own->first == 0;
    sums->tokens += own->rows;
    sums->sum += own->loss;
    *sum += own->loss;
}

/* How often ranks run their rows, and the rank's own do not. */
static enum status missing_rows(const struct stepper *st, const struct sequence *sequences, int64_t count, int64_t R,
                                int64_t *missing)
{
    int64_t own = 0, largest;
    for (int64_t i = 0; i < count; i++)
        own += divide_up(sequences[i].count, R);
    largest = own;
    TRY(engine_in_step(&st->build->session.engine) ? micro_largest_of(st, &largest) : OK);
    *missing = largest - own;
    return OK;
}

enum status stepper_add_with(struct stepper *st, const struct sequence *sequences, int64_t count, logits_gradient *gradient,
                             void *context, double *sum, double *weight)
{
    bool in_step = engine_in_step(&st->build->session.engine), stopped = false, stops = false;
    int64_t missing;
    *sum = *weight = 0;
    if (st->build->micro.logits < 0)
        return fail(ERR_ARGUMENT, "this trainer was not opened for the caller's own losses (uses.logits)");
    TRY(stepper_at_rest(st));
    TRY(stepper_clear_stale(st));
    micro_begin(st);
    for (int64_t i = 0; i < count; i++)
        TRY(stepper_check(st, LOSS_cross_entropy, &sequences[i]));
    int64_t R = st->build->session.nets[st->build->micro.logits]->R;
    TRY(missing_rows(st, sequences, count, R, &missing));
    for (; missing > 0; missing--)
        TRY(micro_add_rows(st, &(struct own_rows){.s = &(struct sequence){.ids = NULL}}, &stops));
    for (int64_t i = 0; i < count && (in_step || !stopped); i++)
        for (int64_t first = 0; first < sequences[i].count && (in_step || !stopped); first += R) {
            struct own_rows own = {.s = &sequences[i],
                                   .index = i,
                                   .first = first,
                                   .rows = min(sequences[i].count - first, R),
                                   .gradient = stopped ? NULL : gradient,
                                   .context = context};
            TRY(micro_add_rows(st, &own, &stops));
            stopped = stopped || stops;
            if (!stopped)
                count_own_rows(st, &own, sum, weight);
        }
    return stopped ? fail(ERR_STOPPED, "stopped by the caller's loss") : OK;
}
