/* attention_bwd: the backward pass of attention, for packed batches (keys and queries are the same tokens, last[t] = t).
 *
 * With P = exp(scale · q·k − lse) recomputed tile by tile, and delta[t] = Σ dy·y of a query's head:
 *     dS = P · (dy·v − delta) · scale     dq = Σ dS · k     dk = Σ dS · q     dv = Σ P · dy
 * Where scores are capped, z = cap · tanh(scale · q·k / cap), P is exp(z − lse), and dS is that times 1 − (z / cap)².
 * Three kernels: delta by query; dq by tiles of queries, looping over keys; dk and dv by tiles of keys, looping over the queries
 * that see them (from a key's own slot to `until`) and over the heads that share it. Each sum has one owner and one order.
 */
#include "ops/attention/attention_bf16.h"
#include "ops/attention/attention_mma.h"

enum { Q, K, V, FIRST, LAST, UNTIL, Y, LSE, DY, BEGIN };

enum { DELTA_Y, DELTA_DY, DELTA_DELTA, DELTA_OPERANDS }; /* of the first kernel; the others' are in attention_tile.h */

struct tiles {
    int64_t width;
    real q[TILE_Q * HEAD_MAX], dy[TILE_Q * HEAD_MAX], key[TILE_K * HEAD_MAX], value[TILE_K * HEAD_MAX]; /* rows or columns */
    real p[TILE_Q * TILE_K], ds[TILE_Q * TILE_K];                                                       /* q·k, dy·v before */
};

/* --- delta[t, h] = Σ dy·y ------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void body_delta(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    for (int64_t r = begin; r < end; r++)
        ((real *)c->data[DELTA_DELTA])[r] =
            dot(c->data[DELTA_Y], r * c->dim[AT_D], c->data[DELTA_DY], r * c->dim[AT_D], c->dim[AT_D], dt, dt);
}

KERNEL_BODY(attention_bwd_delta)
{
    SPECIALISE(c->dtype[DELTA_Y], body_delta, c, begin, end);
}

/* Makes P of q·k and dS of dy·v, for a key and a query that sees it or not. */
static ALWAYS_INLINE void attention_bwd_weigh(real *p, real *ds, bool seen, real lse, real delta, real scale, real cap,
                                              bool capped)
{
    real z = scale * *p, slope = scale;
    if (capped) {
        real t = real_tanh(z / cap);
        z = cap * t;
        slope *= 1 - t * t;
    }
    real weight = real_exp(z - lse), gradient = weight * (*ds - delta) * slope;
    *p = seen ? weight : 0;
    *ds = seen ? gradient : 0;
}

