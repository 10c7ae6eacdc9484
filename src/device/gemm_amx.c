/* C is computed in pieces, each by one thread: it packs the columns of B that the piece needs into tiles, which then stay in the
 * second cache of its processor, and takes the rows of A in blocks, packed unless they are tiles where they lie. 32 rows of a
 * block times the 32 columns of a panel are four tiles of float32 sums; a step of the sum is 32 terms.
 *
 * A float32 number is the sum of three bfloat16 numbers, exactly. Of the nine products of two such sums the six largest are
 * computed, the largest last; what is left out is below a quarter of a unit in the last place. Numbers below 2^-110
 * lose digits, as AMX takes subnormal numbers as 0.
 *
 * One chain of float32 additions loses digits with its length, so chains are kept short, and their sums added one after the
 * other.
 */
#include "device/cpu_gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdatomic.h>

#include "base/number.h"
#include "base/parallel.h"
#include "device/amx_pack.h"
#include "device/cpu.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define AVX512_INLINE static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define AMX_INLINE                                                                                                               \
    static inline __attribute__((always_inline, target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

/* The compiler does not know what the tiles' instructions read and write. */
#define MEMORY_IS_USED __asm__ volatile("" ::: "memory")

enum { PANEL = 32, BLOCK = 32, SUMS = SIDE * SIDE }; /* columns, rows; numbers of a tile of sums */
enum { SHARES_MAX = 64 };
enum { ROWS_A_STEP = 2 };   /* of C, finished during the products of a step */
enum { JOINED_MAX = 64 };   /* terms of a second product */
enum { CHAIN_SPLIT = 256 }; /* terms; SPLIT: of float32 numbers */
enum { ROWS_MAX = 256, TERMS_MAX_SPLIT = 640, TERMS_PART_SPLIT = 512, PACKED_BYTES = 1 << 20 }; /* of a piece */
enum { LINE = 64, CACHE_SETS = 4096 }; /* bytes: of a line of the cache, and after which addresses share a set of the first */

/* However few rows or terms there are: a row's sums may not depend on how many others there are.
 *
 * Columns are cut by what fits into a cache, and rows where that gives too few pieces. */
static bool gemm_amx_plan(struct cpu_gemm_plan *plan, const struct gemm *g)
{
    bool float32 = g->a == DTYPE_F32 && g->b == DTYPE_F32 && g->c == DTYPE_F32;
    bool bfloat16 = g->a == DTYPE_BF16 && g->b == DTYPE_BF16 && (g->c == DTYPE_BF16 || g->c == DTYPE_F32);
    if ((!float32 && !bfloat16) || g->m < 1 || g->n < 1 || g->k < 1 || g->k2 > JOINED_MAX || (g->k2 && g->transpose_a))
        return false;
    *plan = (struct cpu_gemm_plan){
        .parts = float32 ? PARTS_MAX : 1,
        .waits = g->k > (float32 ? TERMS_MAX_SPLIT : AMX_TERMS_MAX),
    };
    plan->terms = float32 ? round_up(plan->waits ? TERMS_PART_SPLIT : g->k, STEP) : amx_terms(g->k);
    plan->chain = float32 ? CHAIN_SPLIT : amx_chain(plan->terms);
    plan->panel = plan->parts * plan->terms * PANEL * 2;
    int64_t threads = parallel_threads(), columns = max(PACKED_BYTES / plan->panel, 1) * PANEL;
    plan->columns = gemm_even_parts(g->n, min(columns, max(divide_up(g->n, threads), PANEL)), PANEL);
    int64_t across = divide_up(g->n, plan->columns);
    plan->rows = gemm_even_parts(g->m, across < threads ? max(g->m * across / threads, BLOCK) : ROWS_MAX, BLOCK);
    plan->panel += plan->parts * round_up(g->k2, STEP) * PANEL * 2;
    plan->block_at = plan->columns / PANEL * plan->panel;
    plan->sums_at = plan->block_at + plan->parts * (plan->terms + round_up(g->k2, STEP)) * BLOCK * 2 + BLOCK * PANEL * 4;
    plan->lane = plan->sums_at + (plan->waits ? plan->rows : plan->chain < g->k ? BLOCK : 0) * plan->columns * 4;
    plan->lanes = min(min(threads, 2 * SHARES_MAX), divide_up(g->m, plan->rows) * across);
    return true;
}

/* --- From sums to C. ------------------------------------------------------------------------------------------------------- */

struct finish { /* a chain's sums of a block and a panel on their way to C, or to those of other chains; rows from `row` on are
                   left */
    const struct gemm *gemm;
    const float *chain;
    float *sums;               /* of the chains before, where there are or will be others */
    bool add, last;            /* to the sums; to C */
    char *c;                   /* where the first row is */
    const char *bias;          /* of the panel's columns; NULL: none */
    int64_t stride, row, rows; /* stride: bytes to C's next row */
    __mmask32 columns;
};

AVX512_INLINE __m512 gemm_amx_widen(__m256i x)
{
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16);
}

AVX512_INLINE void add32(__m512 to[2], const char *from, enum dtype dtype, __mmask32 mask)
{
    __m512 low, high;
    if (dtype == DTYPE_F32) {
        low = _mm512_maskz_loadu_ps((__mmask16)mask, from);
        high = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), from + 64);
    } else {
        __m512i both = _mm512_maskz_loadu_epi16(mask, from);
        low = gemm_amx_widen(_mm512_castsi512_si256(both));
        high = gemm_amx_widen(_mm512_extracti64x4_epi64(both, 1));
    }
    to[0] = _mm512_add_ps(to[0], low);
    to[1] = _mm512_add_ps(to[1], high);
}

