/* cuBLAS's stand-in: GEMMs with float32 sums over the simulated device. C = alpha op(A) op(B) + beta C, column-major.
 *
 * A GEMM is work of the handle's stream like any other: it runs late, and can be captured and replayed. While it runs it
 * overwrites its workspace, as the real one may. Captured without a workspace, or enqueued on another stream than the capturing
 * one, it is refused: there the real library would allocate, or leave the work out of the graph. */
#include "cublassim.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"

#define MAGIC 0x43424c53u
#define CHAIN 32 /* products summed before the sum is added to the total */

/* By what cuBLAS chooses a kernel. */
struct seen {
    int transa, transb, m, n, k, lda, ldb, ldc, a_type, c_type, compute;
    unsigned char a, b, c; /* addresses modulo 16 */
};

struct cublasContext {
    uint32_t magic;
    CUstream stream;
    CUdeviceptr workspace;
    size_t workspace_bytes;
    int mode;
    struct seen *seen; /* what has run outside of a capture */
    size_t seen_count;
};

struct gemm {
    int transa, transb, m, n, k, lda, ldb, ldc, a_type, b_type, c_type, batches, compute;
    float alpha, beta;
    CUdeviceptr a, b, c, workspace;
    size_t workspace_bytes;
    long long a_stride, b_stride, c_stride;
};

static int live(cublasHandle_t handle)
{
    return handle && handle->magic == MAGIC;
}

static int version_of_library(void)
{
    const char *text = getenv("CUDASIM_CUBLAS");
    return text ? atoi(text) : 120804;
}

