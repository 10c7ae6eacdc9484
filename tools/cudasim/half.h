/* 16-bit floats and TF32, to and from float32, rounded to the nearest even or towards zero. */
#ifndef TOOLS_CUDASIM_HALF_H
#define TOOLS_CUDASIM_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t bits_of_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of_bf16(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_of_float(float f)
{
    uint32_t u = bits_of_float(f);
    return f != f ? 0x7fff : (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline uint16_t bf16_of_float_zero(float f)
{
    return f != f ? 0x7fff : (uint16_t)(bits_of_float(f) >> 16);
}

static inline float float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent)
        return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float f = (float)mantissa * 0x1p-24f;
    return sign ? -f : f;
}

/* The float16 below or at |f|, and what is to be added for rounding to the nearest. */
static inline uint16_t f16_of_float_rounded(float f, int nearest)
{
    uint32_t u = bits_of_float(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000u)
        return 0x7fff;
    if (magnitude == 0x7f800000u)
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x47800000u)
        return (uint16_t)(sign | (nearest ? 0x7c00 : 0x7bff));
    uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000, exponent = magnitude >> 23, shift = 13, base;
    if (exponent >= 113) {
        base = (exponent - 112) << 10;
        mantissa &= 0x7fffff;
    } else {
        base = 0;
        shift = 126 - exponent;
        if (shift > 25)
            return (uint16_t)sign;
    }
    uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    uint32_t up = nearest && (rest > half || (rest == half && (kept & 1)));
    return (uint16_t)(sign | (base + kept + up));
}

static inline uint16_t f16_of_float(float f)
{
    return f16_of_float_rounded(f, 1);
}

/* To the nearest, halves away from zero, as cvt.rna.tf32 does. */
static inline float tf32_of_float(float f)
{
    uint32_t u = bits_of_float(f);
    return (u & 0x7f800000u) == 0x7f800000u ? f : float_of_bits((u + 0x1000u) & 0xffffe000u);
}

#endif
