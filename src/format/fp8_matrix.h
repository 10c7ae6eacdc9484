/* FP8: weights as bytes of e4m3 (torch.float8_e4m3fn), with a float32 scale for each row or for each tile of a matrix.
 *
 *     w[r, c] = number of byte (r, c) · scale of its tile
 *
 * A byte is a sign, 4 bits of exponent and 3 of mantissa. The largest number is 448, there is no infinity, and 0x7f and 0xff are
 * NaN. A tile is a whole row, as hone quantises, or 128 x 128 numbers, as DeepSeek's and Qwen's files have them.
 */
#ifndef FORMAT_FP8_MATRIX_H
#define FORMAT_FP8_MATRIX_H

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"

#define FP8_MAX 448.0f
#define FP8_TILE 128       /* rows and columns of a tile */
#define FP8_ROW 0x40000000 /* columns of a tile that is a whole row: no row has more */

/* A normal number's bits are moved to their place in a float32; one below 2^-6 is its mantissa · 2^-9. */
static inline float fp8_to_f32(uint8_t code)
{
    uint32_t magnitude = code & 127u, normal = (magnitude << 20) + 0x3c000000u, bits;
    float small = (float)(int32_t)magnitude * 0x1p-9f;
    memcpy(&bits, &small, sizeof bits);
    bits = magnitude < 8 ? bits : normal;
    bits = magnitude == 127 ? 0x7fc00000u : bits;
    bits |= (uint32_t)(code & 128u) << 24;
    memcpy(&small, &bits, sizeof small);
    return small;
}

/* Rounds to nearest, ties to even. What is larger than 448 becomes 448; a NaN stays one. */
uint8_t fp8_from_f32(float f);

/* Quantises a matrix by rows: scale = the row's largest absolute value / 448, byte = value / scale. A row of zeros has scale 1.
 * ERR_DATA: a value is not finite. */
enum status fp8_quantise(const void *w, enum dtype dtype, int64_t rows, int64_t columns, uint8_t *codes, float *scales);

/* The numbers of a matrix with a scale for each `tall` x `wide` tile. */
void fp8_dequantise(const uint8_t *codes, const float *scales, int64_t rows, int64_t columns, int64_t tall, int64_t wide,
                    float *w);

#endif
