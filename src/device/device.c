/* The calls that go to a device's class, and what the classes share. */
#include "device/device.h"

#include "base/heartbeat.h"
#include "base/parallel.h"
#include "device/prefer.h"

static int preferred;

void device_prefer(int number)
{
    preferred = number;
}

int device_preferred(int count)
{
    return preferred % count;
}

enum status device_no_such_number(const char *class, int number, int count)
{
    return fail(ERR_DEVICE, "there is no device %s:%d: this machine has %d of them, and the first is %s:0", class, number, count,
                class);
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

bool device_copies(const struct device *device)
{
    return device->class->alloc_host != NULL;
}

enum status device_alloc_host(struct device *device, int64_t bytes, int32_t *block)
{
    if (!device_copies(device))
        return fail(ERR_INTERNAL, "%s does not copy out of host memory", device->class->name);
    return device->class->alloc_host(device, bytes, block);
}

enum status device_map(struct device *device, const void *host, int64_t bytes, int32_t *block)
{
    if (!device->class->map)
        return fail(ERR_INTERNAL, "%s cannot use the host's memory in place", device->class->name);
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
    heartbeat_made();
    return device->class->write(device, to, to_type, from, from_type, count);
}

enum status device_read(struct device *device, void *to, struct operand from, int64_t bytes)
{
    heartbeat_made();
    return device->class->read(device, to, from, bytes);
}

enum status device_later_alloc(char *later[DEVICE_LATER], int64_t bytes)
{
    for (int i = 0; i < DEVICE_LATER; i++) {
        memory_free(later[i]);
        later[i] = memory_alloc(bytes);
        if (!later[i])
            return ERR_MEMORY;
    }
    return OK;
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

bool device_same_gemm(const struct gemm *a, const struct gemm *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->k2 == b->k2 && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b && a->accumulate == b->accumulate && a->bias == b->bias && a->a == b->a &&
           a->b == b->b && a->c == b->c && a->tf32 == b->tf32 && a->alpha == b->alpha && a->lda == b->lda && a->ldb == b->ldb &&
           a->ldc == b->ldc && a->lda2 == b->lda2;
}

enum status device_gemm_query(struct device *device, const struct gemm *gemm, int64_t *workspace)
{
    return device->class->gemm_query(device, gemm, workspace);
}

bool device_multiplies(struct device *device, enum dtype dtype)
{
    struct gemm g = {1, 1, 1, .a = dtype, .b = dtype, .c = dtype, .alpha = 1};
    int64_t workspace;
    return device_gemm_query(device, &g, &workspace) == OK;
}

bool device_gemm_joins(struct device *device, const struct gemm *gemm)
{
    return device->class->gemm_joins && device->class->gemm_joins(device, gemm);
}

enum status device_collective_check(const struct device *device)
{
    if (!device->group)
        return fail(ERR_INTERNAL, "a collective on a device that computes alone");
    return device->group->class->device_memory ? fail(ERR_UNSUPPORTED, "device %s cannot use %s: take MPI for it",
                                                      device->class->name, device->group->class->name)
                                               : OK;
}

bool device_overlaps(const struct device *device)
{
    const struct group *g = device->group;
    return g && device->class->overlaps && !g->waits && (g->class->device_memory || g->class->begin);
}

enum status device_warm(struct device *device, const struct command *commands, int64_t count)
{
    return device->class->warm ? device->class->warm(device, commands, count) : OK;
}

enum status device_prepare(struct device *device, const struct command *commands, int64_t count, struct prepared **out)
{
    return device->class->prepare(device, commands, count, out);
}

enum status device_run(struct device *device, struct prepared *prepared)
{
    heartbeat_made();
    return device->class->run(device, prepared);
}

void device_discard(struct device *device, struct prepared *prepared)
{
    if (prepared)
        device->class->discard(device, prepared);
}
