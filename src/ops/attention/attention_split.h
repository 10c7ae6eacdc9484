/* Attention for a few queries over many keys: decoding.
 *
 * The keys are split into parts of SPLIT_KEYS. A row of the first kernel's grid is one part for the heads of one query that share
 * a kv-head, so that keys and values are read once and all cores have work. It stores the part's maximum m, sum of exponentials
 * and weighted sum of values. A second kernel joins the parts in order. The number of parts depends only on the cache's size.
 */
#ifndef OPS_ATTENTION_ATTENTION_SPLIT_H
#define OPS_ATTENTION_ATTENTION_SPLIT_H

#include "ops/attention_tile.h"
#include "ops/dot_rows.h"

enum { SPLIT_QUERIES = 4 };
enum { SPLIT_Q, SPLIT_K, SPLIT_V, SPLIT_FIRST, SPLIT_LAST, SPLIT_PARTS, SPLIT_OPERANDS };
enum { JOIN_PARTS, JOIN_Y, JOIN_LSE, JOIN_SINKS, JOIN_OPERANDS };

#define SPLIT_KEYS 128 /* and work-items of a group */

/* A part of one head: D values, m, sum. */
static inline int64_t split_width(const int64_t *size)
{
    return size[AT_D] + 2;
}

static inline int64_t split_parts(const int64_t *size)
{
    return divide_up(size[AT_S], SPLIT_KEYS);
}

/* y = Σ weight[j] · v[j] */
static ALWAYS_INLINE void split_values(real *y, const real *weight, const void *values, int64_t at, int64_t step, int64_t count,
                                       int64_t D, enum dtype dt)
{
    int64_t whole = D / LANES * LANES;
    for (int64_t d = 0; d < whole; d += LANES) {
        vec even = {0}, odd = {0}, x;
        int64_t j = 0;
        for (; j + 2 <= count; j += 2) {
            vec_load(&x, dt, values, at + j * step + d);
            even += weight[j] * x;
            vec_load(&x, dt, values, at + (j + 1) * step + d);
            odd += weight[j + 1] * x;
        }
        if (j < count) {
            vec_load(&x, dt, values, at + j * step + d);
            even += weight[j] * x;
        }
        even += odd;
        memcpy(y + d, &even, sizeof even);
    }
    for (int64_t d = whole; d < D; d++) {
        y[d] = 0;
        for (int64_t j = 0; j < count; j++)
            y[d] += weight[j] * load(dt, values, at + j * step + d);
    }
}

/* Turns scores into exp(score − m), m their maximum; returns their sum and m. */
static ALWAYS_INLINE real split_soften(real *score, int64_t count, real *max_score)
{
    real m = score[0], lane[LANES] = {0}, sum = 0;
    for (int64_t j = 1; j < count; j++)
        m = score[j] > m ? score[j] : m;
    for (int64_t j = count; j % LANES; j++)
        score[j] = -(real)INFINITY;
    for (int64_t j = 0; j < count; j += LANES)
        for (int l = 0; l < LANES; l++) {
            score[j + l] = real_exp(score[j + l] - m);
            lane[l] += score[j + l];
        }
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    *max_score = m;
    return sum;
}

/* A row of the grid is (part, query, kv-head). */
static ALWAYS_INLINE void split_part(const struct call *c, int64_t row, enum dtype dt)
{
    int64_t D = c->dim[AT_D], heads = c->dim[AT_H], kv_heads = c->dim[AT_K], group = heads / kv_heads;
    int64_t kv = row % kv_heads, t = row / kv_heads % c->dim[AT_T], part = row / kv_heads / c->dim[AT_T];
    int64_t first = ((const int32_t *)c->data[SPLIT_FIRST])[t], last = ((const int32_t *)c->data[SPLIT_LAST])[t];
    int64_t begin = max(part * SPLIT_KEYS, first), end = min((part + 1) * SPLIT_KEYS, last + 1);
    int64_t step = kv_heads * D, at = begin * step + kv * D;
    real q[HEAD_MAX], score[SPLIT_KEYS + LANES];
    for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
        real *out = (real *)c->data[SPLIT_PARTS] + ((part * c->dim[AT_T] + t) * heads + head) * (D + 2);
        out[D + 1] = 0; /* no key of this part is seen */
        if (begin >= end)
            continue;
        for (int64_t d = 0; d < D; d++)
            q[d] = load(dt, c->data[SPLIT_Q], (t * heads + head) * D + d) * (real)c->number[AT_SCALE];
        dot_rows(score, q, c->data[SPLIT_K], at, step, end - begin, D, dt);
        if (c->number[AT_CAP] > 0)
            cap_scores(score, end - begin, (real)c->number[AT_CAP]);
        out[D + 1] = split_soften(score, end - begin, &out[D]);
        split_values(out, score, c->data[SPLIT_V], at, step, end - begin, D, dt);
    }
}

