/* Quantising to NF4 and back, value by value. */
#include "format/nf4_codes.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/number.h"
#include "base/parallel.h"

const float nf4_values[NF4_VALUES] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

int64_t nf4_blocks(int64_t count)
{
    return (count + NF4_BLOCK - 1) / NF4_BLOCK;
}

int64_t nf4_packed_words(int64_t count)
{
    return (count + 7) / 8;
}

int64_t nf4_code_words(int64_t count)
{
    return (nf4_blocks(count) + 3) / 4;
}

int64_t nf4_scales(int64_t count)
{
    return 1 + (nf4_blocks(count) + NF4_GROUP - 1) / NF4_GROUP;
}

/* The i-th of `steps` points from 0.1 to 1, computed from the nearer end and rounded once, as in torch.linspace. */
static float point(int i, int steps)
{
    float step = (1.0f - 0.1f) / (float)(steps - 1);
    return i < steps / 2 ? fmaf(step, (float)i, 0.1f) : fmaf(-step, (float)(steps - 1 - i), 1.0f);
}

/* Seven decades, of 1, 2, 4 … 64 values each: the middles of equal parts of [0.1, 1], times 10^-6 … 1. With their negatives, 0
 * and 1 they are 256. */
void nf4_map(float map[NF4_MAP])
{
    static const float decades[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
    const int zero = NF4_MAP / 2 - 1;
    int at = zero + 1;
    map[zero] = 0;
    for (int e = 0; e < 7; e++)
        for (int i = 0; i < 1 << e; i++, at++) {
            map[at] = decades[e] * ((point(i, (1 << e) + 1) + point(i + 1, (1 << e) + 1)) / 2);
            map[2 * zero - at] = -map[at];
        }
    map[at] = 1;
}

/* The index of the nearest of ascending values; the lower one if two are equally near. */
static int nf4_codes_nearest(const float *values, int count, float x)
{
    int low = 0, high = count - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (x <= (values[middle] + values[middle + 1]) / 2)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static float nf4_codes_largest(const float *x, int64_t count)
{
    float max_abs = 0;
    for (int64_t i = 0; i < count; i++)
        max_abs = fabsf(x[i]) > max_abs ? fabsf(x[i]) : max_abs;
    return max_abs;
}

static float at_least_1e_38(float max_abs)
{
    return max_abs > 1e-38f ? max_abs : 1e-38f;
}

struct quantising {
    const char *w;
    enum dtype dtype;
    int64_t count;
    int32_t *packed;
    float *absmax;
    _Atomic int64_t broken; /* a value that is not finite; -1: none */
};

/* How many of the middles between two values lie below: the index of the nearest one. */
static void choose_codes(const float x[NF4_BLOCK], uint32_t code[NF4_BLOCK])
{
    for (int i = 0; i < NF4_BLOCK; i++)
        code[i] = 0;
    for (int v = 0; v + 1 < NF4_VALUES; v++) {
        float middle = (nf4_values[v] + nf4_values[v + 1]) / 2;
        for (int i = 0; i < NF4_BLOCK; i++)
            code[i] += x[i] > middle;
    }
}

/* Whole blocks are multiplied by the inverse of their absmax, and a short one is divided by it, as bitsandbytes does on CPUs. A
 * value that is missing at the end is 0. */
static void quantise_block(struct quantising *q, int64_t block)
{
    float x[NF4_BLOCK] = {0};
    uint32_t code[NF4_BLOCK];
    int64_t begin = block * NF4_BLOCK, count = min(q->count - begin, (int64_t)NF4_BLOCK);
    dtype_convert(x, DTYPE_F32, q->w + begin * dtype_size(q->dtype), q->dtype, count);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            q->broken = begin + i;
    float max_abs = nf4_codes_largest(x, count), divisor = at_least_1e_38(max_abs), inverse = 1 / divisor;
    q->absmax[block] = count < NF4_BLOCK ? divisor : max_abs;
    for (int64_t i = 0; i < NF4_BLOCK; i++)
        x[i] = count < NF4_BLOCK ? x[i] / divisor : x[i] * inverse;
    choose_codes(x, code);
    for (int64_t i = 0; i < round_up(count, 2); i++) {
        int32_t *word = &q->packed[(begin + i) / 8];
        *word = (int32_t)((uint32_t)*word | code[i] << 4 * (i % 8 ^ 1));
    }
}

static void quantise_blocks(void *context, int64_t begin, int64_t end)
{
    for (int64_t b = begin; b < end; b++)
        quantise_block(context, b);
}

enum status nf4_quantise(const void *w, enum dtype dtype, int64_t count, int32_t *packed, float *absmax)
{
    struct quantising q = {.w = w, .dtype = dtype, .count = count, .packed = packed, .absmax = absmax, .broken = -1};
    parallel_for(nf4_blocks(count), 1024, quantise_blocks, &q);
    return q.broken < 0 ? OK : fail(ERR_DATA, "value %lld of a weight to quantise to NF4 is not finite", (long long)q.broken);
}

void nf4_quantise_absmax(float *absmax, int64_t count, int32_t *codes, float *scales)
{
    float map[NF4_MAP];
    double sum = 0;
    int64_t blocks = nf4_blocks(count);
    nf4_map(map);
    for (int64_t b = 0; b < blocks; b++)
        sum += (double)absmax[b];
    scales[0] = (float)(sum / (double)blocks);
    for (int64_t b = 0; b < blocks; b++)
        absmax[b] -= scales[0];
    for (int64_t begin = 0; begin < blocks; begin += NF4_GROUP) {
        int64_t end = min(blocks, begin + NF4_GROUP);
        float max_abs = nf4_codes_largest(absmax + begin, end - begin), inverse = 1 / at_least_1e_38(max_abs);
        scales[1 + begin / NF4_GROUP] = max_abs;
        for (int64_t b = begin; b < end; b++) {
            uint32_t code = (uint32_t)nf4_codes_nearest(map, NF4_MAP, absmax[b] * inverse);
            codes[b / 4] = (int32_t)((uint32_t)codes[b / 4] | code << 8 * (b % 4));
        }
    }
}

float nf4_absmax(const int32_t *codes, const float *scales, const float *map, int64_t block)
{
    float product = map[((const uint8_t *)codes)[block]] * scales[1 + block / NF4_GROUP];
    return product + scales[0];
}

void nf4_dequantise(const int32_t *packed, const float *absmax, int64_t count, float *w)
{
    const uint8_t *codes = (const uint8_t *)packed;
    for (int64_t i = 0; i < count; i++) {
        float scale;
        memcpy(&scale, (const char *)absmax + i / NF4_BLOCK * (int64_t)sizeof scale, sizeof scale);
        w[i] = nf4_values[codes[i / 2] >> 4 * (i % 2 ^ 1) & 15] * scale;
    }
}
