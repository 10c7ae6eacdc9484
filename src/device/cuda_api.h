/* The libraries of CUDA, opened at run time. Nothing of CUDA is needed to build: these declarations are its ABI, as far as hone
 * uses it (cuda_symbols.def), under NVIDIA's names. tests/cuda/headers.py compares them with NVIDIA's headers. */
#ifndef DEVICE_CUDA_API_H
#define DEVICE_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef int CUresult, CUdevice, CUdevice_attribute, CUstreamCaptureMode, CUdriverProcAddressQueryResult;
typedef int nvrtcResult, libraryPropertyType, cudaDataType;
typedef int cublasStatus_t, cublasOperation_t, cublasMath_t, cublasComputeType_t, cublasGemmAlgo_t;
typedef uint64_t CUdeviceptr, cuuint64_t;
typedef struct {
    char bytes[16];
} CUuuid;
typedef struct cuda_context_object *CUcontext;
typedef struct cuda_stream_object *CUstream;
typedef struct cuda_event_object *CUevent;
typedef struct cuda_module_object *CUmodule;
typedef struct cuda_function_object *CUfunction;
typedef struct cuda_graph_object *CUgraph;
typedef struct cuda_graph_exec_object *CUgraphExec;
typedef struct nvrtc_program_object *nvrtcProgram;
typedef struct cublas_object *cublasHandle_t;

enum { DRIVER_VERSION_MIN = 12000 }; /* also the version of the functions asked for */

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_STUB_LIBRARY = 34,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CU_CTX_SCHED_BLOCKING_SYNC = 4,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_BLOCKING_SYNC = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    MAJOR_VERSION = 0,
    MINOR_VERSION = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_OP_N = 0,
    CUBLAS_OP_T = 1,
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
    CUBLAS_GEMM_DEFAULT = -1,
    CUDA_R_32F = 0,
    CUDA_R_16F = 2,
    CUDA_R_16BF = 14,
};

struct cuda_library {
#define ENTRY(name, arguments) CUresult(*name) arguments;
#define DRIVER(name, arguments) CUresult(*name) arguments;
#define NVRTC(name, arguments) nvrtcResult(*name) arguments;
#define CUBLAS(name, arguments) cublasStatus_t(*name) arguments;
#include "device/cuda_symbols.def"
};

extern struct cuda_library cu; /* filled by the functions below, once for the process */

/* The driver, initialised. *count: how many devices it has. A missing driver or device is not an error: *count is 0
 * and the message says what is missing. */
enum status cuda_load_driver(int *count);

/* OK if the driver takes what a release of CUDA makes: a driver refuses code of a newer major. Else ERR_DEVICE with `what` makes
 * it, the file that has it, and the wheel to use instead. Without a driver all are OK. */
enum status cuda_check_release(const char *what, const char *file, int major, int minor, const char *wheel);

/* The end of pip's names of NVIDIA's wheels: those for drivers of CUDA 12 say so. */
const char *cuda_wheel_end(void);

/* The first of these names that the system, the CUDA toolkit, conda or pip has; or the file that the environment variable names.
 * NULL: not found, or disabled (the variable is "none"). */
enum status cuda_open_library(void **library, const char *variable, const char *const *names);

/* The compiler, and its version. ERR_DEVICE with the command that installs it, also if the driver would refuse its code. */
enum status cuda_load_nvrtc(int *major, int *minor);

/* The matrix products. *found is false if it is missing or newer than the driver, and the message says what to install. */
enum status cuda_load_cublas(bool *found);

/* ERR_DEVICE (ERR_MEMORY where memory was short) with what was tried and CUDA's own message. After a fault, which ends the
 * process's use of the card, also with how to learn which kernel it was. */
enum status cuda_check(CUresult code, const char *what);

/* The same for a launch. */
enum status cuda_check_launch(CUresult code, const char *kernel);

/* Whether a result says that a kernel has faulted: the context is lost, and every later call fails with it. */
bool cuda_is_fault(CUresult code);

/* Whether the last call of this thread that cuda_check has found to fail did so by a fault. */
bool cuda_has_faulted(void);

/* The driver is not the system's but one that $HONE_CUDA_LIBRARY names. */
bool cuda_stand_in(void);

#endif
