/* Weights in FP8 (format/fp8_matrix.h): w = number of a byte · scale of its tile. Two types: fp8, where a tile is a row, and
 * fp8_block, where it has 128 x 128 numbers.
 *
 * They are expanded and multiplied in the run's type, so that activations are not rounded to FP8.
 */
#include "base/number.h"
#include "format/fp8_matrix.h"
#include "ops/op.h"

enum { CODES, SCALES };

/* A row is cut where tiles end. */
static ALWAYS_INLINE void body_expand(const struct call *c, int64_t begin, int64_t end, int64_t tall, int64_t wide, enum dtype dt)
{
    const int32_t *ids = c->data[EXPAND_IDS];
    const real *scales = c->data[EXPAND_PARTS + SCALES];
    void *w = c->data[EXPAND_W];
    int64_t in = c->dim[EXPAND_IN], column = c->dim[EXPAND_COLUMN], columns = c->dim[EXPAND_COLUMNS];
    for (int64_t r = begin; r < end; r++) {
        int64_t row = ids ? ids[r] : c->dim[EXPAND_ROW] + r;
        const uint8_t *codes = (const uint8_t *)c->data[EXPAND_PARTS + CODES] + row * in;
        const real *of_row = scales + row / tall * divide_up(in, wide);
        for (int64_t at = column; at < column + columns;) {
            int64_t stop = min((at / wide + 1) * wide, column + columns), to = r * columns - column;
            real scale = of_row[at / wide];
            INDEPENDENT
            for (int64_t i = at; i < stop; i++)
                store(dt, w, to + i, (real)fp8_to_f32(codes[i]) * scale);
            at = stop;
        }
    }
}

static enum status quantise(const void *w, enum dtype dtype, int64_t rows, int64_t columns, void *const *parts)
{
    return fp8_quantise(w, dtype, rows, columns, parts[CODES], parts[SCALES]);
}

/* No byte of an example is a NaN. */
static void fill(const char *part, int32_t *to, int64_t count)
{
    (void)part;
    uint8_t *codes = (uint8_t *)to;
    for (int64_t i = 0; i < 4 * count; i++)
        codes[i] = (codes[i] & 127) == 127 ? 0 : codes[i];
}

/* Weights of at most about 1. */
static double adjust(const char *part, int64_t index, double random)
{
    (void)part;
    (void)index;
    return (1 + 0.1 * random) / (double)FP8_MAX;
}

/* The rows and columns of a tile; how a weight is quantised at loading. */
#define FP8(type, rows_of_tile, columns_of_tile, how)                                                                            \
    KERNEL_BODY(type##_expand)                                                                                                   \
    {                                                                                                                            \
        SPECIALISE(c->dtype[EXPAND_W], body_expand, c, begin, end, rows_of_tile, columns_of_tile);                               \
    }                                                                                                                            \
    static void type##_on_host(const void *const *parts, int64_t rows, int64_t columns, float *w)                                \
    {                                                                                                                            \
        fp8_dequantise(parts[CODES], parts[SCALES], rows, columns, rows_of_tile, columns_of_tile, w);                            \
    }                                                                                                                            \
    const struct weight_type WEIGHT_TYPE(type) = {                                                                               \
        .name = #type,                                                                                                           \
        .block = 1,                                                                                                              \
        .part = {[CODES] = {#type ".codes", ROLE_INDEX, .elements = 1, .bytes = 1},                                              \
                 [SCALES] = {#type ".scales", ROLE_STATISTIC, .bytes = 4, .tall = rows_of_tile, .wide = columns_of_tile}},       \
        .expand = type##_on_host,                                                                                                \
        .quantise = how,                                                                                                         \
        .kernel = {SIGNATURE_fp8_expand, .host = type##_expand, .group = 128, .rows = 1,                                         \
                   .defines = " -DTALL=" DEFINE_TEXT(rows_of_tile) " -DWIDE=" DEFINE_TEXT(columns_of_tile)},                     \
        .fill = fill,                                                                                                            \
        .adjust = adjust,                                                                                                        \
    };

FP8(fp8, 1, FP8_ROW, quantise)
FP8(fp8_block, FP8_TILE, FP8_TILE, NULL)