AVX512_INLINE void finish_row(struct finish *f)
{
    const struct gemm *g = f->gemm;
    int64_t at = f->row / SIDE * 2 * SUMS + f->row % SIDE * SIDE;
    __m512 y[2] = {_mm512_load_ps(f->chain + at), _mm512_load_ps(f->chain + at + SUMS)};
    char *c = f->c + f->row++ * f->stride;
    if (f->add) {
        y[0] = _mm512_add_ps(y[0], _mm512_load_ps(f->sums + at));
        y[1] = _mm512_add_ps(y[1], _mm512_load_ps(f->sums + at + SUMS));
    }
    if (!f->last) {
        _mm512_store_ps(f->sums + at, y[0]);
        _mm512_store_ps(f->sums + at + SUMS, y[1]);
        return;
    }
    if (g->alpha != 1) {
        y[0] = _mm512_mul_ps(y[0], _mm512_set1_ps((float)g->alpha));
        y[1] = _mm512_mul_ps(y[1], _mm512_set1_ps((float)g->alpha));
    }
    if (f->bias)
        add32(y, f->bias, g->a, f->columns);
    if (g->accumulate)
        add32(y, c, g->c, f->columns);
    if (g->c == DTYPE_F32) {
        _mm512_mask_storeu_ps(c, (__mmask16)f->columns, y[0]);
        _mm512_mask_storeu_ps(c + 64, (__mmask16)(f->columns >> 16), y[1]);
    } else {
        _mm512_mask_storeu_epi16(c, f->columns, (__m512i)_mm512_cvtne2ps_pbh(y[1], y[0]));
    }
}

AVX512 static void gemm_amx_finish(struct finish *f)
{
    while (f->row < f->rows)
        finish_row(f);
}

/* --- Sums. ---------------------------------------------------------------------------------------------------------------- */

struct block { /* rows of A as tiles: packed, or where they lie */
    const uint16_t *a;
    int64_t lower, step; /* numbers to the lower tile, and to those of the next step */
    int64_t stride;      /* bytes to the next row */
};

struct product { /* of rows and columns, from the same step on */
    struct block rows;
    const uint16_t *b;
    int64_t part, steps; /* numbers to the next part */
};

/* tall, wide: the second rows and columns of tiles have something in them. */
AMX_INLINE void load_rows(const struct block *rows, const uint16_t *a, bool tall)
{
    _tile_loadd(4, a, rows->stride);
    if (tall)
        _tile_loadd(5, a + rows->lower, rows->stride);
}

AMX_INLINE void load_columns(const uint16_t *b, bool wide)
{
    _tile_loadd(6, b, LINE);
    if (wide)
        _tile_loadd(7, b + TILE, LINE);
}

AMX_INLINE void add_products(bool tall, bool wide)
{
    _tile_dpbf16ps(0, 4, 6);
    if (wide)
        _tile_dpbf16ps(1, 4, 7);
    if (tall)
        _tile_dpbf16ps(2, 5, 6);
    if (tall && wide)
        _tile_dpbf16ps(3, 5, 7);
}

/* Other sums are finished while the tiles multiply. */
AMX_INLINE void finish_some(struct finish *before)
{
    for (int i = 0; i < ROWS_A_STEP && before->row < before->rows; i++)
        finish_row(before);
}

