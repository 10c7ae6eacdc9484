/* Float32 matmuls: a text that gemm_avx2.c and gemm_avx512.c compile, each for its vectors. Before it they define
 *
 *     INSTRUCTIONS            the attribute of functions that use them
 *     VECTOR, VECTORS, ROWS   numbers of a vector; vectors of columns and rows whose sums stay in registers
 *     vector                  its type, with the functions V(zero), V(set), V(load), V(store), V(load_some), V(widen_some) of
 *                             bfloat16 numbers and V(store_some) (of the first `count` numbers; others are 0), V(fma)
 *                             (a · b + c), V(add), V(multiply), and V(transpose) of VECTOR vectors
 *
 * B may be bfloat16: it is widened where it is packed, which costs nothing next to reading it.
 *
 * C is computed in pieces, each by one thread: it packs the columns of B that the piece needs into panels, which then stay in the
 * cache of its processor, and takes the rows of A in blocks.
 *
 * One chain of float32 additions loses digits with its length: 49,152 terms of a vocabulary cost four. So registers sum chains of
 * 128 terms, and the chains' sums are added one after the other. That order follows only from k: all vectors give the same bytes.
 */
#include <stdatomic.h>

#include "base/number.h"
#include "base/parallel.h"
#include "device/cpu.h"
#include "device/cpu_gemm.h"

#define INLINE static inline __attribute__((always_inline)) INSTRUCTIONS

/* Sanitizers make it slower by far; they see what is packed and written around it. */
#define UNSANITIZED __attribute__((no_sanitize("address", "undefined", "thread")))

enum { PANEL = VECTORS * VECTOR, BLOCK = 64, CHAIN = 128 };
enum { ROWS_MAX = 1024, TERMS_MAX = 2048, TERMS_PART = 512, PACKED_BYTES = 768 << 10, PIECES_MIN = 4 }; /* of a piece; pieces */
enum { FETCH_AHEAD = 12 };                                                                              /* rows */
enum { CACHE_SETS = 4096, LINE = 16 }; /* bytes after which addresses share a set of the first cache; numbers of a line of it */

/* Few rows are taken too, for which oneDNN is faster: a row's sums may not depend on how many others there are.
 *
 * Columns are cut by what fits into a cache, and rows where that gives too few pieces. A is read where it lies, unless its rows
 * are columns or those that are read together share a set of the cache. */
