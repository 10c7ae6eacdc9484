/* gemm_f32.h with the 32 vectors of AVX-512: 8 rows times 48 columns are 24 registers of sums. */
#include "device/cpu_gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define INSTRUCTIONS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define VECTOR_OP static inline __attribute__((always_inline)) INSTRUCTIONS
#define V(name) avx512_##name

enum { VECTOR = 16, VECTORS = 3, ROWS = 8 };
typedef __m512 vector;

VECTOR_OP __mmask16 avx512_first(int64_t count)
{
    return (__mmask16)(count >= VECTOR ? 0xffff : (1 << count) - 1);
}

VECTOR_OP vector avx512_widen_some(const uint16_t *from, int64_t count)
{
    return (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(avx512_first(count), from)), 16);
}

#define avx512_zero _mm512_setzero_ps
#define avx512_set _mm512_set1_ps
#define avx512_load _mm512_loadu_ps
#define avx512_store _mm512_storeu_ps
#define avx512_load_some(from, count) _mm512_maskz_loadu_ps(avx512_first(count), from)
#define avx512_store_some(to, count, x) _mm512_mask_storeu_ps(to, avx512_first(count), x)
#define avx512_fma _mm512_fmadd_ps
#define avx512_add _mm512_add_ps
#define avx512_multiply _mm512_mul_ps

VECTOR_OP void avx512_transpose(vector r[VECTOR])
{
    __m512d t[VECTOR];
#pragma GCC unroll 8
    for (int i = 0; i < VECTOR; i += 2) {
        t[i] = _mm512_castps_pd(_mm512_unpacklo_ps(r[i], r[i + 1]));
        t[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(r[i], r[i + 1]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < VECTOR; i += 4) {
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(t[i], t[i + 2]));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(t[i], t[i + 2]));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(t[i + 1], t[i + 3]));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(t[i + 1], t[i + 3]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 low_even = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88), low_odd = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
        __m512 high_even = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88),
               high_odd = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
        r[i] = _mm512_shuffle_f32x4(low_even, high_even, 0x88);
        r[4 + i] = _mm512_shuffle_f32x4(low_odd, high_odd, 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(low_even, high_even, 0xdd);
        r[12 + i] = _mm512_shuffle_f32x4(low_odd, high_odd, 0xdd);
    }
}

#include "device/gemm_f32.h"

const struct cpu_gemm gemm_avx512 = {ISA_avx512, gemm_f32_plan, gemm_f32_run};
#endif