/* --- dq ----------------------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void attention_bwd_weigh_columns(struct tiles *t, const struct call *c, const struct sight *s,
                                                      const real *lse, const real *delta, int64_t key, int64_t count, bool capped)
{
    for (int64_t j = 0; j < count; j++)
        for (int i = 0; i < TILE_Q; i++)
            attention_bwd_weigh(&t->p[j * TILE_Q + i], &t->ds[j * TILE_Q + i], sight_has(s, i, key + j), lse[i], delta[i],
                                (real)c->number[AT_SCALE], (real)c->number[AT_CAP], capped);
}

/* q, dy, P and dS by columns: a vector has the queries of one number, or of one key. */
static ALWAYS_INLINE void queries(const struct call *c, const struct sequences *of, int64_t row, int64_t rows, int64_t head,
                                  enum dtype dt)
{
    int64_t D = c->dim[AT_D], heads = c->dim[AT_H], kv_heads = c->dim[AT_K], kv = head / (heads / kv_heads);
    real lse[TILE_Q], delta[TILE_Q];
    struct tiles t;
    struct sight s;
    t.width = pad_lanes(D);
    real dq[TILE_Q * HEAD_MAX];
    memset(dq, 0, (size_t)(TILE_Q * t.width) * sizeof(real));
    tile_load_transposed(t.q, TILE_Q, c->data[DQ_Q], row, rows, heads, head, D, 1, dt);
    tile_load_transposed(t.dy, TILE_Q, c->data[DQ_DY], row, rows, heads, head, D, 1, dt);
    tile_look(&s, (int32_t *)c->data[DQ_FIRST] + row, (int32_t *)c->data[DQ_LAST] + row, rows);
    for (int64_t i = 0; i < TILE_Q; i++) {
        int64_t at = (row + min(i, rows - 1)) * heads + head;
        lse[i] = ((const real *)c->data[DQ_LSE])[at];
        delta[i] = ((const real *)c->data[DQ_DELTA])[at];
    }
    for (int64_t key = sequences_key_tile(of, row, s.low); key <= s.high; key += TILE_K) {
        int64_t count = min(s.high + 1 - key, TILE_K), padded = round_up(count, 4);
        tile_load(t.key, t.width, c->data[DQ_K], key, count, padded, kv_heads, kv, D, dt);
        tile_load(t.value, t.width, c->data[DQ_V], key, count, padded, kv_heads, kv, D, dt);
        tile_multiply(t.p, TILE_Q, t.key, t.width, t.q, TILE_Q, padded, TILE_Q, D, false);
        tile_multiply(t.ds, TILE_Q, t.value, t.width, t.dy, TILE_Q, padded, TILE_Q, D, false);
        if (c->number[AT_CAP] > 0)
            attention_bwd_weigh_columns(&t, c, &s, lse, delta, key, count, true);
        else
            attention_bwd_weigh_columns(&t, c, &s, lse, delta, key, count, false);
        tile_add_transposed(dq, t.width, t.ds, TILE_Q, t.key, t.width, TILE_Q, t.width, count);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < D; d++)
            store(dt, c->data[DQ_DQ], ((row + i) * heads + head) * D + d, dq[i * t.width + d]);
}

KERNEL_BODY(attention_bwd_query_tiles)
{
    const struct sequences s = sequences_of(c->data[DQ_BEGIN], c->data[DQ_FIRST], c->data[DQ_LAST], c->dim[AT_T]);
    for (int64_t g = begin; g < end; g++) {
        int64_t block = g / c->dim[AT_H] * TILE_Q, stop = min(block + TILE_Q, s.count);
        for (int64_t row = block; row < stop; row++) {
            int64_t rows = sequences_tile(&s, row, TILE_Q);
            if (rows)
                SPECIALISE(c->dtype[DQ_Q], queries, c, &s, row, rows, g % c->dim[AT_H]);
        }
    }
}

static void backward_q(const struct call *c, int64_t begin, int64_t end)
{
    if (!attention_bf16(ATTENTION_BACKWARD_Q, c, begin, end))
        attention_bwd_query_tiles(c, begin, end);
}

