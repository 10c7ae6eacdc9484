/* Blocks by AVX-512, 32 elements at a time. Which byte holds what is in blocks.kl; format/nf4_codes.h has NF4's.
 *
 * What scales a block comes from float16 numbers, so no product is subnormal, and AVX-512's rounding to bfloat16 is the portable
 * one. NF4's absmax may be that small: its numbers are rounded in integers.
 */
#include "ops/weights/weight_bf16.h"

#ifdef WEIGHT_BF16

#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#include "base/isa.h"
#include "base/number.h"
#include "format/nf4_codes.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c,fma")))
#define INSIDE AVX512 static inline __attribute__((always_inline))

enum { STEP = 32 }; /* elements of a vector of bfloat16 */

bool weight_bf16(void)
{
    return isa() >= ISA_avx512_bf16;
}

INSIDE __m512i load_16(const uint8_t *at)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)at));
}

INSIDE __m256i load_32(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

/* A float16 number in all lanes; or two, which take turns. */
INSIDE __m512 half(const uint8_t *at)
{
    int16_t bits;
    memcpy(&bits, at, sizeof bits);
    return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
}

INSIDE __m512 halves(const uint8_t *at)
{
    int32_t bits;
    memcpy(&bits, at, sizeof bits);
    return _mm512_cvtph_ps(_mm256_set1_epi32(bits));
}

/* The numbers of the codes 0 … 15: code · scale + offset. The product is exact, and with 0 added it is never -0. */
INSIDE __m512 weight_bf16_numbers(__m512 scale, __m512 offset)
{
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_ps(_mm512_fmadd_ps(codes, scale, _mm512_setzero_ps()), offset);
}

INSIDE __m512 q4_0_numbers(const uint8_t *block)
{
    const __m512 codes = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_mul_ps(codes, half(block));
}

INSIDE __m512 q4_1_numbers(const uint8_t *block)
{
    __m512 both = halves(block);
    return weight_bf16_numbers(_mm512_moveldup_ps(both), _mm512_movehdup_ps(both));
}

/* Of blocks of 256, for each 32 elements: the scale and the offset, products of 6 bits and the block's float16 numbers. */
struct scales {
    float scale[8], offset[8];
};

INSIDE void weight_bf16_scales_of(struct scales *s, const uint8_t *block)
{
    uint32_t word[3];
    memcpy(word, block + 4, sizeof word);
    uint64_t scale = (word[0] & 0x3f3f3f3fu) | (uint64_t)((word[2] & 0x0f0f0f0fu) | (word[0] >> 2 & 0x30303030u)) << 32;
    uint64_t least = (word[1] & 0x3f3f3f3fu) | (uint64_t)((word[2] >> 4 & 0x0f0f0f0fu) | (word[1] >> 2 & 0x30303030u)) << 32;
    __m256 both = _mm512_castps512_ps256(halves(block));
    __m256 a = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)scale)));
    __m256 b = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)least)));
    __m256 zero = _mm256_setzero_ps();
    _mm256_storeu_ps(s->scale, _mm256_mul_ps(a, _mm256_moveldup_ps(both)));
    _mm256_storeu_ps(s->offset, _mm256_sub_ps(zero, _mm256_fmadd_ps(b, _mm256_movehdup_ps(both), zero)));
}

INSIDE __m512 k_numbers(const struct scales *s, int k)
{
    return weight_bf16_numbers(_mm512_set1_ps(s->scale[k]), _mm512_set1_ps(s->offset[k]));
}

/* Of q6_k: 32 integers, and the scales of all runs of 16. */
INSIDE __m256i q6_k_integers(const uint8_t *block, int k)
{
    __m256i low = load_32(block + 64 * (k / 4) + 32 * (k % 2)), high = load_32(block + 128 + 32 * (k / 4));
    __m256i four = _mm256_and_si256(_mm256_srli_epi16(low, k % 4 / 2 * 4), _mm256_set1_epi8(15));
    __m256i two = _mm256_and_si256(_mm256_srli_epi16(high, k % 4 * 2), _mm256_set1_epi8(3));
    return _mm256_sub_epi8(_mm256_or_si256(four, _mm256_slli_epi16(two, 4)), _mm256_set1_epi8(32));
}

INSIDE void q6_k_scales(float scale[16], const uint8_t *block)
{
    __m512 scales = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(block + 192))));
    _mm512_storeu_ps(scale, _mm512_mul_ps(scales, half(block + 208)));
}

INSIDE __m512 first_16(__m256i integers)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(integers)));
}

INSIDE __m512 last_16(__m256i integers)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(integers, 1)));
}

/* --- to bfloat16 -------------------------------------------------------------------------------------------------------- */

/* Of two tables, the first for the codes below 16. */
INSIDE void weight_bf16_look_up(uint16_t *to, __m512 table, __m512 upper, __m512i codes)
{
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(codes, (__m512i)_mm512_cvtne2ps_pbh(upper, table)));
}

/* 16 bytes whose low halves are the first codes, and whose high halves are the others. */
INSIDE __m512i codes_of(const uint8_t *at)
{
    const __m512i shifts = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    __m512i both = _mm512_cvtepu8_epi16(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)at)));
    return _mm512_and_si512(_mm512_srlv_epi16(both, shifts), _mm512_set1_epi16(15));
}

