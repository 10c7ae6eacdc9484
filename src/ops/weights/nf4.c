/* Weights in NF4 (format/nf4_codes.h): w[i] = value[code i] · absmax of its block. Two types: nf4, where absmax = map[byte] ·
 * scale + mean, and nf4_single, where it is stored as it is.
 *
 * Fused kernels of the first expand tiles of w in a work-group's local memory.
 */
#include "base/memory.h"
#include "format/nf4_codes.h"
#include "ops/op.h"

#define TILE_N WEIGHT_TILE /* columns of a result that a work-group computes */

#ifdef REAL_DOUBLE
#define real_fma fma
#else
#define real_fma fmaf
#endif

enum { PACKED, CODES, SCALES, MAP };
enum { ABSMAX = 1 }; /* the other part of nf4_single */

/* FMA with 0 rounds the product before the sum, as on every device and in bitsandbytes. */
static ALWAYS_INLINE real absmax_of(const struct call *c, int64_t block, bool single)
{
    if (single)
        return ((const real *)c->data[EXPAND_PARTS + ABSMAX])[block];
    const int32_t *codes = c->data[EXPAND_PARTS + CODES];
    const real *scales = c->data[EXPAND_PARTS + SCALES], *map = c->data[EXPAND_PARTS + MAP];
    uint32_t code = (uint32_t)codes[block / 4] >> 8 * (block % 4) & 255;
    return real_fma(map[code], scales[1 + block / NF4_GROUP], 0) + scales[0];
}

/* Whole blocks of a row. */
static ALWAYS_INLINE void expand_blocks(const struct call *c, int64_t block, int64_t count, uint16_t *w, bool single)
{
    enum { TOGETHER = 64 };
    float absmax[TOGETHER];
    for (int64_t done = 0; done < count; done += TOGETHER) {
        int64_t some = min(count - done, TOGETHER), first = block + done;
        for (int64_t b = 0; b < some; b++)
            absmax[b] = (float)absmax_of(c, first + b, single);
        nf4_bf16((const uint8_t *)c->data[EXPAND_PARTS + PACKED] + first * (NF4_BLOCK / 2), absmax, some, w + done * NF4_BLOCK);
    }
}

/* A row is cut where blocks end. */
static ALWAYS_INLINE void expand_row(const struct call *c, int64_t at, int64_t end, real (*pair)[2], int64_t to, enum dtype dt,
                                     bool single)
{
    const int32_t *packed = c->data[EXPAND_PARTS + PACKED];
    real value[NF4_BLOCK]; /* before they are scaled */
    void *w = c->data[EXPAND_W];
    while (at < end) {
        int64_t block = at / NF4_BLOCK, stop = (block + 1) * NF4_BLOCK < end ? (block + 1) * NF4_BLOCK : end, count = stop - at;
        real absmax = absmax_of(c, block, single);
        for (int64_t i = 0; count == NF4_BLOCK && i < count; i += 2)
            memcpy(value + i, pair[(uint32_t)packed[(at + i) / 8] >> 4 * (i % 8) & 255], sizeof *pair);
        for (int64_t i = 0; count != NF4_BLOCK && i < count; i++)
            value[i] = pair[(uint32_t)packed[(at + i) / 8] >> 4 * ((at + i) % 8 ^ 1) & 15][1];
        INDEPENDENT
        for (int64_t i = 0; i < count; i++)
            store(dt, w, to + i, value[i] * absmax);
        at += count;
        to += count;
    }
}

static ALWAYS_INLINE void body_expand(const struct call *c, int64_t begin, int64_t end, enum dtype dt, bool single)
{
    const int32_t *ids = c->data[EXPAND_IDS];
    int64_t columns = c->dim[EXPAND_COLUMNS];
    bool whole = c->dim[EXPAND_IN] % NF4_BLOCK == 0 && c->dim[EXPAND_COLUMN] % NF4_BLOCK == 0 && columns % NF4_BLOCK == 0;
    bool fast = dt == DTYPE_BF16 && whole && weight_bf16();
    real pair[256][2]; /* the two values of a byte */
    for (int byte = 0; !fast && byte < 256; byte++) {
        pair[byte][0] = (real)nf4_values[byte / 16];
        pair[byte][1] = (real)nf4_values[byte % 16];
    }
    for (int64_t r = begin; r < end; r++) {
        int64_t at = (ids ? ids[r] : c->dim[EXPAND_ROW] + r) * c->dim[EXPAND_IN] + c->dim[EXPAND_COLUMN];
        if (fast)
            expand_blocks(c, at / NF4_BLOCK, columns / NF4_BLOCK, (uint16_t *)c->data[EXPAND_W] + r * columns, single);
        else
            expand_row(c, at, at + columns, pair, r * columns, dt, single);
    }
}

static ALWAYS_INLINE void body_double(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    body_expand(c, begin, end, dt, false);
}

