/* Opening libOpenCL and choosing a device. */
#include "device/opencl.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/library.h"

struct opencl_library cl;

enum { PLATFORMS = 16, DEVICES = 64 };

static const char *code_name(cl_int code)
{
    static const struct {
        cl_int code;
        const char *name;
    } names[] = {
        {-1, "CL_DEVICE_NOT_FOUND"},         {-2, "CL_DEVICE_NOT_AVAILABLE"},
        {-3, "CL_COMPILER_NOT_AVAILABLE"},   {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
        {-5, "CL_OUT_OF_RESOURCES"},         {-6, "CL_OUT_OF_HOST_MEMORY"},
        {-11, "CL_BUILD_PROGRAM_FAILURE"},   {-30, "CL_INVALID_VALUE"},
        {-38, "CL_INVALID_MEM_OBJECT"},      {-42, "CL_INVALID_BINARY"},
        {-46, "CL_INVALID_KERNEL_NAME"},     {-49, "CL_INVALID_ARG_INDEX"},
        {-51, "CL_INVALID_ARG_SIZE"},        {-52, "CL_INVALID_KERNEL_ARGS"},
        {-54, "CL_INVALID_WORK_GROUP_SIZE"}, {-61, "CL_INVALID_BUFFER_SIZE"},
        {-1001, "CL_PLATFORM_NOT_FOUND"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].code == code)
            return names[i].name;
    return "an error";
}

enum status opencl_check(cl_int code, const char *what)
{
    if (code == CL_SUCCESS)
        return OK;
    bool memory = code == -4 || code == -6 || code == -61;
    return fail(memory ? ERR_MEMORY : ERR_DEVICE, "OpenCL: %s: %s (%d)", what, code_name(code), (int)code);
}

/* The functions, once for the process. */
static enum status load(void)
{
    static bool loaded;
    const char *own = getenv("HONE_OPENCL_LIBRARY"), *why = "";
    const char *const names[] = {own && *own ? own : "libOpenCL.so.1", own && *own ? NULL : "libOpenCL.so", NULL};
    if (loaded)
        return OK;
    void *library = library_open(names, &why);
    if (!library)
        return fail(ERR_DEVICE,
                    "OpenCL is not on this machine (%s): install its loader (Debian: ocl-icd-libopencl1) and the "
                    "device's driver, or use --device cpu",
                    why);
#define SYMBOL(result, name, arguments)                                                                                          \
    *(void **)&cl.name = library_symbol(library, #name);                                                                         \
    if (!cl.name)                                                                                                                \
        return fail(ERR_DEVICE, "%s has no " #name ": hone needs OpenCL 1.2 or later", names[0]);
#include "device/opencl_symbols.def"
#undef SYMBOL
    loaded = true;
    return OK;
}

/* A card has a node in /dev. Without one nothing is opened: a driver for processors may bring a whole compiler along. */
static bool may_have_gpu(void)
{
    static const char *const nodes[] = {"/dev/dri/renderD128", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg",
                                        "/dev/mali0",          "/dev/kgsl-3d0"};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (file_exists(nodes[i]))
            return true;
    return false;
}

static bool is_gpu(cl_device_id device)
{
    cl_ulong type = 0;
    cl.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    return type & CL_DEVICE_TYPE_GPU;
}

/* The first GPU of all platforms; else, if that will do, the first device. */
static cl_device_id choose(cl_platform_id *platforms, cl_uint count, bool gpu_only)
{
    cl_device_id found = NULL, devices[DEVICES];
    for (cl_uint p = 0; p < count; p++) {
        cl_uint some = 0;
        if (cl.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, DEVICES, devices, &some) != CL_SUCCESS)
            continue;
        for (cl_uint i = 0; i < some && i < DEVICES; i++) {
            if (is_gpu(devices[i]))
                return devices[i];
            found = found ? found : devices[i];
        }
    }
    return gpu_only ? NULL : found;
}

enum status opencl_find(cl_device_id *id, bool gpu_only)
{
    cl_platform_id platforms[PLATFORMS];
    cl_uint count = 0;
    *id = NULL;
    if (gpu_only && !may_have_gpu())
        return OK;
    enum status status = load();
    if (status != OK)
        return gpu_only ? OK : status;
    if (cl.clGetPlatformIDs(PLATFORMS, platforms, &count) != CL_SUCCESS)
        count = 0;
    *id = choose(platforms, count < PLATFORMS ? count : PLATFORMS, gpu_only);
    if (*id || gpu_only)
        return OK;
    return fail(ERR_DEVICE,
                "OpenCL has no device here: install the driver of your card (Debian: intel-opencl-icd, mesa-opencl-icd, "
                "nvidia-opencl-icd), or pocl-opencl-icd, which computes on the processor");
}
