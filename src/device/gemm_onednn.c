/* Matmuls by oneDNN, in the only file that knows it: Debian's 2.6 and the 3.x API, told apart by the version macro.
 *
 * A plan is a list of matmul primitives with their memory objects; a run only sets their addresses. The scratchpad is ours, so
 * that the memory plan knows every byte.
 *
 * oneDNN would cut a matmul by the number of threads, and with it the order of sums. So C is cut here, into tiles that follow
 * only from the matmul: each is a primitive that is made and run with one thread, and hone's threads deal the tiles among them.
 * oneDNN's own threads, OpenMP's, are never started.
 *
 * Many matmuls are hone's own (device/cpu_gemm.h). HONE_ISA limits oneDNN too.
 *
 * oneDNN sums over k in one chain of float32 additions, whose rounding errors grow with its length: 49,152 terms of a vocabulary
 * cost four digits. So float32 matmuls are cut along k into pieces that add to C one after the other: the first adds the bias,
 * the last multiplies by alpha.
 *
 * oneDNN throws what no C program can catch, or crashes, when one of its allocations fails, and OpenMP exits; oneDNN makes small
 * ones in every call. So the calls stand between two of inside().
 */
#include <dnnl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/crash_context.h"
#include "base/number.h"
#include "base/parallel.h"
#include "device/cpu.h"
#include "device/cpu_gemm.h"

void omp_set_num_threads(int threads); /* for the calling thread; its header is not where every compiler looks */
int omp_get_max_threads(void);

enum { MATRICES = GEMM_WORKSPACE }; /* the operands before it */

struct state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    bool warm[DTYPE_COUNT][DTYPE_COUNT]; /* by the types of A and C */
};

enum { CHAIN = 128 };
enum { FIRST, MIDDLE, LAST, PIECES }; /* the last may be shorter than the others; where there is one piece, it is the first */
enum { TILE = 256, TILE_16_BIT = 64, TILE_STEP = 16 };
enum { WORK_MIN = 1 << 17 };  /* multiplications below which a matmul is one tile: 10 microseconds or so */
enum { INNER, EDGE, PLACES }; /* tiles at the lower or right edge of C may be smaller */
enum { SCRATCH_STEP = 64 };   /* bytes */
enum { WARM = 32 };           /* rows, columns and terms of a matmul that is run only for its code */

struct piece {
    dnnl_primitive_t primitive;             /* NULL: there is no such piece */
    dnnl_memory_t (*memory)[GEMM_OPERANDS]; /* by lane; NULL: it has no such operand */
};

struct gemm_plan {
    struct state *state;
    struct gemm gemm;
    const struct cpu_gemm *own; /* hone's own code, which uses its plan and nothing that follows; NULL: oneDNN multiplies */
    struct cpu_gemm_plan cut;
    int64_t rows, columns, terms; /* of a piece of a tile that is not at an edge */
    int64_t count;                /* of pieces of a tile */
    int64_t lanes, scratch;       /* how many tiles may be in progress at once, and the bytes of scratchpad for each */
    struct piece piece[PLACES][PLACES][PIECES];
};

static enum status gemm_onednn_translate(dnnl_status_t code, const char *what)
{
    if (code == dnnl_success)
        return OK;
    if (code == dnnl_out_of_memory)
        return fail(ERR_MEMORY, "out of memory: %s", what);
    if (code == dnnl_unimplemented)
        return fail(ERR_UNSUPPORTED, "no implementation on this processor: %s; try --dtype float32", what);
    return fail(ERR_INTERNAL, "%s: failed with status %d", what, (int)code);
}

/* What HONE_ISA forbids, oneDNN does not use either. Its own variables have no say here: with ONEDNN_MAX_CPU_ISA hone would
 * choose a type that oneDNN has no matmul for, and with ONEDNN_DEFAULT_FPMATH_MODE float32 would lose digits. */
static enum status limit_onednn(void)
{
    static const dnnl_cpu_isa_t max[ISA_COUNT] = {[ISA_plain] = dnnl_cpu_isa_sse41,
                                                  [ISA_avx2] = dnnl_cpu_isa_avx2,
                                                  [ISA_avx512] = dnnl_cpu_isa_avx512_core_vnni,
                                                  [ISA_avx512_bf16] = dnnl_cpu_isa_avx512_core_bf16,
                                                  [ISA_amx] = (dnnl_cpu_isa_t)0}; /* all */
    bool limited;
    TRY(isa_limit(&limited));
    inside("oneDNN, limiting its instructions");
    dnnl_set_default_fpmath_mode(dnnl_fpmath_mode_strict);
    bool is_set = dnnl_set_max_cpu_isa(max[isa()]) == dnnl_success || !limited || isa() == ISA_amx ||
                  (dnnl_get_effective_cpu_isa() & ~max[isa()]) == 0;
    inside(NULL);
    return is_set ? OK
                  : fail(ERR_UNSUPPORTED,
                         "HONE_ISA=%s: oneDNN does not take this limit, as it has no limits or this process has used it before; "
                         "start hone without HONE_ISA",
                         isa_name(isa()));
}

