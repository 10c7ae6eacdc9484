/* Finding a device by name, and the calls that go to its class. */
#include "device/device.h"

#include <string.h>

#include "base/log.h"
#include "base/parallel.h"
#include "device/kernel_list.h"

/* The best ones first; the last is never taken by itself. */
static const struct device_class *const classes[] = {&device_cuda, &device_opencl, &device_cpu, &device_kernels};

enum { CLASSES = sizeof classes / sizeof classes[0] };

/* The best that is there. One that is there and cannot be used is an error: what was paid for should not idle in silence. */
static enum status open_best(struct device **out)
{
    for (size_t i = 0; i < CLASSES && !*out; i++) {
        enum status status = classes[i]->open(out, true);
        if (status != OK)
            return fail_at(status, "there is a device for %s, but it cannot be used (--device cpu would go on without it): ",
                           classes[i]->name);
    }
    if (!*out)
        return fail(ERR_DEVICE, "no device is usable");
    struct device_info info;
    device_info(*out, &info);
    log_message(LOG_INFO, "device %s: %s (%s; --device says otherwise)", (*out)->class->name, info.name,
                (*out)->class == classes[0]   ? "CUDA comes first where there is a card for it"
                : (*out)->class == classes[1] ? "there is no card for CUDA"
                                              : "there is no card for CUDA and no GPU for OpenCL");
    return OK;
}

enum status device_open(struct device **out, const char *name)
{
    *out = NULL;
    if (!strcmp(name, "auto"))
        return open_best(out);
    for (size_t i = 0; i < CLASSES; i++)
        if (!strcmp(name, classes[i]->name))
            return classes[i]->open(out, false);
    return fail(ERR_ARGUMENT, "there is no device '%s': use cpu, opencl, cuda or auto", name);
}

void device_close(struct device *device)
{
    if (device)
        device->class->close(device);
}

void device_info(struct device *device, struct device_info *info)
{
    device->class->info(device, info);
}

void device_costs(struct device *device, int64_t kernels, int64_t commands, struct device_costs *costs)
{
    *costs = (struct device_costs){0};
    if (device->class->costs)
        device->class->costs(device, kernels, commands, costs);
}

enum status device_alloc(struct device *device, int64_t bytes, int32_t *block)
{
    return device->class->alloc(device, bytes, block);
}

enum status device_map(struct device *device, const void *host, int64_t bytes, int32_t *block)
{
    if (!device->class->map)
        return fail(ERR_INTERNAL, "%s does not use the host's memory in place", device->class->name);
    return device->class->map(device, host, bytes, block);
}

void device_release(struct device *device, int32_t block)
{
    device->class->release(device, block);
}

struct conversion {
    char *to;
    const char *from;
    enum dtype to_type, from_type;
};

static void convert(void *context, int64_t begin, int64_t end)
{
    const struct conversion *c = context;
    dtype_convert(c->to + begin * dtype_size(c->to_type), c->to_type, c->from + begin * dtype_size(c->from_type), c->from_type,
                  end - begin);
}

enum status device_convert(void *to, enum dtype to_type, const void *from, enum dtype from_type, int64_t count)
{
    struct conversion c = {to, from, to_type, from_type};
    if (!dtype_convert(to, to_type, from, from_type, 0))
        return fail(ERR_UNSUPPORTED, "no conversion from %s to %s", dtype_name(from_type), dtype_name(to_type));
    parallel_for(count, 1 << 18, convert, &c);
    return OK;
}

enum status device_write(struct device *device, struct operand to, enum dtype to_type, const void *from, enum dtype from_type,
                         int64_t count)
{
    return device->class->write(device, to, to_type, from, from_type, count);
}

enum status device_read(struct device *device, void *to, struct operand from, int64_t bytes)
{
    return device->class->read(device, to, from, bytes);
}

enum status device_later_open(struct device *device, int64_t bytes)
{
    return device->class->later_open(device, bytes);
}

enum status device_read_later(struct device *device, int slot, struct operand from, int64_t bytes)
{
    return device->class->read_later(device, slot, from, bytes);
}

enum status device_read_wait(struct device *device, int slot, const void **data)
{
    return device->class->read_wait(device, slot, data);
}

enum status device_gemm_query(struct device *device, const struct gemm *gemm, int64_t *workspace)
{
    return device->class->gemm_query(device, gemm, workspace);
}

enum status device_prepare(struct device *device, const struct command *commands, int64_t count, struct prepared **out)
{
    return device->class->prepare(device, commands, count, out);
}

enum status device_run(struct device *device, struct prepared *prepared)
{
    return device->class->run(device, prepared);
}

void device_discard(struct device *device, struct prepared *prepared)
{
    if (prepared)
        device->class->discard(device, prepared);
}
