/* Quantising the simple types: one scale for a block, or a scale and a minimum. */
#include "format/quantise.h"

#include <math.h>

#include "base/dtype.h"

enum { BLOCK = 32 };

static void put_half(uint8_t *to, float f)
{
    uint16_t half = f16_from_f32(f);
    to[0] = (uint8_t)half;
    to[1] = (uint8_t)(half >> 8);
}

void q8_0_quantise(const float *w, int64_t count, uint8_t *blocks)
{
    for (int64_t b = 0; b < count / BLOCK; b++, w += BLOCK, blocks += 34) {
        float largest = 0;
        for (int i = 0; i < BLOCK; i++)
            largest = fmaxf(largest, fabsf(w[i]));
        float scale = largest / 127, inverse = scale != 0 ? 1 / scale : 0;
        put_half(blocks, scale);
        for (int i = 0; i < BLOCK; i++)
            blocks[2 + i] = (uint8_t)(int8_t)roundf(w[i] * inverse);
    }
}
