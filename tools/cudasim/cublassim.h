/* cuBLAS as the simulator provides it: names, values and signatures of the real library. */
#ifndef TOOLS_CUDASIM_CUBLAS_H
#define TOOLS_CUDASIM_CUBLAS_H

#include "cudasim.h"

typedef struct cublasContext *cublasHandle_t;
typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
} cublasStatus_t;
enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum {
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 };

CUDASIM_EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t *handle);
CUDASIM_EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
CUDASIM_EXPORT cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version);
CUDASIM_EXPORT const char *cublasGetStatusString(cublasStatus_t status);
CUDASIM_EXPORT const char *cublasGetStatusName(cublasStatus_t status);
/* Also resets the workspace, as the real one does. */
CUDASIM_EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, CUstream stream);
CUDASIM_EXPORT cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, CUstream *stream);
CUDASIM_EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes);
CUDASIM_EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle, int mode);
CUDASIM_EXPORT cublasStatus_t cublasGetMathMode(cublasHandle_t handle, int *mode);
CUDASIM_EXPORT cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, int mode);
CUDASIM_EXPORT cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, int transa, int transb, int m, int n, int k,
                                             const float *alpha, const float *a, int lda, const float *b, int ldb,
                                             const float *beta, float *c, int ldc);
CUDASIM_EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t handle, int transa, int transb, int m, int n, int k, const void *alpha,
                                           const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                                           const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
CUDASIM_EXPORT cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, int transa, int transb, int m, int n, int k,
                                                         const void *alpha, const void *a, int a_type, int lda,
                                                         long long a_stride, const void *b, int b_type, int ldb,
                                                         long long b_stride, const void *beta, void *c, int c_type, int ldc,
                                                         long long c_stride, int batches, int compute, int algorithm);

#endif