INSIDE void q4_0_expand(const uint8_t *block, uint16_t *to)
{
    __m512 table = q4_0_numbers(block);
    weight_bf16_look_up(to, table, table, codes_of(block + 2));
}

INSIDE void q4_1_expand(const uint8_t *block, uint16_t *to)
{
    __m512 table = q4_1_numbers(block);
    weight_bf16_look_up(to, table, table, codes_of(block + 4));
}

INSIDE void weight_bf16_scaled(uint16_t *to, __m256i integers, __m512 scale, __m512 of_last)
{
    __m512 a = _mm512_mul_ps(first_16(integers), scale), b = _mm512_mul_ps(last_16(integers), of_last);
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

INSIDE void q8_0_expand(const uint8_t *block, uint16_t *to)
{
    __m512 scale = half(block);
    weight_bf16_scaled(to, load_32(block + 2), scale, scale);
}

/* 32 bytes hold the codes of 32 elements and of the next 32: one table has the numbers of both. */
INSIDE void q4_k_expand(const uint8_t *block, uint16_t *to)
{
    struct scales s;
    weight_bf16_scales_of(&s, block);
    for (int k = 0; k < 8; k += 2) {
        __m512i bytes = _mm512_cvtepu8_epi16(load_32(block + 16 + 16 * k));
        __m512i table = (__m512i)_mm512_cvtne2ps_pbh(k_numbers(&s, k + 1), k_numbers(&s, k));
        __m512i low = _mm512_and_si512(bytes, _mm512_set1_epi16(15));
        __m512i high = _mm512_or_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi16(16));
        _mm512_storeu_si512(to + STEP * k, _mm512_permutexvar_epi16(low, table));
        _mm512_storeu_si512(to + STEP * (k + 1), _mm512_permutexvar_epi16(high, table));
    }
}

INSIDE void q6_k_expand(const uint8_t *block, uint16_t *to)
{
    float scale[16];
    q6_k_scales(scale, block);
    for (int k = 0; k < 8; k++)
        weight_bf16_scaled(to + STEP * k, q6_k_integers(block, k), _mm512_set1_ps(scale[2 * k]),
                           _mm512_set1_ps(scale[2 * k + 1]));
}

/* A byte has two codes, the first in its high half: as two words of 16 bits they are (byte >> 4, byte & 15). */
AVX512 void nf4_bf16(const uint8_t *packed, const float *absmax, int64_t count, uint16_t *to)
{
    const __m512 values = _mm512_loadu_ps(nf4_values);
    for (int64_t b = 0; b < count; b++) {
        __m512i bits = (__m512i)_mm512_mul_ps(values, _mm512_set1_ps(absmax[b]));
        __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        __mmask16 nan = _mm512_cmp_ps_mask((__m512)bits, (__m512)bits, _CMP_UNORD_Q); /* stays one */
        up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
        __m512i table = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
        for (int i = 0; i < NF4_BLOCK; i += STEP) {
            __m512i bytes = load_16(packed + (b * NF4_BLOCK + i) / 2);
            __m512i both = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));
            __m512i codes = _mm512_and_si512(both, _mm512_set1_epi32(0x000f000f));
            _mm512_storeu_si512(to + b * NF4_BLOCK + i, _mm512_permutexvar_epi16(codes, table));
        }
    }
}

/* --- times x ------------------------------------------------------------------------------------------------------------ */

/* The processor's own prefetching stops at the end of a page. */
#define AHEAD(from) _mm_prefetch((const char *)(from) + 4096, _MM_HINT_T0)

/* Two sums, so that one addition need not wait for the other. */
struct sums {
    __m512 a, b;
};

INSIDE __m512 weight_bf16_times(__m512 w, const float *x, __m512 sum)
{
    return _mm512_fmadd_ps(w, _mm512_loadu_ps(x), sum);
}

/* 16 bytes of two codes. A look-up takes the low four bits of a lane. */
INSIDE void halves_dot(struct sums *s, __m512 low, __m512 high, __m512i bytes, const float *x, const float *x_of_high)
{
    s->a = weight_bf16_times(_mm512_permutexvar_ps(bytes, low), x, s->a);
    s->b = weight_bf16_times(_mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), high), x_of_high, s->b);
}

/* Blocks of 32. `first` is the float16 number that a block begins with, `second` the next one, which only some types have. */
INSIDE void q4_0_dot(const uint8_t *block, const float *x, struct sums *s, __m512 first, __m512 second)
{
    const __m512 codes = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    __m512 table = _mm512_mul_ps(codes, first);
    (void)second;
    halves_dot(s, table, table, load_16(block + 2), x, x + 16);
}

INSIDE void q4_1_dot(const uint8_t *block, const float *x, struct sums *s, __m512 first, __m512 second)
{
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 table = _mm512_fmadd_ps(codes, first, second);
    halves_dot(s, table, table, load_16(block + 4), x, x + 16);
}

