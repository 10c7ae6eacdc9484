/* gated_delta: linear attention by the gated delta rule. Each value head has a state S (DK, DV) that remembers values by keys. At
 * a token, with q̂, k̂ its query and key at length 1, g and β its gates (delta_gates.c):
 *
 *     S ← exp(g) · S     w = v − Sᵀ·k̂     S ← S + k̂ · (β · w)ᵀ     y = Sᵀ·q̂ / sqrt(DK)
 *
 * It starts from 0 in every sequence, and goes chunk by chunk. With S from before the chunk, γ of ops/delta/gated_delta.h and
 * u = β · w, the same is
 *
 *     w[i] = v[i] − exp(γ[i]) · Sᵀ·k̂[i] − Σ_{j<i} A[i, j] · u[j]     A[i, j] = exp(γ[i] − γ[j]) · k̂[i]·k̂[j]
 *     y[i] = exp(γ[i]) · Sᵀ·q̂[i] + Σ_{j<=i} P[i, j] · u[j]           P[i, j] = exp(γ[i] − γ[j]) · q̂[i]·k̂[j]
 *
 * A and P of all chunks are computed side by side (pairs); then each column of S goes through the chunks by itself (scan). The
 * state is float32 in every run. In generation it is a cache: `state` is read, if the first token's sequence began before it, and
 * holds the state after the last token then.
 */
#include "ops/delta/gated_delta.h"

enum { X, GATES, FIRST, LAST, SLOTS, STATE };
enum { Y, STAT, STATE_AFTER };
enum { KEY_HEADS, KEY_SIZE }; /* number */
enum { NORMS_X, NORMS_GATES, NORMS_FIRST, NORMS_LAST, NORMS_STAT, NORMS_OPERANDS };
enum { PAIRS_X, PAIRS_FIRST, PAIRS_LAST, PAIRS_STAT, PAIRS_PAIRS, PAIRS_OPERANDS };
enum { SCAN_X, SCAN_GATES, SCAN_FIRST, SCAN_LAST, SCAN_SLOTS, SCAN_STAT, SCAN_PAIRS, SCAN_Y, SCAN_W, SCAN_STATES, SCAN_OPERANDS };

static const double norm_eps = 1e-6; /* of the models' code: no config has it */

/* --- stat: 1 / |q|, 1 / |k| and γ of every token ------------------------------------------------------------------------------
 */

static ALWAYS_INLINE void body_norms(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const int64_t *dim = c->dim;
    const int32_t *first = c->data[NORMS_FIRST], *last = c->data[NORMS_LAST];
    const real *gates = c->data[NORMS_GATES];
    for (int64_t t = begin; t < end; t++) {
        real *stat = (real *)c->data[NORMS_STAT] + t * delta_stat(dim);
        for (int64_t h = 0; h < 2 * dim[DL_K]; h++) {
            int64_t at = t * delta_channels(dim) + h * dim[DL_DK];
            stat[h] = 1 / real_sqrt(dot(c->data[NORMS_X], at, c->data[NORMS_X], at, dim[DL_DK], dt, dt) + (real)norm_eps);
        }
        int64_t from = max(t / CHUNK * CHUNK, first[t] - last[t] + t);
        for (int64_t h = 0; h < dim[DL_H]; h++) {
            real sum = 0;
            for (int64_t s = from; s <= t; s++)
                sum += gates[s * 2 * dim[DL_H] + h];
            stat[2 * dim[DL_K] + h] = sum;
        }
    }
}

KERNEL_BODY(gated_delta_norms)
{
    SPECIALISE(c->dtype[NORMS_X], body_norms, c, begin, end);
}

/* --- pairs: A and P of a head of a chunk --------------------------------------------------------------------------------------
 */

