/* Copies between the host and a CUDA device. What is written goes through a ring of two pinned buffers, each guarded by an event,
 * so that the host fills one while the other is on its way, and never waits for the commands themselves. Reads that do not wait
 * land in two more, and their events tell when they are done. */
#include "device/cuda.h"

#include "base/number.h"

enum { EVENT_FLAGS = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC };

enum status cuda_copy_open(struct cuda *c)
{
    for (int i = 0; i < CUDA_RING; i++) {
        TRY(cuda_check(cu.cuMemHostAlloc((void **)&c->pinned[i], CUDA_PINNED, 0), "allocating pinned memory"));
        TRY(cuda_check(cu.cuEventCreate(&c->written[i], EVENT_FLAGS), "creating an event"));
    }
    return cuda_check(cu.cuMemHostAlloc((void **)&c->landing, CUDA_PINNED, 0), "allocating pinned memory");
}

void cuda_copy_close(struct cuda *c)
{
    for (int i = 0; i < CUDA_RING; i++) {
        if (c->written[i])
            cu.cuEventDestroy(c->written[i]);
        if (c->pinned[i])
            cu.cuMemFreeHost(c->pinned[i]);
    }
    if (c->landing)
        cu.cuMemFreeHost(c->landing);
    for (int i = 0; i < DEVICE_LATER; i++) {
        if (c->arrived[i])
            cu.cuEventDestroy(c->arrived[i]);
        if (c->later[i])
            cu.cuMemFreeHost(c->later[i]);
    }
}

/* Waits for an event, and not for what follows it on the stream. */
static enum status cuda_copy_wait_for(struct cuda *c, CUevent event)
{
    CUresult code = cu.cuEventQuery(event);
    if (code != CUDA_ERROR_NOT_READY)
        return cuda_check(code, "waiting for a copy");
    c->device.counters.waits++;
    return cuda_wait_for(c, event, "waiting for a copy");
}

/* The next pinned buffer, once its last copy is done. */
static enum status next_pinned(struct cuda *c, int *slot)
{
    *slot = c->next_pinned;
    c->next_pinned = (*slot + 1) % CUDA_RING;
    if (!c->in_flight[*slot])
        return OK;
    c->in_flight[*slot] = false;
    return cuda_copy_wait_for(c, c->written[*slot]);
}

enum status cuda_write(struct device *device, struct operand to, enum dtype to_type, const void *from, enum dtype from_type,
                       int64_t count)
{
    struct cuda *c = cuda_of(device);
    int64_t size = dtype_size(to_type), max_count = CUDA_PINNED / size;
    TRY(cuda_enter(c));
    if (to.block >= 0 && c->block_host[to.block]) { /* what copies out of it must have ended */
        TRY(cuda_wait(c));
        return device_convert(c->block_host[to.block] + to.offset, to_type, from, from_type, count);
    }
    for (int64_t at = 0; at < count; at += max_count) {
        int64_t some = min(count - at, max_count);
        int slot;
        TRY(next_pinned(c, &slot));
        TRY(device_convert(c->pinned[slot], to_type, (const char *)from + at * dtype_size(from_type), from_type, some));
        c->busy = true;
        TRY(cuda_check(cu.cuMemcpyHtoDAsync(cuda_address(c, to) + (CUdeviceptr)(at * size), c->pinned[slot],
                                            (size_t)(some * size), c->stream),
                       "writing"));
        TRY(cuda_check(cu.cuEventRecord(c->written[slot], c->stream), "recording an event"));
        c->in_flight[slot] = true;
        device->counters.writes++;
        device->counters.written += some * size;
    }
    return OK;
}

enum status cuda_read(struct device *device, void *to, struct operand from, int64_t bytes)
{
    struct cuda *c = cuda_of(device);
    TRY(cuda_enter(c));
    for (int64_t at = 0; at < bytes; at += CUDA_PINNED) {
        int64_t some = min(bytes - at, CUDA_PINNED);
        c->busy = true;
        TRY(cuda_check(cu.cuMemcpyDtoHAsync(c->landing, cuda_address(c, from) + (CUdeviceptr)at, (size_t)some, c->stream),
                       "reading"));
        TRY(cuda_wait(c));
        memcpy((char *)to + at, c->landing, (size_t)some);
        device->counters.reads++;
        device->counters.read += some;
    }
    return OK;
}

enum status cuda_later_open(struct device *device, int64_t bytes)
{
    struct cuda *c = cuda_of(device);
    TRY(cuda_enter(c));
    TRY(cuda_wait(c));
    for (int i = 0; i < DEVICE_LATER; i++) {
        if (!c->arrived[i])
            TRY(cuda_check(cu.cuEventCreate(&c->arrived[i], EVENT_FLAGS), "creating an event"));
        if (c->later[i])
            cu.cuMemFreeHost(c->later[i]);
        c->later[i] = NULL;
        TRY(cuda_check(cu.cuMemHostAlloc((void **)&c->later[i], (size_t)bytes, 0), "allocating pinned memory"));
    }
    return OK;
}

enum status cuda_read_later(struct device *device, int slot, struct operand from, int64_t bytes)
{
    struct cuda *c = cuda_of(device);
    TRY(cuda_enter(c));
    c->busy = true;
    TRY(cuda_check(cu.cuMemcpyDtoHAsync(c->later[slot], cuda_address(c, from), (size_t)bytes, c->stream), "reading"));
    device->counters.reads++;
    device->counters.read += bytes;
    return cuda_check(cu.cuEventRecord(c->arrived[slot], c->stream), "recording an event");
}

enum status cuda_read_wait(struct device *device, int slot, const void **data)
{
    struct cuda *c = cuda_of(device);
    TRY(cuda_enter(c));
    *data = c->later[slot];
    return cuda_copy_wait_for(c, c->arrived[slot]);
}
