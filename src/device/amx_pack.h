/* Parts of matrices as AMX multiplies them: tiles of 16 rows of 64 bytes. A's have 32 terms of the sum in a row; B's have 16
 * columns in a row, of two terms each. What is not there is 0.
 *
 * A float32 number becomes three bfloat16 numbers, whose sum it is.
 */
#ifndef DEVICE_AMX_PACK_H
#define DEVICE_AMX_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/number.h"

enum { SIDE = 16, STEP = 32 };                /* rows of a tile, and its columns of 32 bits; terms of a tile */
enum { TILE = SIDE * STEP, PAIR = 2 * TILE }; /* numbers: of a tile, and of the two of a step */
enum { PARTS_MAX = 3 };                       /* bfloat16 numbers that a number is the sum of */

struct source { /* rows of a matrix in memory */
    const char *data;
    int64_t stride, size; /* elements to the next row; bytes of an element */
    int parts;
    bool down; /* the sum is over rows */
};

/* Of 32, those before `count`. */
static inline uint32_t first_lanes(int64_t count)
{
    return count >= STEP ? 0xffffffffu : count <= 0 ? 0 : (1u << count) - 1;
}

/* One step of a sum, two tiles of each part, which are `part` numbers apart. lines: rows or columns of C that there are, from
 * `line` on; terms: of the sum, from `first` on. */
struct packing {
    uint16_t *to;
    int64_t part, line, lines, first, terms;
};

/* How a bfloat16 matmul's sum is cut: terms that are packed at a time, and those of a chain of additions in them. */
enum { AMX_CHAIN = 640, AMX_TERMS_MAX = 2048, AMX_TERMS_PART = 1024 };

static inline int64_t amx_terms(int64_t k)
{
    return round_up(k > AMX_TERMS_MAX ? AMX_TERMS_PART : k, STEP);
}

static inline int64_t amx_chain(int64_t terms)
{
    return round_up(divide_up(terms, divide_up(terms, AMX_CHAIN)), STEP);
}

/* A thread may use tiles between begin and end; all eight are whole. */
void amx_begin(void);
void amx_end(void);

/* as_b: for B, else for A. For processors with AVX-512 BF16. */
void amx_pack(const struct packing *t, const struct source *s, bool as_b);

#endif
