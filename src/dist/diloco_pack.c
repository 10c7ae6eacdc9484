/* Rounding to 8 bits and back. */
#include "dist/diloco_pack.h"

#include <math.h>
#include <string.h>

/* A block has a float32 scale; all scales come before the codes. */
void diloco_pack(const float *x, float *lost, int64_t elements, int8_t *packed)
{
    int64_t blocks = elements / DILOCO_BLOCK;
    int8_t *code = packed + blocks * (int64_t)sizeof(float);
    for (int64_t b = 0; b < blocks; b++) {
        float largest = 0, scale;
        for (int64_t i = b * DILOCO_BLOCK; i < (b + 1) * DILOCO_BLOCK; i++)
            largest = fmaxf(largest, fabsf(x[i] + lost[i]));
        scale = largest / 127;
        memcpy(packed + b * (int64_t)sizeof scale, &scale, sizeof scale);
        for (int64_t i = b * DILOCO_BLOCK; i < (b + 1) * DILOCO_BLOCK; i++) {
            float whole = x[i] + lost[i], rounded = scale > 0 ? rintf(whole / scale) : 0;
            rounded = fminf(fmaxf(rounded, -127), 127); /* a scale that is nearly 0 has few digits */
            code[i] = (int8_t)rounded;
            lost[i] = whole - rounded * scale;
        }
    }
}

void diloco_unpack_add(const int8_t *packed, int64_t elements, float *sum)
{
    const int8_t *code = packed + elements / DILOCO_BLOCK * (int64_t)sizeof(float);
    for (int64_t b = 0; b < elements / DILOCO_BLOCK; b++) {
        float scale;
        memcpy(&scale, packed + b * (int64_t)sizeof scale, sizeof scale);
        for (int64_t i = b * DILOCO_BLOCK; i < (b + 1) * DILOCO_BLOCK; i++)
            sum[i] += (float)code[i] * scale;
    }
}

int64_t diloco_pack_bytes(int64_t elements)
{
    return elements / DILOCO_BLOCK * (int64_t)sizeof(float) + elements;
}