/* All products of the parts of numbers but that of the first parts, in an order in which each needs tiles of one before. */
AMX_INLINE void multiply_small_parts(const struct product *p, struct finish *before, bool tall, bool wide)
{
    const uint16_t *a = p->rows.a, *b = p->b;
    for (int64_t l = 0; l < p->steps; l++, a += p->rows.step, b += PAIR) {
        load_rows(&p->rows, a + 2 * p->part, tall);
        load_columns(b, wide);
        add_products(tall, wide);
        load_rows(&p->rows, a + p->part, tall);
        add_products(tall, wide);
        load_columns(b + p->part, wide);
        add_products(tall, wide);
        load_rows(&p->rows, a, tall);
        add_products(tall, wide);
        load_columns(b + 2 * p->part, wide);
        add_products(tall, wide);
        finish_some(before);
        finish_some(before);
        finish_some(before);
    }
}

AMX_INLINE void multiply_first_parts(const struct product *p, struct finish *before, bool tall, bool wide)
{
    const uint16_t *a = p->rows.a, *b = p->b;
    for (int64_t l = 0; l < p->steps; l++, a += p->rows.step, b += PAIR) {
        load_rows(&p->rows, a, tall);
        load_columns(b, wide);
        add_products(tall, wide);
        finish_some(before);
    }
}

/* One chain: the sums of one product, or of two. */
AMX_INLINE void gemm_amx_multiply_tiles(const struct product *p, int count, int parts, float *sums, struct finish *before,
                                        bool tall, bool wide)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < count && parts > 1; i++)
        multiply_small_parts(&p[i], before, tall, wide);
    for (int i = 0; i < count; i++)
        multiply_first_parts(&p[i], before, tall, wide);
    gemm_amx_finish(before); /* its sums are where these go */
    _tile_stored(0, sums, LINE);
    _tile_stored(1, sums + SUMS, LINE);
    _tile_stored(2, sums + 2 * SUMS, LINE);
    _tile_stored(3, sums + 3 * SUMS, LINE);
}

AMX static void gemm_amx_multiply(const struct product *p, int count, int parts, float *sums, struct finish *before, bool tall,
                                  bool wide)
{
    MEMORY_IS_USED;
    if (tall && wide)
        gemm_amx_multiply_tiles(p, count, parts, sums, before, true, true);
    else if (tall)
        gemm_amx_multiply_tiles(p, count, parts, sums, before, true, false);
    else if (wide)
        gemm_amx_multiply_tiles(p, count, parts, sums, before, false, true);
    else
        gemm_amx_multiply_tiles(p, count, parts, sums, before, false, false);
    MEMORY_IS_USED;
}

/* --- Pieces. -------------------------------------------------------------------------------------------------------------- */

struct piece { /* in progress; from `first` on, `terms` of the terms are packed */
    const struct cpu_gemm_plan *plan;
    const struct gemm *gemm;
    void *const *address;
    uint16_t *panels, *block;
    float *sums, *chain;
    struct finish before; /* what was multiplied last */
    int64_t row, rows, column, columns, first, terms;
};

/* The numbers of a panel, or of a block, that come before those of the second product. */
static int64_t first_numbers(const struct piece *p)
{
    return p->plan->parts * p->plan->terms * PANEL;
}

/* Columns of B. Rows in memory are read to their ends: across the panels where they are terms, else along a panel. */
static void pack_columns(const struct piece *p, const void *data, int64_t stride, int64_t first, int64_t terms, int64_t to)
{
    const struct gemm *g = p->gemm;
    const struct source b = {data, stride, dtype_size(g->b), p->plan->parts, !g->transpose_b};
    int64_t steps = divide_up(terms, STEP), panels = divide_up(p->columns, PANEL), count = steps * panels;
    for (int64_t i = 0; i < count; i++) {
        int64_t step = b.down ? i / panels : i % steps, panel = b.down ? i % panels : i / steps;
        amx_pack(&(struct packing){.to = p->panels + panel * p->plan->panel / 2 + to + step * PAIR,
                                   .part = steps * PAIR,
                                   .line = p->column + panel * PANEL,
                                   .lines = min(p->columns - panel * PANEL, PANEL),
                                   .first = first + step * STEP,
                                   .terms = min(terms - step * STEP, STEP)},
                 &b, true);
    }
}

static void pack_panels(const struct piece *p)
{
    const struct gemm *g = p->gemm;
    pack_columns(p, p->address[GEMM_B], gemm_ldb(g), p->first, p->terms, 0);
    if (g->k2 && p->first == 0)
        pack_columns(p, p->address[GEMM_B2], g->transpose_b ? g->k2 : g->n, 0, g->k2, first_numbers(p));
}

