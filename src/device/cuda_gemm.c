/* Matmuls by cuBLAS. Its matrices are column-major and ours row-major, so it is given the transposes: Cᵀ = op(B)ᵀ · op(A)ᵀ.
 *
 * Sums are float32: 16-bit inputs go to the tensor cores that add in float32, float32 ones are multiplied as such unless the
 * matmul permits TF32. The handle belongs to the stream and has a workspace of its own from the start, so that nothing is
 * allocated later and a captured matmul finds it at every replay.
 */
#include "base/log.h"
#include "base/number.h"
#include "device/cuda.h"
#include "device/gpu_spec.h"

enum { ALIGNED = 16 }; /* bytes: what cuBLAS asks of addresses before it takes its fastest kernels */

static enum status cuda_gemm_check(cublasStatus_t code, const char *what)
{
    return code ? fail(code == CUBLAS_STATUS_ALLOC_FAILED ? ERR_MEMORY : ERR_DEVICE, "cuBLAS: %s: error %d", what, code) : OK;
}

/* A fault of an earlier kernel comes as an error of cuBLAS's own: the stream knows better. */
static enum status check_product(const struct cuda *c, cublasStatus_t code)
{
    CUresult fault = code && !c->capturing ? cu.cuStreamQuery(c->stream) : CUDA_SUCCESS;
    return cuda_is_fault(fault) ? cuda_check(fault, "a matrix product") : cuda_gemm_check(code, "a matrix product");
}

static int64_t workspace_bytes(const struct cuda *c)
{
    return card_workspace(c->target);
}

