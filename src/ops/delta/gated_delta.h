/* What the forward and the backward pass of the gated delta rule share: chunks of tokens, their decays, and tiles of their rows.
 *
 * Tokens are cut into chunks of CHUNK slots, whatever sequences lie in them. Within a chunk γ[i] is the sum of g from the chunk's
 * begin, or from the begin of i's sequence if that is later, to i. So exp(γ[i] − γ[j]) is what remains at i of what j wrote, and
 * exp(γ[i]) what remains of the state before the chunk; both are 0 across the border of two sequences.
 */
#ifndef OPS_DELTA_GATED_DELTA_H
#define OPS_DELTA_GATED_DELTA_H

#include "ops/attention_tile.h"

#define CHUNK 64                                                      /* tokens */
#define DELTA_MAX 128                                                 /* largest size of a head */
#define WIDE (sizeof(real) == sizeof(double) ? DTYPE_F64 : DTYPE_F32) /* the type of states, pairs and gates */

enum {
    DL_T,
    DL_H,
    DL_K,
    DL_DK,
    DL_DV,
    DL_STRIDE
}; /* size[]: tokens, value heads, key heads, their sizes; states kept: 1, or 0 */

typedef real rows_tile[CHUNK * DELTA_MAX], state_tile[DELTA_MAX * DELTA_MAX], pairs_tile[CHUNK * CHUNK];

/* One head of a chunk. */
struct chunk {
    const int64_t *dim;
    const int32_t *first, *last;
    const real *gamma, *beta; /* of the chunk's first token; the strides are those of stat and gates */
    int64_t begin, count, head;
};

static inline int64_t delta_chunks(const int64_t *dim)
{
    return divide_up(dim[DL_T], CHUNK);
}

static inline int64_t delta_channels(const int64_t *dim) /* of x: queries, keys, values */
{
    return 2 * dim[DL_K] * dim[DL_DK] + dim[DL_H] * dim[DL_DV];
}

static inline int64_t
delta_stat(const int64_t *dim) /* of a token in stat: 1 / |q|, 1 / |k| of the key heads, then γ of the heads */
{
    return 2 * dim[DL_K] + dim[DL_H];
}

/* By the operands that it reads; gates: -1 where β is not needed. */
static inline struct chunk chunk_of(const struct call *c, int64_t begin, int64_t end, int64_t head, int first, int last, int stat,
                                    int gates)
{
    const int64_t *dim = c->dim;
    return (struct chunk){.dim = dim,
                          .first = c->data[first],
                          .last = c->data[last],
                          .gamma = (const real *)c->data[stat] + begin * delta_stat(dim) + 2 * dim[DL_K] + head,
                          .beta = gates < 0 ? NULL : (const real *)c->data[gates] + begin * 2 * dim[DL_H] + dim[DL_H] + head,
                          .begin = begin,
                          .count = min(end - begin, CHUNK),
                          .head = head};
}

/* The slot in this batch where the sequence of a token begins; negative: before the batch. */
static inline int64_t chunk_start(const struct chunk *k, int64_t i)
{
    return k->first[k->begin + i] - k->last[k->begin + i] + k->begin + i;
}

static inline real chunk_beta(const struct chunk *k, int64_t i)
{
    return k->beta[i * 2 * k->dim[DL_H]];
}

static ALWAYS_INLINE real chunk_gamma(const struct chunk *k, int64_t i)
{
    return k->gamma[i * delta_stat(k->dim)];
}

/* What remains at i of what j wrote, and of the state before the chunk. */
static ALWAYS_INLINE real chunk_decay(const struct chunk *k, int64_t i, int64_t j)
{
    return k->begin + j >= chunk_start(k, i) ? real_exp(chunk_gamma(k, i) - chunk_gamma(k, j)) : 0;
}

static ALWAYS_INLINE real chunk_enter(const struct chunk *k, int64_t i)
{
    return chunk_start(k, i) < k->begin ? real_exp(chunk_gamma(k, i)) : 0;
}

#ifdef REAL_DOUBLE
#define chunk_rows chunk_rows_double
#define chunk_units chunk_units_double
#define chunk_turn chunk_turn_double
#define chunk_pairs chunk_pairs_double
#endif

/* Rows of the chunk's tokens: columns [at, at + size) of x, whose rows have `stride` elements; zeros up to a multiple of 4 rows
 * and of LANES columns. */
void chunk_rows(real *to, int64_t width, const struct chunk *k, const void *x, int64_t stride, int64_t at, int64_t size,
                enum dtype dt);

/* Its queries (which = 0; with their scale) or keys (1), of length 1. */
void chunk_units(real *to, int64_t width, const struct chunk *k, const void *x, const real *stat, int which, enum dtype dt);

/* to[d][i] = scale · factor[i] · rows[i][d], CHUNK columns and a multiple of 4 rows; factor may be NULL. */
void chunk_turn(real *to, const struct chunk *k, const real *rows, int64_t width, int64_t size, const real *factor, real scale);

/* The chunk's part of pairs (T, H, 2, CHUNK): which = 0 or 1; transposed on demand. */
void chunk_pairs(real *to, const struct chunk *k, const real *pairs, int which, bool transposed);

#endif
