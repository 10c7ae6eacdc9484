/* bfloat16 matmuls of at most 16 rows by columns that are rows in memory, as decoding has them: the tiles' sums of gemm_amx.c,
 * bit by bit, in the time of reading B once.
 *
 * The factors change places: B's rows are the rows of a tile, where they lie, and A's rows are its columns. Each sum then has the
 * same products in the same order, for AMX adds up 32 terms alike wherever a row or column is in a tile.
 */
#include "device/cpu_gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "base/number.h"
#include "base/parallel.h"
#include "device/amx_pack.h"

#define AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define AMX_INLINE                                                                                                               \
    static inline __attribute__((always_inline, target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

/* The compiler does not know what the tiles' instructions read and write. */
#define MEMORY_IS_USED __asm__ volatile("" ::: "memory")

enum { ROWS_MAX = SIDE, COLUMNS = 2 * SIDE, GRAIN = 2, LINE = 64 }; /* of B together; blocks that a thread takes at a time */
enum { JOINED_MAX = 64 };                                           /* terms of a second product */

static bool gemm_amx_few_plan(struct cpu_gemm_plan *plan, const struct gemm *g)
{
    bool bfloat16 = g->a == DTYPE_BF16 && g->b == DTYPE_BF16 && (g->c == DTYPE_BF16 || g->c == DTYPE_F32);
    if (!bfloat16 || g->m < 1 || g->m > ROWS_MAX || g->n < 1 || g->n % SIDE || g->k < 1 || g->k % STEP || g->k2 > JOINED_MAX ||
        g->transpose_a || !g->transpose_b)
        return false;
    *plan = (struct cpu_gemm_plan){.terms = amx_terms(g->k), .lanes = 1, .parts = 1};
    plan->chain = amx_chain(plan->terms);
    plan->block_at = g->k * g->m * 2; /* A, then A2, as words of two terms of each row */
    plan->lane = plan->block_at + JOINED_MAX * g->m * 2;
    return true;
}

/* Tiles 0 and 1 are sums, 2 and 3 rows of B, 4 words of A. */
AMX static void gemm_amx_few_begin(int64_t m)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1, .rows = {SIDE, SIDE, SIDE, SIDE, SIDE}};
    for (int i = 0; i < 5; i++)
        shape.bytes[i] = (uint16_t)(i == 2 || i == 3 ? LINE : 4 * m);
    MEMORY_IS_USED;
    _tile_loadconfig(&shape);
}

struct few { /* in progress */
    const struct cpu_gemm_plan *plan;
    const struct gemm *gemm;
    void *const *address;
    uint32_t *a, *a2;
};

static void gemm_amx_few_pack(uint32_t *to, const uint16_t *a, int64_t rows, int64_t stride, int64_t terms, int64_t all)
{
    memset(to, 0, (size_t)(all / 2 * rows) * sizeof *to);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t l = 0; l < terms; l++)
            to[l / 2 * rows + r] |= (uint32_t)a[r * stride + l] << (l % 2 * 16);
}

/* 16 sums of a row of A. */
AMX_INLINE void gemm_amx_few_finish(const struct few *f, __m512 y, int64_t row, int64_t column)
{
    const struct gemm *g = f->gemm;
    int64_t left = min(g->n - column, SIDE), at = row * gemm_ldc(g) + column;
    __mmask16 mask = (__mmask16)first_lanes(left);
    uint16_t *narrow = (uint16_t *)f->address[GEMM_C] + at;
    float *wide = (float *)f->address[GEMM_C] + at;
    if (g->alpha != 1)
        y = _mm512_mul_ps(y, _mm512_set1_ps((float)g->alpha));
    if (g->bias) {
        __m256i bias = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)f->address[GEMM_BIAS] + column);
        y = _mm512_add_ps(y, (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bias), 16));
    }
    if (g->c == DTYPE_F32) {
        if (g->accumulate)
            y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, wide));
        _mm512_mask_storeu_ps(wide, mask, y);
        return;
    }
    if (g->accumulate)
        y = _mm512_add_ps(y, (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, narrow)), 16));
    _mm256_mask_storeu_epi16(narrow, mask, (__m256i)_mm512_cvtneps_pbh(y));
}

