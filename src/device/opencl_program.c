/* Kernels of the OpenCL device: compiled from their text or taken from the cache on disk, one program for each variant. */
#include "device/opencl.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

static const char *const own_options = " -cl-std=CL1.2", *const on_processor = " -DON_PROCESSOR";

enum { LOG_MAX = 1500 }; /* of the compiler's log */

static void opencl_program_forget(struct variant *v)
{
    if (v->kernel)
        cl.clReleaseKernel(v->kernel);
    if (v->program)
        cl.clReleaseProgram(v->program);
    *v = (struct variant){0};
}

void opencl_forget_variants(struct opencl *o)
{
    for (int64_t i = 0; i < o->variant_count; i++)
        opencl_program_forget(&o->variants[i]);
    memory_free(o->variants);
    o->variants = NULL;
    o->variant_count = 0;
}

static enum status build_failed(struct opencl *o, cl_program program, const struct kernel *kernel, cl_int code)
{
    char log[LOG_MAX + 1] = "";
    size_t size = 0;
    struct buffer whole = {0};
    cl.clGetProgramBuildInfo(program, o->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    if (size && buffer_reserve(&whole, (int64_t)size) == OK &&
        cl.clGetProgramBuildInfo(program, o->id, CL_PROGRAM_BUILD_LOG, size, whole.data, NULL) == CL_SUCCESS)
        snprintf(log, sizeof log, "%.*s", (int)(size < LOG_MAX ? size : LOG_MAX), whole.data);
    buffer_free(&whole);
    return fail(ERR_DEVICE, "OpenCL: the driver of %s cannot compile kernel %s (%d): %s", o->name, kernel->name, (int)code, log);
}

static enum status from_source(struct opencl *o, const struct kernel *kernel, const char *options, struct variant *v)
{
    const char *text = kernel_text(kernel->file);
    cl_int code;
    v->program = cl.clCreateProgramWithSource(o->context, 1, &text, NULL, &code);
    TRY(opencl_check(code, "creating a program"));
    code = cl.clBuildProgram(v->program, 1, &o->id, options, NULL, NULL);
    if (code != CL_SUCCESS)
        return build_failed(o, v->program, kernel, code);
    v->kernel = cl.clCreateKernel(v->program, kernel->name, &code);
    return opencl_check(code, kernel->name);
}

/* False if the driver refuses the binary: it is then made again. */
static bool from_binary(struct opencl *o, const struct kernel *kernel, const char *options, const struct buffer *binary,
                        struct variant *v)
{
    const unsigned char *data = (const unsigned char *)binary->data;
    size_t size = (size_t)binary->size;
    cl_int code, each;
    v->program = cl.clCreateProgramWithBinary(o->context, 1, &o->id, &size, &data, &each, &code);
    if (code == CL_SUCCESS)
        code = cl.clBuildProgram(v->program, 1, &o->id, options, NULL, NULL);
    if (code == CL_SUCCESS)
        v->kernel = cl.clCreateKernel(v->program, kernel->name, &code);
    if (code == CL_SUCCESS)
        return true;
    opencl_program_forget(v);
    return false;
}

static void opencl_program_keep(struct opencl *o, const struct variant *v, struct digest key)
{
    size_t size = 0;
    struct buffer binary = {0};
    if (cl.clGetProgramInfo(v->program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) == CL_SUCCESS && size &&
        buffer_reserve(&binary, (int64_t)size) == OK) {
        unsigned char *data = (unsigned char *)binary.data;
        if (cl.clGetProgramInfo(v->program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL) == CL_SUCCESS)
            kernel_cache_write(&o->cache, key, data, (int64_t)size);
    }
    buffer_free(&binary);
}

/* One group over no rows: it touches nothing, and drivers that finish compiling at the first launch have done so. Operands are
 * passed nevertheless, because compiled code may read ahead. */
static enum status opencl_program_warm_up(struct opencl *o, const struct kernel *kernel, const struct variant *v)
{
    static const int64_t zero;
    cl_uint at = 0;
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < kernel->operands && code == CL_SUCCESS; i++) {
        code = cl.clSetKernelArg(v->kernel, at++, sizeof o->scratch, &o->scratch);
        if (code == CL_SUCCESS)
            code = cl.clSetKernelArg(v->kernel, at++, sizeof zero, &zero);
    }
    for (int i = 0; i < 1 + kernel->sizes && code == CL_SUCCESS; i++)
        code = cl.clSetKernelArg(v->kernel, at++, sizeof zero, &zero);
    for (int i = 0; i < kernel->numbers && code == CL_SUCCESS; i++)
        code = cl.clSetKernelArg(v->kernel, at++, sizeof(float), &zero);
    TRY(opencl_check(code, "setting arguments"));
    size_t group = (size_t)kernel->group, max_group = 0;
    TRY(opencl_check(cl.clGetKernelWorkGroupInfo(v->kernel, o->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof max_group, &max_group, NULL),
                     "asking for the size of work-groups"));
    if (max_group < group)
        return fail(ERR_DEVICE, "OpenCL: %s runs kernel %s with groups of at most %lld, it needs %d: use --device cpu", o->name,
                    kernel->name, (long long)max_group, kernel->group);
    TRY(opencl_check(cl.clEnqueueNDRangeKernel(o->queue, v->kernel, 1, NULL, &group, &group, 0, NULL, NULL), kernel->name));
    return opencl_check(cl.clFinish(o->queue), kernel->name);
}