static enum status open_engine(void **out)
{
    TRY(limit_onednn());
    struct state *state = memory_alloc(sizeof *state);
    if (!state)
        return ERR_MEMORY;
    static const char what[] = "oneDNN, creating its engine";
    inside(what);
    dnnl_status_t code = dnnl_engine_create(&state->engine, dnnl_cpu, 0);
    if (code == dnnl_success)
        code = dnnl_stream_create(&state->stream, state->engine, dnnl_stream_default_flags);
    inside(NULL);
    enum status status = gemm_onednn_translate(code, what);
    *out = state;
    if (status != OK) {
        if (state->engine)
            dnnl_engine_destroy(state->engine);
        memory_free(state);
    }
    return status;
}

static void close_engine(void *opaque)
{
    struct state *state = opaque;
    dnnl_stream_destroy(state->stream);
    dnnl_engine_destroy(state->engine);
    memory_free(state);
}

static dnnl_data_type_t data_type(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? dnnl_f32 : dtype == DTYPE_BF16 ? dnnl_bf16 : dtype == DTYPE_F16 ? dnnl_f16 : dnnl_data_type_undef;
}

/* The two APIs differ in how a matrix is described and a matmul is made. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t desc_view;
#define VIEW(desc) (desc)

static dnnl_status_t gemm_onednn_describe(dnnl_memory_desc_t *desc, const dnnl_dims_t dims, enum dtype dtype,
                                          const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(desc, 2, dims, data_type(dtype), strides);
}

static void gemm_onednn_forget(dnnl_memory_desc_t *desc)
{
    if (*desc)
        dnnl_memory_desc_destroy(*desc);
}

static dnnl_status_t gemm_onednn_choose(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const dnnl_memory_desc_t desc[MATRICES],
                                        bool bias, dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, desc[GEMM_A], desc[GEMM_B], bias ? desc[GEMM_BIAS] : NULL, desc[GEMM_C],
                                             attributes);
}

static dnnl_status_t append_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t append_factor(dnnl_post_ops_t post, double factor)
{
    return dnnl_post_ops_append_eltwise(post, dnnl_eltwise_linear, (float)factor, 0);
}
#else
typedef const dnnl_memory_desc_t *desc_view;
#define VIEW(desc) (&(desc))

static dnnl_status_t gemm_onednn_describe(dnnl_memory_desc_t *desc, const dnnl_dims_t dims, enum dtype dtype,
                                          const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(desc, 2, dims, data_type(dtype), strides);
}

static void gemm_onednn_forget(dnnl_memory_desc_t *desc)
{
    (void)desc;
}

static dnnl_status_t gemm_onednn_choose(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const dnnl_memory_desc_t desc[MATRICES],
                                        bool bias, dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t code =
        dnnl_matmul_desc_init(&matmul, &desc[GEMM_A], &desc[GEMM_B], bias ? &desc[GEMM_BIAS] : NULL, &desc[GEMM_C]);
    return code == dnnl_success ? dnnl_primitive_desc_create(pd, &matmul, attributes, engine, NULL) : code;
}

static dnnl_status_t append_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1);
}

static dnnl_status_t append_factor(dnnl_post_ops_t post, double factor)
{
    return dnnl_post_ops_append_eltwise(post, 1, dnnl_eltwise_linear, (float)factor, 0);
}
#endif

static void piece_free(struct piece *piece, int64_t lanes)
{
    for (int64_t l = 0; l < lanes && piece->memory; l++)
        for (int m = 0; m < GEMM_OPERANDS; m++)
            if (piece->memory[l][m])
                dnnl_memory_destroy(piece->memory[l][m]);
    if (piece->primitive)
        dnnl_primitive_destroy(piece->primitive);
    memory_free(piece->memory);
}

static void destroy(struct gemm_plan *plan)
{
    for (int i = 0; i < PLACES * PLACES * PIECES; i++)
        piece_free(&plan->piece[0][0][0] + i, plan->lanes);
    memory_free(plan);
}

/* What follows the sums of a matmul, before they are rounded. */
static dnnl_status_t append_post_ops(dnnl_primitive_attr_t attributes, const struct gemm *g)
{
    dnnl_post_ops_t post;
    dnnl_status_t code = dnnl_post_ops_create(&post);
    if (code != dnnl_success)
        return code;
    if (g->accumulate)
        code = append_sum(post);
    if (code == dnnl_success && g->alpha != 1)
        code = append_factor(post, g->alpha);
    if (code == dnnl_success)
        code = dnnl_primitive_attr_set_post_ops(attributes, post);
    dnnl_post_ops_destroy(post);
    return code;
}

