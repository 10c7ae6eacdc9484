/* Opening libOpenCL and choosing a device. */
#include "device/opencl.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/code.h"
#include "base/file.h"
#include "base/library.h"
#include "base/mutex.h"
#include "base/number.h"

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
static enum status opencl_library_fill(void)
{
    static bool loaded;
    const char *own = code_variable("HONE_OPENCL_LIBRARY"), *why = "";
    const char *const names[] = {own ? own : "libOpenCL.so.1", own ? NULL : "libOpenCL.so", NULL};
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

static enum status opencl_library_load(void)
{
    static struct mutex filling = MUTEX_FREE;
    mutex_take(&filling);
    enum status status = opencl_library_fill();
    mutex_give(&filling);
    return status;
}

/* A card has a node in /dev. Without one nothing is opened: a driver for CPUs may load a whole compiler. */
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

/* The devices of all platforms in sequence: the order of their numbers. */
static int list_devices(cl_device_id devices[DEVICES])
{
    cl_platform_id platforms[PLATFORMS];
    cl_uint platform_count = 0, some;
    int count = 0;
    if (cl.clGetPlatformIDs(PLATFORMS, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < platform_count && p < PLATFORMS && count < DEVICES; p++)
        if (cl.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, (cl_uint)(DEVICES - count), devices + count, &some) == CL_SUCCESS)
            count = (int)min(count + (int64_t)some, DEVICES);
    return count;
}

int opencl_count(void)
{
    cl_device_id devices[DEVICES];
    return opencl_library_load() == OK ? list_devices(devices) : 0;
}

/* The first GPU; else, if allowed, the first device. */
static cl_device_id opencl_library_choose(const cl_device_id *devices, int count, bool gpu_only)
{
    for (int i = 0; i < count; i++)
        if (is_gpu(devices[i]))
            return devices[i];
    return count && !gpu_only ? devices[0] : NULL;
}

enum status opencl_find(cl_device_id *id, int number)
{
    cl_device_id devices[DEVICES];
    bool gpu_only = number == DEVICE_AUTO;
    *id = NULL;
    if (gpu_only && !may_have_gpu())
        return OK;
    enum status status = opencl_library_load();
    if (status != OK)
        return gpu_only ? OK : status;
    int count = list_devices(devices);
    if (count && number >= count)
        return device_no_such_number("opencl", number, count);
    *id = count && number >= 0 ? devices[number] : opencl_library_choose(devices, count, gpu_only);
    if (*id || gpu_only)
        return OK;
    return fail(ERR_DEVICE,
                "OpenCL has no device here: install the driver of your card (Debian: intel-opencl-icd, mesa-opencl-icd, "
                "nvidia-opencl-icd), or pocl-opencl-icd, which computes on the processor");
}
