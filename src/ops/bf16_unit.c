/* The units' products, and tiles in the orders that they want. */
#include "ops/bf16_unit.h"

#ifdef BF16_UNITS

#include <stddef.h>
#include <string.h>

#include "base/number.h"
#include "device/amx_pack.h"
#include "device/transpose.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define AMX __attribute__((target("amx-tile,amx-bf16")))

/* --- AMX: a tile is 16 rows of 64 bytes; four of them are sums ---------------------------------------------------------- */

/* The compiler does not know what the tiles' instructions read and write. */
#define MEMORY_IS_USED __asm__ volatile("" ::: "memory")

AMX static void tiles_multiply(const struct bf16_product *p)
{
    size_t a_row = (size_t)p->k * 2, b_row = (size_t)p->n * 4, c_row = (size_t)p->n * 4;
    MEMORY_IS_USED;
    for (int64_t i = 0; i < p->m; i += 32)
        for (int64_t j = 0; j < p->n; j += 32) {
            float *c0 = p->c + i * p->n + j, *c1 = c0 + 16 * p->n;
            if (p->add) {
                _tile_loadd(0, c0, c_row);
                _tile_loadd(1, c0 + 16, c_row);
                _tile_loadd(2, c1, c_row);
                _tile_loadd(3, c1 + 16, c_row);
            } else {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            }
            for (int f = 0; f < p->pairs; f++)
                for (int64_t l = 0; l < p->k; l += 32) {
                    const uint16_t *a = p->a[f] + i * p->k + l;
                    const uint32_t *b = p->b[f] + l / 2 * p->n + j;
                    _tile_loadd(4, a, a_row);
                    _tile_loadd(6, b, b_row);
                    _tile_dpbf16ps(0, 4, 6);
                    _tile_loadd(7, b + 16, b_row);
                    _tile_dpbf16ps(1, 4, 7);
                    _tile_loadd(5, a + 16 * p->k, a_row);
                    _tile_dpbf16ps(2, 5, 6);
                    _tile_dpbf16ps(3, 5, 7);
                }
            _tile_stored(0, c0, c_row);
            _tile_stored(1, c0 + 16, c_row);
            _tile_stored(2, c1, c_row);
            _tile_stored(3, c1 + 16, c_row);
        }
    MEMORY_IS_USED;
}

/* --- AVX-512: eight rows and two vectors of columns stay in registers --------------------------------------------------- */

static void nothing(void)
{
}

AVX512 static void dots_multiply(const struct bf16_product *p)
{
    for (int64_t j = 0; j < p->n; j += 32)
        for (int64_t i = 0; i < p->m; i += 8) {
            float *c = p->c + i * p->n + j;
            __m512 sum[8][2];
            for (int r = 0; r < 8; r++)
                for (int v = 0; v < 2; v++)
                    sum[r][v] = p->add ? _mm512_loadu_ps(c + r * p->n + 16 * v) : _mm512_setzero_ps();
            for (int64_t l = 0; l < p->pairs * p->k / 2; l++) {
                int f = l >= p->k / 2;
                const uint16_t *a = p->a[f] + i * p->k + 2 * l - f * p->k;
                const uint32_t *b = p->b[f] + (l - f * p->k / 2) * p->n + j;
                __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 16);
                for (int r = 0; r < 8; r++) {
                    int32_t pair;
                    memcpy(&pair, a + r * p->k, sizeof pair);
                    sum[r][0] = _mm512_dpbf16_ps(sum[r][0], (__m512bh)_mm512_set1_epi32(pair), b0);
                    sum[r][1] = _mm512_dpbf16_ps(sum[r][1], (__m512bh)_mm512_set1_epi32(pair), b1);
                }
            }
            for (int r = 0; r < 8; r++)
                for (int v = 0; v < 2; v++)
                    _mm512_storeu_ps(c + r * p->n + 16 * v, sum[r][v]);
        }
}

const struct bf16_unit *bf16_unit(void)
{
    static const struct bf16_unit units[] = {
        {ISA_amx, amx_begin, amx_end, tiles_multiply},
        {ISA_avx512_bf16, nothing, nothing, dots_multiply},
    };
    for (int i = 0; i < 2; i++)
        if (units[i].needs <= isa())
            return &units[i];
    return NULL;
}

/* --- tiles -------------------------------------------------------------------------------------------------------------- */