/* --- dk, dv ------------------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void weigh_row(struct tiles *t, const struct call *c, int64_t i, int64_t query, int64_t key, int64_t head,
                                    bool capped)
{
    int64_t at = query * c->dim[AT_H] + head;
    int32_t first = (int32_t)(((const int32_t *)c->data[KV_FIRST])[query] - key);
    int32_t last = (int32_t)(((const int32_t *)c->data[KV_LAST])[query] - key);
    real lse = ((const real *)c->data[KV_LSE])[at], delta = ((const real *)c->data[KV_DELTA])[at];
    for (int32_t j = 0; j < TILE_K; j++)
        attention_bwd_weigh(&t->p[i * TILE_K + j], &t->ds[i * TILE_K + j], (j >= first) & (j <= last), lse, delta,
                            (real)c->number[AT_SCALE], (real)c->number[AT_CAP], capped);
}

/* Keys and values by columns, P and dS by rows: a vector has the keys of one number, or of one query. */
static ALWAYS_INLINE void keys(const struct call *c, int64_t key, int64_t count, int64_t kv, enum dtype dt)
{
    int64_t D = c->dim[AT_D], heads = c->dim[AT_H], kv_heads = c->dim[AT_K], group = heads / kv_heads;
    const int32_t *until = c->data[KV_UNTIL];
    int64_t high = until[key];
    for (int64_t j = 1; j < count; j++)
        high = max(high, until[key + j]);
    struct tiles t;
    t.width = pad_lanes(D);
    real dk[TILE_K * HEAD_MAX], dv[TILE_K * HEAD_MAX];
    memset(dk, 0, (size_t)(TILE_K * t.width) * sizeof(real));
    memset(dv, 0, (size_t)(TILE_K * t.width) * sizeof(real));
    tile_load_transposed(t.key, TILE_K, c->data[KV_K], key, count, kv_heads, kv, D, 1, dt);
    tile_load_transposed(t.value, TILE_K, c->data[KV_V], key, count, kv_heads, kv, D, 1, dt);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t row = key; row <= high; row += TILE_Q) {
            int64_t rows = min(high + 1 - row, TILE_Q), padded = round_up(rows, 4);
            tile_load(t.q, t.width, c->data[KV_Q], row, rows, padded, heads, head, D, dt);
            tile_load(t.dy, t.width, c->data[KV_DY], row, rows, padded, heads, head, D, dt);
            tile_multiply(t.p, TILE_K, t.q, t.width, t.key, TILE_K, padded, TILE_K, D, false);
            tile_multiply(t.ds, TILE_K, t.dy, t.width, t.value, TILE_K, padded, TILE_K, D, false);
            for (int64_t i = 0; i < rows; i++)
                if (c->number[AT_CAP] > 0)
                    weigh_row(&t, c, i, row + i, key, head, true);
                else
                    weigh_row(&t, c, i, row + i, key, head, false);
            tile_add_transposed(dv, t.width, t.p, TILE_K, t.dy, t.width, TILE_K, t.width, rows);
            tile_add_transposed(dk, t.width, t.ds, TILE_K, t.q, t.width, TILE_K, t.width, rows);
        }
    for (int64_t j = 0; j < count; j++)
        for (int64_t d = 0; d < D; d++) {
            store(dt, c->data[KV_DK], ((key + j) * kv_heads + kv) * D + d, dk[j * t.width + d]);
            store(dt, c->data[KV_DV], ((key + j) * kv_heads + kv) * D + d, dv[j * t.width + d]);
        }
}

KERNEL_BODY(attention_bwd_key_tiles)
{
    const struct sequences s = sequences_of(c->data[KV_BEGIN], c->data[KV_FIRST], c->data[KV_LAST], c->dim[AT_S]);
    for (int64_t g = begin; g < end; g++) {
        int64_t block = g / c->dim[AT_K] * TILE_K, stop = min(block + TILE_K, s.count);
        for (int64_t key = block; key < stop; key++) {
            int64_t count = sequences_tile(&s, key, TILE_K);
            if (count)
                SPECIALISE(c->dtype[KV_Q], keys, c, key, count, g % c->dim[AT_K]);
        }
    }
}

static void backward_kv(const struct call *c, int64_t begin, int64_t end)
{
    if (!attention_bf16(ATTENTION_BACKWARD_KV, c, begin, end))
        attention_bwd_key_tiles(c, begin, end);
}

static const struct kernel kernel_delta = {SIGNATURE_attention_bwd_delta, .host = attention_bwd_delta, .group = 64, .rows = 64};
static const struct kernel kernel_q = {
    SIGNATURE_attention_bwd_q, .host = backward_q, .group = 256, .rows = 1, .has_width = true, .width = AT_D,
    .defines = DEFINE(TILE_Q)};
static const struct kernel kernel_kv = {
    SIGNATURE_attention_bwd_kv, .host = backward_kv, .group = 256, .rows = 1, .has_width = true, .width = AT_D,
    .defines = DEFINE(TILE_K)};