static struct block pack_rows(const struct piece *p, const void *data, int64_t stride, int64_t row, int64_t rows, int64_t first,
                              int64_t terms, uint16_t *to)
{
    const struct gemm *g = p->gemm;
    const struct source a = {data, stride, dtype_size(g->a), p->plan->parts, g->transpose_a};
    for (int64_t l = 0; l < terms; l += STEP)
        amx_pack(&(struct packing){.to = to + l / STEP * PAIR,
                                   .part = divide_up(terms, STEP) * PAIR,
                                   .line = row,
                                   .lines = rows,
                                   .first = first + l,
                                   .terms = min(terms - l, STEP)},
                 &a, false);
    return (struct block){.a = to, .lower = TILE, .step = PAIR, .stride = LINE};
}

/* Rows of A are used where they lie if they are whole tiles, each row of which is a line of the cache, of another set. */
static struct block block(const struct piece *p, int64_t row, int64_t rows)
{
    const struct gemm *g = p->gemm;
    int64_t lda = gemm_lda(g);
    const uint16_t *lie = (const uint16_t *)p->address[GEMM_A] + row * lda + p->first;
    if (p->plan->parts == 1 && !g->transpose_a && rows == BLOCK && g->k % STEP == 0 && lda % STEP == 0 &&
        lda * 2 % CACHE_SETS != 0 && (uintptr_t)lie % LINE == 0)
        return (struct block){.a = lie, .lower = SIDE * lda, .step = STEP, .stride = lda * 2};
    return pack_rows(p, p->address[GEMM_A], lda, row, rows, p->first, p->terms, p->block);
}

/* What is needed soon is fetched while the tiles multiply: the place of a panel in C, and a part of the next rows of A. */
static void gemm_amx_fetch_c(const struct finish *f)
{
    const char *c = f->c;
    for (int64_t i = 0; i < f->rows; i++, c += f->stride) {
        __builtin_prefetch(c, 1);
        if (f->gemm->c == DTYPE_F32)
            __builtin_prefetch(c + LINE, 1);
    }
}

/* Lines of rows of a matrix that are still to be fetched. */
struct ahead {
    const char *row;
    int64_t stride, line, lines, rows;
};

static struct ahead rows_ahead(const struct piece *p, int64_t row)
{
    const struct gemm *g = p->gemm;
    int64_t size = dtype_size(g->a);
    return (struct ahead){
        .row = (const char *)p->address[GEMM_A] + (row * gemm_lda(g) + p->first) * size,
        .stride = gemm_lda(g) * size,
        .lines = divide_up(p->terms * size, LINE),
        .rows = g->transpose_a ? 0 : max(min(g->m - row, BLOCK), 0),
    };
}

static void gemm_amx_fetch_a(struct ahead *ahead, int64_t count)
{
    for (int64_t i = 0; i < count && ahead->rows; i++) {
        __builtin_prefetch(ahead->row + ahead->line * LINE, 0, 2);
        if (++ahead->line == ahead->lines) {
            ahead->line = 0;
            ahead->row += ahead->stride;
            ahead->rows--;
        }
    }
}

/* A chain of a block and all panels. */
static void run_chain(struct piece *p, struct product product[2], int count, struct finish *after, struct ahead *ahead)
{
    int64_t lines = divide_up(ahead->lines * BLOCK, divide_up(p->columns, PANEL));
    const struct product at_first[2] = {product[0], product[1]};
    const struct finish f = *after;
    const struct gemm *g = p->gemm;
    for (int64_t at = 0; at < p->columns; at += PANEL) {
        int64_t columns = min(p->columns - at, PANEL);
        for (int i = 0; i < count; i++)
            product[i].b = at_first[i].b + at / PANEL * p->plan->panel / 2;
        after->sums = f.sums + at * BLOCK;
        after->c = f.c + at * dtype_size(g->c);
        after->bias = f.bias ? f.bias + at * dtype_size(g->a) : NULL;
        after->columns = first_lanes(columns);
        if (after->last)
            gemm_amx_fetch_c(after);
        gemm_amx_fetch_a(ahead, lines);
        gemm_amx_multiply(product, count, p->plan->parts, p->chain, &p->before, after->rows > SIDE, columns > SIDE);
        p->before = *after;
    }
}