/* Up to 32 numbers of a token, from d on; zeros beyond D, and for tokens that there are not. */
AVX512 static inline __m512i bf16_unit_numbers(const struct bf16_rows *r, int64_t token, int64_t d)
{
    int64_t left = token < r->count ? max(min(r->D - d, 32), 0) : 0;
    __mmask32 there = left == 32 ? 0xffffffffu : (1u << left) - 1;
    return _mm512_maskz_loadu_epi16(there, r->x + ((r->begin + token) * r->heads + r->head) * r->D + (left ? d : 0));
}

/* 16 tokens: x[i] has the numbers d + 2i and d + 2i + 1 of each. */
AVX512 static inline void turned_numbers(__m512i x[16], const struct bf16_rows *from, int64_t token, int64_t d)
{
    for (int i = 0; i < 16; i++)
        x[i] = bf16_unit_numbers(from, token + i, d);
    turn(x);
}

AVX512 void bf16_pack(uint16_t *to, const struct bf16_rows *from)
{
    for (int64_t t = 0; t < from->rows; t++)
        for (int64_t d = 0; d < from->width; d += 32)
            _mm512_storeu_si512(to + t * from->width + d, bf16_unit_numbers(from, t, d));
}

AVX512 void bf16_pack_columns(uint16_t *to, const struct bf16_rows *from)
{
    const __mmask32 upper = 0xaaaaaaaau;
    __m512i x[16], y[16];
    for (int64_t t = 0; t < from->rows; t += 32)
        for (int64_t d = 0; d < from->width; d += 32) {
            turned_numbers(x, from, t, d);
            turned_numbers(y, from, t + 16, d);
            for (int i = 0; i < 16; i++) {
                uint16_t *row = to + (d + 2 * i) * from->rows + t;
                _mm512_storeu_si512(row, _mm512_mask_blend_epi16(upper, x[i], _mm512_slli_epi32(y[i], 16)));
                _mm512_storeu_si512(row + from->rows, _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(x[i], 16), y[i]));
            }
        }
}

AVX512 void bf16_pack_columns_paired(uint32_t *to, const struct bf16_rows *from)
{
    __m512i x[16];
    for (int64_t t = 0; t < from->rows; t += 16)
        for (int64_t d = 0; d < from->width; d += 32) {
            turned_numbers(x, from, t, d);
            for (int i = 0; i < 16; i++)
                _mm512_storeu_si512(to + (d / 2 + i) * from->rows + t, x[i]);
        }
}

AVX512 void bf16_pack_paired(uint32_t *to, const struct bf16_rows *from)
{
    for (int64_t t = 0; t < from->rows; t += 32)
        for (int i = 0; i < 16; i++)
            for (int64_t d = 0; d < from->width; d += 32) {
                __m512i x = bf16_unit_numbers(from, t + i, d), y = bf16_unit_numbers(from, t + i + 16, d);
                uint32_t *row = to + (t / 2 + i) * from->width + d;
                __m512i x0 = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(x));
                __m512i y0 = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(y));
                __m512i x1 = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(x, 1));
                __m512i y1 = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(y, 1));
                _mm512_storeu_si512(row, _mm512_or_si512(x0, _mm512_slli_epi32(y0, 16)));
                _mm512_storeu_si512(row + 16, _mm512_or_si512(x1, _mm512_slli_epi32(y1, 16)));
            }
}

/* Rounds 16 numbers of a token and writes those that there are. */
AVX512 static inline void write_numbers(const struct bf16_rows *r, int64_t token, int64_t d, __m512 numbers16)
{
    int64_t left = max(min(r->D - d, 16), 0);
    uint16_t *x = r->x + ((r->begin + token) * r->heads + r->head) * r->D;
    if (left)
        _mm256_mask_storeu_epi16(x + d, (__mmask16)((1u << left) - 1), (__m256i)_mm512_cvtneps_pbh(numbers16));
}

AVX512 void bf16_unpack(const float *from, const struct bf16_rows *to)
{
    for (int64_t t = 0; t < to->count; t++)
        for (int64_t d = 0; d < to->D; d += 16)
            write_numbers(to, t, d, _mm512_loadu_ps(from + t * to->width + d));
}

AVX512 void bf16_unpack_columns(const float *from, const float *factor, const struct bf16_rows *to)
{
    __m512i x[16];
    for (int64_t t = 0; t < to->count; t += 16)
        for (int64_t d = 0; d < to->D; d += 16) {
            for (int i = 0; i < 16; i++)
                x[i] = (__m512i)_mm512_mul_ps(_mm512_loadu_ps(from + (d + i) * to->rows + t), _mm512_loadu_ps(factor + t));
            turn(x);
            for (int64_t i = 0; i < min(to->count - t, 16); i++)
                write_numbers(to, t + i, d, (__m512)x[i]);
        }
}

#endif
