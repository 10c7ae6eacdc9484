/* Micro-batches of a trainer: building their programs, and running them. */
#include "train/micro.h"

#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "device/cpu_pace.h"

enum { UNKNOWN = -2 }; /* a program that was not asked for yet */
enum { SIZE_STEP = 16, STEPS_LOOKED_AT = 1 << 20, LOGITS_BYTES = 64 << 20 };

/* Every value of --recompute but auto is a kind of recompute. */
_Static_assert((int)CHOICE_recompute_none == (int)RECOMPUTE_NONE, "none");
_Static_assert((int)CHOICE_recompute_selective == (int)RECOMPUTE_SELECTIVE, "selective");
_Static_assert((int)CHOICE_recompute_full == (int)RECOMPUTE_FULL, "full");

const char *recompute_name(enum recompute recompute)
{
    return options_word(OPTION_recompute, (int)recompute);
}

/* --- rows --------------------------------------------------------------------------------------------------------------- */

enum status micro_rows(struct trainer *t, int64_t step, const int64_t **rows, int64_t *count)
{
    struct share *s = &t->share;
    TRY(sampler_step(&t->sampler, step, rows, count));
    if (!t->group)
        return OK;
    share_begin(s);
    for (int64_t i = 0; i < *count; i++)
        TRY(share_add(s, t->data.rows[(*rows)[i]].count));
    TRY(share_end(s));
    *count = s->count;
    return OK;
}

int64_t micro_mine(const struct trainer *t, int64_t i)
{
    return t->group ? t->share.mine[i] : i;
}

bool micro_same_lists(const struct trainer *t)
{
    const struct group *g = t->session.device->group;
    const struct engine *e = &t->session.engine;
    return g && g->class->device_memory && (e->gather.wanted || e->scatter.kind != SCATTER_NONE);
}

/* --- programs ----------------------------------------------------------------------------------------------------------- */

/* Token slots of a size: all, seven eighths, … or one eighth of the largest. */
static int64_t size_of(const struct trainer *t, int size)
{
    return round_up(t->place.slots * (SIZES_T - size) / SIZES_T, SIZE_STEP);
}

static int smallest_size(const struct trainer *t, int64_t tokens)
{
    int size = 0;
    while (size + 1 < SIZES_T && tokens <= size_of(t, size + 1))
        size++;
    return size;
}

static int rows_size(int64_t T, int64_t targets)
{
    return SIZES_R - (int)(batch_rows(T, targets) * SIZES_R / T);
}

static int64_t targets_of(const struct sequence *s)
{
    int64_t count = 0;
    for (int64_t i = 1; i < s->count; i++)
        count += sequence_weight(s, i) != 0;
    return count;
}

/* How many of the sequences, in order, go into the next micro-batch. */
static int64_t take(const struct trainer *t, const struct sequence *sequences, int64_t count, int64_t *tokens, int64_t *targets)
{
    int64_t n = 0;
    *tokens = *targets = 0;
    while (n < count && *tokens + sequences[n].count <= t->place.slots) {
        *tokens += sequences[n].count;
        *targets += targets_of(&sequences[n]);
        n++;
    }
    return n;
}

/* A smaller program that happens to need more memory than the largest is left out: the plan is that of the largest. */
static enum status want(struct trainer *t, int size, int rows)
{
    int64_t T = size_of(t, size), *program = &t->micro.program[size][rows], largest = t->micro.program[0][0];
    if (*program != UNKNOWN)
        return OK;
    return session_add_within(&t->session, NET_TRAIN, T, T * (SIZES_R - rows) / SIZES_R, largest, program);
}

