/* The CUDA driver API as the simulator provides it, and what a test may ask of the simulator itself. The names, values and
 * signatures of the upper part are those of the real driver; the lower part (cudasim_) exists only here. */
#ifndef TOOLS_CUDASIM_H
#define TOOLS_CUDASIM_H

#include <stddef.h>
#include <stdint.h>

#define CUDASIM_EXPORT __attribute__((visibility("default")))

typedef enum {
#define X(name, value, text) name = value,
#include "results.def"
#undef X
} CUresult;

typedef int CUdevice, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUdriverProcAddressQueryResult;
typedef uint64_t cuuint64_t;
typedef struct {
    char bytes[16];
} CUuuid;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)
enum { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum { CU_STREAM_CAPTURE_MODE_GLOBAL = 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1, CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2 };
enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
};
enum {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
};
enum {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};

/* Every function of the driver is one line of functions.def; here are the prototypes. */
#define F(base, version, name, args) CUDASIM_EXPORT CUresult name args;
#include "functions.def"
#undef F

/* Clears the simulator: all objects are freed, counters are 0, the environment is read again, the device is as at the start. */
CUDASIM_EXPORT void cudasim_reset(void);
/* The last message of a check that failed since the last reset, or "". Stays valid until the next message. */
CUDASIM_EXPORT const char *cudasim_last_error(void);
/* A counter, or -1 if there is none with this name. README.md lists them. */
CUDASIM_EXPORT long long cudasim_count(const char *what);
/* Instructions executed, each counted once for every thread that took part. */
CUDASIM_EXPORT long long cudasim_lane_instructions(void);

/* Since the start: "mma" instructions of warps, "accesses" of warps to shared memory, its bank "conflicts" (exec_banks.c). */
CUDASIM_EXPORT long long cudasim_banks(const char *what);

/* For libraries above the driver (libcublassim). Work that the stream runs in its order: size bytes of args are copied, run gets
 * the copy. A stream that is capturing records it. `what` names it in messages. */
CUDASIM_EXPORT CUresult cudasim_enqueue(CUstream stream, void (*run)(const void *args), const void *args, size_t size,
                                        const char *what);
/* The same for work that other processes must take part in. poll is asked before run, again and again: POLL_WAITS, _READY, or
 * _NEVER after a failure that the library tells in its own way. Meanwhile queries say "not ready"; a call that waits fails once
 * poll says _NEVER, where the real one would not return. drop, unless NULL, is called when the work is forgotten: after it ran
 * or, if it was captured, with the last graph that has it. */
enum { POLL_WAITS, POLL_READY, POLL_NEVER };
CUDASIM_EXPORT CUresult cudasim_enqueue_polled(CUstream stream, int (*poll)(const void *args), void (*run)(const void *args),
                                               void (*drop)(const void *args), const void *args, size_t size, const char *what);
/* For run: the host memory of a device pointer, or null after a report, if [pointer, pointer + bytes) is not live. */
CUDASIM_EXPORT void *cudasim_memory(CUdeviceptr pointer, size_t bytes, const char *what);
/* The same for bytes that run reads, all of which must have been written, and for bytes that it writes. */
CUDASIM_EXPORT void *cudasim_reads(CUdeviceptr pointer, size_t bytes, const char *what);
CUDASIM_EXPORT void *cudasim_writes(CUdeviceptr pointer, size_t bytes, const char *what);
/* Whether this stream is capturing (1), this thread has another open capture (2), or neither (0). */
CUDASIM_EXPORT int cudasim_capturing(CUstream stream);
/* Reports a broken rule: logged, counted as a fault, and a capture that is running on this thread becomes invalid. */
CUDASIM_EXPORT void cudasim_rule(const char *message);
/* Adds one to a counter by name. */
CUDASIM_EXPORT void cudasim_add(const char *what, long long by);

#endif
