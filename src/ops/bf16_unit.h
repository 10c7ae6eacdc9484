/* Products of bfloat16 tiles on the units that a processor has for them: the tiles of AMX, or the dot products of AVX-512.
 *
 * Both multiply a (m, k), whose rows are plain, by b (k, n), whose rows come in pairs: one 32-bit word has two numbers of a
 * column, which are neighbours in the sum over k. Where the sum is over tokens, the words of 32 tokens have token i and token
 * i + 16: so two vectors become one without moving a lane. A row of a has the same order then. Sums are float32. All sizes are
 * multiples of BF16_STEP, and what lies beyond a tensor's edge is 0.
 */
#ifndef OPS_BF16_UNIT_H
#define OPS_BF16_UNIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/isa.h"

#if defined(__x86_64__) && !defined(REAL_DOUBLE)
#define BF16_UNITS
#endif

enum { BF16_STEP = 32 };

/* c (m, n) = Σ a (m, k) · b (k, n) over one pair of factors or two, added to c with `add`. */
struct bf16_product {
    float *c;
    const uint16_t *a[2];
    const uint32_t *b[2];
    int pairs;
    int64_t m, n, k;
    bool add;
};

/* A unit may be used between begin and end, by the thread that called begin. */
struct bf16_unit {
    enum isa needs;
    void (*begin)(void);
    void (*end)(void);
    void (*multiply)(const struct bf16_product *p);
};

const struct bf16_unit *bf16_unit(void); /* NULL: the processor has none, or HONE_ISA is below it */

/* Rows of a head in memory: of x (tokens, heads, D), `count` tokens from `begin` on. They are packed as `rows` rows of `width`
 * numbers, multiples of BF16_STEP. */
struct bf16_rows {
    uint16_t *x;
    int64_t begin, count, rows, heads, head, D, width;
};

void bf16_pack(uint16_t *to, const struct bf16_rows *from);                /* (rows, width), plain: a */
void bf16_pack_columns(uint16_t *to, const struct bf16_rows *from);        /* (width, rows), for a sum over tokens: a */
void bf16_pack_columns_paired(uint32_t *to, const struct bf16_rows *from); /* (width / 2, rows), for a sum over D: b */
void bf16_pack_paired(uint32_t *to, const struct bf16_rows *from);         /* (rows / 2, width), for a sum over tokens: b */

/* And out of tiles: x = rounded rows, or rounded columns (width, rows) of which each token's is multiplied by its factor. */
void bf16_unpack(const float *from, const struct bf16_rows *to);
void bf16_unpack_columns(const float *from, const float *factor, const struct bf16_rows *to);

#endif
