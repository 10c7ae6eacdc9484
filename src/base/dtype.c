/* Sizes, names and conversions of element types. */
#include "base/dtype.h"

static const struct {
    const char *name;
    int64_t size;
} types[DTYPE_COUNT] = {
    [DTYPE_F32] = {"float32", 4}, [DTYPE_BF16] = {"bfloat16", 2}, [DTYPE_F16] = {"float16", 2},
    [DTYPE_F64] = {"float64", 8}, [DTYPE_I32] = {"int32", 4},
};

int64_t dtype_size(enum dtype dtype)
{
    return types[dtype].size;
}

const char *dtype_name(enum dtype dtype)
{
    return types[dtype].name;
}

/* Below 2^-14 an addition rounds to a multiple of 2^-24, the smallest subnormal. */
uint16_t f16_from_f32(float f)
{
    uint32_t bits, small;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (magnitude >= 0x38800000u)
        return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
    float moved;
    memcpy(&moved, &magnitude, sizeof moved);
    moved += 0.5f;
    memcpy(&small, &moved, sizeof small);
    return (uint16_t)(sign | (small - 0x3f000000u));
}

/* Tensors in files may lie at any address. */
typedef float unaligned_f32 __attribute__((aligned(1), may_alias));
typedef double unaligned_f64 __attribute__((aligned(1), may_alias));
typedef uint16_t unaligned_u16 __attribute__((aligned(1), may_alias));

#define LOOP(expression)                                                                                                         \
    do {                                                                                                                         \
        for (int64_t i = 0; i < count; i++)                                                                                      \
            expression;                                                                                                          \
        return 1;                                                                                                                \
    } while (0)

int dtype_convert(void *to, enum dtype to_type, const void *from, enum dtype from_type, int64_t count)
{
    float *f32 = to;
    uint16_t *u16 = to;
    double *f64 = to;
    const unaligned_f32 *s32 = from;
    const unaligned_u16 *s16 = from;
    const unaligned_f64 *s64 = from;
    if (to_type == from_type) {
        memcpy(to, from, (size_t)(count * dtype_size(to_type)));
        return 1;
    }
    switch (to_type * DTYPE_COUNT + from_type) {
    case DTYPE_F32 *DTYPE_COUNT + DTYPE_BF16: LOOP(f32[i] = bf16_to_f32(s16[i]));
    case DTYPE_F32 *DTYPE_COUNT + DTYPE_F16: LOOP(f32[i] = f16_to_f32(s16[i]));
    case DTYPE_F32 *DTYPE_COUNT + DTYPE_F64: LOOP(f32[i] = (float)s64[i]);
    case DTYPE_BF16 *DTYPE_COUNT + DTYPE_F32: LOOP(u16[i] = bf16_from_f32(s32[i]));
    case DTYPE_BF16 *DTYPE_COUNT + DTYPE_F16: LOOP(u16[i] = bf16_from_f32(f16_to_f32(s16[i])));
    case DTYPE_BF16 *DTYPE_COUNT + DTYPE_F64: LOOP(u16[i] = bf16_from_f32((float)s64[i]));
    case DTYPE_F16 *DTYPE_COUNT + DTYPE_F32: LOOP(u16[i] = f16_from_f32(s32[i]));
    case DTYPE_F16 *DTYPE_COUNT + DTYPE_BF16: LOOP(u16[i] = f16_from_f32(bf16_to_f32(s16[i])));
    case DTYPE_F16 *DTYPE_COUNT + DTYPE_F64: LOOP(u16[i] = f16_from_f32((float)s64[i]));
    case DTYPE_F64 *DTYPE_COUNT + DTYPE_F32: LOOP(f64[i] = (double)s32[i]);
    case DTYPE_F64 *DTYPE_COUNT + DTYPE_BF16: LOOP(f64[i] = (double)bf16_to_f32(s16[i]));
    case DTYPE_F64 *DTYPE_COUNT + DTYPE_F16: LOOP(f64[i] = (double)f16_to_f32(s16[i]));
    default: return 0;
    }
}