static ALWAYS_INLINE void body_single(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    body_expand(c, begin, end, dt, true);
}

KERNEL_BODY(nf4_expand)
{
    SPECIALISE(c->dtype[EXPAND_W], body_double, c, begin, end);
}

KERNEL_BODY(nf4_single_expand)
{
    SPECIALISE(c->dtype[EXPAND_W], body_single, c, begin, end);
}

#define PRODUCT(symbol, tile_m)                                                                                                  \
    {                                                                                                                            \
        SIGNATURE_##symbol, .group = 256, .rows = 1, .defines = DEFINE(TILE_N) " -DTILE_M=" DEFINE_TEXT(tile_m)                  \
    }

static const struct kernel fused[PRODUCT_COUNT][2] = {
    [PRODUCT_FORWARD] = {PRODUCT(linear_nf4, 16), PRODUCT(linear_nf4, 64)},
    [PRODUCT_BACKWARD] = {PRODUCT(linear_nf4_bwd_x, 16), PRODUCT(linear_nf4_bwd_x, 64)},
    [PRODUCT_PAIR] = {PRODUCT(linear_nf4_pair, 16), PRODUCT(linear_nf4_pair, 64)},
};

static void dequantise(const void *const *parts, int64_t rows, int64_t columns, float *w)
{
    int64_t elements = rows * columns;
    const int32_t *packed = parts[PACKED], *codes = parts[CODES];
    const float *scales = parts[SCALES];
    for (int64_t b = 0; b < nf4_blocks(elements); b++) {
        int64_t left = elements - b * NF4_BLOCK;
        float absmax = nf4_absmax(codes, scales, parts[MAP], b);
        nf4_dequantise(packed + b * (NF4_BLOCK / 8), &absmax, left < NF4_BLOCK ? left : NF4_BLOCK, w + b * NF4_BLOCK);
    }
}

static enum status quantise(const void *w, enum dtype dtype, int64_t rows, int64_t columns, void *const *parts)
{
    int64_t elements = rows * columns;
    float *absmax = memory_alloc(nf4_blocks(elements) * (int64_t)sizeof *absmax);
    enum status status = absmax ? nf4_quantise(w, dtype, elements, parts[PACKED], absmax) : ERR_MEMORY;
    if (status == OK)
        nf4_quantise_absmax(absmax, elements, parts[CODES], parts[SCALES]);
    nf4_map(parts[MAP]);
    memory_free(absmax);
    return status;
}

static void dequantise_single(const void *const *parts, int64_t rows, int64_t columns, float *w)
{
    nf4_dequantise(parts[PACKED], parts[ABSMAX], rows * columns, w);
}

static enum status quantise_single(const void *w, enum dtype dtype, int64_t rows, int64_t columns, void *const *parts)
{
    return nf4_quantise(w, dtype, rows * columns, parts[PACKED], parts[ABSMAX]);
}

/* absmax of about 0.1 ± 0.05; the map is bitsandbytes'. */
static double adjust(const char *part, int64_t index, double random)
{
    if (!strcmp(part, "nf4.map")) {
        float map[NF4_MAP];
        nf4_map(map);
        return (double)map[index];
    }
    if (!strcmp(part, "nf4_single.absmax"))
        return 0.14 + 0.01 * random;
    return index == 0 ? 0.1 + 0.01 * random : 0.04 + 0.01 * fabs(random);
}

const struct weight_type WEIGHT_TYPE(nf4) = {
    .name = "nf4",
    .block = 1,
    .part =
        {
            [PACKED] = {"nf4.packed", ROLE_INDEX, .elements = NF4_BLOCK, .bytes = NF4_BLOCK / 2},
            [CODES] = {"nf4.codes", ROLE_INDEX, .elements = NF4_BLOCK, .bytes = 1},
            [SCALES] = {"nf4.scales", ROLE_STATISTIC, .first = 1, .elements = NF4_BLOCK * NF4_GROUP, .bytes = 4},
            [MAP] = {"nf4.map", ROLE_STATISTIC, .first = NF4_MAP, .shared = nf4_map},
        },
    .expand = dequantise,
    .quantise = quantise,
    .kernel = {SIGNATURE_nf4_expand, .host = nf4_expand, .group = 128, .rows = 1},
    .fused = fused,
    .adjust = adjust,
};

const struct weight_type WEIGHT_TYPE(nf4_single) = {
    .name = "nf4_single",
    .block = 1,
    .part =
        {
            [PACKED] = {"nf4_single.packed", ROLE_INDEX, .elements = NF4_BLOCK, .bytes = NF4_BLOCK / 2},
            [ABSMAX] = {"nf4_single.absmax", ROLE_STATISTIC, .elements = NF4_BLOCK, .bytes = 4},
        },
    .expand = dequantise_single,
    .quantise = quantise_single,
    .kernel = {SIGNATURE_nf4_single_expand, .host = nf4_single_expand, .group = 128, .rows = 1},
    .adjust = adjust,
};