INSIDE void q8_0_dot(const uint8_t *block, const float *x, struct sums *s, __m512 first, __m512 second)
{
    __m256i integers = load_32(block + 2);
    __m512 part = weight_bf16_times(last_16(integers), x + 16, _mm512_mul_ps(first_16(integers), _mm512_loadu_ps(x)));
    (void)second;
    s->a = _mm512_fmadd_ps(part, first, s->a);
}

/* The first two numbers of 16 blocks: converted together, they cost little. */
INSIDE void weight_bf16_heads_of(float first[16], float second[16], const uint8_t *blocks, int bytes)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i both = _mm512_i32gather_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(bytes)), blocks, 1);
    _mm512_storeu_ps(first, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both)));
    _mm512_storeu_ps(second, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16))));
}

#define SMALL_BLOCKS(type, bytes)                                                                                                \
    AVX512 static float type##_dot_all(const uint8_t *blocks, const float *x, int64_t n)                                         \
    {                                                                                                                            \
        struct sums s = {_mm512_setzero_ps(), _mm512_setzero_ps()}, odd = s;                                                     \
        int64_t i = 0;                                                                                                           \
        for (; i + 16 * STEP <= n; i += 16 * STEP) {                                                                             \
            float first[16], second[16];                                                                                         \
            weight_bf16_heads_of(first, second, blocks, bytes);                                                                  \
            for (int b = 0; b < 16; b += 2, blocks += 2 * (bytes)) {                                                             \
                const float *at = x + i + STEP * b;                                                                              \
                AHEAD(blocks);                                                                                                   \
                type##_dot(blocks, at, &s, _mm512_set1_ps(first[b]), _mm512_set1_ps(second[b]));                                 \
                type##_dot(blocks + (bytes), at + STEP, &odd, _mm512_set1_ps(first[b + 1]), _mm512_set1_ps(second[b + 1]));      \
            }                                                                                                                    \
        }                                                                                                                        \
        for (; i < n; i += STEP, blocks += bytes) {                                                                              \
            AHEAD(blocks);                                                                                                       \
            type##_dot(blocks, x + i, &s, half(blocks), half(blocks + 2));                                                       \
        }                                                                                                                        \
        return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(s.a, s.b), _mm512_add_ps(odd.a, odd.b)));                        \
    }

SMALL_BLOCKS(q4_0, 18)
SMALL_BLOCKS(q4_1, 20)
SMALL_BLOCKS(q8_0, 34)

INSIDE void q4_k_dot(const uint8_t *block, const float *x, struct sums *s)
{
    struct scales of;
    weight_bf16_scales_of(&of, block);
    for (int k = 0; k < 8; k += 2) {
        __m512 low = k_numbers(&of, k), high = k_numbers(&of, k + 1);
        halves_dot(s, low, high, load_16(block + 16 + 16 * k), x + STEP * k, x + STEP * (k + 1));
        halves_dot(s, low, high, load_16(block + 32 + 16 * k), x + STEP * k + 16, x + STEP * (k + 1) + 16);
    }
}

INSIDE void q6_k_dot(const uint8_t *block, const float *x, struct sums *s)
{
    float scale[16];
    q6_k_scales(scale, block);
    for (int k = 0; k < 8; k++) {
        __m256i integers = q6_k_integers(block, k);
        s->a = weight_bf16_times(_mm512_mul_ps(first_16(integers), _mm512_set1_ps(scale[2 * k])), x + STEP * k, s->a);
        s->b = weight_bf16_times(_mm512_mul_ps(last_16(integers), _mm512_set1_ps(scale[2 * k + 1])), x + STEP * k + 16, s->b);
    }
}

#define LARGE_BLOCKS(type, bytes)                                                                                                \
    AVX512 static float type##_dot_all(const uint8_t *blocks, const float *x, int64_t n)                                         \
    {                                                                                                                            \
        struct sums s = {_mm512_setzero_ps(), _mm512_setzero_ps()};                                                              \
        for (int64_t i = 0; i < n; i += 8 * STEP, blocks += bytes) {                                                             \
            for (int line = 0; line < bytes; line += 64)                                                                         \
                AHEAD(blocks + line);                                                                                            \
            type##_dot(blocks, x + i, &s);                                                                                       \
        }                                                                                                                        \
        return _mm512_reduce_add_ps(_mm512_add_ps(s.a, s.b));                                                                    \
    }

LARGE_BLOCKS(q4_k, 144)
LARGE_BLOCKS(q6_k, 210)

#define BLOCKS(type, elements, bytes)                                                                                            \
    AVX512 static void type##_expand_all(const uint8_t *blocks, int64_t n, uint16_t *to)                                         \
    {                                                                                                                            \
        for (int64_t i = 0; i < n; i += elements, blocks += bytes)                                                               \
            type##_expand(blocks, to + i);                                                                                       \
    }                                                                                                                            \
    const struct weight_bf16 bf16_##type = {type##_expand_all, type##_dot_all};

BLOCKS(q4_0, 32, 18)
BLOCKS(q4_1, 32, 20)
BLOCKS(q8_0, 32, 34)
BLOCKS(q4_k, 256, 144)
BLOCKS(q6_k, 256, 210)

#endif
