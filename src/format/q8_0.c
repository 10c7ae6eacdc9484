/* Q8_0 blocks to floats. */
#include "format/q8_0.h"

#include "base/dtype.h"

void q8_0_dequantise(const uint8_t *blocks, int64_t count, float *w)
{
    for (int64_t b = 0; b < count / Q8_0_BLOCK; b++, blocks += Q8_0_BYTES) {
        float scale = f16_to_f32((uint16_t)(blocks[0] | blocks[1] << 8));
        for (int i = 0; i < Q8_0_BLOCK; i++)
            w[b * Q8_0_BLOCK + i] = scale * (float)(int8_t)blocks[2 + i];
    }
}
