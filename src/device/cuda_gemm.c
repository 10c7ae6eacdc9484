/* Matmuls by cuBLAS. Its matrices are column-major and ours row-major, so it is given the transposes: Cᵀ = op(B)ᵀ · op(A)ᵀ.
 *
 * Sums are float32: 16-bit inputs go to the tensor cores that add in float32, float32 ones are multiplied as such unless the
 * matmul permits TF32. The handle belongs to the stream and has a workspace of its own from the start, so that nothing is
 * allocated later and a captured matmul finds it at every replay.
 */
#include "base/log.h"
#include "device/card.h"
#include "device/cuda.h"

static enum status check(cublasStatus_t code, const char *what)
{
    return code ? fail(code == CUBLAS_STATUS_ALLOC_FAILED ? ERR_MEMORY : ERR_DEVICE, "cuBLAS: %s: error %d", what, code) : OK;
}

static int64_t workspace_bytes(const struct cuda *c)
{
    return card_workspace(c->target);
}

static enum status start(struct cuda *c)
{
    TRY(check(cu.cublasCreate_v2(&c->cublas), "starting"));
    TRY(check(cu.cublasSetStream_v2(c->cublas, c->stream), "binding to the stream"));
    /* after the stream, because setting the stream resets it */
    TRY(check(cu.cublasSetWorkspace_v2(c->cublas, (void *)(uintptr_t)c->workspace, (size_t)workspace_bytes(c)),
              "setting the workspace"));
    return check(cu.cublasSetMathMode(c->cublas, CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
                 "choosing float32 sums");
}

static void stop(struct cuda *c)
{
    if (c->cublas)
        cu.cublasDestroy_v2(c->cublas);
    if (c->workspace)
        cu.cuMemFree(c->workspace);
    c->cublas = NULL;
    c->workspace = 0;
}

enum status cuda_gemm_open(struct cuda *c)
{
    bool found;
    TRY(cuda_load_cublas(&found));
    if (found) {
        TRY(cuda_check(cu.cuMemAlloc(&c->workspace, (size_t)workspace_bytes(c)), "allocating cuBLAS's workspace"));
        if (start(c) == OK) {
            c->device.counters.allocations++;
            return OK;
        }
        stop(c);
    }
    log_message(LOG_WARNING, "%s; matrix products run on hone's own kernels, which are slower", status_message());
    return OK;
}

void cuda_gemm_close(struct cuda *c)
{
    stop(c);
    memory_free(c->products);
}

static int type_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? CUDA_R_32F : dtype == DTYPE_BF16 ? CUDA_R_16BF : dtype == DTYPE_F16 ? CUDA_R_16F : -1;
}

/* Devices before 8.0 have no bfloat16. */
bool cuda_gemm_takes(const struct cuda *c, const struct gemm *g)
{
    return c->cublas && (g->a != DTYPE_BF16 || c->target >= 80) && g->a == g->b && (g->c == g->a || g->c == DTYPE_F32) &&
           type_of(g->a) >= 0 && g->m <= INT32_MAX && g->n <= INT32_MAX && g->k <= INT32_MAX;
}

enum status cuda_gemm_run(struct cuda *c, const struct cuda_step *step)
{
    const struct gemm *g = &step->gemm;
    float alpha = (float)g->alpha, beta = g->accumulate ? 1 : 0;
    int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    bool tf32 = g->tf32 && g->a == DTYPE_F32;
    if (!m || !n)
        return OK;
    const void *a = (const void *)(uintptr_t)step->a, *b = (const void *)(uintptr_t)step->b;
    int operation_a = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, operation_b = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    return check(cu.cublasGemmEx(c->cublas, operation_b, operation_a, n, m, k, &alpha, b, type_of(g->b), g->transpose_b ? k : n,
                                 a, type_of(g->a), g->transpose_a ? m : k, &beta, (void *)(uintptr_t)step->c, type_of(g->c), n,
                                 tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 "a matrix product");
}

enum status cuda_gemm_warm_up(struct cuda *c, const struct cuda_step *step)
{
    for (int64_t i = 0; i < c->product_count; i++)
        if (device_same_gemm(&c->products[i], &step->gemm))
            return OK;
    if (c->device.sealed)
        return fail(ERR_INTERNAL, "a matmul of %lld x %lld x %lld was not prepared", (long long)step->gemm.m,
                    (long long)step->gemm.n, (long long)step->gemm.k);
    TRY(memory_grow(&c->products, &c->product_capacity, c->product_count + 1, (int64_t)sizeof *c->products));
    TRY(cuda_wait_all(c)); /* it may load code: never while there is work */
    c->busy = true;
    TRY(cuda_gemm_run(c, step));
    c->products[c->product_count++] = step->gemm;
    c->device.counters.gemms++;
    return OK;
}
