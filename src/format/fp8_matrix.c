/* Rounding to e4m3, and matrices of it. */
#include "format/fp8_matrix.h"

#include <math.h>
#include <stdatomic.h>

#include "base/number.h"
#include "base/parallel.h"

/* Above 2^-6 the mantissa's low 20 bits are rounded away, and a carry goes into the exponent by itself. Below, the steps are 2^-9
 * apart: adding 2^14 leaves a float32 no smaller ones, so that the addition rounds. */
uint8_t fp8_from_f32(float f)
{
    uint32_t bits, sign, magnitude;
    memcpy(&bits, &f, sizeof bits);
    sign = bits >> 24 & 128;
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint8_t)(sign | 127);
    if (magnitude >= 0x43e00000u) /* 448 */
        return (uint8_t)(sign | 126);
    if (magnitude < 0x3c800000u) { /* 2^-6 */
        float rounded = fabsf(f) + 0x1p14f;
        return (uint8_t)(sign | (uint32_t)((rounded - 0x1p14f) * 0x1p9f));
    }
    magnitude += 0x7ffffu + (magnitude >> 20 & 1);
    return (uint8_t)(sign | (magnitude - 0x3c000000u) >> 20);
}

struct quantising {
    const char *w;
    enum dtype dtype;
    int64_t columns;
    uint8_t *codes;
    float *scales;
    _Atomic int64_t broken; /* a value that is not finite; -1: none */
};

enum { PIECE = 256 };

/* A piece of a row as float32; returns its length. */
static int64_t fp8_matrix_take_piece(const struct quantising *q, int64_t row, int64_t column, float x[PIECE])
{
    int64_t count = min(q->columns - column, (int64_t)PIECE);
    dtype_convert(x, DTYPE_F32, q->w + (row * q->columns + column) * dtype_size(q->dtype), q->dtype, count);
    return count;
}

static void quantise_row(struct quantising *q, int64_t row)
{
    float x[PIECE], largest = 0;
    for (int64_t column = 0; column < q->columns; column += PIECE) {
        int64_t count = fp8_matrix_take_piece(q, row, column, x);
        for (int64_t i = 0; i < count; i++) {
            if (!isfinite(x[i]))
                q->broken = row * q->columns + column + i;
            largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        }
    }
    float scale = largest / FP8_MAX;
    scale = scale > 0 ? scale : 1;
    q->scales[row] = scale;
    for (int64_t column = 0; column < q->columns; column += PIECE) {
        int64_t count = fp8_matrix_take_piece(q, row, column, x);
        for (int64_t i = 0; i < count; i++)
            q->codes[row * q->columns + column + i] = fp8_from_f32(x[i] / scale);
    }
}

static void quantise_rows(void *context, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        quantise_row(context, row);
}

enum status fp8_quantise(const void *w, enum dtype dtype, int64_t rows, int64_t columns, uint8_t *codes, float *scales)
{
    struct quantising q = {.w = w, .dtype = dtype, .columns = columns, .codes = codes, .scales = scales, .broken = -1};
    parallel_for(rows, 16, quantise_rows, &q);
    return q.broken < 0 ? OK : fail(ERR_DATA, "value %lld of a weight to quantise to FP8 is not finite", (long long)q.broken);
}

void fp8_dequantise(const uint8_t *codes, const float *scales, int64_t rows, int64_t columns, int64_t tall, int64_t wide,
                    float *w)
{
    int64_t across = divide_up(columns, wide);
    for (int64_t r = 0; r < rows; r++, codes += columns, w += columns)
        for (int64_t tile = 0; tile < across; tile++) {
            float scale = scales[r / tall * across + tile];
            for (int64_t c = tile * wide; c < min((tile + 1) * wide, columns); c++)
                w[c] = fp8_to_f32(codes[c]) * scale;
        }
}