enum status micro_pack(struct trainer *t, int64_t step, micro_visit *visit, void *context)
{
    const int64_t *rows;
    int64_t count, tokens = 0, targets = 0;
    TRY(micro_rows(t, step, &rows, &count));
    for (int64_t i = 0; i <= count; i++) {
        const struct token_row *row = i < count ? &t->data.rows[rows[micro_mine(t, i)]] : NULL;
        if (!row || tokens + row->count > t->place.slots) {
            TRY(visit(t, tokens, targets, context));
            tokens = targets = 0;
        }
        tokens += row ? row->count : 0;
        targets += row ? row->trained : 0;
    }
    return OK;
}

static enum status note_need(struct trainer *t, int64_t tokens, int64_t targets, void *context)
{
    int64_t(*needed)[SIZES_R] = context;
    int size = smallest_size(t, tokens);
    needed[size][rows_size(size_of(t, size), targets)] = 1;
    return OK;
}

/* The programs that the steps of this run will need, found by packing them all; for a very long run, every program. A plan
 * without data has the largest alone: the others take no more of the device. */
enum status micro_add(struct trainer *t, bool planning)
{
    t->micro.logits = t->micro.logits_backward = -1;
    bool all = !t->data.row_count || t->steps > STEPS_LOOKED_AT;
    int64_t needed[SIZES_T][SIZES_R] = {{0}};
    for (int i = 1; i < SIZES_T * SIZES_R; i++)
        t->micro.program[i / SIZES_R][i % SIZES_R] = UNKNOWN;
    if ((planning && !t->data.row_count) || micro_same_lists(t))
        return OK;
    for (int64_t step = 0; !all && step < t->steps; step++) {
        TRY(micro_pack(t, step, note_need, needed));
        if (step % 4096 == 0)
            data_rest(&t->data);
    }
    for (int size = 0; size < SIZES_T; size++)
        for (int rows = 0; rows < SIZES_R; rows++)
            if (all || needed[size][rows])
                TRY(want(t, size, rows));
    return OK;
}

int64_t micro_program(const struct trainer *t, int64_t tokens, int64_t targets)
{
    for (int size = smallest_size(t, tokens); size > 0; size--)
        for (int rows = rows_size(size_of(t, size), targets); rows >= 0; rows--)
            if (t->micro.program[size][rows] >= 0)
                return t->micro.program[size][rows];
    int rows = rows_size(size_of(t, 0), targets);
    while (t->micro.program[0][rows] < 0)
        rows--;
    return t->micro.program[0][rows];
}

enum status micro_add_logits(struct trainer *t)
{
    int64_t V = t->session.model.config.vocabulary, rows = LOGITS_BYTES / 4 / V;
    rows = rows < 1 ? 1 : rows < t->place.slots ? rows : t->place.slots;
    if (t->session.tuning.lora && t->session.tuning.lora->dropout > 0)
        return fail(ERR_UNSUPPORTED, "a caller's own loss cannot be used with --lora-dropout: set it to 0");
    TRY(session_add(&t->session, NET_LOGITS, t->place.slots, rows, 0, &t->micro.logits));
    TRY(session_add(&t->session, NET_TRAIN_LOGITS, t->place.slots, rows, 0, &t->micro.logits_backward));
    t->micro.seen = memory_alloc(rows * V * (int64_t)sizeof *t->micro.seen);
    return t->micro.seen ? OK : ERR_MEMORY;
}

enum status micro_open(struct trainer *t)
{
    t->micro.losses = memory_alloc(t->place.slots * (int64_t)sizeof(float));
    t->micro.weights = memory_alloc(t->place.slots * (int64_t)sizeof(float));
    t->micro.counts = memory_alloc(group_size(t->group) * (int64_t)sizeof *t->micro.counts);
    return t->micro.losses && t->micro.weights && t->micro.counts ? OK : ERR_MEMORY;
}

void micro_close(struct trainer *t)
{
    memory_free(t->micro.losses);
    memory_free(t->micro.weights);
    memory_free(t->micro.seen);
    memory_free(t->micro.counts);
}

void micro_start_over(struct trainer *t)
{
    t->sums = (struct micro_sums){0};
}