static dnnl_status_t attributes_create(dnnl_primitive_attr_t *attributes, const struct gemm *g)
{
    dnnl_status_t code = dnnl_primitive_attr_create(attributes);
    if (code == dnnl_success)
        code = dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user);
    return code == dnnl_success ? append_post_ops(*attributes, g) : code;
}

/* The primitive and the memory objects of a piece. */
static dnnl_status_t gemm_onednn_finish(struct gemm_plan *plan, struct piece *piece, dnnl_primitive_desc_t pd,
                                        const dnnl_memory_desc_t desc[MATRICES], bool bias)
{
    dnnl_status_t code = dnnl_primitive_create(&piece->primitive, pd);
    desc_view scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    int64_t bytes = scratchpad ? (int64_t)dnnl_memory_desc_get_size(scratchpad) : 0;
    plan->scratch = max(round_up(bytes, SCRATCH_STEP), plan->scratch);
    for (int64_t l = 0; l < plan->lanes; l++) {
        for (int i = 0; i < MATRICES && code == dnnl_success; i++)
            if (i != GEMM_BIAS || bias)
                code = dnnl_memory_create(&piece->memory[l][i], VIEW(desc[i]), plan->state->engine, DNNL_MEMORY_NONE);
        if (code == dnnl_success && bytes)
            code = dnnl_memory_create(&piece->memory[l][GEMM_WORKSPACE], scratchpad, plan->state->engine, DNNL_MEMORY_NONE);
    }
    return code;
}

/* A matmul of g's size over a part of the plan's matrices, whose strides it has. */
static dnnl_status_t create_piece(struct gemm_plan *plan, const struct gemm *g, struct piece *piece)
{
    const struct gemm *all = &plan->gemm;
    const dnnl_dims_t dims[MATRICES] = {{g->m, g->k}, {g->k, g->n}, {g->m, g->n}, {1, g->n}};
    const dnnl_dims_t strides[MATRICES] = {{g->transpose_a ? 1 : gemm_lda(all), g->transpose_a ? gemm_lda(all) : 1},
                                           {g->transpose_b ? 1 : gemm_ldb(all), g->transpose_b ? gemm_ldb(all) : 1},
                                           {gemm_ldc(all), 1},
                                           {g->n, 1}};
    const enum dtype dtype[MATRICES] = {g->a, g->b, g->c, g->b};
    dnnl_memory_desc_t desc[MATRICES] = {0};
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t code = dnnl_success;
    piece->memory = memory_alloc(plan->lanes * (int64_t)sizeof *piece->memory);
    if (!piece->memory)
        return dnnl_out_of_memory;
    for (int i = 0; i < MATRICES && code == dnnl_success; i++)
        code = gemm_onednn_describe(&desc[i], dims[i], dtype[i], strides[i]);
    if (code == dnnl_success)
        code = attributes_create(&attributes, g);
    if (code == dnnl_success)
        code = gemm_onednn_choose(&pd, plan->state->engine, desc, g->bias, attributes);
    if (code == dnnl_success)
        code = gemm_onednn_finish(plan, piece, pd, desc, g->bias);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    for (int i = 0; i < MATRICES; i++)
        gemm_onednn_forget(&desc[i]);
    return code;
}

static int piece_at(const struct gemm_plan *plan, int64_t i)
{
    return i == 0 ? FIRST : i + 1 < plan->count ? MIDDLE : LAST;
}

/* The pieces along k of the tiles at one place of C, each made once. */
static dnnl_status_t create_pieces(struct gemm_plan *plan, int64_t rows, int64_t columns, struct piece piece[PIECES])
{
    const struct gemm *g = &plan->gemm;
    dnnl_status_t code = dnnl_success;
    for (int64_t i = 0; i < plan->count && code == dnnl_success; i++) {
        bool last = i + 1 == plan->count;
        struct gemm part = *g;
        part.m = rows;
        part.n = columns;
        part.k = last ? g->k - i * plan->terms : plan->terms;
        part.accumulate = g->accumulate || i > 0;
        part.bias = g->bias && i == 0;
        part.alpha = last ? g->alpha : 1;
        if (!piece[piece_at(plan, i)].primitive)
            code = create_piece(plan, &part, &piece[piece_at(plan, i)]);
    }
    return code;
}