static ALWAYS_INLINE void gated_delta_pairs_of_chunk(const struct call *c, int64_t row, enum dtype dt)
{
    const int64_t *dim = c->dim;
    int64_t width = pad_lanes(dim[DL_DK]), begin = row / dim[DL_H] * CHUNK;
    struct chunk k = chunk_of(c, begin, dim[DL_T], row % dim[DL_H], PAIRS_FIRST, PAIRS_LAST, PAIRS_STAT, -1);
    rows_tile keys, queries, turned;
    pairs_tile a, p;
    chunk_units(queries, width, &k, c->data[PAIRS_X], c->data[PAIRS_STAT], 0, dt);
    chunk_units(keys, width, &k, c->data[PAIRS_X], c->data[PAIRS_STAT], 1, dt);
    chunk_turn(turned, &k, keys, width, dim[DL_DK], NULL, 1);
    tile_multiply(a, CHUNK, keys, width, turned, CHUNK, round_up(k.count, 4), CHUNK, dim[DL_DK], false);
    tile_multiply(p, CHUNK, queries, width, turned, CHUNK, round_up(k.count, 4), CHUNK, dim[DL_DK], false);
    for (int64_t i = 0; i < k.count; i++) {
        real *to = (real *)c->data[PAIRS_PAIRS] + ((begin + i) * dim[DL_H] + k.head) * 2 * CHUNK;
        for (int64_t j = 0; j < CHUNK; j++) {
            real decay = j <= i ? chunk_decay(&k, i, j) : 0;
            to[j] = j < i ? decay * a[i * CHUNK + j] : 0;
            to[CHUNK + j] = j <= i ? decay * p[i * CHUNK + j] : 0;
        }
    }
}

/* A row of the grid is one head of one chunk. */
KERNEL_BODY(gated_delta_pairs)
{
    for (int64_t row = begin; row < end; row++)
        gated_delta_pairs_of_chunk(c, row, c->dtype[PAIRS_X]);
}

/* --- scan: columns of the states through the chunks ----------------------------------------------------------------------------
 */

struct columns { /* of one head: [from, from + count) of DV */
    int64_t head, from, count, width;
    state_tile state;
    rows_tile keys, queries, turned, ks, qs, u;
    pairs_tile pairs;
};

static int64_t live_tokens(const struct call *c)
{
    const int32_t *slots = c->data[SCAN_SLOTS];
    int64_t count = 0;
    while (slots && count < c->dim[DL_T] && slots[count] >= 0)
        count++;
    return slots ? count : c->dim[DL_T];
}

static ALWAYS_INLINE void state_copy(const struct call *c, struct columns *s, int64_t chunk, bool out)
{
    for (int64_t i = 0; i < c->dim[DL_DK]; i++) {
        real *row =
            (real *)c->data[SCAN_STATES] + ((chunk * c->dim[DL_H] + s->head) * c->dim[DL_DK] + i) * c->dim[DL_DV] + s->from;
        memcpy(out ? row : s->state + i * s->width, out ? s->state + i * s->width : row, (size_t)s->count * sizeof *row);
    }
}

/* w and u of a token: its value, less what the state and the tokens before it say of it. */
static ALWAYS_INLINE void body_surprise(real *w, real *u, const void *x, int64_t at, const real *ks, int64_t count, real beta,
                                        enum dtype dt)
{
    for (int64_t d = 0; d < count; d++) {
        w[d] = load(dt, x, at + d) + ks[d];
        u[d] = beta * w[d];
    }
}

static ALWAYS_INLINE void body_answer(void *y, int64_t at, const real *qs, int64_t count, enum dtype dt)
{
    for (int64_t d = 0; d < count; d++)
        store(dt, y, at + d, qs[d]);
}

static ALWAYS_INLINE void solve(const struct call *c, struct columns *s, const struct chunk *k)
{
    const int64_t *dim = c->dim;
    int64_t values = 2 * dim[DL_K] * dim[DL_DK] + s->head * dim[DL_DV] + s->from;
    for (int64_t i = 0; i < k->count; i++) {
        real *w = (real *)c->data[SCAN_W] + (k->begin + i) * dim[DL_H] * dim[DL_DV] + s->head * dim[DL_DV] + s->from;
        real *u = s->u + i * s->width, *ks = s->ks + i * s->width, enter = chunk_enter(k, i), beta = chunk_beta(k, i);
        for (int64_t d = 0; d < s->width; d++)
            ks[d] = -enter * ks[d];
        for (int64_t j = 0; j < i; j++)
            for (int64_t d = 0; d < s->width; d++)
                ks[d] -= s->pairs[i * CHUNK + j] * s->u[j * s->width + d];
        SPECIALISE(c->dtype[SCAN_X], body_surprise, w, u, c->data[SCAN_X], (k->begin + i) * delta_channels(dim) + values, ks,
                   s->count, beta);
        for (int64_t d = s->count; d < s->width; d++)
            u[d] = 0;
    }
}

