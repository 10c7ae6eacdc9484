/* Quantising K-types. A group's scale (and minimum) is fitted to its codes by weighted least squares, and the codes follow from a
 * first guess of the scale: of several guesses the fit with the smallest error is kept. Sums are float32 in the order of the
 * elements, as in the reference, because near a tie the order decides. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/dtype.h"
#include "format/quantise.h"

enum { SUPER = 256, GROUP = 32, GROUPS = SUPER / GROUP, SMALL = 16, SMALLS = SUPER / SMALL };

#define TINY 1e-15f /* a group below it is zeros */

static void quantise_k_put_half(uint8_t *to, float f)
{
    uint16_t half = f16_from_f32(f);
    to[0] = (uint8_t)half;
    to[1] = (uint8_t)(half >> 8);
}

static float get_half(const uint8_t *from)
{
    return f16_to_f32((uint16_t)(from[0] | from[1] << 8));
}

/* To nearest, ties to even. */
static int quantise_k_nearest(float f)
{
    return (int)rintf(f);
}

static int within(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

/* --- a scale and a minimum: Q4_K, Q5_K ---------------------------------------------------------------------------------- */

struct group {
    float scale, min; /* an element is scale · code − min */
    uint8_t codes[GROUP];
};

/* What the candidates of a type are: (first + 0.1 · i + top) / range for i from 0 to steps. */
struct search {
    int top, steps;
    float first;
};

static float error_of(const float *w, const float *weights, float scale, float low, const uint8_t *codes)
{
    float error = 0;
    for (int i = 0; i < GROUP; i++) {
        float off = scale * (float)codes[i] + low - w[i];
        error += weights[i] * (off * off);
    }
    return error;
}

static void quantise_k_encode(const float *w, float inverse, float low, int top, uint8_t *codes)
{
    for (int i = 0; i < GROUP; i++)
        codes[i] = (uint8_t)within(quantise_k_nearest(inverse * (w[i] - low)), 0, top);
}

/* The scale and the minimum (at most 0) that fit these codes best; false: they do not decide it. */
static bool fit(const float *w, const float *weights, const uint8_t *codes, float sum_w, float sum_x, float *scale, float *low)
{
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < GROUP; i++) {
        float l = (float)codes[i];
        sum_l += weights[i] * l;
        sum_l2 += weights[i] * l * l;
        sum_xl += weights[i] * l * w[i];
    }
    float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0))
        return false;
    *scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    *low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (*low > 0) {
        *low = 0;
        *scale = sum_xl / sum_l2;
    }
    return true;
}

static void fit_group(const float *w, const struct search *search, struct group *g)
{
    float weights[GROUP], squares = 0, low = w[0], high = w[0], sum_w = 0, sum_x = 0;
    for (int i = 0; i < GROUP; i++)
        squares += w[i] * w[i];
    float mean = sqrtf(squares / GROUP);
    for (int i = 0; i < GROUP; i++) {
        weights[i] = mean + fabsf(w[i]);
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
        sum_w += weights[i];
        sum_x += weights[i] * w[i];
    }
    low = low > 0 ? 0 : low;
    *g = (struct group){.min = -low};
    if (high == low)
        return;
    float inverse = (float)search->top / (high - low), best;
    g->scale = 1 / inverse;
    quantise_k_encode(w, inverse, low, search->top, g->codes);
    best = error_of(w, weights, g->scale, low, g->codes);
    for (int step = 0; step <= search->steps; step++) {
        uint8_t codes[GROUP];
        float scale, min, candidate = search->first + 0.1f * (float)step + (float)search->top;
        quantise_k_encode(w, candidate / (high - low), low, search->top, codes);
        if (!fit(w, weights, codes, sum_w, sum_x, &scale, &min))
            continue;
        float error = error_of(w, weights, scale, min, codes);
        if (error < best) { /* the next guesses start from its minimum */
            best = error;
            memcpy(g->codes, codes, sizeof codes);
            g->scale = scale;
            low = min;
        }
    }
    g->min = -low;
}

