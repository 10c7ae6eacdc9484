/* Matmuls by oneDNN, in the only file that knows it: Debian's 2.6 and the 3.x API, told apart by the version macro.
 *
 * A plan is a list of matmul primitives with their memory objects; a run only sets their addresses. The scratchpad is ours, so
 * that the memory plan knows every byte.
 *
 * oneDNN sums over k in one chain of float32 additions, whose rounding errors grow with its length: 49,152 terms of a vocabulary
 * cost four digits. So float32 matmuls are cut along k into pieces that add to C one after the other: the first adds the bias,
 * the last multiplies by alpha.
 */
#include <dnnl.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "device/cpu.h"

enum { MATRICES = GEMM_WORKSPACE }; /* the operands before it */

struct state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

enum { CHAIN = 128 };
enum { FIRST, MIDDLE, LAST, PIECES }; /* the last may be shorter than the others; where there is one piece, it is the first */
enum { ROWS_MIN = 16 };               /* below this, a matmul is as fast as B is read, and reading pieces of its rows is slow */

struct piece {
    dnnl_primitive_t primitive;          /* NULL: there is no such piece */
    dnnl_memory_t memory[GEMM_OPERANDS]; /* NULL: it has no such operand */
};

struct gemm_plan {
    struct state *state;
    struct piece piece[PIECES];
    int64_t count;          /* of pieces */
    int64_t step_a, step_b; /* bytes from one piece to the next */
};

static enum status translate(dnnl_status_t code, const char *what)
{
    if (code == dnnl_success)
        return OK;
    if (code == dnnl_out_of_memory)
        return fail(ERR_MEMORY, "out of memory: oneDNN, %s", what);
    if (code == dnnl_unimplemented)
        return fail(ERR_UNSUPPORTED, "oneDNN has no implementation on this processor: %s; try --dtype float32", what);
    return fail(ERR_INTERNAL, "oneDNN: %s failed with status %d", what, (int)code);
}