static ALWAYS_INLINE void gated_delta_scan_chunk(const struct call *c, struct columns *s, const struct chunk *k, enum dtype dt)
{
    const int64_t *dim = c->dim;
    int64_t size = dim[DL_DK], wide = pad_lanes(size), rows = round_up(k->count, 4), end = k->count - 1;
    chunk_units(s->keys, wide, k, c->data[SCAN_X], c->data[SCAN_STAT], 1, dt);
    chunk_pairs(s->pairs, k, c->data[SCAN_PAIRS], 0, false);
    tile_multiply(s->ks, s->width, s->keys, wide, s->state, s->width, rows, s->width, size, false);
    solve(c, s, k);
    if (c->data[SCAN_Y]) {
        chunk_units(s->queries, wide, k, c->data[SCAN_X], c->data[SCAN_STAT], 0, dt);
        chunk_pairs(s->pairs, k, c->data[SCAN_PAIRS], 1, false);
        tile_multiply(s->qs, s->width, s->queries, wide, s->state, s->width, rows, s->width, size, false);
        for (int64_t i = 0; i < k->count; i++) {
            real enter = chunk_enter(k, i);
            for (int64_t d = 0; d < s->width; d++)
                s->qs[i * s->width + d] *= enter;
        }
        tile_multiply(s->qs, s->width, s->pairs, CHUNK, s->u, s->width, rows, s->width, k->count, true);
        for (int64_t i = 0; i < k->count; i++)
            SPECIALISE(dt, body_answer, c->data[SCAN_Y], ((k->begin + i) * dim[DL_H] + s->head) * dim[DL_DV] + s->from,
                       s->qs + i * s->width, s->count);
    }
    real left[CHUNK], enter = chunk_enter(k, end);
    for (int64_t j = 0; j < k->count; j++)
        left[j] = chunk_decay(k, end, j);
    chunk_turn(s->turned, k, s->keys, wide, size, left, 1);
    for (int64_t i = 0; i < size * s->width; i++)
        s->state[i] *= enter;
    tile_multiply(s->state, s->width, s->turned, CHUNK, s->u, s->width, round_up(size, 4), s->width, k->count, true);
}

static ALWAYS_INLINE void gated_delta_scan_columns(const struct call *c, int64_t head, int64_t from, int64_t count, enum dtype dt)
{
    struct columns s = {.head = head, .from = from, .count = count, .width = pad_lanes(count)};
    int64_t live = live_tokens(c), chunks = divide_up(live, CHUNK);
    for (int64_t i = 0; i < chunks; i++) {
        struct chunk k = chunk_of(c, i * CHUNK, live, head, SCAN_FIRST, SCAN_LAST, SCAN_STAT, SCAN_GATES);
        if (i == 0 && chunk_start(&k, 0) < 0)
            state_copy(c, &s, 0, false);
        if (c->dim[DL_STRIDE])
            state_copy(c, &s, i, true);
        gated_delta_scan_chunk(c, &s, &k, dt);
    }
    if (!c->dim[DL_STRIDE] && live)
        state_copy(c, &s, 0, true);
    for (int64_t t = live; t < c->dim[DL_T] && c->data[SCAN_Y]; t++)
        for (int64_t d = 0; d < count; d++)
            store(dt, c->data[SCAN_Y], (t * c->dim[DL_H] + head) * c->dim[DL_DV] + from + d, 0);
}

/* A row of the grid is a column of a head's state. */
KERNEL_BODY(gated_delta_scan)
{
    int64_t size = c->dim[DL_DV];
    for (int64_t at = begin, next; at < end; at = next) {
        next = min(end, (at / size + 1) * size);
        gated_delta_scan_columns(c, at / size, at % size, next - at, c->dtype[SCAN_X]);
    }
}

