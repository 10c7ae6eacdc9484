/* Quantising the simple types: one scale for a block, or a scale and a minimum. */
#include "format/quantise.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"

enum { BLOCK = 32, HALF = BLOCK / 2 };

static void quantise_put_half(uint8_t *to, float f)
{
    uint16_t half = f16_from_f32(f);
    to[0] = (uint8_t)half;
    to[1] = (uint8_t)(half >> 8);
}

/* The element of the largest magnitude, with its sign; the first of several. */
static float quantise_extreme(const float *w)
{
    float largest = 0, value = 0;
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(w[i]) > largest) {
            largest = fabsf(w[i]);
            value = w[i];
        }
    return value;
}

static float inverse_of(float scale)
{
    return scale != 0 ? 1 / scale : 0;
}

/* A code of at most `top` from a value that is not negative: rounded by cutting after adding a half. */
static uint8_t code(float value, float half, int top)
{
    int c = (int)(value + half);
    return (uint8_t)(c < top ? c : top);
}

/* Low nibbles: of elements 0 to 15 in the low halves of bytes, of 16 to 31 in the high ones. */
static void quantise_put_nibbles(uint8_t *to, const uint8_t codes[BLOCK])
{
    for (int i = 0; i < HALF; i++)
        to[i] = (uint8_t)((codes[i] & 15) | (codes[HALF + i] & 15) << 4);
}

/* The fifth bits, one for each element. */
static void put_fifth_bits(uint8_t *to, const uint8_t codes[BLOCK])
{
    memset(to, 0, 4);
    for (int i = 0; i < BLOCK; i++)
        to[i / 8] = (uint8_t)(to[i / 8] | (codes[i] >> 4 & 1) << i % 8);
}

void q4_0_quantise(const float *w, int64_t count, uint8_t *blocks)
{
    for (const float *end = w + count; w < end; w += BLOCK, blocks += 18) {
        uint8_t codes[BLOCK];
        float scale = quantise_extreme(w) / -8, inverse = inverse_of(scale);
        for (int i = 0; i < BLOCK; i++)
            codes[i] = code(w[i] * inverse, 8.5f, 15);
        quantise_put_half(blocks, scale);
        quantise_put_nibbles(blocks + 2, codes);
    }
}

void q5_0_quantise(const float *w, int64_t count, uint8_t *blocks)
{
    for (const float *end = w + count; w < end; w += BLOCK, blocks += 22) {
        uint8_t codes[BLOCK];
        float scale = quantise_extreme(w) / -16, inverse = inverse_of(scale);
        for (int i = 0; i < BLOCK; i++)
            codes[i] = code(w[i] * inverse, 16.5f, 31);
        quantise_put_half(blocks, scale);
        put_fifth_bits(blocks + 2, codes);
        quantise_put_nibbles(blocks + 6, codes);
    }
}

void q5_1_quantise(const float *w, int64_t count, uint8_t *blocks)
{
    for (const float *end = w + count; w < end; w += BLOCK, blocks += 24) {
        uint8_t codes[BLOCK];
        float low = w[0], high = w[0];
        for (int i = 1; i < BLOCK; i++) {
            low = w[i] < low ? w[i] : low;
            high = w[i] > high ? w[i] : high;
        }
        float scale = (high - low) / 31, inverse = inverse_of(scale);
        for (int i = 0; i < BLOCK; i++)
            codes[i] = code((w[i] - low) * inverse, 0.5f, 31);
        quantise_put_half(blocks, scale);
        quantise_put_half(blocks + 2, low);
        put_fifth_bits(blocks + 4, codes);
        quantise_put_nibbles(blocks + 8, codes);
    }
}

void q8_0_quantise(const float *w, int64_t count, uint8_t *blocks)
{
    for (const float *end = w + count; w < end; w += BLOCK, blocks += 34) {
        float scale = fabsf(quantise_extreme(w)) / 127, inverse = inverse_of(scale);
        quantise_put_half(blocks, scale);
        for (int i = 0; i < BLOCK; i++)
            blocks[2 + i] = (uint8_t)(int8_t)roundf(w[i] * inverse);
    }
}
