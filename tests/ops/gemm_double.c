/* Matmuls in double precision by three loops: the reference. */
#include "case.h"

struct gemm_plan {
    struct gemm gemm;
};

static enum status open_engine(void **state)
{
    *state = NULL;
    return OK;
}

static void close_engine(void *state)
{
    (void)state;
}

static enum status create(void *state, const struct gemm *gemm, struct gemm_plan **out, int64_t *workspace)
{
    (void)state;
    if (gemm->a != DTYPE_F64 || gemm->b != DTYPE_F64 || gemm->c != DTYPE_F64)
        return fail(ERR_INTERNAL, "the reference multiplies doubles only");
    *out = memory_alloc(sizeof **out);
    if (!*out)
        return ERR_MEMORY;
    (*out)->gemm = *gemm;
    *workspace = 0;
    return OK;
}

static void destroy(struct gemm_plan *plan)
{
    memory_free(plan);
}

static enum status run(struct gemm_plan *plan, void *const address[GEMM_OPERANDS])
{
    const struct gemm *g = &plan->gemm;
    const double *x = address[GEMM_A], *y = address[GEMM_B], *bias = address[GEMM_BIAS];
    double *z = address[GEMM_C];
    int64_t lda = gemm_lda(g), ldb = gemm_ldb(g);
    for (int64_t i = 0; i < g->m; i++) {
        double *row = z + i * gemm_ldc(g);
        for (int64_t j = 0; j < g->n; j++)
            row[j] = (g->accumulate ? row[j] : 0) + (g->bias ? bias[j] : 0);
        for (int64_t l = 0; l < g->k && !g->transpose_b; l++)
            for (int64_t j = 0; j < g->n; j++)
                row[j] += x[g->transpose_a ? l * lda + i : i * lda + l] * y[l * ldb + j];
        for (int64_t j = 0; j < g->n && g->transpose_b; j++)
            for (int64_t l = 0; l < g->k; l++)
                row[j] += x[g->transpose_a ? l * lda + i : i * lda + l] * y[j * ldb + l];
        for (int64_t j = 0; j < g->n; j++)
            row[j] *= g->alpha;
    }
    return OK;
}

static bool has_bf16(void)
{
    return false;
}

const struct gemm_engine gemm_double = {
    .open = open_engine,
    .close = close_engine,
    .create = create,
    .destroy = destroy,
    .run = run,
    .has_bf16 = has_bf16,
};