/* Steps of a chain, of rows of B and words of A; `ahead` is asked for, as many bytes as are read. */
AMX_INLINE void gemm_amx_few_multiply(const uint16_t *b, int64_t stride, const uint32_t *a, int64_t m, int64_t steps, bool both,
                                      const char *ahead)
{
    for (int64_t s = 0; s < steps; s++, b += STEP, a += SIDE * m) {
        for (int i = 0; i < COLUMNS && ahead; i++, ahead += LINE)
            __builtin_prefetch(ahead, 0, 2);
        _tile_loadd(4, a, (size_t)(4 * m));
        _tile_loadd(2, b, (size_t)(2 * stride));
        _tile_dpbf16ps(0, 2, 4);
        if (both) {
            _tile_loadd(3, b + SIDE * stride, (size_t)(2 * stride));
            _tile_dpbf16ps(1, 3, 4);
        }
    }
}

/* The second product's rows of B, padded to whole steps. */
AMX_INLINE void gemm_amx_few_join(const struct few *f, int64_t column, int64_t columns)
{
    const struct gemm *g = f->gemm;
    uint16_t b[COLUMNS * JOINED_MAX] = {0};
    for (int64_t i = 0; i < columns; i++)
        memcpy(b + i * JOINED_MAX, (const uint16_t *)f->address[GEMM_B2] + (column + i) * g->k2, (size_t)g->k2 * sizeof *b);
    MEMORY_IS_USED;
    gemm_amx_few_multiply(b, JOINED_MAX, f->a2, g->m, divide_up(g->k2, STEP), true, NULL);
    MEMORY_IS_USED;
}

/* One or two tiles of columns of C. */
AMX static void gemm_amx_few_columns(const struct few *f, int64_t column, int64_t columns)
{
    const struct gemm *g = f->gemm;
    int64_t m = g->m, ldb = gemm_ldb(g);
    const uint16_t *b = (const uint16_t *)f->address[GEMM_B] + column * ldb;
    const char *ahead = (const char *)(b + COLUMNS * ldb);
    float chain[COLUMNS * ROWS_MAX], sums[COLUMNS * ROWS_MAX];
    for (int64_t first = 0; first < g->k; first += f->plan->terms) {
        int64_t terms = min(g->k - first, f->plan->terms);
        for (int64_t term = 0; term < terms; term += f->plan->chain) {
            int64_t at = first + term, some = min(terms - term, f->plan->chain);
            _tile_zero(0);
            _tile_zero(1);
            MEMORY_IS_USED;
            gemm_amx_few_multiply(b + at, ldb, f->a + at / 2 * m, m, some / STEP, columns > SIDE, ahead + at * COLUMNS * 2);
            if (at == 0 && g->k2)
                gemm_amx_few_join(f, column, columns);
            _tile_stored(0, chain, (size_t)(4 * m));
            _tile_stored(1, chain + SIDE * m, (size_t)(4 * m));
            MEMORY_IS_USED;
            for (int64_t i = 0; i < COLUMNS * m; i++)
                sums[i] = at == 0 ? chain[i] : chain[i] + sums[i];
        }
    }
    for (int64_t r = 0; r < m; r++)
        for (int64_t i = 0; i < columns; i += SIDE) {
            float y[SIDE];
            for (int64_t j = 0; j < SIDE; j++)
                y[j] = sums[(i + j) * m + r];
            gemm_amx_few_finish(f, _mm512_loadu_ps(y), r, column + i);
        }
}

static void gemm_amx_few_body(void *context, int64_t begin, int64_t end)
{
    const struct few *f = context;
    gemm_amx_few_begin(f->gemm->m);
    for (int64_t block = begin; block < end; block++)
        gemm_amx_few_columns(f, block * COLUMNS, min(f->gemm->n - block * COLUMNS, COLUMNS));
    amx_end();
}

static void gemm_amx_few_run(const struct cpu_gemm_plan *plan, const struct gemm *g, void *const address[GEMM_OPERANDS])
{
    char *workspace = address[GEMM_WORKSPACE];
    struct few f = {plan, g, address, (void *)workspace, (void *)(workspace + plan->block_at)};
    gemm_amx_few_pack(f.a, address[GEMM_A], g->m, gemm_lda(g), g->k, g->k);
    if (g->k2)
        gemm_amx_few_pack(f.a2, address[GEMM_A2], g->m, g->lda2 ? g->lda2 : g->k2, g->k2, round_up(g->k2, STEP));
    parallel_for(divide_up(g->n, COLUMNS), GRAIN, gemm_amx_few_body, &f);
}

const struct cpu_gemm gemm_amx_few = {ISA_amx, gemm_amx_few_plan, gemm_amx_few_run};
#endif