/* --- the op --------------------------------------------------------------------------------------------------------------- */

static const struct kernel kernel_norms = {SIGNATURE_gated_delta_norms, .host = gated_delta_norms, .group = 64, .rows = 1,
                                           .defines = DEFINE(CHUNK)};
static const struct kernel kernel_pairs = {SIGNATURE_gated_delta_pairs, .host = gated_delta_pairs, .group = 128, .rows = 1,
                                           .defines = DEFINE(CHUNK)};
static const struct kernel kernel_scan = {SIGNATURE_gated_delta_scan, .host = gated_delta_scan, .group = 64, .rows = 64,
                                          .defines = DEFINE(CHUNK)};

enum { NORMS_BLOCK = 16 };

static enum status sizes(struct node *n)
{
    int64_t *size = n->size;
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    TRY(node_expect(n, GATES, 2, SHAPE(n->in[X]->shape[0], -1)));
    size[DL_T] = n->in[X]->shape[0];
    size[DL_H] = n->in[GATES]->shape[1] / 2;
    size[DL_K] = (int64_t)n->number[KEY_HEADS];
    size[DL_DK] = (int64_t)n->number[KEY_SIZE];
    int64_t values = n->in[X]->shape[1] - 2 * size[DL_K] * size[DL_DK];
    size[DL_DV] = values / size[DL_H];
    TRY(node_expect(n, FIRST, 1, SHAPE(size[DL_T])));
    TRY(node_expect(n, LAST, 1, SHAPE(size[DL_T])));
    if (values < 1 || values % size[DL_H] || size[DL_H] % size[DL_K] || size[DL_DK] > DELTA_MAX || size[DL_DV] > DELTA_MAX)
        return fail(ERR_UNSUPPORTED, "gated_delta: %lld heads of size %lld over %lld of size %lld (at most %d)",
                    (long long)size[DL_H], (long long)size[DL_DV], (long long)size[DL_K], (long long)size[DL_DK], DELTA_MAX);
    return OK;
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(sizes(n));
    const int64_t *size = n->size;
    node_output(p, n, Y, n->in[X]->dtype, 2, SHAPE(size[DL_T], size[DL_H] * size[DL_DV]));
    node_output(p, n, STAT, p->types[ROLE_STATISTIC], 2, SHAPE(size[DL_T], delta_stat(size)));
    if (n->in[STATE]) {
        TRY(node_expect(n, SLOTS, 1, SHAPE(size[DL_T])));
        TRY(node_expect(n, STATE, 3, SHAPE(size[DL_H], size[DL_DK], size[DL_DV])));
        node_alias(p, n, STATE_AFTER, STATE);
    }
    return program_status(p);
}

