/* Finding a device by name, and the calls that go to its class. */
#include "device/device.h"

#include <string.h>

static const struct device_class *const classes[] = {&device_cpu};

enum status device_open(struct device **out, const char *name)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (!strcmp(name, "auto") || !strcmp(name, classes[i]->name))
            return classes[i]->open(out);
    return fail(ERR_DEVICE, "device '%s' is not in this build of hone: use --device cpu (or leave it out)", name);
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

enum status device_alloc(struct device *device, int64_t bytes, int32_t *block)
{
    return device->class->alloc(device, bytes, block);
}

enum status device_map(struct device *device, const void *host, int64_t bytes, int32_t *block)
{
    return device->class->map(device, host, bytes, block);
}

void device_release(struct device *device, int32_t block)
{
    device->class->release(device, block);
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
