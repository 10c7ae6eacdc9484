/* The driver's device, context and errors. There is one device; its primary context is the only context. */
#include "queue.h"

#include <stdio.h>
#include <string.h>

struct CUctx_st {
    int retained;
    unsigned flags;
};
enum { SLEEPS = 4 }; /* CU_CTX_SCHED_BLOCKING_SYNC */
static struct CUctx_st primary;
static bool initialised;
static _Thread_local CUcontext current;

CUresult device_ready(const char *call)
{
    if (!initialised)
        return state_report(CUDA_ERROR_NOT_INITIALIZED, "%s before cuInit", call);
    if (primary.retained < 1)
        return state_report(CUDA_ERROR_INVALID_CONTEXT, "%s without a context", call);
    if (!current)
        return state_report(CUDA_ERROR_INVALID_CONTEXT, "%s: the thread has no current context", call);
    return CUDA_SUCCESS;
}

void device_waits(void)
{
    state_count("syncs", 1);
    state_count("spins", (primary.flags & 7) != SLEEPS);
}

void device_clear(void)
{
    initialised = false;
    primary = (struct CUctx_st){0};
    current = NULL;
}

CUresult cuInit(unsigned flags)
{
    ENTER_ALWAYS();
    if (state_option("CUDASIM_DEVICES", 1) < 1)
        LEAVE_WITH(CUDA_ERROR_NO_DEVICE);
    initialised = flags == 0;
    LEAVE_WITH(flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

CUresult cuDriverGetVersion(int *version)
{
    *version = state_driver_version();
    return CUDA_SUCCESS;
}

static const struct {
    CUresult result;
    const char *name, *text;
} RESULTS[] = {
#define X(name, value, text) {name, #name, text},
#include "results.def"
#undef X
};

CUresult cuGetErrorName(CUresult error, const char **text)
{
    for (size_t i = 0; i < sizeof RESULTS / sizeof *RESULTS; i++)
        if (RESULTS[i].result == error) {
            *text = RESULTS[i].name;
            return CUDA_SUCCESS;
        }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    for (size_t i = 0; i < sizeof RESULTS / sizeof *RESULTS; i++)
        if (RESULTS[i].result == error) {
            *text = RESULTS[i].text;
            return CUDA_SUCCESS;
        }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult device_check(CUdevice device)
{
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    return device < 0 || device >= state_option("CUDASIM_DEVICES", 1) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    *count = (int)state_option("CUDASIM_DEVICES", 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult bad = device_check(ordinal);
    if (!bad)
        *device = ordinal;
    return bad;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult bad = device_check(device);
    if (!bad && length > 0)
        snprintf(name, (size_t)length, device ? "cudasim %d.%d, number %d" : "cudasim %d.%d", state_capability() / 10,
                 state_capability() % 10, device);
    return bad;
}

/* The last byte is the device's number. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult bad = device_check(device);
    for (int i = 0; i < 16 && !bad; i++)
        uuid->bytes[i] = (char)(i == 15 ? device : 0x10 * i + 0x0c);
    return bad;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    *bytes = memory_total();
    return device_check(device);
}

/* Shared memory that a block may ask for, by compute capability. */
static int shared_optin(void)
{
    switch (state_capability()) {
    case 75: return 65536;
    case 80:
    case 87: return 166912;
    case 86:
    case 89:
    case 120:
    case 121: return 101376;
    default: return 232448;
    }
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    CUresult bad = device_check(device);
    if (bad)
        return bad;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = LANES_MAX; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 2147483647; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 1000000; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = (int)state_option("CUDASIM_SMS", 4); break;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 256; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 4 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 1536; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = state_capability() / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = state_capability() % 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = shared_optin() + 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = shared_optin(); break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 0; break;
    default: return state_report(CUDA_ERROR_INVALID_VALUE, "cuDeviceGetAttribute: attribute %d is not simulated", attribute);
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER_ALWAYS();
    CUresult bad = device_check(device);
    if (!bad) {
        primary.retained++;
        *context = &primary;
    }
    LEAVE_WITH(bad);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER_ALWAYS();
    CUresult bad = device_check(device);
    if (!bad && primary.retained < 1)
        bad = state_report(CUDA_ERROR_INVALID_CONTEXT, "cuDevicePrimaryCtxRelease without a retain");
    if (!bad && --primary.retained == 0 && queue_pending() && !state_sticky())
        bad = state_report(CUDA_ERROR_ILLEGAL_STATE, "the primary context is released while work is pending");
    LEAVE_WITH(bad);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    CUresult bad = device_check(device);
    if (!bad)
        primary.flags = flags;
    return bad;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult bad = device_check(device);
    if (!bad)
        cudasim_reset();
    return bad;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    *flags = primary.flags;
    *active = primary.retained > 0;
    return device_check(device);
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER_ALWAYS();
    if (context && (context != &primary || primary.retained < 1))
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent with a context that does not exist"));
    current = context;
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current;
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSynchronize(void)
{
    ENTER("cuCtxSynchronize");
    CUresult bad = capture_forbids_context("cuCtxSynchronize");
    if (bad)
        LEAVE_WITH(bad);
    device_waits();
    order_host(NULL, NULL);
    LEAVE_WITH(queue_run_all());
}
