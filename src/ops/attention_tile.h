/* What the forward and backward pass of attention share: tiles of queries and keys in fast memory, and the product of two tiles.
 *
 * Tiles are float (double in the reference) whatever the storage is; rows are padded with zeros to a whole number of vectors.
 */
#ifndef OPS_ATTENTION_TILE_H
#define OPS_ATTENTION_TILE_H

#include "ops/op.h"

#define TILE_Q 32    /* queries of a tile */
#define TILE_K 64    /* keys of a tile */
#define HEAD_MAX 512 /* largest head size */

enum { AT_T, AT_H, AT_D, AT_S, AT_K }; /* size[]: queries, heads, head size, keys, kv-heads */
enum { AT_SCALE, AT_CAP };             /* number[]; a cap of 0: none */
enum { BWD_DQ, BWD_DK, BWD_DV };       /* outputs of attention_bwd */

/* The operands of the kernels. */
enum { FWD_Q, FWD_K, FWD_V, FWD_FIRST, FWD_LAST, FWD_Y, FWD_LSE, FWD_SINKS, FWD_BEGIN, FWD_OPERANDS };
enum { DQ_Q, DQ_K, DQ_V, DQ_FIRST, DQ_LAST, DQ_LSE, DQ_DY, DQ_DELTA, DQ_DQ, DQ_BEGIN, DQ_OPERANDS };
enum { KV_Q, KV_K, KV_V, KV_FIRST, KV_LAST, KV_UNTIL, KV_LSE, KV_DY, KV_DELTA, KV_DK, KV_DV, KV_BEGIN, KV_OPERANDS };

#define CAPPED 1 /* of kernels that cap scores: those that do not have no trace of it */

static inline int64_t pad_lanes(int64_t n)
{
    return round_up(n, LANES);
}

/* Tiles of queries and of keys start with a sequence, and after every so many tokens of it; tiles of keys that a query reads are
 * counted from its sequence's first key too, which is `begin`. So sums have one order wherever a sequence lies in a batch, and
 * whatever lies next to it. A row of a grid has the tiles that start in its block of tokens.
 *
 * Sequences of one token, as empty slots are, share tiles: one weight of 1, or one product, has no order. */
struct sequences {
    const int32_t *begin, *first, *last; /* of each token */
    int64_t count;
};

/* begin: NULL: each token sees its sequence's first key. */
static inline struct sequences sequences_of(const void *begin, const void *first, const void *last, int64_t count)
{
    return (struct sequences){begin ? begin : first, first, last, count};
}

static inline bool sequences_one_key(const struct sequences *s, int64_t t)
{
    return s->first[t] == s->last[t];
}

static inline bool sequences_single(const struct sequences *s, int64_t t)
{
    bool ends = t + 1 == s->count || s->begin[t + 1] != s->begin[t] || sequences_one_key(s, t + 1);
    return ends && sequences_one_key(s, t);
}

static inline bool sequences_tile_starts(const struct sequences *s, int64_t t, int64_t tile)
{
    if (t == 0 || sequences_single(s, t) != sequences_single(s, t - 1))
        return true;
    return sequences_single(s, t) ? t % tile == 0 : s->begin[t] != s->begin[t - 1] || (t - s->begin[t]) % tile == 0;
}

/* Tokens of the tile that starts at t; 0: none does. */
static inline int64_t sequences_tile(const struct sequences *s, int64_t t, int64_t tile)
{
    int64_t end = t;
    if (sequences_tile_starts(s, t, tile))
        for (end = t + 1; end < s->count && !sequences_tile_starts(s, end, tile);)
            end++;
    return end - t;
}

/* Where the tile of keys begins that `key` is in, for the queries of token t's sequence. */
static inline int64_t sequences_key_tile(const struct sequences *s, int64_t t, int64_t key)
{
    return key - (key - s->begin[t]) % TILE_K;
}

/* tile[i][0..D) = x[begin + i][head], zeros beyond D and beyond `count` rows up to `max_rows`. */
static ALWAYS_INLINE void tile_load(real *tile, int64_t width, const void *x, int64_t begin, int64_t count, int64_t max_rows,
                                    int64_t heads, int64_t head, int64_t D, enum dtype dt)
{
    for (int64_t i = 0; i < max_rows; i++) {
        real *row = tile + i * width;
        int64_t at = ((begin + i) * heads + head) * D, used = i < count ? D : 0;
        for (int64_t d = 0; d < used; d++)
            row[d] = load(dt, x, at + d);
        for (int64_t d = used; d < width; d++)
            row[d] = 0;
    }
}

/* The same transposed: tile[d][i], `columns` of them. */
static ALWAYS_INLINE void tile_load_transposed(real *tile, int64_t columns, const void *x, int64_t begin, int64_t count,
                                               int64_t heads, int64_t head, int64_t D, real scale, enum dtype dt)
{
    for (int64_t i = 0; i < columns; i++) {
        int64_t at = ((begin + i) * heads + head) * D;
        for (int64_t d = 0; d < D; d++)
            tile[d * columns + i] = i < count ? load(dt, x, at + d) * scale : 0;
    }
}

/* Which keys each query of a tile sees; those beyond the last query see none. */
struct sight {
    int32_t first[TILE_Q], last[TILE_Q];
    int64_t low, high; /* of all */
};

/* Without a branch, so that loops over queries become vector code. */
static ALWAYS_INLINE bool sight_has(const struct sight *s, int i, int64_t key)
{
    int32_t first = s->first[i], last = s->last[i];
    return ((int32_t)key >= first) & ((int32_t)key <= last);
}

static inline void tile_look(struct sight *s, const int32_t *first, const int32_t *last, int64_t count)
{
    *s = (struct sight){.low = first[0], .high = last[0]};
    for (int64_t i = 0; i < TILE_Q; i++) {
        s->first[i] = i < count ? first[i] : INT32_MAX;
        s->last[i] = i < count ? last[i] : -1;
        s->low = min(s->low, s->first[i]);
        s->high = max(s->high, s->last[i]);
    }
}

/* score = cap · tanh(score / cap) */
static ALWAYS_INLINE void cap_scores(real *score, int64_t count, real cap)
{
    for (int64_t j = 0; j < count; j++)
        score[j] = cap * real_tanh(score[j] / cap);
}

#ifdef REAL_DOUBLE
#define tile_product tile_product_double
#endif

/* c (m, n) = a (m, k) · b (k, n), added to c with `add`; m a multiple of 4, n a multiple of LANES. Element (i, l) of a is
 * a[i * row + l * column]. */
void tile_product(real *c, int64_t ldc, const real *a, int64_t row, int64_t column, const real *b, int64_t ldb, int64_t m,
                  int64_t n, int64_t k, bool add);

static inline void tile_multiply(real *c, int64_t ldc, const real *a, int64_t lda, const real *b, int64_t ldb, int64_t m,
                                 int64_t n, int64_t k, bool add)
{
    tile_product(c, ldc, a, lda, 1, b, ldb, m, n, k, add);
}

/* The same for an a that is stored as (k, m), added to c. */
static inline void tile_add_transposed(real *c, int64_t ldc, const real *a, int64_t lda, const real *b, int64_t ldb, int64_t m,
                                       int64_t n, int64_t k)
{
    tile_product(c, ldc, a, 1, lda, b, ldb, m, n, k, true);
}

#endif