static const struct kernel kernel_q_capped = {SIGNATURE_attention_bwd_q,
                                              .host = backward_q,
                                              .group = 256,
                                              .rows = 1,
                                              .has_width = true,
                                              .width = AT_D,
                                              .defines = DEFINE(TILE_Q) DEFINE(CAPPED)};
static const struct kernel kernel_kv_capped = {SIGNATURE_attention_bwd_kv,
                                               .host = backward_kv,
                                               .group = 256,
                                               .rows = 1,
                                               .has_width = true,
                                               .width = AT_D,
                                               .defines = DEFINE(TILE_K) DEFINE(CAPPED)};
static const struct kernel kernels_q_mma[] = MMA_KERNELS(attention_mma_bwd_q, &kernel_q, "");
static const struct kernel kernels_q_mma_capped[] = MMA_KERNELS(attention_mma_bwd_q, &kernel_q_capped, DEFINE(CAPPED));
static const struct kernel kernels_kv_mma[] = MMA_KERNELS(attention_mma_bwd_kv, &kernel_kv, "");
static const struct kernel kernels_kv_mma_capped[] = MMA_KERNELS(attention_mma_bwd_kv, &kernel_kv_capped, DEFINE(CAPPED));

static enum status shape(struct program *p, struct node *n)
{
    const int64_t *q = n->in[Q]->shape, *k = n->in[K]->shape;
    TRY(node_expect(n, K, 3, SHAPE(q[0], -1, q[2])));
    TRY(node_expect(n, DY, 3, q));
    TRY(node_expect(n, LSE, 2, q));
    if (n->in[BEGIN])
        TRY(node_expect(n, BEGIN, 1, SHAPE(q[0])));
    n->size[AT_T] = q[0];
    n->size[AT_H] = q[1];
    n->size[AT_D] = q[2];
    n->size[AT_S] = k[0];
    n->size[AT_K] = k[1];
    node_output(p, n, BWD_DQ, n->in[Q]->dtype, 3, q);
    node_output(p, n, BWD_DK, n->in[K]->dtype, 3, k);
    node_output(p, n, BWD_DV, n->in[V]->dtype, 3, k);
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    struct value *const *in = n->in, *const *out = n->out;
    struct value *deltas = program_scratch(l->program, l->program->types[ROLE_STATISTIC], 2, SHAPE(n->size[AT_T], n->size[AT_H]));
    TRY(program_status(l->program));
    struct value *factors[] = {in[Q], in[K], in[V], in[DY]};
    bool capped = n->number[AT_CAP] > 0;
    const struct kernel *kv_mma = mma_kernel(capped ? kernels_kv_mma_capped : kernels_kv_mma, l, 4, factors, MMA_PART_KV);
    const struct kernel *q_mma =
        kv_mma ? mma_kernel(capped ? kernels_q_mma_capped : kernels_q_mma, l, 4, factors, MMA_PART) : NULL;
    int64_t query_tiles = divide_up(n->size[AT_T], q_mma ? mma_rows(q_mma) : TILE_Q);
    int64_t key_tiles = divide_up(n->size[AT_S], kv_mma ? mma_rows(kv_mma) : TILE_K);
    struct value *delta[] = {[DELTA_Y] = in[Y], [DELTA_DY] = in[DY], [DELTA_DELTA] = deltas};
    struct value *dq[] = {
        [DQ_Q] = in[Q],     [DQ_K] = in[K],   [DQ_V] = in[V],      [DQ_FIRST] = in[FIRST], [DQ_LAST] = in[LAST],
        [DQ_LSE] = in[LSE], [DQ_DY] = in[DY], [DQ_DELTA] = deltas, [DQ_DQ] = out[BWD_DQ],  [DQ_BEGIN] = in[BEGIN]};
    struct value *kv[] = {[KV_Q] = in[Q],       [KV_K] = in[K],         [KV_V] = in[V],        [KV_FIRST] = in[FIRST],
                          [KV_LAST] = in[LAST], [KV_UNTIL] = in[UNTIL], [KV_LSE] = in[LSE],    [KV_DY] = in[DY],
                          [KV_DELTA] = deltas,  [KV_DK] = out[BWD_DK],  [KV_DV] = out[BWD_DV], [KV_BEGIN] = in[BEGIN]};
    TRY(lower_launch(l, &kernel_delta, DELTA_OPERANDS, delta, n->size, n->number, n->size[AT_T] * n->size[AT_H], 64));
    TRY(lower_launch(l,
                     q_mma    ? q_mma
                     : capped ? &kernel_q_capped
                              : &kernel_q,
                     DQ_OPERANDS, dq, n->size, n->number, query_tiles * n->size[AT_H], n->size[AT_H] / n->size[AT_K]));
    return lower_launch(l,
                        kv_mma   ? kv_mma
                        : capped ? &kernel_kv_capped
                                 : &kernel_kv,
                        KV_OPERANDS, kv, n->size, n->number, key_tiles * n->size[AT_K], 1);
}

