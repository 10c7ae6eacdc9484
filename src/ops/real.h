/* Arithmetic for op bodies. Each op file is built twice: once with float as `real` for the library, once with double
 * (REAL_DOUBLE) as the tests' reference. Elements are read and written as `real`, whatever their storage type.
 *
 * A body is written once over an element type `dt` and forced inline; SPECIALISE calls it with that type as a constant, so
 * that the compiler makes one loop for each type. KERNEL_BODY makes a copy for each width of vectors, and takes the processor's.
 */
#ifndef OPS_REAL_H
#define OPS_REAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/isa.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Before a loop whose iterations are independent although its arrays may be the same (an op in place). Not in double, where
 * library calls have no vector form. */
#if defined(HONE_SANITIZED) || defined(REAL_DOUBLE)
#define INDEPENDENT
#elif defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* KERNEL_BODY(name) { … } is static void name(const struct call *c, int64_t begin, int64_t end); KERNEL_BODY_OF is a function of
 * other parameters, which stand once more as arguments. */
#if !defined(__x86_64__) || defined(HONE_SANITIZED) || (defined(__clang__) && defined(REAL_DOUBLE))
#define CLONED(name, parameters, arguments) static void name parameters
#else
#ifdef __clang__
#define WIDTH_256 __attribute__((target("avx2,bmi,bmi2,f16c,fma,lzcnt,movbe")))
#define WIDTH_512 __attribute__((target("avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")))
#else
#define WIDTH_256 __attribute__((target("arch=x86-64-v3")))
#define WIDTH_512 __attribute__((target("arch=x86-64-v4")))
#endif
#define CLONED(name, parameters, arguments)                                                                                      \
    static ALWAYS_INLINE void name##_body parameters;                                                                            \
    WIDTH_256 static void name##_256 parameters                                                                                  \
    {                                                                                                                            \
        name##_body arguments;                                                                                                   \
    }                                                                                                                            \
    WIDTH_512 static void name##_512 parameters                                                                                  \
    {                                                                                                                            \
        name##_body arguments;                                                                                                   \
    }                                                                                                                            \
    static void name##_plain parameters                                                                                          \
    {                                                                                                                            \
        name##_body arguments;                                                                                                   \
    }                                                                                                                            \
    static void name parameters                                                                                                  \
    {                                                                                                                            \
        (isa() >= ISA_avx512 ? name##_512 : isa() >= ISA_avx2 ? name##_256 : name##_plain) arguments;                            \
    }                                                                                                                            \
    static ALWAYS_INLINE void name##_body parameters
#endif
#define KERNEL_BODY_OF(name, parameters, arguments) CLONED(name, parameters, arguments)
#define KERNEL_BODY(name) CLONED(name, (const struct call *c, int64_t begin, int64_t end), (c, begin, end))

#ifdef REAL_DOUBLE

typedef double real;

static ALWAYS_INLINE real load(enum dtype dt, const void *p, int64_t i)
{
    (void)dt;
    return ((const double *)p)[i];
}

static ALWAYS_INLINE void store(enum dtype dt, void *p, int64_t i, real v)
{
    (void)dt;
    ((double *)p)[i] = v;
}

static ALWAYS_INLINE real real_exp(real x)
{
    return exp(x);
}

#define real_sqrt sqrt
#define real_log log
#define real_expm1 expm1
#define real_tanh tanh

#define SPECIALISE(dt, body, ...) body(__VA_ARGS__, DTYPE_F64)
#define SPECIALISE2(dt1, dt2, body, ...) body(__VA_ARGS__, DTYPE_F64, DTYPE_F64)
#define SPECIALISE3(dt1, dt2, dt3, body, ...) body(__VA_ARGS__, DTYPE_F64, DTYPE_F64, DTYPE_F64)

#else

typedef float real;

static ALWAYS_INLINE real load(enum dtype dt, const void *p, int64_t i)
{
    return dt == DTYPE_BF16 ? bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static ALWAYS_INLINE void store(enum dtype dt, void *p, int64_t i, real v)
{
    if (dt == DTYPE_BF16)
        ((uint16_t *)p)[i] = bf16_from_f32(v);
    else
        ((float *)p)[i] = v;
}

/* exp to about one unit in the last place, without branches so that loops over it become vector code: 2^n · e^r with |r| <= ln
 * 2 / 2. */
static ALWAYS_INLINE real real_exp(real x)
{
    float top = x > 88.0f ? 88.0f : x, t = top < -87.0f ? -87.0f : top;
    float n = t * 1.44269504088896341f + 12582912.0f - 12582912.0f;
    float r = t - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (int32_t)((uint32_t)((int32_t)(n == n ? n : 0) + 127) << 23); /* a NaN stays one through p */
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.0f ? 0.0f : p * scale;
}

/* tanh to about two units in the last place, without branches: a polynomial near 0, else by exp. */
static ALWAYS_INLINE real real_tanh(real x)
{
    float size = fabsf(x), z = x * x, p = -5.70498872745e-3f, far = 1.0f - 2.0f / (real_exp(2.0f * size) + 1.0f);
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return size < 0.625f ? x + x * z * p : x < 0 ? -far : far;
}

#define real_sqrt sqrtf
#define real_log logf
#define real_expm1 expm1f

#define SPECIALISE(dt, body, ...) ((dt) == DTYPE_BF16 ? body(__VA_ARGS__, DTYPE_BF16) : body(__VA_ARGS__, DTYPE_F32))
#define SPECIALISE2(dt1, dt2, body, ...)                                                                                         \
    ((dt1) == DTYPE_BF16                                                                                                         \
         ? ((dt2) == DTYPE_BF16 ? body(__VA_ARGS__, DTYPE_BF16, DTYPE_BF16) : body(__VA_ARGS__, DTYPE_BF16, DTYPE_F32))          \
         : ((dt2) == DTYPE_BF16 ? body(__VA_ARGS__, DTYPE_F32, DTYPE_BF16) : body(__VA_ARGS__, DTYPE_F32, DTYPE_F32)))
#define SPECIALISE3(dt1, dt2, dt3, body, ...)                                                                                    \
    ((dt1) == DTYPE_BF16 ? SPECIALISE2(dt2, dt3, body, __VA_ARGS__, DTYPE_BF16)                                                  \
                         : SPECIALISE2(dt2, dt3, body, __VA_ARGS__, DTYPE_F32))

#endif

/* A vector of numbers; the compiler maps it to the vector registers of the processor. */
enum { LANES = 16 };
typedef real vec __attribute__((vector_size(LANES * sizeof(real))));

static ALWAYS_INLINE void vec_load(vec *v, enum dtype dt, const void *p, int64_t i)
{
#ifndef REAL_DOUBLE
    if (dt == DTYPE_BF16) {
        typedef uint16_t half_vec __attribute__((vector_size(LANES * 2)));
        typedef uint32_t word_vec __attribute__((vector_size(LANES * 4)));
        half_vec half;
        memcpy(&half, (const uint16_t *)p + i, sizeof half);
        word_vec word = __builtin_convertvector(half, word_vec) << 16;
        memcpy(v, &word, sizeof word);
        return;
    }
#endif
    (void)dt;
    memcpy(v, (const real *)p + i, sizeof *v);
}

/* The sum of the lanes, in a fixed order. */
static ALWAYS_INLINE real vec_sum(const vec *v)
{
    typedef real vec8 __attribute__((vector_size(8 * sizeof(real))));
    typedef real vec4 __attribute__((vector_size(4 * sizeof(real))));
    vec8 half[2];
    vec4 quarter[2];
    memcpy(half, v, sizeof half);
    half[0] += half[1];
    memcpy(quarter, half, sizeof quarter);
    quarter[0] += quarter[1];
    return (quarter[0][0] + quarter[0][2]) + (quarter[0][1] + quarter[0][3]);
}

/* Σ a[i]·b[i] in a fixed order. */
static ALWAYS_INLINE real dot(const void *a, int64_t ia, const void *b, int64_t ib, int64_t n, enum dtype ta, enum dtype tb)
{
    vec sum = {0}, x, y;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec_load(&x, ta, a, ia + i);
        vec_load(&y, tb, b, ib + i);
        sum += x * y;
    }
    real total = vec_sum(&sum);
    for (; i < n; i++)
        total += load(ta, a, ia + i) * load(tb, b, ib + i);
    return total;
}

#endif