void micro_go_back(struct trainer *t, int64_t step, int64_t sequence)
{
    t->sums = (struct micro_sums){.sequences = sequence, .back = t->place.step + t->queue.ahead + 1 - step};
}

/* --- running ------------------------------------------------------------------------------------------------------------ */

static void write_draw(const struct trainer *t, const struct net *n)
{
    if (!n->draw)
        return;
    uint64_t seed = (uint64_t)t->options->seed;
    int32_t *draw = engine_input((struct engine *)&t->session.engine, n->draw);
    draw[0] = (int32_t)(uint32_t)seed;
    draw[1] = (int32_t)(uint32_t)(seed >> 32);
    draw[2] = (int32_t)(t->place.step + t->queue.ahead - t->sums.back);
    draw[3] = 0;
}

void trainer_loss_settings(struct trainer *t, double first, double second)
{
    t->loss_settings[0] = first;
    t->loss_settings[1] = second;
}

static void write_settings(const struct trainer *t, const struct net *n)
{
    if (!n->of_loss.settings)
        return;
    float *settings = engine_input((struct engine *)&t->session.engine, n->of_loss.settings);
    for (int i = 0; i < LOSS_NUMBERS; i++)
        settings[i] = (float)t->loss_settings[i];
}

enum status trainer_check(const struct trainer *t, const struct sequence *s)
{
    if (s->count < 1 || s->count > t->place.slots)
        return fail(ERR_ARGUMENT, "a sequence of %lld tokens, a micro-batch holds 1 to %lld: set micro_batch_tokens",
                    (long long)s->count, (long long)t->place.slots);
    const struct loss *loss = loss_of(t->session.tuning.loss);
    if (loss->op >= 0 && (!s->old_logprobs || !s->advantages))
        return fail(ERR_ARGUMENT, "the loss %s needs the %s of each token", loss->name,
                    s->old_logprobs ? "advantage" : "old log-probability");
    return s->marked ? OK : data_check_ids(s->ids, s->count, t->session.model.config.vocabulary);
}

static void begin(struct trainer *t)
{
    if (t->sums.sequences)
        return;
    t->sums.started = clock_seconds();
    t->sums.gemm_seconds = cpu_gemm_seconds(t->session.device);
}

enum status micro_run(struct trainer *t, const struct sequence *sequences, int64_t count, bool ends, struct micro *micro)
{
    struct engine *e = &t->session.engine;
    micro->ended = false;
    micro->sequences = take(t, sequences, count, &micro->tokens, &micro->targets);
    int64_t program = micro_program(t, micro->tokens, micro->targets);
    struct writer w = {.e = e, .n = t->session.nets[program]};
    for (int64_t i = 0; i < micro->sequences; i++) {
        struct sequence s = sequences[i];
        s.number = t->sums.numbered ? s.number : t->sums.sequences;
        t->sums.sequences++;
        batch_put(&w, &s);
    }
    batch_end(&w);
    write_draw(t, w.n);
    write_settings(t, w.n);
    micro->net = w.n;
    return ends && micro->sequences == count ? engine_run_ending(e, program, &micro->ended) : engine_run(e, program);
}

void micro_weigh(struct trainer *t, const struct sequence *sequences, int64_t count)
{
    double weight = 0;
    for (int64_t i = 0; i < count; i++) {
        t->sums.tokens += sequences[i].count;
        for (int64_t k = 1; k < sequences[i].count; k++) {
            double each = (double)sequence_weight(&sequences[i], k);
            weight += each;
            t->sums.targets += each != 0;
        }
    }
    t->sums.weight += weight;
}

int64_t micro_weights(const struct sequence *sequences, int64_t count, float *weights, int32_t *sequence, int64_t first)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 1; k < sequences[i].count; k++) {
            float weight = sequence_weight(&sequences[i], k);
            if (weight == 0)
                continue;
            if (sequence)
                sequence[rows] = (int32_t)(first + i);
            weights[rows++] = weight;
        }
    return rows;
}