static dnnl_status_t create_tiles(struct gemm_plan *plan)
{
    int64_t rows[PLACES] = {plan->rows, plan->gemm.m % plan->rows},
            columns[PLACES] = {plan->columns, plan->gemm.n % plan->columns};
    dnnl_status_t code = dnnl_success;
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    for (int r = 0; r < PLACES; r++)
        for (int c = 0; c < PLACES; c++)
            if (rows[r] && columns[c] && code == dnnl_success)
                code = create_pieces(plan, rows[r], columns[c], plan->piece[r][c]);
    omp_set_num_threads(before);
    return code;
}

static int64_t gemm_onednn_cut(int64_t size, int64_t tile)
{
    return size <= tile ? max(size, 1) : min(size, gemm_even_parts(size, tile, TILE_STEP));
}

/* Tiles of 16-bit matmuls are whole rows where there are enough of them, for oneDNN's fastest code takes only matrices without
 * gaps. It packs B for each, which costs little compared with 64 rows. */
static void choose_tiles(struct gemm_plan *plan, bool float32)
{
    const struct gemm *g = &plan->gemm;
    bool small = g->m * g->n < WORK_MIN / g->k;
    plan->rows = small ? max(g->m, 1) : gemm_onednn_cut(g->m, float32 ? TILE : TILE_16_BIT);
    plan->columns = small || (!float32 && plan->rows < g->m) ? max(g->n, 1) : gemm_onednn_cut(g->n, TILE);
    plan->terms = float32 ? min(g->k, CHAIN) : g->k;
    plan->count = divide_up(g->k, plan->terms);
}

static int64_t tile_count(const struct gemm_plan *plan)
{
    return divide_up(plan->gemm.m, plan->rows) * divide_up(plan->gemm.n, plan->columns);
}

/* `halves`: it is cut in two along n and k, however small it is. */
static enum status gemm_onednn_make(struct state *state, const struct gemm *g, bool halves, struct gemm_plan **out)
{
    struct gemm_plan *plan = memory_alloc(sizeof *plan);
    if (!plan)
        return ERR_MEMORY;
    plan->state = state;
    plan->gemm = *g;
    char what[160];
    snprintf(what, sizeof what, "oneDNN, a matmul of %lld x %lld x %lld, %s x %s", (long long)g->m, (long long)g->n,
             (long long)g->k, dtype_name(g->a), dtype_name(g->b));
    choose_tiles(plan, g->a == DTYPE_F32 && g->b == DTYPE_F32 && g->c == DTYPE_F32);
    if (halves) {
        plan->columns = g->n / 2;
        plan->terms = g->k / 2;
        plan->count = 2;
    }
    plan->lanes = min(parallel_threads(), tile_count(plan));
    inside(what);
    dnnl_status_t code = create_tiles(plan);
    inside(NULL);
    if (code != dnnl_success) {
        destroy(plan);
        return gemm_onednn_translate(code, what);
    }
    *out = plan;
    return OK;
}

static const char running[] = "oneDNN, running a matmul";

struct run {
    const struct gemm_plan *plan;
    void *const *address;
    _Atomic int64_t next; /* tile */
    _Atomic int code;     /* of the first failure */
};