static enum status opencl_program_make(struct opencl *o, const struct kernel *kernel, const char *options, struct variant *v)
{
    char all[KERNEL_OPTIONS + 32];
    struct buffer binary = {0};
    bool found = false;
    double start = clock_seconds();
    snprintf(all, sizeof all, "%s%s%s", options, own_options, o->gpu ? "" : on_processor);
    struct digest key = kernel_cache_key((const char *[]){"opencl", o->name, o->driver, kernel_text(kernel->file), all}, 5);
    enum status status = kernel_cache_read(&o->cache, key, &binary, &found);
    if (status == OK && found)
        found = from_binary(o, kernel, all, &binary, v);
    buffer_free(&binary);
    if (status == OK && !found)
        status = from_source(o, kernel, all, v);
    if (status == OK)
        status = opencl_program_warm_up(o, kernel, v);
    if (status == OK && !found) {
        log_message(LOG_DEBUG, "kernel %s compiled in %.2f s: %s", kernel->name, clock_seconds() - start, all);
        opencl_program_keep(o, v, key); /* after the first launch, which may add to it */
    }
    if (status == OK)
        ++*(found ? &o->device.counters.loaded : &o->device.counters.compiled);
    return status;
}

enum status opencl_variant(struct opencl *o, const struct command *launch, int64_t *index)
{
    const struct kernel *kernel = launch->launch.kernel;
    char options[KERNEL_OPTIONS];
    if (!kernel->file || !kernel_text(kernel->file))
        return fail(ERR_UNSUPPORTED, "kernel %s has no text that OpenCL could compile: use --device cpu", kernel->name);
    kernel_options(options, launch);
    struct digest key = kernel_cache_key((const char *[]){kernel->file, options}, 2);
    for (int64_t i = 0; i < o->variant_count; i++)
        if (digest_equal(o->variants[i].key, key)) {
            *index = i;
            return OK;
        }
    if (o->device.sealed)
        return fail(ERR_INTERNAL, "kernel %s would be compiled in the middle of a run: it was not prepared (%s)", kernel->name,
                    options);
    TRY(memory_grow(&o->variants, &o->variant_capacity, o->variant_count + 1, (int64_t)sizeof *o->variants));
    struct variant v = {0};
    enum status status = opencl_program_make(o, kernel, options, &v);
    if (status != OK) {
        opencl_program_forget(&v);
        return status;
    }
    v.key = key;
    *index = o->variant_count;
    o->variants[o->variant_count++] = v;
    return OK;
}