enum status micro_even_out(struct trainer *t, const struct sequence *sequences, int64_t count)
{
    int64_t tokens, targets, own = 0, most = 0, *all = t->micro.counts;
    if (!engine_in_step(&t->session.engine))
        return OK;
    for (int64_t done = 0; done < count; own++)
        done += take(t, sequences + done, count - done, &tokens, &targets);
    TRY(group_share(t->group, &own, all, (int64_t)sizeof own));
    for (int rank = 0; rank < t->group->size; rank++)
        most = max(most, all[rank]);
    for (; own < most; own++) {
        struct micro empty;
        TRY(micro_run(t, sequences, 0, false, &empty));
    }
    return OK;
}

enum status trainer_add(struct trainer *t, const struct sequence *sequences, int64_t count, double *sum, double *weight)
{
    struct engine *e = &t->session.engine;
    float *each = t->micro.weights;
    struct micro micro;
    *sum = *weight = 0;
    TRY(trainer_at_rest(t));
    begin(t);
    for (int64_t i = 0; i < count; i++)
        TRY(trainer_check(t, &sequences[i]));
    for (int64_t done = 0; done < count; done += micro.sequences) {
        TRY(micro_run(t, sequences + done, count - done, false, &micro));
        TRY(engine_read(e, micro.net->result, t->micro.losses));
        t->sums.tokens += micro.tokens;
        t->sums.targets += micro.targets;
        int64_t rows = micro_weights(sequences + done, micro.sequences, each, NULL, 0);
        for (int64_t i = 0; i < rows; i++) {
            *sum += (double)each[i] * (double)t->micro.losses[i];
            *weight += (double)each[i];
        }
    }
    t->sums.sum += *sum;
    t->sums.weight += *weight;
    return OK;
}

/* The forward pass runs twice: once for the logits that the caller sees, once with the backward pass from its gradient. */
static enum status add_rows(struct trainer *t, const struct sequence *s, int64_t index, int64_t first, int64_t rows,
                            logits_gradient *gradient, void *context, double *sum)
{
    struct engine *e = &t->session.engine;
    int64_t program[] = {t->micro.logits, t->micro.logits_backward}, V = t->session.model.config.vocabulary;
    for (int pass = 0; pass < 2; pass++) {
        const struct net *n = t->session.nets[program[pass]];
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
            if (!gradient(context, index, first, rows, V, t->micro.seen, d, sum))
                return fail(ERR_STOPPED, "stopped by the caller's loss");
        }
        TRY(engine_run(e, program[pass]));
        if (pass == 0)
            TRY(engine_read(e, n->result, t->micro.seen));
    }
    return OK;
}

enum status trainer_add_with(struct trainer *t, const struct sequence *sequences, int64_t count, logits_gradient *gradient,
                             void *context, double *sum, double *weight)
{
    *sum = *weight = 0;
    if (t->micro.logits < 0)
        return fail(ERR_ARGUMENT, "this trainer was not opened for the caller's own losses (HONE_TRAINER_LOGITS)");
    TRY(trainer_at_rest(t));
    begin(t);
    for (int64_t i = 0; i < count; i++)
        TRY(trainer_check(t, &sequences[i]));
    for (int64_t i = 0; i < count; i++) {
        const struct sequence *s = &sequences[i];
        int64_t max = t->session.nets[t->micro.logits]->R;
        double loss = 0, each = 0;
        for (int64_t k = 1; k < s->count; k++)
            each += (double)sequence_weight(s, k);
        t->sums.sequences++;
        t->sums.tokens += s->count;
        t->sums.targets += targets_of(s);
        t->sums.weight += each;
        for (int64_t first = 0; first < s->count; first += max)
            TRY(add_rows(t, s, i, first, s->count - first < max ? s->count - first : max, gradient, context, &loss));
        t->sums.sum += loss;
        *sum += loss;
        *weight += each;
    }
    return OK;
}
