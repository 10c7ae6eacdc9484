/* The language of kernels: what a .kl file may use besides plain C99 arithmetic, in OpenCL C 1.2 and in CUDA C (NVRTC, no
 * headers).
 *
 * This text is put before every .kl file. A compilation makes one kernel: ONLY_<name> chooses it, GROUP is the size of its
 * work-groups, TYPE_i and HAS_i are the element type of its operand i and whether it is there (device/kernel.h).
 *
 *     #ifdef ONLY_add
 *     KERNEL(add)(OPERAND(0, x), OPERAND(1, d), OPERAND(2, y), i64 rows)
 *     {
 *         i64 i = GLOBAL_ID;
 *         if (i < rows)
 *             STORE(2, y, i, LOAD(0, x, i) + LOAD(1, d, i));
 *     }
 *     #endif
 *
 * Rules: operands are touched only by LOAD and STORE; indices are i64; work-items share a loop by SHARE; LOCAL arrays stand at
 * the top of a kernel; helpers take values, not pointers; no headers, no size_t, no atomics on floats; every sum has a fixed
 * order; with rows = 0 nothing is touched.
 */
/* clang-format off */
#ifdef __OPENCL_VERSION__

typedef long i64;
typedef ulong u64;
typedef uint u32;
typedef ushort u16;

#define KERNEL(name) __kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void name
#define OPERAND(n, name) __global TYPE_##n *name##_block, i64 name##_offset
#define ELEMENT(name, i) name##_block[name##_offset + (i)]
#define LOCAL __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define GROUP_ID ((i64)get_group_id(0))
#define LOCAL_ID ((int)get_local_id(0))
#define HELPER static inline
#define FLOAT_BITS(f) as_uint(f)
#define BITS_FLOAT(u) as_float(u)
#define EXP(x) exp(x)
#define EXPM1(x) expm1(x)
#define LOG(x) log(x)
#define SQRT(x) sqrt(x)
#define RINT(x) rint(x)
#define FMA(a, b, c) fma(a, b, c)

#else

#pragma nv_diag_suppress 177           /* a kernel need not use every helper */

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

#define KERNEL(name) extern "C" __global__ void __launch_bounds__(GROUP, 1) name
#define OPERAND(n, name) TYPE_##n *name
#define ELEMENT(name, i) name[i]
#define LOCAL __shared__
#define BARRIER __syncthreads()
#define GROUP_ID ((i64)blockIdx.x)
#define LOCAL_ID ((int)threadIdx.x)
#define HELPER __device__ __forceinline__
#define FLOAT_BITS(f) __float_as_uint(f)
#define BITS_FLOAT(u) __uint_as_float(u)
#define EXP(x) expf(x)
#define EXPM1(x) expm1f(x)
#define LOG(x) logf(x)
#define SQRT(x) sqrtf(x)
#define RINT(x) rintf(x)
#define FMA(a, b, c) fmaf(a, b, c)

#endif

#define GLOBAL_ID (GROUP_ID * GROUP + LOCAL_ID)

/* Before a loop: unrolled, so that arrays which it indexes stay in registers (a CPU has none to spare, and would compile it for
 * minutes); or left as it is, to save registers. */
#ifdef ON_PROCESSOR
#define UNROLL
#define ROLL
#else
#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("unroll 1")
#endif

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MINUS_INFINITY BITS_FLOAT(0xff800000u)
#define IS_FINITE(x) ((FLOAT_BITS(x) & 0x7f800000u) != 0x7f800000u)

/* Element types: what is stored; 16-bit ones become float32 when they are read. */
typedef float f32;
typedef u16 bf16;
typedef u16 f16;
typedef int i32;

HELPER float load_f32(f32 v)
{
    return v;
}

HELPER f32 store_f32(float v)
{
    return v;
}

HELPER int load_i32(i32 v)
{
    return v;
}

HELPER i32 store_i32(int v)
{
    return v;
}

HELPER float load_bf16(bf16 v)
{
    return BITS_FLOAT((u32)v << 16);
}

