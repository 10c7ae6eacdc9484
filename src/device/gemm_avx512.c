/* C is computed in pieces, each by one thread: it packs the columns of B that the piece needs into panels, which then stay in the
 * cache of its processor, and takes the rows of A in blocks. 8 rows of a block times the 48 columns of a panel are 24 registers
 * of sums.
 *
 * One chain of float32 additions loses digits with its length: 49,152 terms of a vocabulary cost four. So registers sum chains of
 * 128 terms, and the chains' sums are added one after the other.
 */
#include "device/gemm_avx512.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdatomic.h>

#include "base/number.h"
#include "base/parallel.h"
#include "device/cpu.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define AVX512_INLINE static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl")))

/* Sanitizers make it slower by far; they see what is packed and written around it. */
#define UNSANITIZED __attribute__((no_sanitize("address", "undefined", "thread")))

enum { VECTOR = 16, VECTORS = 3, ROWS = 8, PANEL = VECTORS * VECTOR, BLOCK = 64, CHAIN = 128 };
enum { ROWS_MIN = 32, ROWS_MIN_COPIED = 256 }; /* below these, oneDNN is faster; where B is not transposed, for longer */
enum { ROWS_MAX = 1024, TERMS_MAX = 2048, TERMS_PART = 512, PACKED_BYTES = 768 << 10, PIECES_MIN = 4 }; /* of a piece; pieces */
enum { FETCH_AHEAD = 12 };                                                                              /* rows */
enum { CACHE_SETS = 4096 }; /* bytes after which addresses share a set of the first cache */

/* Columns are cut by what fits into a cache, and rows where that gives too few pieces. A is read where it lies, unless its rows
 * are columns or those that are read together share a set of the cache. */
bool gemm_avx512_plan(struct avx512_plan *plan, const struct gemm *g)
{
    bool float32 = g->a == DTYPE_F32 && g->b == DTYPE_F32 && g->c == DTYPE_F32;
    if (!float32 || g->m < (g->transpose_b ? ROWS_MIN : ROWS_MIN_COPIED) || g->n < 1 || g->k < 1)
        return false;
    *plan = (struct avx512_plan){
        .terms = g->k > TERMS_MAX ? TERMS_PART : g->k,
        .waits = g->k > TERMS_MAX,
        .packs_a = g->transpose_a || gemm_lda(g) * 4 % CACHE_SETS == 0,
    };
    plan->panel = plan->terms * PANEL * 4;
    int64_t columns = max(PACKED_BYTES / plan->panel, 1) * PANEL;
    plan->columns = gemm_even_parts(g->n, min(columns, max(divide_up(g->n, PIECES_MIN), PANEL)), PANEL);
    int64_t across = divide_up(g->n, plan->columns);
    plan->rows = gemm_even_parts(g->m, across < PIECES_MIN ? max(g->m * across / PIECES_MIN, BLOCK) : ROWS_MAX, BLOCK);
    plan->block_at = plan->columns / PANEL * plan->panel;
    plan->sums_at = plan->block_at + (plan->packs_a ? plan->terms * BLOCK * 4 : 0);
    plan->lane = plan->sums_at + (plan->waits ? plan->rows * plan->columns * 4 : 0);
    plan->lanes = min(parallel_threads(), divide_up(g->m, plan->rows) * across);
    return true;
}

struct piece { /* in progress; from `first` on, `terms` of the terms are packed */
    const struct avx512_plan *plan;
    const struct gemm *gemm;
    const float *a, *b, *bias;
    float *c, *panels, *block, *sums; /* the last three are of the lane; block and sums: NULL if there are none */
    int64_t row, rows, column, columns, first, terms;
};

/* --- Packing. What is not there is 0. ------------------------------------------------------------------------------------- */

AVX512_INLINE __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)(count >= VECTOR ? 0xffff : (1 << count) - 1);
}

/* Rows that are `stride` apart, into groups of columns that are (rows, group) each. */
AVX512_INLINE void copy_rows(const float *from, int64_t stride, int64_t rows, int64_t columns, float *to, int64_t group)
{
    for (int64_t l = 0; l < rows; l++, from += stride)
        for (int64_t i = 0; i < columns; i += VECTOR) {
            __builtin_prefetch(from + FETCH_AHEAD * stride + i);
            _mm512_storeu_ps(to + i / group * group * rows + l * group + i % group,
                             _mm512_maskz_loadu_ps(first_lanes(columns - i), from + i));
        }
}

AVX512_INLINE void transpose_vectors(__m512 r[VECTOR])
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

