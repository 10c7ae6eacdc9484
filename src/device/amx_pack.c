/* Packing in vectors of 32 numbers, and the tiles' configuration. */
#include "device/amx_pack.h"

#if defined(__x86_64__)
#include "device/transpose.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define AVX512_INLINE static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

enum { FETCH_AHEAD = 3 * STEP }; /* rows */

/* Up to 32 numbers of a row, as sums of bfloat16 numbers. */
AVX512_INLINE void amx_pack_load(const struct source *s, int parts, int64_t row, int64_t column, int64_t count,
                                 __m512i x[PARTS_MAX])
{
    __mmask32 mask = first_lanes(count);
    const char *at = s->data + (row * s->stride + column) * s->size;
    if (parts == 1) {
        x[0] = _mm512_maskz_loadu_epi16(mask, at);
        return;
    }
    __m512 low = _mm512_maskz_loadu_ps((__mmask16)mask, at), high = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), at + 64);
    for (int i = 0; i < PARTS_MAX; i++) {
        x[i] = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        low = _mm512_sub_ps(low, (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(x[i])), 16));
        high = _mm512_sub_ps(high, (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(x[i], 1)), 16));
    }
}

AVX512_INLINE void amx_pack_store(uint16_t *tile, const __m512i x[SIDE])
{
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++)
        _mm512_store_si512(tile + i * STEP, x[i]);
}

/* Two rows, as words of a number of each: the first 16 columns, and the others. */
AVX512_INLINE void pair(__m512i x, __m512i y, __m512i *low, __m512i *high)
{
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
    x = _mm512_permutexvar_epi64(order, x);
    y = _mm512_permutexvar_epi64(order, y);
    *low = _mm512_unpacklo_epi16(x, y);
    *high = _mm512_unpackhi_epi16(x, y);
}

/* The sum is over the rows in memory. as_b: a term is a half of a word; else it is one of a row's numbers. */
AVX512_INLINE void pack_down(const struct packing *t, const struct source *s, int parts, bool as_b)
{
    __m512i x[PARTS_MAX], y[PARTS_MAX], low[PARTS_MAX][SIDE], high[PARTS_MAX][SIDE];
    for (int i = 0; i < SIDE; i++) {
        bool has_x = 2 * i < t->terms, has_y = 2 * i + 1 < t->terms;
        const char *ahead = s->data + ((t->first + 2 * i + FETCH_AHEAD) * s->stride + t->line) * s->size;
        __builtin_prefetch(ahead);
        __builtin_prefetch(ahead + s->stride * s->size);
        amx_pack_load(s, parts, t->first + (has_x ? 2 * i : 0), t->line, has_x ? t->lines : 0, x);
        amx_pack_load(s, parts, t->first + (has_y ? 2 * i + 1 : 0), t->line, has_y ? t->lines : 0, y);
        for (int p = 0; p < parts; p++)
            pair(x[p], y[p], &low[p][i], &high[p][i]);
    }
    for (int p = 0; p < parts; p++) {
        if (!as_b) {
            turn(low[p]);
            turn(high[p]);
        }
        amx_pack_store(t->to + p * t->part, low[p]);
        amx_pack_store(t->to + p * t->part + TILE, high[p]);
    }
}

/* The sum is along the rows in memory. */
AVX512_INLINE void pack_along(const struct packing *t, const struct source *s, int parts, bool as_b)
{
    __m512i x[PARTS_MAX], all[PARTS_MAX][SIDE];
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < SIDE; i++) {
            int64_t down = half * SIDE + i;
            bool has = down < t->lines;
            amx_pack_load(s, parts, t->line + (has ? down : 0), t->first, has ? t->terms : 0, x);
            for (int p = 0; p < parts; p++)
                all[p][i] = x[p];
        }
        for (int p = 0; p < parts; p++) {
            if (as_b)
                turn(all[p]);
            amx_pack_store(t->to + p * t->part + half * TILE, all[p]);
        }
    }
}

AVX512 void amx_pack(const struct packing *t, const struct source *s, bool as_b)
{
    if (s->parts == 1 && s->down && as_b)
        pack_down(t, s, 1, true);
    else if (s->parts == 1 && s->down)
        pack_down(t, s, 1, false);
    else if (s->parts == 1 && as_b)
        pack_along(t, s, 1, true);
    else if (s->parts == 1)
        pack_along(t, s, 1, false);
    else if (s->down)
        pack_down(t, s, PARTS_MAX, as_b);
    else
        pack_along(t, s, PARTS_MAX, as_b);
}

__attribute__((target("amx-tile"))) void amx_begin(void)
{
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shape);
}

__attribute__((target("amx-tile"))) void amx_end(void)
{
    _tile_release();
}
#endif
