/* cuBLAS's stand-in: matmuls in all layouts, visible math modes, and the rules of streams and workspaces. */
#include "cublassim.h"
#include "test.h"

#include <math.h>

#include "half.h"

#define assert_blas(call, expected)                                                                                              \
    do {                                                                                                                         \
        cublasStatus_t assert_got = (call);                                                                                      \
        if (assert_got != (expected)) {                                                                                          \
            print_error("%s: status %d, expected %d\n", #call, assert_got, (expected));                                          \
            _fail(__FILE__, __LINE__);                                                                                           \
        }                                                                                                                        \
    } while (0)

enum { M = 13, N = 9, K = 70, LD = 80 };
static const float ONE = 1, ZERO = 0;
static cublasHandle_t handle;

static int blas_open(void **unused)
{
    device_open(unused);
    assert_blas(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
    assert_blas(cublasSetStream_v2(handle, stream), CUBLAS_STATUS_SUCCESS);
    return 0;
}

static int blas_close(void **unused)
{
    cublasDestroy_v2(handle);
    return device_close(unused);
}
#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, blas_open, blas_close)
#define P(pointer) ((void *)(uintptr_t)(pointer))

static float matrix[3][LD * LD];

static void fill_matrices(void)
{
    for (uint32_t i = 0; i < 3 * LD * LD; i++)
        matrix[i / (LD * LD)][i % (LD * LD)] = noise(i);
}

static void products_in_all_layouts(void **unused)
{
    (void)unused;
    fill_matrices();
    static float c[LD * LD];
    float alpha = 0.5f, beta = 2;
    for (int form = 0; form < 8; form++) {
        int ta = form & 1, tb = form >> 1 & 1, half = form >> 2;
        int type = half ? CUDA_R_16BF : CUDA_R_32F;
        static uint16_t ha[LD * LD], hb[LD * LD];
        for (int i = 0; i < LD * LD; i++) {
            ha[i] = bf16_of_float(matrix[0][i]);
            hb[i] = bf16_of_float(matrix[1][i]);
        }
        CUdeviceptr a = half ? device_new(ha, sizeof ha) : device_new(matrix[0], sizeof matrix[0]);
        CUdeviceptr b = half ? device_new(hb, sizeof hb) : device_new(matrix[1], sizeof matrix[1]);
        CUdeviceptr d = device_new(matrix[2], sizeof matrix[2]);
        assert_blas(cublasGemmEx(handle, ta, tb, M, N, K, &alpha, P(a), type, LD, P(b), type, LD, &beta, P(d), CUDA_R_32F, LD,
                                 CUBLAS_COMPUTE_32F, -1),
                    CUBLAS_STATUS_SUCCESS);
        read_back(c, d, sizeof c);
        for (int j = 0; j < LD; j++)
            for (int i = 0; i < LD; i++) {
                float before = matrix[2][j * LD + i];
                double sum = 0;
                for (int k = 0; k < K; k++) {
                    int ai = ta ? i * LD + k : k * LD + i, bi = tb ? k * LD + j : j * LD + k;
                    sum += half ? (double)float_of_bf16(ha[ai]) * (double)float_of_bf16(hb[bi])
                                : (double)matrix[0][ai] * (double)matrix[1][bi];
                }
                if (i < M && j < N)
                    assert_true(fabs((double)c[j * LD + i] - (0.5 * sum + 2 * (double)before)) < 1e-5);
                else
                    assert_true(c[j * LD + i] == before); /* outside of C nothing changes */
            }
    }
    assert_int_equal(cudasim_count("gemms"), 8);
}

static void batches_have_strides(void **unused)
{
    (void)unused;
    fill_matrices();
    static float c[LD * LD];
    CUdeviceptr a = device_new(matrix[0], sizeof matrix[0]), b = device_new(matrix[1], sizeof matrix[1]),
                d = device_new(NULL, sizeof c);
    assert_blas(cublasGemmStridedBatchedEx(handle, 0, 0, 4, 5, 6, &ONE, P(a), CUDA_R_32F, 4, 24, P(b), CUDA_R_32F, 6, 30, &ZERO,
                                           P(d), CUDA_R_32F, 4, 20, 7, CUBLAS_COMPUTE_32F, -1),
                CUBLAS_STATUS_SUCCESS);
    read_back(c, d, sizeof c);
    for (int batch = 0; batch < 7; batch++)
        for (int j = 0; j < 5; j++)
            for (int i = 0; i < 4; i++) {
                double sum = 0;
                for (int k = 0; k < 6; k++)
                    sum += (double)matrix[0][batch * 24 + k * 4 + i] * (double)matrix[1][batch * 30 + j * 6 + k];
                assert_true(fabs((double)c[batch * 20 + j * 4 + i] - sum) < 1e-6);
            }
}

static void tf32_is_seen_and_only_when_asked_for(void **unused)
{
    (void)unused;
    float a = 1 + 0x1p-20f, out;
    int mode;
    CUdeviceptr pa = device_new(&a, 4), pc = device_new(NULL, 4);
    assert_blas(cublasSgemm_v2(handle, 0, 0, 1, 1, 1, &ONE, P(pa), 1, P(pa), 1, &ZERO, P(pc), 1), CUBLAS_STATUS_SUCCESS);
    read_back(&out, pc, 4);
    assert_true(out == a * a);
    assert_blas(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
    assert_blas(cublasGetMathMode(handle, &mode), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(mode, CUBLAS_TF32_TENSOR_OP_MATH);
    assert_blas(cublasSgemm_v2(handle, 0, 0, 1, 1, 1, &ONE, P(pa), 1, P(pa), 1, &ZERO, P(pc), 1), CUBLAS_STATUS_SUCCESS);
    read_back(&out, pc, 4);
    assert_true(out == 1.0f);
    assert_blas(cublasGemmEx(handle, 0, 0, 1, 1, 1, &ONE, P(pa), CUDA_R_32F, 1, P(pa), CUDA_R_32F, 1, &ZERO, P(pc), CUDA_R_32F, 1,
                             CUBLAS_COMPUTE_32F_PEDANTIC, -1),
                CUBLAS_STATUS_SUCCESS);
    read_back(&out, pc, 4);
    assert_true(out == a * a);
}

static void bad_sizes_types_and_memory_are_refused(void **unused)
{
    (void)unused;
    CUdeviceptr a = device_new(NULL, 64);
    assert_blas(cublasSgemm_v2(handle, 0, 0, 4, 4, 4, &ONE, P(a), 3, P(a), 4, &ZERO, P(a), 4), CUBLAS_STATUS_INVALID_VALUE);
    assert_blas(cublasSgemm_v2(handle, 0, 1, 4, 5, 4, &ONE, P(a), 4, P(a), 4, &ZERO, P(a), 4), CUBLAS_STATUS_INVALID_VALUE);
    assert_blas(cublasGemmEx(handle, 0, 0, 4, 4, 4, &ONE, P(a), CUDA_R_32F, 4, P(a), CUDA_R_16F, 4, &ZERO, P(a), CUDA_R_32F, 4,
                             CUBLAS_COMPUTE_32F, -1),
                CUBLAS_STATUS_NOT_SUPPORTED);
    assert_blas(cublasSgemm_v2(handle, 0, 0, 4, 4, 5, &ONE, P(a), 4, P(a), 5, &ZERO, P(a), 4), CUBLAS_STATUS_SUCCESS);
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_said("A of a GEMM");
}

static cublasStatus_t product(CUdeviceptr a, CUdeviceptr c)
{
    return cublasSgemm_v2(handle, 0, 0, 2, 2, 2, &ONE, P(a), 2, P(a), 2, &ZERO, P(c), 2);
}

static void a_capture_needs_a_workspace(void **unused)
{
    (void)unused;
    float x[4] = {1, 0, 0, 3}, out[4];
    CUdeviceptr a = device_new(x, 16), c = device_new(NULL, 16), workspace = device_new(NULL, 4096);
    CUgraph graph;
    CUgraphExec exec;
    assert_blas(product(a, c), CUBLAS_STATUS_SUCCESS); /* outside of a capture it may allocate */
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_blas(product(a, c), CUBLAS_STATUS_EXECUTION_FAILED);
    assert_said("captured without a workspace");
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_blas(cublasSetWorkspace_v2(handle, P(workspace), 4096), CUBLAS_STATUS_SUCCESS);
    assert_blas(cublasSetStream_v2(handle, stream), CUBLAS_STATUS_SUCCESS); /* resets it again */
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_blas(product(a, c), CUBLAS_STATUS_EXECUTION_FAILED);
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_blas(cublasSetWorkspace_v2(handle, P(workspace), 4096), CUBLAS_STATUS_SUCCESS);
    assert_ok(cuMemsetD8Async(c, 0, 16, stream));
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_blas(product(a, c), CUBLAS_STATUS_SUCCESS);
    assert_ok(cuStreamEndCapture(stream, &graph));
    assert_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_ok(cuGraphLaunch(exec, stream));
    read_back(out, c, 16);
    assert_true(out[0] == 1.0f && out[3] == 9.0f);
    assert_ok(cuMemFree_v2(workspace));
    assert_ok(cuGraphLaunch(exec, stream));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_said("the workspace of a GEMM");
}

/* By its alignment a product gets another kernel. */
static void a_product_that_never_ran_is_not_captured(void **unused)
{
    (void)unused;
    CUdeviceptr a = device_new(NULL, 64), c = device_new(NULL, 64), workspace = device_new(NULL, 4096);
    CUgraph graph;
    assert_blas(cublasSetWorkspace_v2(handle, P(workspace), 4096), CUBLAS_STATUS_SUCCESS);
    assert_blas(product(a + 4, c), CUBLAS_STATUS_SUCCESS);
    for (int seen = 0; seen < 2; seen++) {
        assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        assert_blas(product(a + (seen ? 20 : 8), c), seen ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED);
        assert_result(cuStreamEndCapture(stream, &graph), seen ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    assert_said("of whose shape and alignment none has run");
}

static void a_product_on_the_wrong_stream_is_found(void **unused)
{
    (void)unused;
    float x[4] = {1, 0, 0, 3};
    CUdeviceptr a = device_new(x, 16), c = device_new(NULL, 16), workspace = device_new(NULL, 4096);
    CUgraph graph;
    float *pinned;
    assert_ok(cuMemHostAlloc((void **)&pinned, 16, 0));
    for (int bound = 0; bound < 2; bound++) {
        assert_blas(cublasSetStream_v2(handle, bound ? stream : NULL), CUBLAS_STATUS_SUCCESS);
        assert_ok(cuMemsetD8Async(c, 0, 16, stream));
        assert_blas(product(a, c), CUBLAS_STATUS_SUCCESS);
        assert_ok(cuMemcpyDtoHAsync_v2(pinned, c, 16, stream));
        assert_ok(cuStreamSynchronize(stream));
        assert_true(pinned[3] == (bound ? 9.0f : 0.0f)); /* on another stream the matmul need not have run yet */
        assert_ok(cuCtxSynchronize());
    }
    assert_blas(cublasSetStream_v2(handle, NULL), CUBLAS_STATUS_SUCCESS);
    assert_blas(cublasSetWorkspace_v2(handle, P(workspace), 4096), CUBLAS_STATUS_SUCCESS);
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_blas(product(a, c), CUBLAS_STATUS_EXECUTION_FAILED);
    assert_said("on a stream other than the one that this thread captures");
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(products_in_all_layouts),
        TEST(batches_have_strides),
        TEST(tf32_is_seen_and_only_when_asked_for),
        TEST(bad_sizes_types_and_memory_are_refused),
        TEST(a_capture_needs_a_workspace),
        TEST(a_product_that_never_ran_is_not_captured),
        TEST(a_product_on_the_wrong_stream_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