/* Up to 16 rows that are `stride` apart, as 16 columns of a matrix whose rows are `width` apart. */
AVX512_INLINE void transpose_rows(const float *from, int64_t stride, int64_t rows, int64_t terms, float *to, int64_t width)
{
    __m512 r[VECTOR];
    for (int64_t l = 0; l < terms; l += VECTOR) {
        __mmask16 mask = first_lanes(terms - l);
#pragma GCC unroll 16
        for (int i = 0; i < VECTOR; i++)
            r[i] = i < rows ? _mm512_maskz_loadu_ps(mask, from + i * stride + l) : _mm512_setzero_ps();
        transpose_vectors(r);
#pragma GCC unroll 16
        for (int i = 0; i < VECTOR; i++)
            if (l + i < terms)
                _mm512_storeu_ps(to + (l + i) * width, r[i]);
    }
}

/* A block, to groups of 16 rows that are (terms, 16) each. */
AVX512 static void pack_a(const struct piece *p, int64_t row, int64_t rows)
{
    const struct gemm *g = p->gemm;
    int64_t lda = gemm_lda(g);
    if (g->transpose_a)
        copy_rows(p->a + p->first * lda + row, lda, p->terms, rows, p->block, VECTOR);
    for (int64_t r = 0; r < rows && !g->transpose_a; r += VECTOR)
        transpose_rows(p->a + (row + r) * lda + p->first, lda, rows - r, p->terms, p->block + r * p->terms, VECTOR);
}

/* A panel, to (terms, columns rounded up to whole vectors). */
AVX512 static void pack_b(const struct piece *p, int64_t column, int64_t columns, float *to)
{
    const struct gemm *g = p->gemm;
    int64_t width = round_up(columns, VECTOR), ldb = gemm_ldb(g);
    if (!g->transpose_b)
        copy_rows(p->b + p->first * ldb + column, ldb, p->terms, columns, to, width);
    for (int64_t v = 0; v < columns && g->transpose_b; v += VECTOR)
        transpose_rows(p->b + (column + v) * ldb + p->first, ldb, columns - v, p->terms, to + v, width);
}

/* --- Multiplying. --------------------------------------------------------------------------------------------------------- */

AVX512_INLINE void gemm_avx512_fetch_a(const float *const row[ROWS], int64_t at)
{
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        __builtin_prefetch(row[i] + at);
}

/* One chain: 8 rows, whose numbers are `stride` apart, times `vectors` vectors. Asks for what lies `next` after each row. */
UNSANITIZED AVX512_INLINE void multiply_rows(const float *const row[ROWS], int64_t stride, int64_t next, const float *b,
                                             int64_t terms, float *sums, bool adds, const int vectors)
{
    __m512 sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            sum[i][v] = _mm512_setzero_ps();
    for (int64_t l = 0, at = 0; l < terms; l++, at += stride, b += vectors * VECTOR) {
        __m512 x[VECTORS];
        if (l % VECTOR == 0)
            gemm_avx512_fetch_a(row, at + next);
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            x[v] = _mm512_loadu_ps(b + v * VECTOR);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            __m512 factor = _mm512_set1_ps(row[i][at]);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                sum[i][v] = _mm512_fmadd_ps(factor, x[v], sum[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            float *to = sums + i * PANEL + v * VECTOR;
            _mm512_storeu_ps(to, adds ? _mm512_add_ps(_mm512_loadu_ps(to), sum[i][v]) : sum[i][v]);
        }
}

/* C is asked for while the last chain is summed, to be there when the sums go into it. */
static void gemm_avx512_fetch_c(const struct piece *p, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i += VECTOR)
            __builtin_prefetch(p->c + (row + r) * gemm_ldc(p->gemm) + column + i, 1);
}

/* A block times a panel, to sums with rows of PANEL numbers. Rows that the block does not have are its last. */
UNSANITIZED AVX512 static void gemm_avx512_multiply(const struct piece *p, int64_t row, int64_t rows, int64_t column,
                                                    int64_t columns, const float *panel, float *sums)
{
    int64_t vectors = divide_up(columns, VECTOR), stride = p->block ? VECTOR : 1, lda = gemm_lda(p->gemm),
            next = p->block ? 0 : ROWS * lda;
    for (int64_t l = 0; l < p->terms; l += CHAIN)
        for (int64_t r = 0; r < rows; r += ROWS) {
            const float *at[ROWS], *b = panel + l * vectors * VECTOR;
            float *to = sums + r * PANEL;
            int64_t terms = min(p->terms - l, CHAIN);
            bool adds = p->first + l > 0;
            for (int i = 0; i < ROWS; i++)
                at[i] = p->block ? p->block + (r / VECTOR * p->terms + l) * VECTOR + r % VECTOR + i
                                 : p->a + (row + min(r + i, rows - 1)) * lda + p->first + l;
            if (p->first + l + terms == p->gemm->k)
                gemm_avx512_fetch_c(p, row + r, min(rows - r, ROWS), column, columns);
            if (vectors == 1)
                multiply_rows(at, stride, next, b, terms, to, adds, 1);
            else if (vectors == 2)
                multiply_rows(at, stride, next, b, terms, to, adds, 2);
            else
                multiply_rows(at, stride, next, b, terms, to, adds, VECTORS);
        }
}

/* Sums into C, with all that is added. */
AVX512 static void gemm_avx512_finish(const struct piece *p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                                      const float *sums)
{
    const struct gemm *g = p->gemm;
    __m512 alpha = _mm512_set1_ps((float)g->alpha);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t v = 0; v < columns; v += VECTOR) {
            float *to = p->c + (row + r) * gemm_ldc(g) + column + v;
            __mmask16 mask = first_lanes(columns - v);
            __m512 y = _mm512_mul_ps(_mm512_loadu_ps(sums + r * PANEL + v), alpha);
            if (g->bias)
                y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, p->bias + column + v));
            if (g->accumulate)
                y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, to));
            _mm512_mask_storeu_ps(to, mask, y);
        }
}