static enum status lower_scan(struct lowering *l, const struct node *n, struct value *const *in, struct value *stat,
                              struct value *pairs, struct value *y, struct value *w, struct value *states)
{
    const int64_t *size = n->size;
    struct value *of_pairs[] = {[PAIRS_X] = n->in[X],
                                [PAIRS_FIRST] = n->in[FIRST],
                                [PAIRS_LAST] = n->in[LAST],
                                [PAIRS_STAT] = stat,
                                [PAIRS_PAIRS] = pairs};
    struct value *of_scan[] = {[SCAN_X] = in[X],
                               [SCAN_GATES] = in[GATES],
                               [SCAN_FIRST] = in[FIRST],
                               [SCAN_LAST] = in[LAST],
                               [SCAN_SLOTS] = in[SLOTS],
                               [SCAN_STAT] = stat,
                               [SCAN_PAIRS] = pairs,
                               [SCAN_Y] = y,
                               [SCAN_W] = w,
                               [SCAN_STATES] = states};
    TRY(program_status(l->program));
    TRY(lower_launch(l, &kernel_pairs, PAIRS_OPERANDS, of_pairs, size, n->number, delta_chunks(size) * size[DL_H], 1));
    return lower_launch(l, &kernel_scan, SCAN_OPERANDS, of_scan, size, n->number, size[DL_H] * size[DL_DV], size[DL_DV]);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    const int64_t *size = n->size;
    struct program *p = l->program;
    enum dtype wide = p->types[ROLE_STATISTIC];
    struct value *norms[] = {[NORMS_X] = n->in[X],
                             [NORMS_GATES] = n->in[GATES],
                             [NORMS_FIRST] = n->in[FIRST],
                             [NORMS_LAST] = n->in[LAST],
                             [NORMS_STAT] = n->out[STAT]};
    TRY(lower_launch(l, &kernel_norms, NORMS_OPERANDS, norms, size, n->number, size[DL_T], NORMS_BLOCK));
    struct value *pairs = program_scratch(p, wide, 4, SHAPE(size[DL_T], size[DL_H], 2, CHUNK));
    struct value *w = program_scratch(p, wide, 3, SHAPE(size[DL_T], size[DL_H], size[DL_DV]));
    struct value *state = n->in[STATE];
    if (!state)
        state = program_scratch(p, wide, 3, SHAPE(size[DL_H], size[DL_DK], size[DL_DV]));
    return lower_scan(l, n, n->in, n->out[STAT], pairs, n->out[Y], w, state);
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *const *in = n->in, *dy = gradient_of(p, n, Y), *stat = n->out[STAT];
    struct value *w =
        program_node(p, OP_gated_delta_states, 5, (struct value *[]){in[X], in[GATES], in[FIRST], in[LAST], stat}, 2, n->number);
    TRY(program_status(p));
    struct value *const *kept = w->producer->out;
    struct value *dx = program_node(
        p, OP_gated_delta_bwd, 9, (struct value *[]){in[X], in[GATES], in[FIRST], in[LAST], stat, kept[0], kept[1], kept[2], dy},
        2, n->number);
    TRY(gradient_add(p, n, X, dx));
    return gradient_add(p, n, GATES, dx ? dx->producer->out[1] : NULL);
}

/* Products of the chunked form with the state, and of the pairs. */
static double flops(const struct node *n)
{
    const int64_t *size = n->size;
    double tokens = (double)(size[DL_T] * size[DL_H]), chunk = CHUNK, key = (double)size[DL_DK], value = (double)size[DL_DV];
    return tokens * (6 * key * value + chunk * (4 * key + 2 * value));
}

static struct value *input_of(struct program *p, const char *name, enum role role, int64_t rows, int64_t columns)
{
    return columns ? program_input(p, name, role, 2, rows, columns) : program_input(p, name, role, 1, rows);
}

/* d: T, value heads of a key head, key heads, DK, DV. */
static struct value *x_input(struct program *p, const int64_t *d)
{
    return input_of(p, "x", ROLE_ACTIVATION, d[0], 2 * d[2] * d[3] + d[1] * d[2] * d[4]);
}

static struct value *gates_of(struct program *p, const int64_t *d)
{
    int64_t heads = d[1] * d[2];
    return delta_gates(p, input_of(p, "a", ROLE_ACTIVATION, d[0], heads), input_of(p, "b", ROLE_ACTIVATION, d[0], heads),
                       input_of(p, "log", ROLE_WEIGHT, heads, 0), input_of(p, "dt", ROLE_WEIGHT, heads, 0));
}

static struct value *build(struct program *p, const int64_t *d)
{
    return gated_delta(p, x_input(p, d), gates_of(p, d), input_of(p, "first", ROLE_INDEX, d[0], 0),
                       input_of(p, "last", ROLE_INDEX, d[0], 0), NULL, NULL, d[2], d[3]);
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    example_bounds(input, to, count);
}

/* In generation: after d[5] - 1 earlier tokens, and a slot of padding. */
static struct value *build_cached(struct program *p, const int64_t *d)
{
    return gated_delta(p, x_input(p, d), gates_of(p, d), input_of(p, "first", ROLE_INDEX, d[0], 0),
                       input_of(p, "last", ROLE_INDEX, d[0], 0), input_of(p, "slots", ROLE_INDEX, d[0], 0),
                       program_input(p, "state", ROLE_STATISTIC, 3, d[1] * d[2], d[3], d[4]), d[2], d[3]);
}