static dnnl_status_t gemm_onednn_run_piece(const struct gemm_plan *plan, const struct piece *piece, int64_t lane,
                                           void *const address[GEMM_OPERANDS])
{
    static const int argument[GEMM_OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t args[GEMM_OPERANDS];
    int count = 0;
    for (int i = 0; i < GEMM_OPERANDS; i++)
        if (piece->memory[lane][i]) {
            dnnl_memory_set_data_handle(piece->memory[lane][i], address[i]);
            args[count++] = (dnnl_exec_arg_t){argument[i], piece->memory[lane][i]};
        }
    return dnnl_primitive_execute(piece->primitive, plan->state->stream, count, args);
}

static char *element(void *matrix, enum dtype dtype, int64_t index)
{
    return matrix ? (char *)matrix + index * dtype_size(dtype) : NULL;
}

/* Tiles that follow each other share their columns of B. */
static dnnl_status_t run_tile(const struct gemm_plan *plan, int64_t tile, int64_t lane, void *const address[GEMM_OPERANDS])
{
    const struct gemm *g = &plan->gemm;
    int64_t down = divide_up(g->m, plan->rows), row = tile % down * plan->rows, column = tile / down * plan->columns;
    const struct piece *piece = plan->piece[g->m - row < plan->rows][g->n - column < plan->columns];
    dnnl_status_t code = dnnl_success;
    for (int64_t i = 0; i < plan->count && code == dnnl_success; i++) {
        int64_t term = i * plan->terms;
        void *const at[GEMM_OPERANDS] = {
            [GEMM_A] = element(address[GEMM_A], g->a, g->transpose_a ? term * gemm_lda(g) + row : row * gemm_lda(g) + term),
            [GEMM_B] = element(address[GEMM_B], g->b, g->transpose_b ? column * gemm_ldb(g) + term : term * gemm_ldb(g) + column),
            [GEMM_C] = element(address[GEMM_C], g->c, row * gemm_ldc(g) + column),
            [GEMM_BIAS] = element(address[GEMM_BIAS], g->b, column),
            [GEMM_WORKSPACE] = plan->scratch ? (char *)address[GEMM_WORKSPACE] + lane * plan->scratch : NULL,
        };
        code = gemm_onednn_run_piece(plan, &piece[piece_at(plan, i)], lane, at);
    }
    return code;
}

/* A lane runs on one thread, and takes the tiles that no other has taken. */
static void gemm_onednn_run_lane(void *context, int64_t lane, int64_t end)
{
    struct run *run = context;
    int64_t count = tile_count(run->plan), tile;
    (void)end;
    inside(running);
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    while ((tile = atomic_fetch_add(&run->next, 1)) < count) {
        int none = dnnl_success, code = (int)run_tile(run->plan, tile, lane, run->address);
        if (code != dnnl_success)
            atomic_compare_exchange_strong(&run->code, &none, code);
    }
    omp_set_num_threads(before);
    inside(NULL);
}

static enum status run(struct gemm_plan *plan, void *const address[GEMM_OPERANDS])
{
    struct run run = {.plan = plan, .address = address};
    if (plan->own) {
        plan->own->run(&plan->cut, &plan->gemm, address);
        return OK;
    }
    parallel_for(plan->lanes, 1, gemm_onednn_run_lane, &run);
    return gemm_onednn_translate((dnnl_status_t)atomic_load(&run.code), running);
}

/* oneDNN makes a part of its code, megabytes of it, in the first matmul of a type whose matrices have gaps between their rows, as
 * tiles have. That is done before the first step, so that the plan counts it. */
static enum status gemm_onednn_warm_up(struct state *state, const struct gemm *g)
{
    struct gemm small = {WARM, WARM, WARM, .a = g->a, .b = g->b, .c = g->c, .alpha = 1};
    struct gemm_plan *plan;
    if (state->warm[g->a][g->c])
        return OK;
    TRY(gemm_onednn_make(state, &small, true, &plan));
    int64_t matrix = WARM * WARM * (int64_t)sizeof(double), scratch = plan->lanes * plan->scratch;
    char *memory = memory_alloc(3 * matrix + scratch);
    enum status status = ERR_MEMORY;
    if (memory)
        status = run(plan, (void *[GEMM_OPERANDS]){memory, memory + matrix, memory + 2 * matrix, NULL, memory + 3 * matrix});
    memory_free(memory);
    destroy(plan);
    state->warm[g->a][g->c] = status == OK;
    return status;
}

static enum status create(void *state, const struct gemm *g, struct gemm_plan **out, int64_t *workspace)
{
    struct gemm_plan plan = {.state = state, .gemm = *g};
    plan.own = cpu_gemm_choose(&plan.cut, g);
    if (plan.own) {
        *workspace = plan.cut.lanes * plan.cut.lane;
        *out = memory_alloc(sizeof **out);
        if (!*out)
            return ERR_MEMORY;
        **out = plan;
        return OK;
    }
    TRY(gemm_onednn_warm_up(state, g));
    TRY(gemm_onednn_make(state, g, false, out));
    *workspace = (*out)->lanes * (*out)->scratch;
    return OK;
}

static bool joins(const struct gemm *g)
{
    struct cpu_gemm_plan plan;
    return cpu_gemm_choose(&plan, g) != NULL;
}

static bool has_bf16(void)
{
    return isa() >= ISA_avx512_bf16;
}

/* With units for bfloat16, float32 matmuls are for those who want their digits, and are faster with what those units pack. */
static bool widens(void)
{
    return isa() >= ISA_avx2 && !has_bf16();
}

const struct gemm_engine gemm_onednn = {
    .open = open_engine,
    .close = close_engine,
    .create = create,
    .destroy = destroy,
    .run = run,
    .joins = joins,
    .has_bf16 = has_bf16,
    .widens = widens,
};
