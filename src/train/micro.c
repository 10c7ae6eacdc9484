/* Micro-batches of a trainer: choosing their size, building their programs, and running them. */
#include "train/micro.h"

#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "device/cpu_pace.h"

enum { UNKNOWN = -2 }; /* a program that was not asked for yet */
enum {
    SLOTS_USUAL = 1024,
    SLOTS_GPU_MAX = 8192,
    SLOTS_STEP = 64,
    SIZE_STEP = 16,
    STEPS_LOOKED_AT = 1 << 20,
    LOGITS_BYTES = 64 << 20
};

/* Every value of --recompute but auto is a kind of recompute. */
_Static_assert((int)CHOICE_recompute_none == (int)RECOMPUTE_NONE, "none");
_Static_assert((int)CHOICE_recompute_selective == (int)RECOMPUTE_SELECTIVE, "selective");
_Static_assert((int)CHOICE_recompute_full == (int)RECOMPUTE_FULL, "full");

const char *recompute_name(enum recompute recompute)
{
    return options_word(OPTION_recompute, (int)recompute);
}

/* --- sizes -------------------------------------------------------------------------------------------------------------- */

/* The rows of a step, and how many of them this rank takes: those at mine_of(0), mine_of(1), ... */
static enum status share_rows(struct trainer *t, int64_t step, const int64_t **rows, int64_t *count)
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

static int64_t mine_of(const struct trainer *t, int64_t i)
{
    return t->group ? t->share.mine[i] : i;
}

/* The tokens of the largest of the next steps, or more than enough: a micro-batch need not hold more. */
static enum status largest_step(struct trainer *t, int64_t enough, int64_t *max_tokens)
{
    int64_t steps = t->steps < t->steps_per_epoch ? t->steps : t->steps_per_epoch;
    *max_tokens = 0;
    for (int64_t step = 0; step < steps && *max_tokens < enough; step++) {
        const int64_t *rows;
        int64_t count, tokens = 0;
        TRY(share_rows(t, step, &rows, &count));
        for (int64_t i = 0; i < count; i++)
            tokens += t->data.rows[rows[mine_of(t, i)]].count;
        *max_tokens = tokens > *max_tokens ? tokens : *max_tokens;
    }
    return OK;
}

/* The bytes of weights, gradients and the optimizer. Their tensors exist once a program was added. */
static int64_t fixed_bytes(const struct trainer *t)
{
    const struct session *s = &t->session;
    int64_t bytes = 0;
    int64_t state = optimizer_state_bytes(optimizer_kind(t->options->optim), s->run);
    int64_t ranks = t->options->shard != CHOICE_shard_none ? group_size(t->group) : 1;
    int64_t sums = s->engine.scatter.kind == SCATTER_KEEP ? ranks : 1;
    for (int64_t i = 0; i < s->model.store.count; i++) {
        const struct tensor *tensor = s->model.store.tensor[i];
        if (tensor->lifetime == LIFE_GRADIENTS)
            bytes += tensor->assembled ? 0 : tensor_bytes(tensor) / sums;
        else if (tensor->lifetime == LIFE_WEIGHTS)
            bytes += tensor->in_file || tensor->whole || tensor->first ? 0 : tensor_bytes(tensor);
        else if (!tensor->assembled) /* its parts count */
            bytes += tensor_bytes(tensor) + (tensor->lifetime == LIFE_TRAINABLE ? state * tensor_elements(tensor) / ranks : 0);
    }
    return bytes;
}

/* Adds the largest program of this size, in place of one that did not fit. `streams`: layers may lie in host memory. */
static enum status add_largest(struct trainer *t, int64_t slots, enum recompute recompute, bool streams, bool *fit)
{
    struct session *s = &t->session;
    int64_t *largest = &t->micro.program[0][0], saved = 0;
    if (s->net_count)
        session_drop(s);
    s->tuning.recompute = recompute;
    TRY(session_add(s, NET_TRAIN, slots, slots, 0, largest));
    TRY(model_place(&s->model, &s->info));
    if (streams)
        TRY(session_saves(s, &saved));
    int64_t total = fixed_bytes(t) - saved;
    *fit = true;
    for (int life = 0; life < LIFE_COUNT; life++) {
        total += s->engine.programs[*largest].bytes[life];
        *fit = *fit && s->engine.programs[*largest].bytes[life] <= s->info.max_block;
    }
    struct device_costs costs;
    session_costs(s, &costs);
    *fit = *fit && session_room(s, total + total / 9, &costs) >= 0;
    return OK;
}

/* Whether all ranks must run the same lists of commands at the same time: a graph with collectives of NCCL is launched together
 * with the graphs that the other ranks captured with it, and no others. Then there is one program alone, the largest. */
