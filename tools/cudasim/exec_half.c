/* Arithmetic of f16, bf16 and pairs of them: in float32, which holds sums and products of 16-bit floats well enough that the one
 * rounding to 16 bits is the right one; fused products in float64. */
#include "half.h"
#include "handler.h"

#define LOW(u) (uint16_t)((u)&0xffff)
#define HIGH(u) (uint16_t)((u) >> 16)
#define PAIR(low, high) ((uint32_t)(low) | (uint32_t)(high) << 16)

#define HALF_BINARY(op, T, expression)                                                                                           \
    static uint16_t op##_##T##_one(uint16_t p, uint16_t q)                                                                       \
    {                                                                                                                            \
        float x = float_of_##T(p), y = float_of_##T(q);                                                                          \
        return T##_of_float(expression);                                                                                         \
    }                                                                                                                            \
    BINARY(op##_##T, uint16_t, uint16_t, uint16_t, op##_##T##_one(X, Y))                                                         \
    BINARY(op##_##T##x2, uint32_t, uint32_t, uint32_t, PAIR(op##_##T##_one(LOW(X), LOW(Y)), op##_##T##_one(HIGH(X), HIGH(Y))))
#define HALF_FORMS(T)                                                                                                            \
    HALF_BINARY(add, T, x + y)                                                                                                   \
    HALF_BINARY(sub, T, x - y)                                                                                                   \
    HALF_BINARY(mul, T, x *y)                                                                                                    \
    HALF_BINARY(min, T, fminf(x, y))                                                                                             \
    HALF_BINARY(max, T, fmaxf(x, y))                                                                                             \
    static uint16_t fma_##T##_one(uint16_t p, uint16_t q, uint16_t r)                                                            \
    {                                                                                                                            \
        double sum = fma((double)float_of_##T(p), (double)float_of_##T(q), (double)float_of_##T(r));                             \
        return T##_of_float((float)sum);                                                                                         \
    }                                                                                                                            \
    TERNARY(fma_##T, uint16_t, uint16_t, uint16_t, uint16_t, fma_##T##_one(X, Y, Z))                                             \
    TERNARY(fma_##T##x2, uint32_t, uint32_t, uint32_t, uint32_t,                                                                 \
            PAIR(fma_##T##_one(LOW(X), LOW(Y), LOW(Z)), fma_##T##_one(HIGH(X), HIGH(Y), HIGH(Z))))                               \
    UNARY(ex2_##T, uint16_t, uint16_t, T##_of_float(exp2f(float_of_##T(X))))                                                     \
    UNARY(tanh_##T, uint16_t, uint16_t, T##_of_float(tanhf(float_of_##T(X))))                                                    \
    UNARY(to_f32_##T, float, uint16_t, float_of_##T(X))                                                                          \
    UNARY(of_f32_##T, uint16_t, float, T##_of_float(X))                                                                          \
    BINARY(pair_f32_##T, uint32_t, float, float, PAIR(T##_of_float(Y), T##_of_float(X)))
HALF_FORMS(f16)
HALF_FORMS(bf16)
UNARY(neg_half, uint16_t, uint16_t, X ^ 0x8000)
UNARY(neg_pair, uint32_t, uint32_t, X ^ 0x80008000u)
UNARY(abs_half, uint16_t, uint16_t, X & 0x7fff)
UNARY(abs_pair, uint32_t, uint32_t, X & 0x7fff7fffu)

#define HALF_ROWS(T, TYPE, TYPE2)                                                                                                \
    {"add", TYPE, 0, "ttt", add_##T}, {"sub", TYPE, 0, "ttt", sub_##T}, {"mul", TYPE, 0, "ttt", mul_##T},                        \
        {"min", TYPE, 0, "ttt", min_##T}, {"max", TYPE, 0, "ttt", max_##T}, {"fma", TYPE, 0, "tttt", fma_##T},                   \
        {"neg", TYPE, 0, "tt", neg_half}, {"abs", TYPE, 0, "tt", abs_half}, {"ex2", TYPE, 0, "tt", ex2_##T},                     \
        {"tanh", TYPE, 0, "tt", tanh_##T}, {"add", TYPE2, 0, "ttt", add_##T##x2}, {"sub", TYPE2, 0, "ttt", sub_##T##x2},         \
        {"mul", TYPE2, 0, "ttt", mul_##T##x2}, {"min", TYPE2, 0, "ttt", min_##T##x2}, {"max", TYPE2, 0, "ttt", max_##T##x2},     \
        {"fma", TYPE2, 0, "tttt", fma_##T##x2}, {"neg", TYPE2, 0, "tt", neg_pair}, {"abs", TYPE2, 0, "tt", abs_pair},            \
        {"cvt", T_F32, TYPE, "t2", to_f32_##T}, {"cvt", TYPE, T_F32, "t2", of_f32_##T},                                          \
    {                                                                                                                            \
        "cvt", TYPE2, T_F32, "t22", pair_f32_##T                                                                                 \
    }

const struct row instructions_half[] = {HALF_ROWS(f16, T_F16, T_F16X2), HALF_ROWS(bf16, T_BF16, T_BF16X2), {0}};