static void gemm_amx_run_block(struct piece *p, int64_t down, int64_t rows)
{
    const struct cpu_gemm_plan *plan = p->plan;
    const struct gemm *g = p->gemm;
    const struct block all = block(p, p->row + down, rows);
    struct ahead ahead = rows_ahead(p, p->row + down + BLOCK);
    for (int64_t term = 0; term < p->terms; term += plan->chain) {
        bool first = p->first + term == 0, joined = first && g->k2;
        struct product product[2] = {{
            .rows = all,
            .b = p->panels + term / STEP * PAIR,
            .part = divide_up(p->terms, STEP) * PAIR,
            .steps = divide_up(min(p->terms - term, plan->chain), STEP),
        }};
        product[0].rows.a += term / STEP * all.step;
        if (joined)
            product[1] = (struct product){
                .rows = pack_rows(p, p->address[GEMM_A2], g->lda2 ? g->lda2 : g->k2, p->row + down, rows, 0, g->k2,
                                  p->block + first_numbers(p)),
                .b = p->panels + first_numbers(p),
                .part = divide_up(g->k2, STEP) * PAIR,
                .steps = divide_up(g->k2, STEP),
            };
        struct finish after = {
            .gemm = g,
            .chain = p->chain,
            .sums = p->sums + (plan->waits ? down * plan->columns : 0),
            .add = !first,
            .last = p->first + term + plan->chain >= g->k,
            .c = (char *)p->address[GEMM_C] + ((p->row + down) * gemm_ldc(g) + p->column) * dtype_size(g->c),
            .bias = g->bias ? (char *)p->address[GEMM_BIAS] + p->column * dtype_size(g->a) : NULL,
            .stride = gemm_ldc(g) * dtype_size(g->c),
            .rows = rows,
        };
        run_chain(p, product, 1 + joined, &after, &ahead);
    }
}

static void gemm_amx_run_piece(struct piece *p, bool packed)
{
    for (p->first = 0; p->first < p->gemm->k; p->first += p->plan->terms) {
        p->terms = min(p->gemm->k - p->first, p->plan->terms);
        if (!packed || p->plan->waits)
            pack_panels(p);
        for (int64_t down = 0; down < p->rows; down += BLOCK)
            gemm_amx_run_block(p, down, min(p->rows - down, BLOCK));
    }
    gemm_amx_finish(&p->before);
}

/* Two lanes share a row of pieces, column by column; one takes them from its beginning on, the other from its end, so that most
 * that a lane takes one after the other have the same columns of B, packed once. */
struct run {
    const struct cpu_gemm_plan *plan;
    const struct gemm *gemm;
    void *const *address;
    _Atomic int64_t taken[SHARES_MAX]; /* pieces of each row of them */
};

static void gemm_amx_run_lane(void *context, int64_t lane, int64_t end)
{
    struct run *run = context;
    const struct cpu_gemm_plan *plan = run->plan;
    const struct gemm *g = run->gemm;
    int64_t down = divide_up(g->m, plan->rows), count = divide_up(g->n, plan->columns) * down, packed = -1;
    int64_t share = lane / 2, from = 2 * share * count / plan->lanes, to = min(2 * share + 2, plan->lanes) * count / plan->lanes;
    int64_t pieces = to - from;
    char *workspace = (char *)run->address[GEMM_WORKSPACE] + lane * plan->lane;
    struct piece piece = {
        .plan = plan,
        .gemm = g,
        .address = run->address,
        .panels = (void *)workspace,
        .block = (void *)(workspace + plan->block_at),
        .sums = (void *)(workspace + plan->sums_at),
        .chain = (void *)(workspace + plan->sums_at - BLOCK * PANEL * 4),
    };
    (void)end;
    amx_begin();
    while (atomic_fetch_add(&run->taken[share], 1) < pieces) {
        int64_t i = lane % 2 ? --to : from++;
        piece.row = i % down * plan->rows;
        piece.rows = min(g->m - piece.row, plan->rows);
        piece.column = i / down * plan->columns;
        piece.columns = min(g->n - piece.column, plan->columns);
        gemm_amx_run_piece(&piece, packed == piece.column);
        packed = piece.column;
    }
    amx_end();
}

static void gemm_amx_run(const struct cpu_gemm_plan *plan, const struct gemm *gemm, void *const address[GEMM_OPERANDS])
{
    struct run run = {.plan = plan, .gemm = gemm, .address = address};
    parallel_for(plan->lanes, 1, gemm_amx_run_lane, &run);
}

const struct cpu_gemm gemm_amx = {ISA_amx, gemm_amx_plan, gemm_amx_run};
#endif
