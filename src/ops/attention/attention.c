/* attention: y[t] = Σ softmax(z[s]) · v[s], z[s] = scale · q[t]·k[s], over the keys s = first[t] … last[t]. With a cap the scores
 * are cap · tanh(z / cap). With sinks, each head's number is one more score of its softmax, of a key whose value is 0.
 *
 * In a packed batch the keys are the batch's own and last[t] = t; with a cache they are its slots. Query head h reads kv-head
 * h / (H / K). The T × S scores are never stored: a tile of queries loops over tiles of keys, keeps the running maximum m, the
 * sum of exponentials and the weighted sum of values, and rescales them when m grows. lse = m + log Σ is kept for the backward
 * pass. A sink is where m begins, so lse has it, and the backward pass needs nothing else. With few queries there is too little
 * to share in a tile: decoding uses attention_split.h, but in bfloat16 on a CPU with units for it, where it is to have the sums
 * of training.
 */
#include "ops/attention/attention_bf16.h"
#include "ops/attention/attention_mma.h"
#include "ops/attention/attention_split.h"

enum { Q, K, V, FIRST, LAST, UNTIL, SINKS, BEGIN };
enum { Y, LSE };
enum { TILED_KEYS_MAX = 4096 };

struct rows { /* the tile of queries that is being computed */
    struct sight sight;
    int64_t count, width;
    real q[HEAD_MAX * TILE_Q], y[TILE_Q * HEAD_MAX], score[TILE_K * TILE_Q]; /* q and scores by columns: a vector of queries */
    real max_score[TILE_Q], sum[TILE_Q];
};

/* Turns the scores of `count` keys into weights relative to each query's running maximum; rescales the sums so far. */
static ALWAYS_INLINE void attention_soften(struct rows *rows, int64_t key, int64_t count)
{
    const struct sight *s = &rows->sight;
    real top[TILE_Q], shrink[TILE_Q], sum[TILE_Q];
    memcpy(top, rows->max_score, sizeof top);
    for (int64_t j = 0; j < count; j++)
        for (int i = 0; i < TILE_Q; i++) {
            real score = sight_has(s, i, key + j) ? rows->score[j * TILE_Q + i] : -(real)INFINITY;
            top[i] = score > top[i] ? score : top[i];
        }
    for (int i = 0; i < TILE_Q; i++) {
        bool none = top[i] == -(real)INFINITY; /* so far */
        shrink[i] = none ? 1 : real_exp(rows->max_score[i] - top[i]);
        rows->max_score[i] = top[i];
        sum[i] = rows->sum[i] * shrink[i];
        top[i] = none ? 0 : top[i];
    }
    for (int64_t j = 0; j < count; j++)
        for (int i = 0; i < TILE_Q; i++) {
            real weight = real_exp(rows->score[j * TILE_Q + i] - top[i]);
            weight = sight_has(s, i, key + j) ? weight : 0;
            rows->score[j * TILE_Q + i] = weight;
            sum[i] += weight;
        }
    memcpy(rows->sum, sum, sizeof sum);
    for (int64_t i = 0; i < rows->count; i++)
        for (int64_t d = 0; d < rows->width && shrink[i] != 1; d++)
            rows->y[i * rows->width + d] *= shrink[i];
}