/* Scales and minima of eight groups as 6-bit codes in 12 bytes: the first four of each whole, and in their upper two bits the
 * upper bits of the last four, whose lower bits share the last four bytes. */
static void put_scales(uint8_t to[12], const uint8_t scales[GROUPS], const uint8_t mins[GROUPS])
{
    for (int j = 0; j < 4; j++) {
        to[j] = (uint8_t)(scales[j] | scales[j + 4] >> 4 << 6);
        to[j + 4] = (uint8_t)(mins[j] | mins[j + 4] >> 4 << 6);
        to[j + 8] = (uint8_t)((scales[j + 4] & 15) | (mins[j + 4] & 15) << 4);
    }
}

/* Writes scales and minima, and fills in the codes of all elements by the rounded ones. */
static void code_groups(const float *w, const struct search *search, uint8_t *block, uint8_t codes[SUPER])
{
    struct group groups[GROUPS];
    uint8_t scales[GROUPS], mins[GROUPS];
    float scale_max = 0, min_max = 0;
    for (int j = 0; j < GROUPS; j++) {
        fit_group(w + GROUP * j, search, &groups[j]);
        scale_max = groups[j].scale > scale_max ? groups[j].scale : scale_max;
        min_max = groups[j].min > min_max ? groups[j].min : min_max;
    }
    float to_scale = scale_max > 0 ? 63 / scale_max : 0, to_min = min_max > 0 ? 63 / min_max : 0;
    for (int j = 0; j < GROUPS; j++) {
        scales[j] = (uint8_t)within(quantise_k_nearest(to_scale * groups[j].scale), 0, 63);
        mins[j] = (uint8_t)within(quantise_k_nearest(to_min * groups[j].min), 0, 63);
    }
    quantise_k_put_half(block, scale_max / 63);
    quantise_k_put_half(block + 2, min_max / 63);
    put_scales(block + 4, scales, mins);
    for (int j = 0; j < GROUPS; j++) {
        float scale = get_half(block) * (float)scales[j], min = get_half(block + 2) * (float)mins[j];
        memcpy(codes + GROUP * j, groups[j].codes, GROUP);
        for (int i = 0; i < GROUP && scale != 0; i++)
            codes[GROUP * j + i] = (uint8_t)within(quantise_k_nearest((w[GROUP * j + i] + min) / scale), 0, search->top);
    }
}

/* Low nibbles of two groups at a time: the first in the low halves of 32 bytes, the second in the high ones. */
static void quantise_k_put_nibbles(uint8_t *to, const uint8_t codes[SUPER])
{
    for (int pair = 0; pair < GROUPS / 2; pair++)
        for (int i = 0; i < GROUP; i++)
            to[GROUP * pair + i] =
                (uint8_t)((codes[2 * GROUP * pair + i] & 15) | (codes[2 * GROUP * pair + GROUP + i] & 15) << 4);
}

void q4_k_quantise(const float *w, int64_t count, uint8_t *blocks)
{
    static const struct search search = {.top = 15, .steps = 20, .first = -1};
    for (const float *end = w + count; w < end; w += SUPER, blocks += 144) {
        uint8_t codes[SUPER];
        code_groups(w, &search, blocks, codes);
        quantise_k_put_nibbles(blocks + 16, codes);
    }
}

void q5_k_quantise(const float *w, int64_t count, uint8_t *blocks)
{
    static const struct search search = {.top = 31, .steps = 15, .first = -0.5f};
    for (const float *end = w + count; w < end; w += SUPER, blocks += 176) {
        uint8_t codes[SUPER];
        code_groups(w, &search, blocks, codes);
        for (int i = 0; i < GROUP; i++) {
            int bits = 0;
            for (int j = 0; j < GROUPS; j++)
                bits |= codes[GROUP * j + i] >> 4 << j;
            blocks[16 + i] = (uint8_t)bits;
        }
        quantise_k_put_nibbles(blocks + 48, codes);
    }
}

/* --- only a scale: Q6_K ------------------------------------------------------------------------------------------------- */

