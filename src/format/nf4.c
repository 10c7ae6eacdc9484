/* Quantising to NF4 and back, value by value. */
#include "format/nf4.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"

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

int64_t nf4_code_words(int64_t count)
{
    return (count / NF4_BLOCK + 3) / 4;
}

int64_t nf4_scales(int64_t count)
{
    return 1 + (count / NF4_BLOCK + NF4_GROUP - 1) / NF4_GROUP;
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
static int nearest(const float *values, int count, float x)
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

static float largest(const float *x, int64_t count)
{
    float max_abs = 0;
    for (int64_t i = 0; i < count; i++)
        max_abs = fabsf(x[i]) > max_abs ? fabsf(x[i]) : max_abs;
    return max_abs;
}

static float inverse(float max_abs)
{
    return 1 / (max_abs > 1e-38f ? max_abs : 1e-38f);
}

static void quantise_block(const float *w, float max_abs, int32_t *packed)
{
    for (int word = 0; word < NF4_BLOCK / 8; word++) {
        uint32_t bits = 0;
        for (int i = 0; i < 8; i++)
            bits |= (uint32_t)nearest(nf4_values, NF4_VALUES, w[word * 8 + i] * inverse(max_abs)) << 4 * (i ^ 1);
        packed[word] = (int32_t)bits;
    }
}

/* Overwrites absmax. */
static void quantise_absmax(float *absmax, int64_t blocks, struct nf4 *out)
{
    float map[NF4_MAP];
    double sum = 0;
    nf4_map(map);
    for (int64_t b = 0; b < blocks; b++)
        sum += (double)absmax[b];
    out->scales[0] = (float)(sum / (double)blocks);
    for (int64_t b = 0; b < blocks; b++)
        absmax[b] -= out->scales[0];
    for (int64_t begin = 0; begin < blocks; begin += NF4_GROUP) {
        int64_t end = min(blocks, begin + NF4_GROUP);
        float max_abs = largest(absmax + begin, end - begin);
        out->scales[1 + begin / NF4_GROUP] = max_abs;
        for (int64_t b = begin; b < end; b++) {
            uint32_t code = (uint32_t)nearest(map, NF4_MAP, absmax[b] * inverse(max_abs));
            out->codes[b / 4] = (int32_t)((uint32_t)out->codes[b / 4] | code << 8 * (b % 4));
        }
    }
}

enum status nf4_quantise(const float *w, int64_t count, struct nf4 *out)
{
    *out = (struct nf4){.count = count};
    if (count < 1 || count % NF4_BLOCK)
        return fail(ERR_ARGUMENT, "NF4 takes blocks of %d values, and %lld is not a multiple of that", NF4_BLOCK,
                    (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(w[i]))
            return fail(ERR_DATA, "value %lld of a weight to quantise to NF4 is not finite", (long long)i);
    int64_t blocks = count / NF4_BLOCK;
    float *absmax = memory_alloc(blocks * 4);
    out->packed = memory_alloc(count / 8 * 4);
    out->codes = memory_alloc(nf4_code_words(count) * 4);
    out->scales = memory_alloc(nf4_scales(count) * 4);
    enum status status = absmax && out->packed && out->codes && out->scales ? OK : ERR_MEMORY;
    for (int64_t b = 0; b < blocks && status == OK; b++) {
        absmax[b] = largest(w + b * NF4_BLOCK, NF4_BLOCK);
        quantise_block(w + b * NF4_BLOCK, absmax[b], out->packed + b * (NF4_BLOCK / 8));
    }
    if (status == OK)
        quantise_absmax(absmax, blocks, out);
    else
        nf4_free(out);
    memory_free(absmax);
    return status;
}

void nf4_dequantise(const int32_t *packed, const int32_t *codes, const float *scales, const float *map, int64_t count, float *w)
{
    for (int64_t b = 0; b < count / NF4_BLOCK; b++) {
        uint32_t code = (uint32_t)codes[b / 4] >> 8 * (b % 4) & 255;
        float product = map[code] * scales[1 + b / NF4_GROUP], absmax = product + scales[0];
        for (int64_t i = b * NF4_BLOCK; i < (b + 1) * NF4_BLOCK; i++)
            w[i] = nf4_values[(uint32_t)packed[i / 8] >> 4 * (i % 8 ^ 1) & 15] * absmax;
    }
}

void nf4_free(struct nf4 *nf4)
{
    memory_free(nf4->packed);
    memory_free(nf4->codes);
    memory_free(nf4->scales);
    *nf4 = (struct nf4){0};
}