static ALWAYS_INLINE void tile(const struct call *c, const struct sequences *s, int64_t first_row, int64_t count, int64_t head,
                               enum dtype dt)
{
    int64_t D = c->dim[AT_D], heads = c->dim[AT_H], kv_heads = c->dim[AT_K], kv = head / (heads / kv_heads);
    const void *sinks = c->data[FWD_SINKS];
    real cap = (real)c->number[AT_CAP];
    struct rows rows;
    rows.count = count;
    rows.width = pad_lanes(D);
    tile_load_transposed(rows.q, TILE_Q, c->data[FWD_Q], first_row, rows.count, heads, head, D, (real)c->number[AT_SCALE], dt);
    tile_look(&rows.sight, (int32_t *)c->data[FWD_FIRST] + first_row, (int32_t *)c->data[FWD_LAST] + first_row, rows.count);
    memset(rows.y, 0, (size_t)(TILE_Q * rows.width) * sizeof(real));
    for (int i = 0; i < TILE_Q; i++) {
        rows.max_score[i] = sinks ? load(dt, sinks, head) : -(real)INFINITY;
        rows.sum[i] = sinks ? 1 : 0;
    }
    real keys[TILE_K * HEAD_MAX], values[TILE_K * HEAD_MAX];
    for (int64_t key = sequences_key_tile(s, first_row, rows.sight.low); key <= rows.sight.high; key += TILE_K) {
        int64_t some = min(rows.sight.high + 1 - key, TILE_K), padded = round_up(some, 4);
        tile_load(keys, rows.width, c->data[FWD_K], key, some, padded, kv_heads, kv, D, dt);
        tile_multiply(rows.score, TILE_Q, keys, rows.width, rows.q, TILE_Q, padded, TILE_Q, D, false);
        if (cap > 0)
            cap_scores(rows.score, some * TILE_Q, cap);
        attention_soften(&rows, key, some);
        tile_load(values, rows.width, c->data[FWD_V], key, some, some, kv_heads, kv, D, dt);
        tile_add_transposed(rows.y, rows.width, rows.score, TILE_Q, values, rows.width, TILE_Q, rows.width, some);
    }
    for (int64_t i = 0; i < rows.count; i++) {
        real inverse = 1 / rows.sum[i];
        for (int64_t d = 0; d < D; d++)
            store(dt, c->data[FWD_Y], ((first_row + i) * heads + head) * D + d, rows.y[i * rows.width + d] * inverse);
        ((real *)c->data[FWD_LSE])[(first_row + i) * heads + head] = rows.max_score[i] + real_log(rows.sum[i]);
    }
}

/* A row of the grid is one head of the tiles of queries that start in a block of tokens. */
KERNEL_BODY(attention_forward_tiles)
{
    const struct sequences s = sequences_of(c->data[FWD_BEGIN], c->data[FWD_FIRST], c->data[FWD_LAST], c->dim[AT_T]);
    for (int64_t g = begin; g < end; g++) {
        int64_t block = g / c->dim[AT_H] * TILE_Q, stop = min(block + TILE_Q, s.count);
        for (int64_t row = block; row < stop; row++) {
            int64_t count = sequences_tile(&s, row, TILE_Q);
            if (count)
                SPECIALISE(c->dtype[FWD_Q], tile, c, &s, row, count, g % c->dim[AT_H]);
        }
    }
}

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    if (!attention_bf16(ATTENTION_FORWARD, c, begin, end))
        attention_forward_tiles(c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, Q, 3, SHAPE(-1, -1, -1)));
    const int64_t *q = n->in[Q]->shape, *k = n->in[K]->shape;
    TRY(node_expect(n, K, 3, SHAPE(-1, -1, q[2])));
    TRY(node_expect(n, V, 3, k));
    TRY(node_expect(n, FIRST, 1, SHAPE(q[0])));
    TRY(node_expect(n, LAST, 1, SHAPE(q[0])));
    if (n->in[UNTIL])
        TRY(node_expect(n, UNTIL, 1, SHAPE(k[0])));
    if (n->in[SINKS])
        TRY(node_expect(n, SINKS, 1, SHAPE(q[1])));
    if (n->in[BEGIN])
        TRY(node_expect(n, BEGIN, 1, SHAPE(q[0])));
    if (q[2] > HEAD_MAX || q[1] % k[1])
        return fail(ERR_UNSUPPORTED, "attention: head size %lld (at most %d) with %lld heads over %lld", (long long)q[2],
                    HEAD_MAX, (long long)q[1], (long long)k[1]);
    n->size[AT_T] = q[0];
    n->size[AT_H] = q[1];
    n->size[AT_D] = q[2];
    n->size[AT_S] = k[0];
    n->size[AT_K] = k[1];
    n->rows = divide_up(q[0], TILE_Q) * q[1];
    node_output(p, n, Y, n->in[Q]->dtype, 3, q);
    node_output(p, n, LSE, p->types[ROLE_STATISTIC], 2, SHAPE(q[0], q[1]));
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    if (!n->in[UNTIL])
        return fail(ERR_INTERNAL, "attention: its gradient needs the last query of each key");
    struct value *in[] = {n->in[Q],     n->in[K],  n->in[V],    n->in[FIRST],         n->in[LAST],
                          n->in[UNTIL], n->out[Y], n->out[LSE], gradient_of(p, n, Y), n->in[BEGIN]};
    struct value *dq = program_node(p, OP_attention_bwd, 10, in, 2, n->number);
    TRY(gradient_add(p, n, Q, dq));
    TRY(gradient_add(p, n, K, dq ? dq->producer->out[BWD_DK] : NULL));
    return gradient_add(p, n, V, dq ? dq->producer->out[BWD_DV] : NULL);
}