KERNEL_BODY(split_parts_body)
{
    for (int64_t row = begin; row < end; row++)
        SPECIALISE(c->dtype[SPLIT_Q], split_part, c, row);
}

/* A row of the grid is (query, head). */
static ALWAYS_INLINE void split_join(const struct call *c, int64_t row, enum dtype dt)
{
    int64_t D = c->dim[AT_D], rows = c->dim[AT_T] * c->dim[AT_H], parts = split_parts(c->dim);
    const real *part = (const real *)c->data[JOIN_PARTS] + row * (D + 2);
    const void *sinks = c->data[JOIN_SINKS];
    real sink = sinks ? load(dt, sinks, row % c->dim[AT_H]) : -(real)INFINITY, max_score = sink, y[HEAD_MAX] = {0};
    for (int64_t p = 0; p < parts; p++)
        if (part[p * rows * (D + 2) + D + 1] != 0 && part[p * rows * (D + 2) + D] > max_score)
            max_score = part[p * rows * (D + 2) + D];
    real sum = sinks ? real_exp(sink - max_score) : 0;
    for (int64_t p = 0; p < parts; p++) {
        const real *from = part + p * rows * (D + 2);
        if (from[D + 1] == 0) /* not seen; a NaN is not skipped */
            continue;
        real weight = real_exp(from[D] - max_score);
        sum += weight * from[D + 1];
        for (int64_t d = 0; d < D; d++)
            y[d] += weight * from[d];
    }
    for (int64_t d = 0; d < D; d++)
        store(dt, c->data[JOIN_Y], row * D + d, y[d] / sum);
    ((real *)c->data[JOIN_LSE])[row] = max_score + real_log(sum);
}

KERNEL_BODY(split_join_body)
{
    for (int64_t row = begin; row < end; row++)
        SPECIALISE(c->dtype[JOIN_Y], split_join, c, row);
}

static const struct kernel split_kernel = {SIGNATURE_attention_split, .host = split_parts_body, .group = SPLIT_KEYS, .rows = 1,
                                           .defines = DEFINE(SPLIT_KEYS) DEFINE(HEAD_MAX)};
static const struct kernel split_kernel_capped = {SIGNATURE_attention_split, .host = split_parts_body, .group = SPLIT_KEYS,
                                                  .rows = 1, .defines = DEFINE(SPLIT_KEYS) DEFINE(HEAD_MAX) DEFINE(CAPPED)};
static const struct kernel join_kernel = {SIGNATURE_attention_join, .host = split_join_body, .group = 64, .rows = 1,
                                          .defines = DEFINE(SPLIT_KEYS)};

/* Lowers an attention node. `split` has the first kernel's operands, `join` the second's, both without the parts. */
static inline enum status split_lower(struct lowering *l, const struct node *n, struct value *split[SPLIT_OPERANDS],
                                      struct value *join[JOIN_OPERANDS])
{
    int64_t parts = split_parts(n->size), rows = n->size[AT_T] * n->size[AT_H];
    struct value *scratch =
        program_scratch(l->program, l->program->types[ROLE_STATISTIC], 3, SHAPE(parts, rows, split_width(n->size)));
    TRY(program_status(l->program));
    split[SPLIT_PARTS] = join[JOIN_PARTS] = scratch;
    const struct kernel *first = n->number[AT_CAP] > 0 ? &split_kernel_capped : &split_kernel;
    TRY(lower_launch(l, first, SPLIT_OPERANDS, split, n->size, n->number, parts * n->size[AT_T] * n->size[AT_K], 1));
    return lower_launch(l, &join_kernel, JOIN_OPERANDS, join, n->size, n->number, rows, 64);
}

#endif