enum { TOP = 32 }; /* codes are −32 … 31 */

static void encode_six_bits(const float *w, float inverse, uint8_t codes[SMALL])
{
    for (int i = 0; i < SMALL; i++)
        codes[i] = (uint8_t)(TOP + within(quantise_k_nearest(inverse * w[i]), -TOP, TOP - 1));
}

/* Σ w² · w · l and Σ w² · l², of which the best scale is the quotient. */
static void sums(const float *w, const uint8_t codes[SMALL], float *with_w, float *with_l)
{
    *with_w = *with_l = 0;
    for (int i = 0; i < SMALL; i++) {
        float l = (float)(codes[i] - TOP), weight = w[i] * w[i];
        *with_w += weight * w[i] * l;
        *with_l += weight * l * l;
    }
}

static float fit_scale(const float *w, uint8_t codes[SMALL])
{
    float largest = 0, value = 0, with_w, with_l;
    memset(codes, 0, SMALL);
    for (int i = 0; i < SMALL; i++)
        if (fabsf(w[i]) > largest) {
            largest = fabsf(w[i]);
            value = w[i];
        }
    if (largest < TINY)
        return 0;
    encode_six_bits(w, -(float)TOP / value, codes);
    sums(w, codes, &with_w, &with_l);
    float scale = with_l != 0 ? with_w / with_l : 0, best = scale * with_w;
    for (int step = -9; step <= 9; step++) {
        uint8_t other[SMALL];
        if (step == 0)
            continue;
        encode_six_bits(w, -((float)TOP + 0.1f * (float)step) / value, other);
        sums(w, other, &with_w, &with_l);
        if (with_l > 0 && with_w * with_w > best * with_l) {
            memcpy(codes, other, SMALL);
            scale = with_w / with_l;
            best = scale * with_w;
        }
    }
    return scale;
}

/* ql has the low nibbles, qh the two upper bits: in each half of the block 32 columns of four elements, 32 apart. */
static void put_six_bits(uint8_t *block, const uint8_t codes[SUPER])
{
    for (int half = 0; half < 2; half++) {
        uint8_t *ql = block + 64 * half, *qh = block + 128 + 32 * half;
        const uint8_t *c = codes + 128 * half;
        for (int i = 0; i < 32; i++) {
            ql[i] = (uint8_t)((c[i] & 15) | (c[i + 64] & 15) << 4);
            ql[i + 32] = (uint8_t)((c[i + 32] & 15) | (c[i + 96] & 15) << 4);
            qh[i] = (uint8_t)(c[i] >> 4 | c[i + 32] >> 4 << 2 | c[i + 64] >> 4 << 4 | c[i + 96] >> 4 << 6);
        }
    }
}

static void code_six_bits(const float *w, uint8_t *block)
{
    float scales[SMALLS], largest = 0, value = 0;
    uint8_t codes[SUPER];
    memset(block, 0, 210);
    for (int j = 0; j < SMALLS; j++) {
        scales[j] = fit_scale(w + SMALL * j, codes + SMALL * j);
        if (fabsf(scales[j]) > largest) {
            largest = fabsf(scales[j]);
            value = scales[j];
        }
    }
    if (largest < TINY)
        return;
    float inverse = -128 / value;
    quantise_k_put_half(block + 208, 1 / inverse);
    for (int j = 0; j < SMALLS; j++) {
        int code = quantise_k_nearest(inverse * scales[j]);
        int8_t small = (int8_t)(code < 127 ? code : 127);
        float scale = get_half(block + 208) * (float)small;
        block[192 + j] = (uint8_t)small;
        for (int i = 0; i < SMALL && scale != 0; i++)
            codes[SMALL * j + i] = (uint8_t)(TOP + within(quantise_k_nearest(w[SMALL * j + i] / scale), -TOP, TOP - 1));
    }
    put_six_bits(block, codes);
}

void q6_k_quantise(const float *w, int64_t count, uint8_t *blocks)
{
    for (const float *end = w + count; w < end; w += SUPER, blocks += 210)
        code_six_bits(w, blocks);
}