static const struct kernel kernel = {SIGNATURE_attention, .host = forward,          .group = 128, .rows = 1, .has_width = true,
                                     .width = AT_D,       .defines = DEFINE(TILE_Q)};
static const struct kernel kernel_capped = {SIGNATURE_attention,
                                            .host = forward,
                                            .group = 128,
                                            .rows = 1,
                                            .has_width = true,
                                            .width = AT_D,
                                            .defines = DEFINE(TILE_Q) DEFINE(CAPPED)};
static const struct kernel kernels_mma[] = MMA_KERNELS(attention_mma, &kernel, "");
static const struct kernel kernels_mma_capped[] = MMA_KERNELS(attention_mma, &kernel_capped, DEFINE(CAPPED));

/* Whether few queries take the tiles that many take, and so have their sums: where matmuls of few rows have training's sums too
 * (AMX), and until there are so many keys that they are better split over the processors. */
static bool takes_tiles(const struct lowering *l, const struct node *n)
{
    return !l->device->class->compiles && isa() >= ISA_amx && attention_bf16_takes(n->in[Q]->dtype, n->size[AT_D]) &&
           n->size[AT_S] <= TILED_KEYS_MAX;
}

static enum status lower(struct lowering *l, const struct node *n)
{
    struct value *const *in = n->in, *const *out = n->out;
    if (n->size[AT_T] < SPLIT_QUERIES && !takes_tiles(l, n))
        return split_lower(
            l, n,
            (struct value *[SPLIT_OPERANDS]){
                [SPLIT_Q] = in[Q], [SPLIT_K] = in[K], [SPLIT_V] = in[V], [SPLIT_FIRST] = in[FIRST], [SPLIT_LAST] = in[LAST]},
            (struct value *[JOIN_OPERANDS]){[JOIN_Y] = out[Y], [JOIN_LSE] = out[LSE], [JOIN_SINKS] = in[SINKS]});
    struct value *values[] = {
        [FWD_Q] = in[Q],  [FWD_K] = in[K],      [FWD_V] = in[V],         [FWD_FIRST] = in[FIRST], [FWD_LAST] = in[LAST],
        [FWD_Y] = out[Y], [FWD_LSE] = out[LSE], [FWD_SINKS] = in[SINKS], [FWD_BEGIN] = in[BEGIN]};
    bool capped = n->number[AT_CAP] > 0;
    const struct kernel *mma = mma_kernel(capped ? kernels_mma_capped : kernels_mma, l, 3, values, MMA_PART);
    if (mma)
        return lower_launch(l, mma, FWD_OPERANDS, values, n->size, n->number,
                            divide_up(n->size[AT_T], mma_rows(mma)) * n->size[AT_H], 1);
    return lower_launch(l, capped ? &kernel_capped : &kernel, FWD_OPERANDS, values, n->size, n->number, n->rows,
                        n->size[AT_H] / n->size[AT_K]);
}

static double flops(const struct node *n)
{
    return 2.0 * (double)n->size[AT_T] * (double)n->size[AT_S] * (double)n->size[AT_H] * (double)n->size[AT_D];
}

static struct value *build(struct program *p, const int64_t *d)
{
    return attention(p, program_input(p, "q", ROLE_ACTIVATION, 3, d[0], d[1] * d[2], d[3]),
                     program_input(p, "k", ROLE_ACTIVATION, 3, d[0], d[2], d[3]),
                     program_input(p, "v", ROLE_ACTIVATION, 3, d[0], d[2], d[3]), program_input(p, "first", ROLE_INDEX, 1, d[0]),
                     program_input(p, "last", ROLE_INDEX, 1, d[0]), program_input(p, "until", ROLE_INDEX, 1, d[0]),
                     1 / sqrt((double)d[3]));
}

