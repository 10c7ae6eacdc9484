/* Arithmetic of float32 and float64. What the hardware approximates (ex2, lg2, sin, cos, tanh, rcp, sqrt, rsqrt, div.approx) is
 * computed as exactly as the host can: the simulator's results are those of an unusually good device. */
#include "handler.h"

#include <math.h>
#include <string.h>

/* The greater zero is the positive one, and a number wins over a NaN. */
#define LESS(x, y) ((x) < (y) || (y) != (y) || ((x) == (y) && signbit(x)))
#define MORE(x, y) ((x) > (y) || (y) != (y) || ((x) == (y) && !signbit(x)))
#define ARITHMETIC(T, S, f)                                                                                                      \
    BINARY(add_##T, S, S, S, X + Y)                                                                                              \
    BINARY(sub_##T, S, S, S, X - Y)                                                                                              \
    BINARY(mul_##T, S, S, S, X *Y)                                                                                               \
    BINARY(div_##T, S, S, S, X / Y)                                                                                              \
    TERNARY(fma_##T, S, S, S, S, fma##f(X, Y, Z))                                                                                \
    UNARY(neg_##T, S, S, -X)                                                                                                     \
    UNARY(abs_##T, S, S, fabs##f(X))                                                                                             \
    UNARY(rcp_##T, S, S, 1 / X)                                                                                                  \
    UNARY(sqrt_##T, S, S, sqrt##f(X))                                                                                            \
    UNARY(rsqrt_##T, S, S, 1 / sqrt##f(X))                                                                                       \
    BINARY(min_##T, S, S, S, LESS(X, Y) ? X : Y)                                                                                 \
    BINARY(max_##T, S, S, S, MORE(X, Y) ? X : Y)                                                                                 \
    BINARY(min_nan_##T, S, S, S, X != X ? X : Y != Y ? Y : LESS(X, Y) ? X : Y)                                                   \
    BINARY(max_nan_##T, S, S, S, X != X ? X : Y != Y ? Y : MORE(X, Y) ? X : Y)                                                   \
    BINARY(copysign_##T, S, S, S, copysign##f(Y, X))                                                                             \
    UNARY(finite_##T, uint8_t, S, isfinite(X) != 0)                                                                              \
    UNARY(infinite_##T, uint8_t, S, isinf(X) != 0)                                                                               \
    UNARY(number_##T, uint8_t, S, X == X)                                                                                        \
    UNARY(notanumber_##T, uint8_t, S, X != X)                                                                                    \
    UNARY(normal_##T, uint8_t, S, isnormal(X) != 0)                                                                              \
    UNARY(subnormal_##T, uint8_t, S, fpclassify(X) == FP_SUBNORMAL)
ARITHMETIC(f32, float, f)
ARITHMETIC(f64, double, )
UNARY(ex2_f32, float, float, exp2f(X))
UNARY(lg2_f32, float, float, log2f(X))
UNARY(sin_f32, float, float, sinf(X))
UNARY(cos_f32, float, float, cosf(X))
UNARY(tanh_f32, float, float, tanhf(X))
UNARY(cvt_f32_s32, float, int32_t, X)
UNARY(cvt_f32_u32, float, uint32_t, X)
UNARY(cvt_f64_f32, double, float, X)

/* .ftz: what is below the smallest normal number becomes a zero of its sign */
void run_flush(struct block *b, const struct insn *n, int begin, int end)
{
    uint32_t *d = REG(uint32_t, 0);
    const uint32_t *x = REG(uint32_t, 1);
    EACH_LANE d[i] = X & 0x7f800000u ? X : X & 0x80000000u;
}

/* .sat: into [0, 1], a NaN becomes 0 */
void run_saturate(struct block *b, const struct insn *n, int begin, int end)
{
    if (n->width[0] == 8) {
        double *d = REG(double, 0);
        const double *x = REG(double, 1);
        EACH_LANE d[i] = !(X > 0) ? 0 : X < 1 ? X : 1;
    } else {
        float *d = REG(float, 0);
        const float *x = REG(float, 1);
        EACH_LANE d[i] = !(X > 0) ? 0 : X < 1 ? X : 1;
    }
}

#define BOTH(name, handler, signature)                                                                                           \
    {name, T_F32, 0, signature, handler##_f32},                                                                                  \
    {                                                                                                                            \
        name, T_F64, 0, signature, handler##_f64                                                                                 \
    }
const struct row instructions_float[] = {
    BOTH("add", add, "ttt"),
    BOTH("sub", sub, "ttt"),
    BOTH("mul", mul, "ttt"),
    BOTH("div", div, "ttt"),
    BOTH("fma", fma, "tttt"),
    BOTH("mad", fma, "tttt"),
    BOTH("neg", neg, "tt"),
    BOTH("abs", abs, "tt"),
    BOTH("rcp", rcp, "tt"),
    BOTH("sqrt", sqrt, "tt"),
    BOTH("rsqrt", rsqrt, "tt"),
    BOTH("min", min, "ttt"),
    BOTH("max", max, "ttt"),
    BOTH("min.NaN", min_nan, "ttt"),
    BOTH("max.NaN", max_nan, "ttt"),
    BOTH("copysign", copysign, "ttt"),
    BOTH("testp.finite", finite, "pt"),
    BOTH("testp.infinite", infinite, "pt"),
    BOTH("testp.number", number, "pt"),
    BOTH("testp.notanumber", notanumber, "pt"),
    BOTH("testp.normal", normal, "pt"),
    BOTH("testp.subnormal", subnormal, "pt"),
    {"ex2", T_F32, 0, "tt", ex2_f32},
    {"lg2", T_F32, 0, "tt", lg2_f32},
    {"sin", T_F32, 0, "tt", sin_f32},
    {"cos", T_F32, 0, "tt", cos_f32},
    {"tanh", T_F32, 0, "tt", tanh_f32},
    {"cvt", T_F32, T_S32, "t2", cvt_f32_s32},
    {"cvt", T_F32, T_U32, "t2", cvt_f32_u32},
    {"cvt", T_F64, T_F32, "t2", cvt_f64_f32},
    {0},
};