/* To nearest, ties to even; a NaN stays a NaN. */
HELPER bf16 store_bf16(float v)
{
    u32 bits = FLOAT_BITS(v), rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (bf16)(((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded) >> 16);
}

HELPER float load_f16(f16 v)
{
    u32 sign = ((u32)v & 0x8000u) << 16, magnitude = ((u32)v & 0x7fffu) << 13;
    float f = BITS_FLOAT(magnitude) * 5.192296858534828e33f;            /* 2^112; subnormals become normal */
    return BITS_FLOAT(((u32)v & 0x7c00u) == 0x7c00u ? sign | 0x7f800000u | (magnitude & 0x7fffffu) : sign | FLOAT_BITS(f));
}

HELPER f16 store_f16(float v)
{
    u32 bits = FLOAT_BITS(v), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    u32 normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    u32 small = FLOAT_BITS(BITS_FLOAT(magnitude) + 0.5f) - 0x3f000000u;  /* the addition rounds to a multiple of 2^-24 */
    u32 special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return (f16)(sign | (magnitude >= 0x477ff000u ? special : magnitude < 0x38800000u ? small : normal));
}

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define LOAD(n, name, i) PASTE(load_, TYPE_##n)(ELEMENT(name, i))
#define STORE(n, name, i, value) (ELEMENT(name, i) = PASTE(store_, TYPE_##n)(value))

/* A loop over [begin, end) that the work-items of a group share. All of them make the same number of rounds, and skip what is beyond
 * the end: PoCL 3.1 miscompiles loops in which some work-items have no round. */
#define SHARE(i, begin, end)                                                   \
    for (i64 i##_round = (begin); i##_round < (end); i##_round += GROUP)       \
        for (i64 i = i##_round + LOCAL_ID, i##_once = 1; i##_once && i < (end); i##_once = 0)

/* Every work-item's `value` joined into `result`, by halves; `scratch` is a LOCAL array of GROUP elements. */
#define GROUP_SUM(result, scratch, value)                                      \
    do {                                                                       \
        BARRIER;                                                               \
        scratch[LOCAL_ID] = (value);                                           \
        for (int half_ = GROUP / 2; half_ > 0; half_ /= 2) {                   \
            BARRIER;                                                           \
            if (LOCAL_ID < half_)                                              \
                scratch[LOCAL_ID] += scratch[LOCAL_ID + half_];                \
        }                                                                      \
        BARRIER;                                                               \
        result = scratch[0];                                                   \
    } while (0)

#define GROUP_MAX(result, scratch, value)                                      \
    do {                                                                       \
        BARRIER;                                                               \
        scratch[LOCAL_ID] = (value);                                           \
        for (int half_ = GROUP / 2; half_ > 0; half_ /= 2) {                   \
            BARRIER;                                                           \
            if (LOCAL_ID < half_)                                              \
                scratch[LOCAL_ID] = MAX(scratch[LOCAL_ID], scratch[LOCAL_ID + half_]);  \
        }                                                                      \
        BARRIER;                                                               \
        result = scratch[0];                                                   \
    } while (0)

/* sum += term with the rounding errors carried along in `lost` (Kahan). */
#define CAREFUL_ADD(sum, lost, term)                                           \
    do {                                                                       \
        float term_ = (term) - lost, next_ = sum + term_;                      \
        lost = (next_ - sum) - term_;                                          \
        sum = next_;                                                           \
    } while (0)

/* What the kernels of optimizers (ops/optimizers/update.h) begin with, on the operands that all of them have: the element i of this work-item,
 * its gradient and weight, and the rate and decay of its group: that of the first range that ends after its piece, or of the last
 * one. Returns where there is no element, and where the step is skipped, which only zeroes g. */
#define UPDATE_BEGIN                                                           \
    i64 piece_ = GROUP_ID, i = piece_ * PIECE + LOCAL_ID, low_ = 0, high_ = K - 1; \
    if (piece_ >= rows || i >= N)                                              \
        return;                                                                \
    if (LOAD(2, control, 2) == 0) {                                            \
        STORE(1, g, i, 0);                                                     \
        return;                                                                \
    }                                                                          \
    while (low_ < high_) {                                                     \
        i64 middle_ = low_ + (high_ - low_) / 2;                               \
        if (LOAD(4, ranges, 2 * middle_) > piece_)                             \
            high_ = middle_;                                                   \
        else                                                                   \
            low_ = middle_ + 1;                                                \
    }                                                                          \
    i64 group_ = LOAD(4, ranges, 2 * low_ + 1);                                \
    float rate = LOAD(3, rates, 2 * group_), decay = rate * LOAD(3, rates, 2 * group_ + 1); \
    float grad = LOAD(1, g, i) * LOAD(2, control, 0), old = LOAD(0, w, i)