static struct value *build_capped(struct program *p, const int64_t *d)
{
    return attention_capped(p, program_input(p, "q", ROLE_ACTIVATION, 3, d[0], 6L, d[1]),
                            program_input(p, "k", ROLE_ACTIVATION, 3, d[0], 2L, d[1]),
                            program_input(p, "v", ROLE_ACTIVATION, 3, d[0], 2L, d[1]),
                            program_input(p, "first", ROLE_INDEX, 1, d[0]), program_input(p, "last", ROLE_INDEX, 1, d[0]),
                            program_input(p, "until", ROLE_INDEX, 1, d[0]), 1 / sqrt((double)d[1]), 1.5);
}

static struct value *build_sinks(struct program *p, const int64_t *d)
{
    return attention_sinks(
        p, program_input(p, "q", ROLE_ACTIVATION, 3, d[0], 6L, d[1]), program_input(p, "k", ROLE_ACTIVATION, 3, d[0], 2L, d[1]),
        program_input(p, "v", ROLE_ACTIVATION, 3, d[0], 2L, d[1]), program_input(p, "first", ROLE_INDEX, 1, d[0]),
        program_input(p, "last", ROLE_INDEX, 1, d[0]), program_input(p, "until", ROLE_INDEX, 1, d[0]), NULL,
        program_input(p, "sinks", ROLE_WEIGHT, 1, 6L), 1 / sqrt((double)d[1]), 0);
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    example_bounds(input, to, count);
}

static void fill_window(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    example_window(input, to, count);
}

/* New tokens at the end of a cache: few queries, more keys. */
static struct value *build_cached(struct program *p, const int64_t *d)
{
    return attention(p, program_input(p, "q", ROLE_ACTIVATION, 3, d[0], 6L, d[2]),
                     program_input(p, "k", ROLE_ACTIVATION, 3, d[1], 2L, d[2]),
                     program_input(p, "v", ROLE_ACTIVATION, 3, d[1], 2L, d[2]), program_input(p, "first", ROLE_INDEX, 1, d[0]),
                     program_input(p, "last", ROLE_INDEX, 1, d[0]), NULL, 1 / sqrt((double)d[2]));
}

static void fill_cached(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    for (int64_t t = 0; t < count; t++)
        to[t] = (int32_t)(!strcmp(input, "first") ? d[1] / 9 : d[1] - count + t);
}

static const struct op_example examples[] = {
    {.build = build,
     .fill = fill,
     .axes = {{"T", {1, 3, 4, 31, 32, 65}}, {"group", {1, 3}}, {"K", {1, 2}}, {"D", {2, 16, 24, 64, 128}}}},
    {.build = build, .fill = fill, .axes = {{"T", {150}}, {"group", {3}}, {"K", {2}}, {"D", {64, 256}}}},
    {.build = build, .fill = fill, .axes = {{"T", {3, 65}}, {"group", {2}}, {"K", {1}}, {"D", {300, 512}}}},
    {.build = build, .fill = fill_window, .axes = {{"T", {200}}, {"group", {1, 9}}, {"K", {1}}, {"D", {40}}}},
    {.build = build, .fill = fill_window, .axes = {{"T", {200}}, {"group", {3}}, {"K", {1}}, {"D", {80, 96, 128, 256}}}},
    {.build = build_capped, .fill = fill, .axes = {{"T", {3, 65}}, {"D", {24, 64, 256}}}},
    {.build = build_sinks, .fill = fill, .axes = {{"T", {3, 65}}, {"D", {24, 64}}}},
    {.build = build_cached,
     .fill = fill_cached,
     .forward_only = true,
     .axes = {{"T", {1, 2, 5, 33}}, {"S", {70, 200, 700}}, {"D", {16, 64}}}},
    {0},
};

const struct op OP(attention) = {
    .name = "attention",
    .formula = "y[t] = Σ softmax(z[s]) · v[s], z[s] = scale · q[t]·k[s], capped as softcap does if a cap is given; s = first[t] "
               "… last[t], and of the head's sink, whose v is 0",
    .inputs = {"q", "k", "v", "first", "last", "until?", "sinks?", "begin?"},
    .outputs = {"y", "lse"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .constants = 5,
    .kept = true,
    .flops = flops,
    .examples = examples,
};