/* --- Pieces. -------------------------------------------------------------------------------------------------------------- */

static void gemm_avx512_run_block(const struct piece *p, int64_t down, int64_t rows)
{
    _Alignas(VECTOR * 4) float here[BLOCK * PANEL];
    if (p->block)
        pack_a(p, p->row + down, rows);
    for (int64_t at = 0; at < p->columns; at += PANEL) {
        int64_t column = p->column + at, columns = min(p->columns - at, PANEL);
        float *sums = p->sums ? p->sums + down * p->plan->columns + at * BLOCK : here;
        gemm_avx512_multiply(p, p->row + down, rows, column, columns, p->panels + at * p->plan->terms, sums);
        if (p->first + p->terms == p->gemm->k)
            gemm_avx512_finish(p, p->row + down, rows, column, columns, sums);
    }
}

static void gemm_avx512_run_piece(struct piece *p)
{
    for (p->first = 0; p->first < p->gemm->k; p->first += p->plan->terms) {
        p->terms = min(p->gemm->k - p->first, p->plan->terms);
        for (int64_t at = 0; at < p->columns; at += PANEL)
            pack_b(p, p->column + at, min(p->columns - at, PANEL), p->panels + at * p->plan->terms);
        for (int64_t down = 0; down < p->rows; down += BLOCK)
            gemm_avx512_run_block(p, down, min(p->rows - down, BLOCK));
    }
}

struct run {
    const struct avx512_plan *plan;
    const struct gemm *gemm;
    void *const *address;
    _Atomic int64_t next; /* piece */
};

/* A lane runs on one thread, and takes the pieces that no other has taken. */
static void gemm_avx512_run_lane(void *context, int64_t lane, int64_t end)
{
    struct run *run = context;
    const struct avx512_plan *plan = run->plan;
    const struct gemm *g = run->gemm;
    int64_t across = divide_up(g->n, plan->columns), count = divide_up(g->m, plan->rows) * across, i;
    char *workspace = (char *)run->address[GEMM_WORKSPACE] + lane * plan->lane;
    struct piece piece = {
        .plan = plan,
        .gemm = g,
        .a = run->address[GEMM_A],
        .b = run->address[GEMM_B],
        .bias = run->address[GEMM_BIAS],
        .c = run->address[GEMM_C],
        .panels = (void *)workspace,
        .block = plan->packs_a ? (void *)(workspace + plan->block_at) : NULL,
        .sums = plan->waits ? (void *)(workspace + plan->sums_at) : NULL,
    };
    (void)end;
    while ((i = atomic_fetch_add(&run->next, 1)) < count) {
        piece.row = i / across * plan->rows;
        piece.rows = min(g->m - piece.row, plan->rows);
        piece.column = i % across * plan->columns;
        piece.columns = min(g->n - piece.column, plan->columns);
        gemm_avx512_run_piece(&piece);
    }
}

void gemm_avx512_run(const struct avx512_plan *plan, const struct gemm *gemm, void *const address[GEMM_OPERANDS])
{
    struct run run = {.plan = plan, .gemm = gemm, .address = address};
    parallel_for(plan->lanes, 1, gemm_avx512_run_lane, &run);
}
#else
bool gemm_avx512_plan(struct avx512_plan *plan, const struct gemm *gemm)
{
    (void)plan, (void)gemm;
    return false;
}

void gemm_avx512_run(const struct avx512_plan *plan, const struct gemm *gemm, void *const address[GEMM_OPERANDS])
{
    (void)plan, (void)gemm, (void)address;
}
#endif
