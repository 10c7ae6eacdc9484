/* Blocks of a CUDA device: allocations on the card, and pinned memory of the host that COMMAND_COPY copies from and to. */
#include <stdio.h>

#include "device/cuda.h"

CUdeviceptr cuda_address(const struct cuda *c, struct operand operand)
{
    if (operand.block < 0 || !c->blocks[operand.block])
        return 0;
    return c->blocks[operand.block] + (CUdeviceptr)operand.offset;
}

/* Room for the number of one more block. */
static enum status grow_blocks(struct cuda *c)
{
    int64_t count = c->block_count + 1;
    CUdeviceptr *blocks = memory_resize(c->blocks, count * (int64_t)sizeof *blocks);
    c->blocks = blocks ? blocks : c->blocks;
    char **hosts = blocks ? memory_resize(c->block_host, count * (int64_t)sizeof *hosts) : NULL;
    c->block_host = hosts ? hosts : c->block_host;
    int64_t *sizes = hosts ? memory_resize(c->block_bytes, count * (int64_t)sizeof *sizes) : NULL;
    c->block_bytes = sizes ? sizes : c->block_bytes;
    return sizes ? OK : ERR_MEMORY;
}

static int32_t cuda_blocks_add_block(struct cuda *c, CUdeviceptr address, char *host, int64_t bytes)
{
    c->blocks[c->block_count] = address;
    c->block_host[c->block_count] = host;
    c->block_bytes[c->block_count] = bytes;
    c->device.counters.allocations++;
    return c->block_count++;
}

/* A driver may pin much less than is free, as under WSL, and has other codes for it than that of no memory. */
static enum status check_pinned(CUresult code, int64_t bytes)
{
    char what[80];
    snprintf(what, sizeof what, "allocating %lld bytes of pinned host memory", (long long)bytes);
    enum status status = cuda_check(code, what);
    if (status == OK || cuda_is_fault(code))
        return status;
    return fail_at(ERR_MEMORY,
                   "out of memory: the system pins no more host memory for layers that are copied. Try more layers on the card "
                   "(--resident-layers), --load-in-4bit or a smaller model; WSL pins little, whatever is free. ");
}

enum status cuda_alloc_host(struct device *device, int64_t bytes, int32_t *number)
{
    struct cuda *c = cuda_of(device);
    void *host = NULL;
    TRY(cuda_enter(c));
    TRY(grow_blocks(c));
    TRY(cuda_side_stream_open(&c->streamed));
    if (bytes > 0)
        TRY(check_pinned(cu.cuMemHostAlloc(&host, (size_t)bytes, 0), bytes));
    *number = cuda_blocks_add_block(c, 0, host, bytes);
    return OK;
}

static void cuda_blocks_free(struct device *device, void *memory, int64_t bytes)
{
    struct cuda *c = cuda_of(device);
    (void)bytes;
    if (cuda_enter(c) == OK && cuda_settle(c))
        cu.cuMemFree((CUdeviceptr)(uintptr_t)memory);
}

/* Zeroed, unless the device is to leave it unfilled. */
static enum status cuda_blocks_make(struct device *device, int64_t bytes, void **memory)
{
    struct cuda *c = cuda_of(device);
    CUdeviceptr address = 0;
    char what[64];
    TRY(cuda_enter(c));
    snprintf(what, sizeof what, "allocating a block of %lld bytes", (long long)bytes);
    TRY(cuda_check(cu.cuMemAlloc(&address, (size_t)bytes), what));
    c->busy = true;
    enum status status = OK;
    if (!device->unfilled)
        status = cuda_check(cu.cuMemsetD8Async(address, 0, (size_t)bytes, c->stream), "filling with zeros");
    if (status != OK)
        cu.cuMemFree(address);
    else
        *memory = (void *)(uintptr_t)address;
    return status;
}

enum status cuda_alloc(struct device *device, int64_t bytes, int32_t *number)
{
    struct cuda *c = cuda_of(device);
    void *memory = NULL;
    TRY(grow_blocks(c));
    if (bytes > 0)
        TRY(cuda_blocks_make(device, bytes, &memory));
    device->counters.bytes += bytes > 0 ? bytes : 0;
    *number = cuda_blocks_add_block(c, (CUdeviceptr)(uintptr_t)memory, NULL, bytes);
    return OK;
}

/* Filled before another stream may use it. */
static enum status cuda_blocks_make_shared(struct device *device, int64_t bytes, void **memory)
{
    TRY(cuda_blocks_make(device, bytes, memory));
    enum status status = cuda_wait(cuda_of(device));
    if (status != OK)
        cuda_blocks_free(device, *memory, bytes);
    return status;
}

/* All devices of a card have its primary context. */
static const void *cuda_blocks_where(const struct device *device)
{
    return ((const struct cuda *)device)->context;
}

static enum status cuda_blocks_use(struct device *device, void *memory, int32_t *number)
{
    struct cuda *c = cuda_of(device);
    TRY(grow_blocks(c));
    *number = cuda_blocks_add_block(c, (CUdeviceptr)(uintptr_t)memory, NULL, 0);
    return OK;
}

const struct device_sharing cuda_sharing = {
    .where = cuda_blocks_where, .make = cuda_blocks_make_shared, .free = cuda_blocks_free, .use = cuda_blocks_use};

void cuda_release(struct device *device, int32_t block)
{
    struct cuda *c = cuda_of(device);
    bool used = c->blocks[block] || c->block_host[block];
    if (used && cuda_enter(c) == OK && cuda_settle(c)) {
        if (c->block_host[block])
            cu.cuMemFreeHost(c->block_host[block]);
        else if (c->block_bytes[block])
            cu.cuMemFree(c->blocks[block]);
        device->counters.bytes -= c->blocks[block] ? c->block_bytes[block] : 0;
    }
    c->blocks[block] = 0;
    c->block_host[block] = NULL;
}