/* The real one has a runtime inside, which an older driver refuses. */
static int starts(void)
{
    int driver;
    const char *text = getenv("CUDASIM_CUBLAS_STARTS");
    cuDriverGetVersion(&driver);
    return (!text || atoi(text)) && version_of_library() / 10000 <= driver / 1000;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    CUcontext context = NULL;
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cuCtxGetCurrent(&context) || !context || !starts())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (cudasim_capturing(NULL)) {
        cudasim_rule("cublasCreate during a capture: it allocates");
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *handle = calloc(1, sizeof **handle);
    if (!*handle)
        return CUBLAS_STATUS_ALLOC_FAILED;
    (*handle)->magic = MAGIC;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    if (!live(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    cuCtxSynchronize(); /* as documented */
    handle->magic = 0;
    free(handle->seen);
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
    (void)handle;
    *version = version_of_library();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType property, int *value)
{
    int version = version_of_library();
    switch (property) {
    case MAJOR_VERSION: *value = version / 10000; return CUBLAS_STATUS_SUCCESS;
    case MINOR_VERSION: *value = version / 100 % 100; return CUBLAS_STATUS_SUCCESS;
    case PATCH_LEVEL: *value = version % 100; return CUBLAS_STATUS_SUCCESS;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

static const struct {
    cublasStatus_t status;
    const char *name, *text;
} STATUSES[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an invalid numerical value was used as an argument"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH", "an absent device architectural feature is required"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the GPU program failed to execute"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality requested is not supported"},
};

const char *cublasGetStatusString(cublasStatus_t status)
{
    for (size_t i = 0; i < sizeof STATUSES / sizeof *STATUSES; i++)
        if (STATUSES[i].status == status)
            return STATUSES[i].text;
    return "unknown status";
}

const char *cublasGetStatusName(cublasStatus_t status)
{
    for (size_t i = 0; i < sizeof STATUSES / sizeof *STATUSES; i++)
        if (STATUSES[i].status == status)
            return STATUSES[i].name;
    return "unknown status";
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, CUstream stream)
{
    if (!live(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    handle->workspace = 0;
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, CUstream *stream)
{
    if (!live(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    if (!live(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if ((uintptr_t)workspace % 256 || (workspace && !cudasim_memory((uintptr_t)workspace, bytes, "cublasSetWorkspace")))
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = (uintptr_t)workspace;
    handle->workspace_bytes = workspace ? bytes : 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, int mode)
{
    if (!live(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if ((mode & 15) > CUBLAS_TF32_TENSOR_OP_MATH)
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, int *mode)
{
    if (!live(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *mode = handle->mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, int mode)
{
    return !live(handle)                      ? CUBLAS_STATUS_NOT_INITIALIZED
           : mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS
                                              : CUBLAS_STATUS_NOT_SUPPORTED;
}

static size_t type_size(int type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static float load(const uint8_t *p, size_t i, int type)
{
    if (type == CUDA_R_32F) {
        float f;
        memcpy(&f, p + 4 * i, 4);
        return f;
    }
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return type == CUDA_R_16F ? float_of_f16(h) : float_of_bf16(h);
}

static void store(uint8_t *p, size_t i, int type, float f)
{
    uint16_t h = type == CUDA_R_16F ? f16_of_float(f) : bf16_of_float(f);
    if (type == CUDA_R_32F)
        memcpy(p + 4 * i, &f, 4);
    else
        memcpy(p + 2 * i, &h, 2);
}

static float reduced(float f, int compute)
{
    switch (compute) {
    case CUBLAS_COMPUTE_32F_FAST_TF32: return tf32_of_float(f);
    case CUBLAS_COMPUTE_32F_FAST_16F: return float_of_f16(f16_of_float(f));
    case CUBLAS_COMPUTE_32F_FAST_16BF: return float_of_bf16(bf16_of_float(f));
    default: return f;
    }
}

/* op(M) as rows x columns floats, column-major. */
static float *unpacked(const uint8_t *p, int type, int transposed, int rows, int columns, int ld, int compute)
{
    float *to = malloc(sizeof *to * (size_t)rows * (size_t)columns);
    if (!to)
        abort();
    for (int j = 0; j < columns; j++)
        for (int i = 0; i < rows; i++) {
            size_t at = transposed ? (size_t)i * (size_t)ld + (size_t)j : (size_t)j * (size_t)ld + (size_t)i;
            to[(size_t)j * (size_t)rows + (size_t)i] = reduced(load(p, at, type), compute);
        }
    return to;
}

static void column(const struct gemm *g, const float *a, const float *b, float *total, float *part)
{
    size_t m = (size_t)g->m;
    memset(total, 0, m * sizeof *total);
    for (int k0 = 0; k0 < g->k; k0 += CHAIN) {
        int last = k0 + CHAIN < g->k ? k0 + CHAIN : g->k;
        memset(part, 0, m * sizeof *part);
        for (int k = k0; k < last; k++) {
            const float *ak = a + (size_t)k * m, bk = b[k];
            for (size_t i = 0; i < m; i++)
                part[i] += ak[i] * bk;
        }
        for (size_t i = 0; i < m; i++)
            total[i] += part[i];
    }
}

static size_t extent(int transposed, int rows, int columns, int ld, int type)
{
    int outer = transposed ? rows : columns, inner = transposed ? columns : rows;
    return outer && inner ? ((size_t)ld * (size_t)(outer - 1) + (size_t)inner) * type_size(type) : 0;
}

/* Every row that a GEMM reads or writes of a matrix, without what lies between them; false after a report. */
static int touch(CUdeviceptr p, int transposed, int rows, int columns, int ld, int type,
                 void *(*side)(CUdeviceptr, size_t, const char *), const char *what)
{
    size_t outer = (size_t)(transposed ? rows : columns), inner = (size_t)(transposed ? columns : rows), step = (size_t)ld;
    if (step == inner) {
        inner *= outer;
        outer = 1;
    }
    for (size_t i = 0; i < outer; i++)
        if (inner && !side(p + i * step * type_size(type), inner * type_size(type), what))
            return 0;
    return 1;
}

static void run_batch(const struct gemm *g, long long batch)
{
    CUdeviceptr pa = g->a + (CUdeviceptr)(batch * g->a_stride) * type_size(g->a_type);
    CUdeviceptr pb = g->b + (CUdeviceptr)(batch * g->b_stride) * type_size(g->b_type);
    CUdeviceptr pc = g->c + (CUdeviceptr)(batch * g->c_stride) * type_size(g->c_type);
    if (!touch(pa, g->transa, g->m, g->k, g->lda, g->a_type, cudasim_reads, "A of a GEMM") ||
        !touch(pb, g->transb, g->k, g->n, g->ldb, g->b_type, cudasim_reads, "B of a GEMM") ||
        (g->beta != 0 && !touch(pc, 0, g->m, g->n, g->ldc, g->c_type, cudasim_reads, "C of a GEMM")) ||
        !touch(pc, 0, g->m, g->n, g->ldc, g->c_type, cudasim_writes, "C of a GEMM"))
        return;
    const uint8_t *a = cudasim_memory(pa, extent(g->transa, g->m, g->k, g->lda, g->a_type), "A of a GEMM");
    const uint8_t *b = !a ? NULL : cudasim_memory(pb, extent(g->transb, g->k, g->n, g->ldb, g->b_type), "B of a GEMM");
    uint8_t *c = !b ? NULL : cudasim_memory(pc, extent(0, g->m, g->n, g->ldc, g->c_type), "C of a GEMM");
    if (!c)
        return;
    float *fa = unpacked(a, g->a_type, g->transa, g->m, g->k, g->lda, g->compute);
    float *fb = unpacked(b, g->b_type, g->transb, g->k, g->n, g->ldb, g->compute);
    float *sums = malloc(2 * sizeof *sums * ((size_t)g->m + 1));
    if (!sums)
        abort();
    for (int j = 0; j < g->n; j++) {
        column(g, fa, fb + (size_t)j * (size_t)g->k, sums, sums + g->m);
        for (int i = 0; i < g->m; i++) {
            size_t at = (size_t)j * (size_t)g->ldc + (size_t)i;
            float before = g->beta != 0 ? g->beta * load(c, at, g->c_type) : 0;
            store(c, at, g->c_type, g->alpha * sums[i] + before);
        }
    }
    free(fa);
    free(fb);
    free(sums);
}

static void run(const void *args)
{
    const struct gemm *g = args;
    if (g->workspace) {
        uint8_t *w = cudasim_memory(g->workspace, g->workspace_bytes, "the workspace of a GEMM");
        if (!w)
            return;
        memset(w, 0xee, g->workspace_bytes < 65536 ? g->workspace_bytes : 65536);
    }
    for (long long batch = 0; batch < g->batches; batch++)
        run_batch(g, batch);
}

static int known_type(int type)
{
    return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

static cublasStatus_t check(const struct gemm *g)
{
    int compute = g->compute;
    if (g->m < 0 || g->n < 0 || g->k < 0 || g->batches < 0 || (unsigned)g->transa > 2 || (unsigned)g->transb > 2 ||
        g->lda < (g->transa ? g->k : g->m) || g->ldb < (g->transb ? g->n : g->k) || g->ldc < g->m || g->lda < 1 || g->ldb < 1 ||
        g->ldc < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!known_type(g->a_type) || g->a_type != g->b_type || (g->c_type != CUDA_R_32F && g->c_type != g->a_type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC && compute != CUBLAS_COMPUTE_32F_FAST_16F &&
        compute != CUBLAS_COMPUTE_32F_FAST_16BF && compute != CUBLAS_COMPUTE_32F_FAST_TF32)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (g->a % type_size(g->a_type) || g->b % type_size(g->b_type) || g->c % type_size(g->c_type))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

/* Whether a GEMM of this shape, types and alignment has run on the handle; `runs` says that it does now. */
static bool was_seen(cublasHandle_t handle, const struct gemm *g, bool runs)
{
    struct seen now;
    memset(&now, 0, sizeof now);
    now.transa = g->transa, now.transb = g->transb, now.m = g->m, now.n = g->n, now.k = g->k;
    now.lda = g->lda, now.ldb = g->ldb, now.ldc = g->ldc, now.a_type = g->a_type, now.c_type = g->c_type,
    now.compute = g->compute;
    now.a = g->a % 16, now.b = g->b % 16, now.c = g->c % 16;
    for (size_t i = 0; i < handle->seen_count; i++)
        if (!memcmp(&handle->seen[i], &now, sizeof now))
            return true;
    if (runs) {
        handle->seen = realloc(handle->seen, (handle->seen_count + 1) * sizeof now);
        if (!handle->seen)
            abort();
        handle->seen[handle->seen_count++] = now;
    }
    return false;
}

static cublasStatus_t give(cublasHandle_t handle, struct gemm *g)
{
    if (!live(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t bad = check(g);
    if (bad || !g->m || !g->n || !g->batches)
        return bad;
    if (g->compute == CUBLAS_COMPUTE_32F && g->a_type == CUDA_R_32F && (handle->mode & 15) == CUBLAS_TF32_TENSOR_OP_MATH)
        g->compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    if (g->a_type != CUDA_R_32F)
        g->compute = CUBLAS_COMPUTE_32F;
    int capturing = cudasim_capturing(handle->stream);
    if (capturing == 2) {
        cudasim_rule("a GEMM on a stream other than the one that this thread captures");
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (capturing == 1 && !handle->workspace) {
        cudasim_rule("a GEMM is captured without a workspace (cublasSetStream takes it away)");
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (!was_seen(handle, g, capturing != 1) && capturing == 1) {
        cudasim_rule("a GEMM is captured of whose shape and alignment none has run: cuBLAS would load a kernel");
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    g->workspace = handle->workspace;
    g->workspace_bytes = handle->workspace_bytes;
    return cudasim_enqueue(handle->stream, run, g, sizeof *g, "gemms") ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, int transa, int transb, int m, int n, int k, const void *alpha,
                                          const void *a, int a_type, int lda, long long a_stride, const void *b, int b_type,
                                          int ldb, long long b_stride, const void *beta, void *c, int c_type, int ldc,
                                          long long c_stride, int batches, int compute, int algorithm)
{
    (void)algorithm;
    if (!alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    struct gemm g = {
        .transa = transa,
        .transb = transb,
        .m = m,
        .n = n,
        .k = k,
        .lda = lda,
        .ldb = ldb,
        .ldc = ldc,
        .a_type = a_type,
        .b_type = b_type,
        .c_type = c_type,
        .batches = batches,
        .compute = compute,
        .a = (uintptr_t)a,
        .b = (uintptr_t)b,
        .c = (uintptr_t)c,
        .a_stride = a_stride,
        .b_stride = b_stride,
        .c_stride = c_stride,
        .alpha = *(const float *)alpha,
        .beta = *(const float *)beta,
    };
    return give(handle, &g);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a,
                            int a_type, int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type,
                            int ldc, int compute, int algorithm)
{
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c,
                                      c_type, ldc, 0, 1, compute, algorithm);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, int transa, int transb, int m, int n, int k, const float *alpha,
                              const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc)
{
    return cublasGemmEx(handle, transa, transb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c, CUDA_R_32F, ldc,
                        CUBLAS_COMPUTE_32F, -1);
}