static double flops(const struct node *n)
{
    return 5.0 * (double)n->size[AT_T] * (double)n->size[AT_S] * (double)n->size[AT_H] * (double)n->size[AT_D];
}

static struct value *build(struct program *p, const int64_t *d)
{
    int64_t heads = d[1] * d[2];
    struct value *in[] = {
        program_input(p, "q", ROLE_ACTIVATION, 3, d[0], heads, d[3]),
        program_input(p, "k", ROLE_ACTIVATION, 3, d[0], d[2], d[3]),
        program_input(p, "v", ROLE_ACTIVATION, 3, d[0], d[2], d[3]),
        program_input(p, "first", ROLE_INDEX, 1, d[0]),
        program_input(p, "last", ROLE_INDEX, 1, d[0]),
        program_input(p, "until", ROLE_INDEX, 1, d[0]),
        program_input(p, "y", ROLE_ACTIVATION, 3, d[0], heads, d[3]),
        program_input(p, "lse", ROLE_STATISTIC, 2, d[0], heads),
        program_input(p, "dy", ROLE_ACTIVATION, 3, d[0], heads, d[3]),
    };
    return program_node(p, OP_attention_bwd, 9, in, 2, (double[]){1 / sqrt((double)d[3]), d[4] > 1 ? 1.5 : 0});
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

static const struct op_example examples[] = {
    {.build = build,
     .fill = fill,
     .axes = {{"T", {1, 3, 32, 65, 150}}, {"group", {1, 3}}, {"K", {1, 2}}, {"D", {2, 24, 64, 128}}, {"capped", {1}}}},
    {.build = build, .fill = fill_window, .axes = {{"T", {200}}, {"group", {1, 9}}, {"K", {1}}, {"D", {40}}, {"capped", {1}}}},
    {.build = build, .fill = fill, .axes = {{"T", {3, 65}}, {"group", {3}}, {"K", {2}}, {"D", {24, 256}}, {"capped", {1, 2}}}},
    {.build = build, .fill = fill, .axes = {{"T", {65}}, {"group", {2}}, {"K", {1}}, {"D", {300, 512}}, {"capped", {1}}}},
    {.build = build,
     .fill = fill_window,
     .axes = {{"T", {200}}, {"group", {3}}, {"K", {1}}, {"D", {80, 96, 256}}, {"capped", {1}}}},
    {0},
};

const struct op OP(attention_bwd) = {
    .name = "attention_bwd",
    .formula = "dq = Σ dS·k, dk = Σ dS·q, dv = Σ P·dy, dS = P · (dy·v − Σ dy·y) · scale, times the cap's derivative",
    .inputs = {"q", "k", "v", "first", "last", "until", "y", "lse", "dy", "begin?"},
    .outputs = {"dq", "dk", "dv"},
    .shape = shape,
    .lower = lower,
    .flops = flops,
    .examples = examples,
};