static bool same_lists(const struct trainer *t)
{
    const struct group *g = t->session.device->group;
    const struct engine *e = &t->session.engine;
    return g && g->class->device_memory && (e->gather.wanted || e->scatter.kind != SCATTER_NONE);
}

/* The largest that any rank has. */
static enum status largest_of(struct group *g, int64_t *number)
{
    int64_t *all = memory_alloc(group_size(g) * (int64_t)sizeof *all);
    enum status status = all ? group_share(g, number, all, (int64_t)sizeof *all) : ERR_MEMORY;
    for (int i = 0; i < group_size(g) && status == OK; i++)
        *number = max(*number, all[i]);
    memory_free(all);
    return status;
}

/* Twice the tokens as long as they fit and a step has them: a GPU reads the weights and starts its kernels less often. */
static enum status grow(struct trainer *t, int64_t max_slots, bool streams, int64_t *slots)
{
    bool fit = true;
    for (int64_t more = *slots; fit && more < max_slots; *slots = fit ? more : *slots) {
        more = round_up(2 * more < max_slots ? 2 * more : max_slots, SLOTS_STEP);
        TRY(add_largest(t, more, t->session.tuning.recompute, streams, &fit));
    }
    return fit ? OK : add_largest(t, *slots, t->session.tuning.recompute, streams, &fit);
}

struct sizes {
    int64_t min_slots, max_slots, slots; /* slots: where to begin */
    bool asked;                          /* and end */
    int first, last;                     /* kinds of recompute */
    bool streams;
};

/* First recompute more, then take fewer tokens at once; a GPU with memory to spare takes more. */
static enum status fit_size(struct trainer *t, const struct sizes *z, bool *fit)
{
    int64_t slots = z->slots;
    *fit = false;
    for (;;) {
        for (int i = z->first; i <= z->last && !*fit; i++)
            TRY(add_largest(t, slots, (enum recompute)i, z->streams, fit));
        int64_t fewer = round_up(slots / 2 > z->min_slots ? slots / 2 : z->min_slots, SLOTS_STEP);
        if (*fit || z->asked || fewer >= slots)
            break;
        slots = fewer;
    }
    if (*fit && !z->asked && slots >= SLOTS_USUAL)
        TRY(grow(t, z->max_slots, z->streams, &slots));
    t->place.slots = slots;
    return OK;
}

/* The fastest that fits into the free memory. What the options set is kept; if nothing fits, layers go to host memory: then every
 * micro-batch copies them, and many tokens matter more than recompute does. If that is not enough, session_prepare reports it. */
enum status micro_size(struct trainer *t)
{
    const struct options *o = t->options;
    const struct streamed *streamed = &t->session.engine.streamed;
    int64_t min_slots = SLOTS_STEP, max_slots = SLOTS_USUAL, step = 0;
    int64_t enough = t->session.device->class->compiles ? SLOTS_GPU_MAX : SLOTS_USUAL;
    min_slots = t->data.longest > min_slots ? t->data.longest : min_slots;
    min_slots = t->eval_data.longest > min_slots ? t->eval_data.longest : min_slots;
    min_slots = t->sampler.window > min_slots ? t->sampler.window : min_slots;
    if (t->data.row_count) {
        TRY(largest_step(t, enough, &step));
        max_slots = step < enough ? step : enough;
    }
    int64_t asked = t->place.slots ? t->place.slots : o->micro_batch_tokens;
    int64_t slots = asked ? asked : max_slots < SLOTS_USUAL ? max_slots : SLOTS_USUAL;
    min_slots = round_up(min_slots, SLOTS_STEP);
    slots = slots > min_slots ? round_up(slots, SLOTS_STEP) : min_slots;
    bool chosen = o->recompute != CHOICE_recompute_auto, fit;
    int first = chosen ? (int)o->recompute : RECOMPUTE_NONE, last = chosen ? first : RECOMPUTE_FULL;
    struct sizes z = {.min_slots = min_slots,
                      .max_slots = max_slots,
                      .slots = slots,
                      .asked = asked,
                      .first = first,
                      .last = last,
                      .streams = streamed->wanted && streamed->resident != STREAMED_AUTO};
    TRY(fit_size(t, &z, &fit));
    if (!fit && !z.streams && streamed->wanted) {
        z.streams = true;
        z.first = last;
        TRY(fit_size(t, &z, &fit));
    }
    slots = t->place.slots;
    if (same_lists(t))
        TRY(largest_of(t->group, &t->place.slots));
    if (t->place.slots > slots)
        TRY(add_largest(t, t->place.slots, t->session.tuning.recompute, z.streams, &fit));
    return OK;
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
    TRY(share_rows(t, step, &rows, &count));
    for (int64_t i = 0; i <= count; i++) {
        const struct token_row *row = i < count ? &t->data.rows[rows[mine_of(t, i)]] : NULL;
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
    if ((planning && !t->data.row_count) || same_lists(t))
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