static enum status cuda_gemm_start(struct cuda *c)
{
    TRY(cuda_gemm_check(cu.cublasCreate_v2(&c->cublas), "starting"));
    TRY(cuda_gemm_check(cu.cublasSetStream_v2(c->cublas, c->stream), "binding to the stream"));
    /* after the stream, because setting the stream resets it */
    TRY(cuda_gemm_check(cu.cublasSetWorkspace_v2(c->cublas, (void *)(uintptr_t)c->workspace, (size_t)workspace_bytes(c)),
                        "setting the workspace"));
    return cuda_gemm_check(
        cu.cublasSetMathMode(c->cublas, CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
        "choosing float32 sums");
}

/* cublasDestroy waits for the whole context. */
static void stop(struct cuda *c)
{
    if (c->cublas) {
        cuda_exclusive_begin(c);
        cu.cublasDestroy_v2(c->cublas);
        cuda_exclusive_end();
    }
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
        if (cuda_gemm_start(c) == OK) {
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

static int cuda_gemm_type_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? CUDA_R_32F : dtype == DTYPE_BF16 ? CUDA_R_16BF : dtype == DTYPE_F16 ? CUDA_R_16F : -1;
}

/* Devices before 8.0 have no bfloat16. */
bool cuda_gemm_takes(const struct cuda *c, const struct gemm *g)
{
    return c->cublas && (g->a != DTYPE_BF16 || c->target >= 80) && g->a == g->b && (g->c == g->a || g->c == DTYPE_F32) &&
           cuda_gemm_type_of(g->a) >= 0 && g->m <= INT32_MAX && gemm_lda(g) <= INT32_MAX && gemm_ldb(g) <= INT32_MAX &&
           gemm_ldc(g) <= INT32_MAX && g->k <= INT32_MAX && g->n <= INT32_MAX;
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
    return check_product(c, cu.cublasGemmEx(c->cublas, operation_b, operation_a, n, m, k, &alpha, b, cuda_gemm_type_of(g->b),
                                            (int)gemm_ldb(g), a, cuda_gemm_type_of(g->a), (int)gemm_lda(g), &beta,
                                            (void *)(uintptr_t)step->c, cuda_gemm_type_of(g->c), (int)gemm_ldc(g),
                                            tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

static bool has_run(const struct cuda *c, const struct cuda_product *product)
{
    for (int64_t i = 0; i < c->product_count; i++)
        if (device_same_gemm(&c->products[i].gemm, &product->gemm) && !memcmp(c->products[i].at, product->at, sizeof product->at))
            return true;
    return false;
}

/* The next matmul that cuBLAS gets of the commands and that has not run: as cuBLAS gets it, without its bias. Blocks begin at
 * multiples of 256 bytes, so that offsets tell the alignment before there are any. */
static bool next_cold(const struct cuda *c, const struct command *commands, int64_t count, int64_t *at, struct cuda_product *out)
{
    for (; *at < count; ++*at) {
        struct command launch, product = commands[*at];
        if (product.kind != COMMAND_GEMM || !cuda_gemm_takes(c, &product.gemm))
            continue;
        if (product.gemm.bias)
            kernel_of_bias(&launch, &product, &commands[*at]);
        out->gemm = product.gemm;
        for (int i = 0; i < GEMM_SIDES; i++)
            out->at[i] = (unsigned char)(product.operand[i].offset % ALIGNED);
        if (!has_run(c, out))
            return true;
    }
    return false;
}

static int64_t input_bytes(const struct gemm *g)
{
    int64_t a = (g->transpose_a ? g->k : g->m) * gemm_lda(g), b = (g->transpose_b ? g->n : g->k) * gemm_ldb(g);
    return max(a * dtype_size(g->a), b * dtype_size(g->b)) + ALIGNED;
}

static int64_t output_bytes(const struct gemm *g)
{
    return g->m * gemm_ldc(g) * dtype_size(g->c) + ALIGNED;
}

/* Both inputs are the same zeros, and C lies after them. */
static enum status run_cold(struct cuda *c, const struct command *commands, int64_t count, CUdeviceptr memory, int64_t inputs)
{
    struct cuda_product cold;
    for (int64_t i = 0; next_cold(c, commands, count, &i, &cold); i++) {
        struct cuda_step step = {.kind = COMMAND_GEMM};
        step.gemm = cold.gemm;
        step.a = memory + cold.at[GEMM_A];
        step.b = memory + cold.at[GEMM_B];
        step.c = memory + (CUdeviceptr)inputs + cold.at[GEMM_C];
        TRY(memory_grow(&c->products, &c->product_capacity, c->product_count + 1, (int64_t)sizeof *c->products));
        enum status status = cuda_exclusive_begin(c); /* it may load code */
        c->busy = true;
        if (status == OK)
            status = cuda_gemm_run(c, &step);
        cuda_exclusive_end();
        TRY(status);
        c->products[c->product_count++] = cold;
        c->device.counters.gemms++;
    }
    return cuda_wait(c);
}

enum status cuda_gemm_warm_up(struct cuda *c, const struct command *commands, int64_t count)
{
    struct cuda_product cold;
    const struct gemm *g = &cold.gemm;
    CUdeviceptr memory = 0;
    int64_t inputs = 0, outputs = 0;
    for (int64_t i = 0; next_cold(c, commands, count, &i, &cold); i++) {
        if (c->device.sealed)
            return fail(ERR_INTERNAL, "a matmul of %lld x %lld x %lld was not prepared", (long long)g->m, (long long)g->n,
                        (long long)g->k);
        inputs = max(inputs, input_bytes(g));
        outputs = max(outputs, output_bytes(g));
    }
    if (!outputs)
        return OK;
    inputs = (inputs + 511) / 512 * 512;
    TRY(cuda_check(cu.cuMemAlloc(&memory, (size_t)(inputs + outputs)), "allocating the matrices of a first matmul"));
    c->busy = true;
    enum status status = cuda_check(cu.cuMemsetD8Async(memory, 0, (size_t)(inputs + outputs), c->stream), "filling with zeros");
    if (status == OK)
        status = run_cold(c, commands, count, memory, inputs);
    if (cuda_settle(c))
        cu.cuMemFree(memory);
    return status;
}