static bool gemm_f32_plan(struct cpu_gemm_plan *plan, const struct gemm *g)
{
    bool float32 = g->a == DTYPE_F32 && (g->b == DTYPE_F32 || g->b == DTYPE_BF16) && g->c == DTYPE_F32;
    if (!float32 || g->m < 1 || g->n < 1 || g->k < 1 || g->k2)
        return false;
    *plan = (struct cpu_gemm_plan){
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
    const struct cpu_gemm_plan *plan;
    const struct gemm *gemm;
    const float *a, *bias;
    const char *b;
    float *c, *panels, *block, *sums; /* the last three are of the lane; block and sums: NULL if there are none */
    int64_t row, rows, column, columns, first, terms;
};

/* --- Packing. What is not there is 0. ------------------------------------------------------------------------------------- */

/* Numbers from `at` on; `bytes` of each is 4, or 2 of bfloat16. */
INLINE vector load_numbers(const void *from, int64_t at, int64_t count, const int bytes)
{
    return bytes == 2 ? V(widen_some)((const uint16_t *)from + at, count) : V(load_some)((const float *)from + at, count);
}

/* Rows that are `stride` apart, into groups of columns that are (rows, group) each. */
INLINE void copy_rows(const char *from, const int bytes, int64_t stride, int64_t rows, int64_t columns, float *to, int64_t group)
{
    for (int64_t l = 0; l < rows; l++, from += stride * bytes)
        for (int64_t i = 0; i < columns; i += VECTOR) {
            __builtin_prefetch(from + (FETCH_AHEAD * stride + i) * bytes);
            V(store)(to + i / group * group * rows + l * group + i % group, load_numbers(from, i, columns - i, bytes));
        }
}

/* Up to VECTOR rows that are `stride` apart, as columns of a matrix whose rows are `width` apart. */
INLINE void transpose_rows(const char *from, const int bytes, int64_t stride, int64_t rows, int64_t terms, float *to,
                           int64_t width)
{
    vector r[VECTOR];
    for (int64_t l = 0; l < terms; l += VECTOR) {
#pragma GCC unroll 16
        for (int i = 0; i < VECTOR; i++)
            r[i] = i < rows ? load_numbers(from, i * stride + l, terms - l, bytes) : V(zero)();
        V(transpose)(r);
#pragma GCC unroll 16
        for (int i = 0; i < VECTOR; i++)
            if (l + i < terms)
                V(store)(to + (l + i) * width, r[i]);
    }
}

/* A block, to groups of VECTOR rows that are (terms, VECTOR) each. */
INSTRUCTIONS static void pack_a(const struct piece *p, int64_t row, int64_t rows)
{
    const struct gemm *g = p->gemm;
    int64_t lda = gemm_lda(g);
    if (g->transpose_a)
        copy_rows((const char *)(p->a + p->first * lda + row), 4, lda, p->terms, rows, p->block, VECTOR);
    for (int64_t r = 0; r < rows && !g->transpose_a; r += VECTOR)
        transpose_rows((const char *)(p->a + (row + r) * lda + p->first), 4, lda, rows - r, p->terms, p->block + r * p->terms,
                       VECTOR);
}

/* A panel, to (terms, columns rounded up to whole vectors). */
INLINE void pack_numbers_b(const struct piece *p, int64_t column, int64_t columns, float *to, const int bytes)
{
    const struct gemm *g = p->gemm;
    int64_t width = round_up(columns, VECTOR), ldb = gemm_ldb(g);
    if (!g->transpose_b)
        copy_rows(p->b + (p->first * ldb + column) * bytes, bytes, ldb, p->terms, columns, to, width);
    for (int64_t v = 0; v < columns && g->transpose_b; v += VECTOR)
        transpose_rows(p->b + ((column + v) * ldb + p->first) * bytes, bytes, ldb, columns - v, p->terms, to + v, width);
}

INSTRUCTIONS static void pack_b(const struct piece *p, int64_t column, int64_t columns, float *to)
{
    if (p->gemm->b == DTYPE_BF16)
        pack_numbers_b(p, column, columns, to, 2);
    else
        pack_numbers_b(p, column, columns, to, 4);
}

/* --- Multiplying. --------------------------------------------------------------------------------------------------------- */

INLINE void gemm_f32_fetch_a(const float *const row[ROWS], int64_t at)
{
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        __builtin_prefetch(row[i] + at);
}

/* One chain: ROWS rows, whose numbers are `stride` apart, times `vectors` vectors. Asks for what lies `next` after each row. */
UNSANITIZED INLINE void multiply_rows(const float *const row[ROWS], int64_t stride, int64_t next, const float *b, int64_t terms,
                                      float *sums, bool adds, const int vectors)
{
    vector sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[i][v] = V(zero)();
    for (int64_t l = 0, at = 0; l < terms; l++, at += stride, b += vectors * VECTOR) {
        vector x[VECTORS];
        if (l % LINE == 0)
            gemm_f32_fetch_a(row, at + next);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            x[v] = V(load)(b + v * VECTOR);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            vector factor = V(set)(row[i][at]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[i][v] = V(fma)(factor, x[v], sum[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            float *to = sums + i * PANEL + v * VECTOR;
            V(store)(to, adds ? V(add)(V(load)(to), sum[i][v]) : sum[i][v]);
        }
}

/* C is asked for while the last chain is summed, to be there when the sums go into it. */
static void gemm_f32_fetch_c(const struct piece *p, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i += VECTOR)
            __builtin_prefetch(p->c + (row + r) * gemm_ldc(p->gemm) + column + i, 1);
}

/* A block times a panel, to sums with rows of PANEL numbers. Rows that the block does not have are its last. */
UNSANITIZED INSTRUCTIONS static void gemm_f32_multiply(const struct piece *p, int64_t row, int64_t rows, int64_t column,
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
                gemm_f32_fetch_c(p, row + r, min(rows - r, ROWS), column, columns);
            if (vectors == 1)
                multiply_rows(at, stride, next, b, terms, to, adds, 1);
            else if (vectors == 2)
                multiply_rows(at, stride, next, b, terms, to, adds, 2);
            else
                multiply_rows(at, stride, next, b, terms, to, adds, VECTORS);
        }
}

/* Sums into C, with all that is added. */
INSTRUCTIONS static void gemm_f32_finish(const struct piece *p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                                         const float *sums)
{
    const struct gemm *g = p->gemm;
    vector alpha = V(set)((float)g->alpha);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t v = 0; v < columns; v += VECTOR) {
            float *to = p->c + (row + r) * gemm_ldc(g) + column + v;
            vector y = V(multiply)(V(load)(sums + r * PANEL + v), alpha);
            if (g->bias)
                y = V(add)(y, V(load_some)(p->bias + column + v, columns - v));
            if (g->accumulate)
                y = V(add)(y, V(load_some)(to, columns - v));
            V(store_some)(to, columns - v, y);
        }
}

/* --- Pieces. -------------------------------------------------------------------------------------------------------------- */

static void gemm_f32_run_block(const struct piece *p, int64_t down, int64_t rows)
{
    _Alignas(VECTOR * 4) float here[BLOCK * PANEL];
    if (p->block)
        pack_a(p, p->row + down, rows);
    for (int64_t at = 0; at < p->columns; at += PANEL) {
        int64_t column = p->column + at, columns = min(p->columns - at, PANEL);
        float *sums = p->sums ? p->sums + down * p->plan->columns + at * BLOCK : here;
        gemm_f32_multiply(p, p->row + down, rows, column, columns, p->panels + at * p->plan->terms, sums);
        if (p->first + p->terms == p->gemm->k)
            gemm_f32_finish(p, p->row + down, rows, column, columns, sums);
    }
}

static void gemm_f32_run_piece(struct piece *p)
{
    for (p->first = 0; p->first < p->gemm->k; p->first += p->plan->terms) {
        p->terms = min(p->gemm->k - p->first, p->plan->terms);
        for (int64_t at = 0; at < p->columns; at += PANEL)
            pack_b(p, p->column + at, min(p->columns - at, PANEL), p->panels + at * p->plan->terms);
        for (int64_t down = 0; down < p->rows; down += BLOCK)
            gemm_f32_run_block(p, down, min(p->rows - down, BLOCK));
    }
}

struct run {
    const struct cpu_gemm_plan *plan;
    const struct gemm *gemm;
    void *const *address;
    _Atomic int64_t next; /* piece */
};

/* A lane runs on one thread, and takes the pieces that no other has taken. */
static void gemm_f32_run_lane(void *context, int64_t lane, int64_t end)
{
    struct run *run = context;
    const struct cpu_gemm_plan *plan = run->plan;
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
        gemm_f32_run_piece(&piece);
    }
}

static void gemm_f32_run(const struct cpu_gemm_plan *plan, const struct gemm *gemm, void *const address[GEMM_OPERANDS])
{
    struct run run = {.plan = plan, .gemm = gemm, .address = address};
    parallel_for(plan->lanes, 1, gemm_f32_run_lane, &run);
}