static void fill_cached(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    for (int64_t t = 0; t < count; t++) {
        bool padding = t > 0 && t == count - 1;
        to[t] = (int32_t)(!strcmp(input, "first") ? 0 : padding ? (strcmp(input, "slots") != 0 ? 0 : -1) : d[5] - 1 + t);
    }
}

#define HEADS                                                                                                                    \
    {"group", {1, 3}}, {"K", {1, 2}}, {"DK", {8, 40}},                                                                           \
    {                                                                                                                            \
        "DV",                                                                                                                    \
        {                                                                                                                        \
            3, 32                                                                                                                \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .looser = 10, .axes = {{"T", {1, 5, 150}}, HEADS}},
    {.build = build,
     .fill = fill,
     .looser = 10,
     .axes = {{"T", {200}}, {"group", {2}}, {"K", {1}}, {"DK", {128}}, {"DV", {128}}}},
    {.build = build_cached, .fill = fill_cached, .forward_only = true, .axes = {{"T", {1, 3, 80}}, HEADS, {"before", {1, 4}}}},
    {0},
};

const struct op OP(gated_delta) = {
    .name = "gated_delta",
    .formula = "S = exp(g)·S, w = v − Sᵀ·k̂, S += k̂·(β·w)ᵀ, y = Sᵀ·q̂ / sqrt(DK), token by token",
    .inputs = {"x", "gates", "first", "last", "slots?", "state?"},
    .outputs = {"y", "stat", "state"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .constants = 4,
    .flops = flops,
    .examples = examples,
};

/* --- the same once more, for what the backward pass needs ---------------------------------------------------------------------
 */

enum { KEPT_W, KEPT_STATES, KEPT_PAIRS };
enum { STATES_STAT = SLOTS };

static enum status shape_states(struct program *p, struct node *n)
{
    TRY(sizes(n));
    const int64_t *size = n->size;
    enum dtype wide = p->types[ROLE_STATISTIC];
    n->size[DL_STRIDE] = 1;
    TRY(node_expect(n, STATES_STAT, 2, SHAPE(size[DL_T], delta_stat(size))));
    node_output(p, n, KEPT_W, wide, 2, SHAPE(size[DL_T], size[DL_H] * size[DL_DV]));
    node_output(p, n, KEPT_STATES, wide, 4, SHAPE(delta_chunks(size), size[DL_H], size[DL_DK], size[DL_DV]));
    node_output(p, n, KEPT_PAIRS, wide, 4, SHAPE(size[DL_T], size[DL_H], 2, CHUNK));
    return program_status(p);
}

static enum status lower_states(struct lowering *l, const struct node *n)
{
    struct value *in[] = {[X] = n->in[X], [GATES] = n->in[GATES], [FIRST] = n->in[FIRST], [LAST] = n->in[LAST], [SLOTS] = NULL};
    return lower_scan(l, n, in, n->in[STATES_STAT], n->out[KEPT_PAIRS], NULL, n->out[KEPT_W], n->out[KEPT_STATES]);
}

static struct value *build_states(struct program *p, const int64_t *d)
{
    struct value *y = build(p, d);
    const struct node *n = y ? y->producer : NULL;
    return n ? program_node(p, OP_gated_delta_states, 5,
                            (struct value *[]){n->in[X], n->in[GATES], n->in[FIRST], n->in[LAST], n->out[STAT]}, 2, n->number)
             : NULL;
}

static const struct op_example examples_states[] = {
    {.build = build_states, .fill = fill, .axes = {{"T", {1, 5, 150}}, HEADS}},
    {0},
};

const struct op OP(gated_delta_states) = {
    .name = "gated_delta_states",
    .formula = "w of every token, S before every chunk, A and P of every pair in a chunk",
    .inputs = {"x", "gates", "first", "last", "stat"},
    .outputs = {"w", "states", "pairs"},
    .shape = shape_states,
    .lower = lower_states,
    .examples = examples_states,
};
