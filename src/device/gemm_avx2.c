/* gemm_f32.h with the 16 vectors of AVX2: 4 rows times 24 columns are 12 registers of sums. */
#include "device/cpu_gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define INSTRUCTIONS __attribute__((target("avx2,fma")))
#define VECTOR_OP static inline __attribute__((always_inline)) INSTRUCTIONS
#define V(name) avx2_##name

enum { VECTOR = 8, VECTORS = 3, ROWS = 4 };
typedef __m256 vector;

/* All bits of the first lanes. */
VECTOR_OP __m256i avx2_first(int64_t count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count > VECTOR ? VECTOR : (int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

VECTOR_OP vector avx2_widen_some(const uint16_t *from, int64_t count)
{
    uint16_t some[VECTOR] = {0};
    if (count < VECTOR)
        memcpy(some, from, (size_t)count * sizeof *from);
    __m128i numbers = _mm_loadu_si128((const __m128i *)(count < VECTOR ? some : from));
    return (vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(numbers), 16);
}

#define avx2_zero _mm256_setzero_ps
#define avx2_set _mm256_set1_ps
#define avx2_load _mm256_loadu_ps
#define avx2_store _mm256_storeu_ps
#define avx2_load_some(from, count) _mm256_maskload_ps(from, avx2_first(count))
#define avx2_store_some(to, count, x) _mm256_maskstore_ps(to, avx2_first(count), x)
#define avx2_fma _mm256_fmadd_ps
#define avx2_add _mm256_add_ps
#define avx2_multiply _mm256_mul_ps

/* Two rows to pairs, two pairs to fours, and the halves of two fours. */
VECTOR_OP void avx2_transpose(vector r[VECTOR])
{
    __m256 t[VECTOR];
#pragma GCC unroll 8
    for (int i = 0; i < VECTOR; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < VECTOR; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256 low = r[i], high = r[4 + i];
        r[i] = _mm256_permute2f128_ps(low, high, 0x20);
        r[4 + i] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

#include "device/gemm_f32.h"

const struct cpu_gemm gemm_avx2 = {ISA_avx2, gemm_f32_plan, gemm_f32_run};
#endif
