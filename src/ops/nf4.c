/* Weights in NF4 (format/nf4.h): w[i] = value[code i] · absmax of its block, absmax = map[byte] · scale + mean.
 *
 * Fused kernels expand tiles of w in a work-group's local memory.
 */
#include "format/nf4.h"
#include "ops/op.h"

#define TILE_N WEIGHT_TILE /* columns of a result that a work-group computes */

#ifdef REAL_DOUBLE
#define real_fma fma
#else
#define real_fma fmaf
#endif

enum { PACKED, CODES, SCALES, MAP, PARTS };

/* FMA with 0 rounds the product before the sum, as on every device and in bitsandbytes. */
static ALWAYS_INLINE void body_expand(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const int32_t *ids = c->data[EXPAND_IDS];
    const int32_t *packed = c->data[EXPAND_PARTS + PACKED], *codes = c->data[EXPAND_PARTS + CODES];
    const real *scales = c->data[EXPAND_PARTS + SCALES], *map = c->data[EXPAND_PARTS + MAP];
    void *w = c->data[EXPAND_W];
    int64_t columns = c->dim[EXPAND_COLUMNS];
    real pair[256][2], value[NF4_BLOCK]; /* the two values of a byte; those of a block before they are scaled */
    for (int byte = 0; byte < 256; byte++) {
        pair[byte][0] = (real)nf4_values[byte / 16];
        pair[byte][1] = (real)nf4_values[byte % 16];
    }
    for (int64_t r = begin; r < end; r++) {
        int64_t row = ids ? ids[r] : c->dim[EXPAND_ROW] + r;
        int64_t first = (row * c->dim[EXPAND_IN] + c->dim[EXPAND_COLUMN]) / NF4_BLOCK;
        for (int64_t b = 0; b < columns / NF4_BLOCK; b++) {
            int64_t block = first + b;
            uint32_t code = (uint32_t)codes[block / 4] >> 8 * (block % 4) & 255;
            real absmax = real_fma(map[code], scales[1 + block / NF4_GROUP], 0) + scales[0];
            for (int i = 0; i < NF4_BLOCK; i += 2) {
                uint32_t byte = (uint32_t)packed[block * (NF4_BLOCK / 8) + i / 8] >> 4 * (i % 8) & 255;
                memcpy(value + i, pair[byte], sizeof pair[byte]);
            }
            INDEPENDENT
            for (int i = 0; i < NF4_BLOCK; i++)
                store(dt, w, r * columns + b * NF4_BLOCK + i, value[i] * absmax);
        }
    }
}

KERNEL_BODY static void nf4_expand(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[EXPAND_W], body_expand, c, begin, end);
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

static void dequantise(const void *const *parts, int64_t elements, float *w)
{
    nf4_dequantise(parts[PACKED], parts[CODES], parts[SCALES], parts[MAP], elements, w);
}

/* absmax of about 0.1 ± 0.05; the map is bitsandbytes'. */
static double adjust(const char *part, int64_t index, double random)
{
    if (!strcmp(part, "nf4.map")) {
        float map[NF4_MAP];
        nf4_map(map);
        return (double)map[index];
    }
    return index == 0 ? 0.1 + 0.01 * random : 0.04 + 0.01 * fabs(random);
}

const struct weight_type WEIGHT_TYPE(nf4) = {
    .name = "nf4",
    .block = NF4_BLOCK,
    .part =
        {
            [PACKED] = {"nf4.packed", ROLE_INDEX, .elements = NF4_BLOCK, .bytes = NF4_BLOCK / 2},
            [CODES] = {"nf4.codes", ROLE_INDEX, .elements = NF4_BLOCK, .bytes = 1},
            [SCALES] = {"nf4.scales", ROLE_STATISTIC, .first = 1, .elements = NF4_BLOCK * NF4_GROUP, .bytes = 4},
            [MAP] = {"nf4.map", ROLE_STATISTIC, .first = NF4_MAP, .shared = true},
        },
    .expand = dequantise,
    .kernel = {SIGNATURE_nf4_expand, .host = nf4_expand, .group = 128, .rows = 1},
    .fused = fused,
    .adjust = adjust,
};
