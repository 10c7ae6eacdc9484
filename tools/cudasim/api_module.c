/* The driver's modules and functions. A module is PTX text, or a cubin with the PTX that it was made from (cubin.h). */
#include "cubin.h"
#include "queue.h"

#include <stdlib.h>
#include <string.h>

/* The newest PTX that a driver reads: CUDA 12.8 knows PTX 8.7. */
static int ptx_max(void)
{
    static const struct {
        int driver, ptx;
    } KNOWN[] = {{11080, 78}, {12000, 80}, {12010, 81}, {12020, 82}, {12030, 83},
                 {12040, 84}, {12050, 85}, {12070, 86}, {12080, 87}, {12090, 88}};
    int driver = state_driver_version(), version = 70;
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (driver >= KNOWN[i].driver)
            version = KNOWN[i].ptx;
    return driver >= 13000 ? 90 + driver % 1000 / 10 : version;
}

static uint64_t variable_memory(uint64_t size, uint64_t align, void **host)
{
    (void)align; /* every allocation is aligned to 512 bytes */
    struct allocation *a = memory_allocate(size, true);
    *host = a ? a->host : NULL;
    return a ? a->base : 0;
}

static CUresult load(CUmodule *module, const void *image)
{
    CUresult bad = capture_forbids("cuModuleLoadData");
    if (bad)
        return bad;
    if (queue_pending()) {
        state_count("modules_pending", 1);
        if (state_option("CUDASIM_PENDING", 0) == 0)
            return state_report(CUDA_ERROR_ILLEGAL_STATE, "cuModuleLoadData while the device has work");
    }
    if (!image)
        return CUDA_ERROR_INVALID_VALUE;
    const char *text = image;
    bool is_cubin = cubin_is(image);
    if (is_cubin)
        bad = cubin_open(image, &text);
    if (bad)
        return bad;
    int version, target, here = state_capability();
    char suffix, error[512];
    if (!ptx_target(text, &version, &target, &suffix))
        return state_report(CUDA_ERROR_INVALID_IMAGE, "cuModuleLoadData: neither PTX nor a cubin");
    if (version > ptx_max() && !is_cubin)
        return state_report(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "cuModuleLoadData: PTX %d.%d is newer than the driver's %d.%d",
                            version / 10, version % 10, ptx_max() / 10, ptx_max() % 10);
    if (target > here || (suffix == 'a' && target != here) || (suffix == 'f' && target / 10 != here / 10))
        return state_report(CUDA_ERROR_NO_BINARY_FOR_GPU, "cuModuleLoadData: PTX for sm_%d%.1s on a device of sm_%d", target,
                            &suffix, here);
    struct ptx *ptx = ptx_parse(text, variable_memory, error, sizeof error);
    if (!ptx)
        return state_report(CUDA_ERROR_INVALID_PTX, "cuModuleLoadData: %s", error);
    if (is_cubin && (bad = cubin_check(image, ptx))) {
        ptx_free(ptx);
        return bad;
    }
    CUmodule m = object_new(sizeof *m, 'm');
    m->ptx = ptx;
    *module = m;
    state_count("modules", 1);
    state_count("cubins", is_cubin);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER("cuModuleLoadData");
    LEAVE_WITH(load(module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values)
{
    ENTER("cuModuleLoadDataEx");
    (void)options;
    (void)values;
    state_count("modules_jit", count > 0);
    LEAVE_WITH(load(module, image));
}

static CUresult no_module(const char *call)
{
    return state_report(CUDA_ERROR_INVALID_HANDLE, "%s of a module that does not exist", call);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    ENTER("cuModuleGetFunction");
    if (!object_is(module, 'm'))
        LEAVE_WITH(no_module("cuModuleGetFunction"));
    for (CUfunction f = module->functions; f; f = f->next)
        if (!strcmp(f->kernel->name, name)) {
            *function = f;
            LEAVE_WITH(CUDA_SUCCESS);
        }
    for (uint32_t i = 0; i < module->ptx->kernel_count; i++)
        if (!strcmp(module->ptx->kernels[i].name, name)) {
            CUfunction f = calloc(1, sizeof *f);
            if (!f)
                abort();
            *f = (struct CUfunc_st){&module->ptx->kernels[i], module, module->functions};
            *function = module->functions = f;
            LEAVE_WITH(CUDA_SUCCESS);
        }
    LEAVE_WITH(CUDA_ERROR_NOT_FOUND);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name)
{
    ENTER("cuModuleGetGlobal");
    if (!object_is(module, 'm'))
        LEAVE_WITH(no_module("cuModuleGetGlobal"));
    for (uint32_t i = 0; i < module->ptx->variable_count; i++)
        if (!strcmp(module->ptx->variables[i].name, name)) {
            if (pointer)
                *pointer = module->ptx->variables[i].address;
            if (bytes)
                *bytes = module->ptx->variables[i].size;
            LEAVE_WITH(CUDA_SUCCESS);
        }
    LEAVE_WITH(CUDA_ERROR_NOT_FOUND);
}

CUresult cuModuleUnload(CUmodule module)
{
    ENTER("cuModuleUnload");
    CUresult bad = capture_forbids("cuModuleUnload");
    if (bad)
        LEAVE_WITH(bad);
    if (!object_is(module, 'm'))
        LEAVE_WITH(no_module("cuModuleUnload"));
    for (uint32_t i = 0; i < module->ptx->variable_count; i++) {
        struct allocation *a = memory_find(module->ptx->variables[i].address);
        if (a && a->live)
            memory_release(a);
    }
    module->object.live = false;
    LEAVE_WITH(CUDA_SUCCESS);
}

static bool function_is(CUfunction function)
{
    return function && object_is(function->module, 'm');
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    ENTER("cuFuncGetAttribute");
    if (!function_is(function))
        LEAVE_WITH(CUDA_ERROR_INVALID_HANDLE);
    const struct kernel *k = function->kernel;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = k->max_threads ? (int)k->max_threads : LANES_MAX; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)k->shared_bytes; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = (int)k->local_bytes; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = k->registers ? (int)k->registers : 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = function->module->ptx->target; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = state_capability(); break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = k->dynamic_granted ? k->dynamic_granted : 49152 - (int)k->shared_bytes;
        break;
    default: LEAVE_WITH(state_report(CUDA_ERROR_INVALID_VALUE, "cuFuncGetAttribute: attribute %d is not simulated", attribute));
    }
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    ENTER("cuFuncSetAttribute");
    int max_shared;
    cuDeviceGetAttribute(&max_shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0);
    if (!function_is(function))
        LEAVE_WITH(CUDA_ERROR_INVALID_HANDLE);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value < 0 || value + (int)function->kernel->shared_bytes > max_shared)
            LEAVE_WITH(state_report(CUDA_ERROR_INVALID_VALUE, "cuFuncSetAttribute: %d bytes of shared memory, the device has %d",
                                    value, max_shared));
        function->kernel->dynamic_granted = value;
    }
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared)
{
    ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    if (!function_is(function) || threads < 1)
        LEAVE_WITH(CUDA_ERROR_INVALID_VALUE);
    int by_threads = 1536 / threads, bytes = (int)(function->kernel->shared_bytes + shared);
    *blocks = bytes && 102400 / bytes < by_threads ? 102400 / bytes : by_threads;
    LEAVE_WITH(CUDA_SUCCESS);
}