static enum status open_engine(void **out)
{
    struct state *state = memory_alloc(sizeof *state);
    if (!state)
        return ERR_MEMORY;
    enum status status = translate(dnnl_engine_create(&state->engine, dnnl_cpu, 0), "creating the engine");
    if (status == OK)
        status = translate(dnnl_stream_create(&state->stream, state->engine, dnnl_stream_default_flags), "creating the stream");
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

static dnnl_status_t describe(dnnl_memory_desc_t *desc, const dnnl_dims_t dims, enum dtype dtype, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(desc, 2, dims, data_type(dtype), strides);
}

static void forget(dnnl_memory_desc_t *desc)
{
    if (*desc)
        dnnl_memory_desc_destroy(*desc);
}

static dnnl_status_t choose(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const dnnl_memory_desc_t desc[MATRICES], bool bias,
                            dnnl_primitive_attr_t attributes)
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

static dnnl_status_t describe(dnnl_memory_desc_t *desc, const dnnl_dims_t dims, enum dtype dtype, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(desc, 2, dims, data_type(dtype), strides);
}

static void forget(dnnl_memory_desc_t *desc)
{
    (void)desc;
}

static dnnl_status_t choose(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const dnnl_memory_desc_t desc[MATRICES], bool bias,
                            dnnl_primitive_attr_t attributes)
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

static void destroy(struct gemm_plan *plan)
{
    for (int i = 0; i < PIECES; i++) {
        for (int m = 0; m < GEMM_OPERANDS; m++)
            if (plan->piece[i].memory[m])
                dnnl_memory_destroy(plan->piece[i].memory[m]);
        if (plan->piece[i].primitive)
            dnnl_primitive_destroy(plan->piece[i].primitive);
    }
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

/* The primitive and the memory objects of a matmul. */
static dnnl_status_t finish(const struct state *state, struct piece *piece, dnnl_primitive_desc_t pd,
                            const dnnl_memory_desc_t desc[MATRICES], bool bias, int64_t *workspace)
{
    dnnl_status_t code = dnnl_primitive_create(&piece->primitive, pd);
    for (int i = 0; i < MATRICES && code == dnnl_success; i++)
        if (i != GEMM_BIAS || bias)
            code = dnnl_memory_create(&piece->memory[i], VIEW(desc[i]), state->engine, DNNL_MEMORY_NONE);
    desc_view scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    int64_t bytes = scratchpad ? (int64_t)dnnl_memory_desc_get_size(scratchpad) : 0;
    if (code == dnnl_success && bytes)
        code = dnnl_memory_create(&piece->memory[GEMM_WORKSPACE], scratchpad, state->engine, DNNL_MEMORY_NONE);
    *workspace = max(bytes, *workspace);
    return code;
}

/* A matmul over g->k of the `all` columns of A and rows of B. */
static dnnl_status_t create_piece(const struct state *state, const struct gemm *g, int64_t all, struct piece *piece,
                                  int64_t *workspace)
{
    const dnnl_dims_t dims[MATRICES] = {{g->m, g->k}, {g->k, g->n}, {g->m, g->n}, {1, g->n}};
    const dnnl_dims_t strides[MATRICES] = {{g->transpose_a ? 1 : all, g->transpose_a ? g->m : 1},
                                           {g->transpose_b ? 1 : g->n, g->transpose_b ? all : 1},
                                           {g->n, 1},
                                           {g->n, 1}};
    const enum dtype dtype[MATRICES] = {g->a, g->b, g->c, g->b};
    dnnl_memory_desc_t desc[MATRICES] = {0};
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t code = dnnl_success;
    for (int i = 0; i < MATRICES && code == dnnl_success; i++)
        code = describe(&desc[i], dims[i], dtype[i], strides[i]);
    if (code == dnnl_success)
        code = attributes_create(&attributes, g);
    if (code == dnnl_success)
        code = choose(&pd, state->engine, desc, g->bias, attributes);
    if (code == dnnl_success)
        code = finish(state, piece, pd, desc, g->bias, workspace);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    for (int i = 0; i < MATRICES; i++)
        forget(&desc[i]);
    return code;
}

static int piece_at(const struct gemm_plan *plan, int64_t i)
{
    return i == 0 ? FIRST : i + 1 < plan->count ? MIDDLE : LAST;
}

/* A plan for each piece of the matmul that is not like the one before it. */
static dnnl_status_t create_pieces(struct gemm_plan *plan, const struct gemm *g, int64_t k, int64_t *workspace)
{
    dnnl_status_t code = dnnl_success;
    for (int64_t i = 0; i < plan->count && code == dnnl_success; i++) {
        bool last = i + 1 == plan->count;
        struct gemm part = *g;
        part.k = last ? g->k - i * k : k;
        part.accumulate = g->accumulate || i > 0;
        part.bias = g->bias && i == 0;
        part.alpha = last ? g->alpha : 1;
        struct piece *piece = &plan->piece[piece_at(plan, i)];
        if (!piece->primitive)
            code = create_piece(plan->state, &part, g->k, piece, workspace);
    }
    return code;
}

static enum status create(void *state, const struct gemm *g, struct gemm_plan **out, int64_t *workspace)
{
    struct gemm_plan *plan = memory_alloc(sizeof *plan);
    if (!plan)
        return ERR_MEMORY;
    bool cut = g->a == DTYPE_F32 && g->b == DTYPE_F32 && g->c == DTYPE_F32 && g->m >= ROWS_MIN;
    int64_t k = cut ? min(g->k, CHAIN) : g->k;
    plan->state = state;
    plan->count = divide_up(g->k, k);
    plan->step_a = k * dtype_size(g->a) * (g->transpose_a ? g->m : 1);
    plan->step_b = k * dtype_size(g->b) * (g->transpose_b ? 1 : g->n);
    *workspace = 0;
    dnnl_status_t code = create_pieces(plan, g, k, workspace);
    if (code != dnnl_success) {
        destroy(plan);
        char what[160];
        snprintf(what, sizeof what, "a matmul of %lld x %lld x %lld, %s x %s", (long long)g->m, (long long)g->n, (long long)g->k,
                 dtype_name(g->a), dtype_name(g->b));
        return translate(code, what);
    }
    *out = plan;
    return OK;
}

static enum status run_piece(const struct gemm_plan *plan, const struct piece *piece, void *const address[GEMM_OPERANDS])
{
    static const int argument[GEMM_OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t args[GEMM_OPERANDS];
    int count = 0;
    for (int i = 0; i < GEMM_OPERANDS; i++)
        if (piece->memory[i]) {
            dnnl_memory_set_data_handle(piece->memory[i], address[i]);
            args[count++] = (dnnl_exec_arg_t){argument[i], piece->memory[i]};
        }
    return translate(dnnl_primitive_execute(piece->primitive, plan->state->stream, count, args), "running a matmul");
}

static enum status run(struct gemm_plan *plan, void *const address[GEMM_OPERANDS])
{
    void *at[GEMM_OPERANDS];
    memcpy(at, address, sizeof at);
    for (int64_t i = 0; i < plan->count; i++) {
        at[GEMM_A] = (char *)address[GEMM_A] + i * plan->step_a;
        at[GEMM_B] = (char *)address[GEMM_B] + i * plan->step_b;
        TRY(run_piece(plan, &plan->piece[piece_at(plan, i)], at));
    }
    return OK;
}

static bool has_bf16(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

const struct gemm_engine gemm_onednn = {
    .open = open_engine,
    .close = close_engine,
    .create = create,
    .destroy = destroy,
    .run = run,
    .has_bf16 = has_bf16,
};
