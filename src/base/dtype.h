/* Element types. 16-bit types are storage: arithmetic is done in float32 (or in double, in the tests' reference). */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdint.h>
#include <string.h>

enum dtype {
    DTYPE_F32,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_F64,
    DTYPE_I32,
    DTYPE_COUNT,
};

int64_t dtype_size(enum dtype dtype);
const char *dtype_name(enum dtype dtype);

static inline float bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Rounds to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t bf16_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1);
    return (uint16_t)(((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded) >> 16);
}

/* A multiplication shifts the exponent, so that subnormal numbers come out right without a loop. */
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13, bits;
    float f;
    memcpy(&f, &magnitude, sizeof f);
    f *= 0x1p112f;
    memcpy(&bits, &f, sizeof bits);
    bits = sign | ((h & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000u : bits);
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t f16_from_f32(float f); /* rounds as bf16_from_f32; beyond 65504 it is infinity */

/* Converts `count` elements between floating types. Returns 0 if there is no such conversion, else 1. */
int dtype_convert(void *to, enum dtype to_type, const void *from, enum dtype from_type, int64_t count);

#endif
