/* The OpenCL device: blocks are buffers, a prepared list is kernels with the values of their arguments, a run enqueues it all on
 * one in-order queue and waits for nothing. Matmuls are CLBlast's or launches of the tiled kernel.
 */
#include "device/opencl.h"

#include <stdio.h>

#include "base/number.h"
#include "device/share.h"

enum { STAGING = 4 << 20, SCRATCH = 64 << 10, ARGUMENTS = 2 * OPERANDS + 1 + 2 * NUMBERS };

struct argument {
    size_t size;
    union {
        cl_mem block;
        int64_t whole;
        float number;
    };
};

struct step {
    enum command_kind kind;
    union {
        struct {
            struct opencl_product product;
            struct step *bias; /* the launch that adds it after the product; NULL: none */
        };
        struct {
            int64_t variant;
            int argument_count;
            struct argument *argument;
            size_t items, group;
        };
        struct {
            cl_mem to;
            int64_t offset, bytes;
        };
        struct {
            struct collective collective;
            cl_mem side[COLLECTIVE_OPERANDS];
            size_t side_offset[COLLECTIVE_OPERANDS];
            char *host; /* [the whole] */
        };
    };
};

struct prepared {
    struct arena arena;
    int64_t count;
    struct step *step;
};

static struct opencl *opencl_of(struct device *device)
{
    return (struct opencl *)device;
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static int64_t device_number(const struct opencl *o, cl_uint what)
{
    cl_ulong value = 0; /* some answers have four bytes */
    cl.clGetDeviceInfo(o->id, what, sizeof value, &value, NULL);
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

static enum status opencl_open_context(struct opencl *o)
{
    char version[128] = "", driver[96] = "";
    int major = 0, minor = 0;
    cl_int code;
    o->gpu = device_number(o, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU;
    cl.clGetDeviceInfo(o->id, CL_DEVICE_NAME, sizeof o->name, o->name, NULL);
    cl.clGetDeviceInfo(o->id, CL_DEVICE_VERSION, sizeof version, version, NULL);
    cl.clGetDeviceInfo(o->id, CL_DRIVER_VERSION, sizeof driver, driver, NULL);
    snprintf(o->driver, sizeof o->driver, "%s, %s", driver, version);
    if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2 || major * 10 + minor < 12)
        return fail(ERR_DEVICE, "OpenCL: %s has version '%s', hone needs 1.2: install a newer driver", o->name, version);
    if (device_number(o, CL_DEVICE_MAX_WORK_GROUP_SIZE) < KERNEL_GROUP_MAX ||
        device_number(o, CL_DEVICE_LOCAL_MEM_SIZE) < KERNEL_LOCAL_MAX)
        return fail(ERR_DEVICE, "OpenCL: %s has work-groups of %lld and %lld bytes of local memory, hone needs %d and %d",
                    o->name, (long long)device_number(o, CL_DEVICE_MAX_WORK_GROUP_SIZE),
                    (long long)device_number(o, CL_DEVICE_LOCAL_MEM_SIZE), (int)KERNEL_GROUP_MAX, (int)KERNEL_LOCAL_MAX);
    TRY(opencl_context_open(o));
    o->queue = cl.clCreateCommandQueue(o->context, o->id, 0, &code);
    TRY(opencl_check(code, "creating a queue"));
    o->scratch = cl.clCreateBuffer(o->context, CL_MEM_READ_WRITE, SCRATCH, NULL, &code);
    TRY(opencl_check(code, "creating a buffer"));
    for (int i = 0; i < 2; i++) {
        o->staging[i] = memory_alloc(STAGING);
        if (!o->staging[i])
            return ERR_MEMORY;
    }
    o->alignment = max(device_number(o, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8, 1);
    opencl_gemm_open(o);
    return kernel_cache_open(&o->cache, NULL);
}

static void release_block(struct device *device, int32_t block)
{
    struct opencl *o = opencl_of(device);
    if (o->blocks[block] && o->block_bytes[block]) {
        cl.clReleaseMemObject(o->blocks[block]); /* once the commands that use it are done */
        device->counters.bytes -= o->block_bytes[block];
    }
    o->blocks[block] = NULL;
}

static void close_opencl(struct device *device)
{
    struct opencl *o = opencl_of(device);
    if (o->queue)
        cl.clFinish(o->queue);
    for (int i = 0; i < 2; i++) {
        if (o->written[i])
            cl.clReleaseEvent(o->written[i]);
        memory_free(o->staging[i]);
    }
    for (int i = 0; i < DEVICE_LATER; i++) {
        if (o->arrived[i])
            cl.clReleaseEvent(o->arrived[i]);
        memory_free(o->later[i]);
    }
    for (int32_t i = 0; i < o->block_count; i++)
        release_block(device, i);
    opencl_forget_variants(o);
    opencl_gemm_close(o);
    kernel_cache_close(&o->cache);
    if (o->scratch)
        cl.clReleaseMemObject(o->scratch);
    if (o->queue)
        cl.clReleaseCommandQueue(o->queue);
    opencl_context_close(o);
    memory_free(o->blocks);
    memory_free(o->block_bytes);
    memory_free(o);
}

static enum status open_opencl(struct device **out, int number)
{
    cl_device_id id;
    *out = NULL;
    TRY(opencl_find(&id, number));
    if (!id)
        return OK;
    struct opencl *o = memory_alloc(sizeof *o);
    if (!o)
        return ERR_MEMORY;
    o->device.class = &device_opencl;
    o->id = id;
    enum status status = opencl_open_context(o);
    if (status != OK) {
        close_opencl(&o->device);
        return status;
    }
    *out = &o->device;
    return OK;
}

static void info(struct device *device, struct device_info *out)
{
    struct opencl *o = opencl_of(device);
    *out = (struct device_info){
        .memory = device_number(o, CL_DEVICE_GLOBAL_MEM_SIZE),
        .max_block = device_number(o, CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        .threads = (int)device_number(o, CL_DEVICE_MAX_COMPUTE_UNITS),
    };
    snprintf(out->name, sizeof out->name, "%s", o->name);
}

/* --- memory ------------------------------------------------------------------------------------------------------------- */

/* Fills with zeros in pieces as wide as the alignment permits. */
static enum status opencl_fill(struct opencl *o, cl_mem to, int64_t offset, int64_t bytes)
{
    static const char zeros[16];
    size_t width = sizeof zeros;
    while (offset % (int64_t)width || bytes % (int64_t)width)
        width /= 2;
    if (!bytes)
        return OK;
    return opencl_check(cl.clEnqueueFillBuffer(o->queue, to, zeros, width, (size_t)offset, (size_t)bytes, 0, NULL, NULL),
                        "filling with zeros");
}

static enum status make_buffer(struct device *device, int64_t bytes, void **memory)
{
    struct opencl *o = opencl_of(device);
    char what[64];
    cl_int code;
    snprintf(what, sizeof what, "a block of %lld bytes", (long long)bytes);
    cl_mem block = cl.clCreateBuffer(o->context, CL_MEM_READ_WRITE, (size_t)bytes, NULL, &code);
    TRY(opencl_check(code, what));
    enum status status = opencl_fill(o, block, 0, bytes);
    if (status != OK)
        cl.clReleaseMemObject(block);
    else
        *memory = block;
    return status;
}

static void free_buffer(struct device *device, void *memory, int64_t bytes)
{
    (void)device;
    (void)bytes;
    cl.clReleaseMemObject(memory);
}

/* Room for the number of one more block. */
static enum status opencl_grow_blocks(struct opencl *o)
{
    cl_mem *blocks = memory_resize(o->blocks, (o->block_count + 1) * (int64_t)sizeof *blocks);
    if (!blocks)
        return ERR_MEMORY;
    o->blocks = blocks;
    int64_t *sizes = memory_resize(o->block_bytes, (o->block_count + 1) * (int64_t)sizeof *sizes);
    if (!sizes)
        return ERR_MEMORY;
    o->block_bytes = sizes;
    return OK;
}

static int32_t opencl_add_block(struct opencl *o, cl_mem block, int64_t bytes)
{
    o->blocks[o->block_count] = block;
    o->block_bytes[o->block_count] = bytes;
    o->device.counters.allocations++;
    return o->block_count++;
}

static enum status alloc(struct device *device, int64_t bytes, int32_t *number)
{
    struct opencl *o = opencl_of(device);
    void *block = NULL;
    TRY(opencl_grow_blocks(o));
    if (bytes > 0)
        TRY(make_buffer(device, bytes, &block));
    device->counters.bytes += max(bytes, 0);
    *number = opencl_add_block(o, block, max(bytes, 0));
    return OK;
}

/* Filled before another queue may use it. */
static enum status make_shared_buffer(struct device *device, int64_t bytes, void **memory)
{
    TRY(make_buffer(device, bytes, memory));
    enum status status = opencl_check(cl.clFinish(opencl_of(device)->queue), "filling with zeros");
    if (status != OK)
        cl.clReleaseMemObject(*memory);
    return status;
}

static const void *opencl_where(const struct device *device)
{
    return ((const struct opencl *)device)->context;
}

static enum status use_buffer(struct device *device, void *memory, int32_t *number)
{
    TRY(opencl_grow_blocks(opencl_of(device)));
    *number = opencl_add_block(opencl_of(device), memory, 0);
    return OK;
}

static const struct device_sharing opencl_sharing = {
    .where = opencl_where, .make = make_shared_buffer, .free = free_buffer, .use = use_buffer};

/* Waits for a copy that is still in flight, and not for what follows it in the queue. */
static enum status opencl_wait_for(struct opencl *o, cl_event *copy)
{
    cl_event event = *copy;
    *copy = NULL;
    if (!event)
        return OK;
    o->device.counters.waits++;
    cl_int code = cl.clWaitForEvents(1, &event);
    cl.clReleaseEvent(event);
    return opencl_check(code, "waiting for a copy");
}

/* The next staging buffer, once its last copy is done. */
static enum status next_staging(struct opencl *o, int *slot)
{
    *slot = o->next_staging;
    o->next_staging = 1 - o->next_staging;
    return opencl_wait_for(o, &o->written[*slot]);
}

static enum status write_elements(struct device *device, struct operand to, enum dtype to_type, const void *from,
                                  enum dtype from_type, int64_t count)
{
    struct opencl *o = opencl_of(device);
    int64_t size = dtype_size(to_type), max_count = STAGING / size;
    for (int64_t at = 0; at < count; at += max_count) {
        int64_t some = min(count - at, max_count);
        int slot;
        TRY(next_staging(o, &slot));
        TRY(device_convert(o->staging[slot], to_type, (const char *)from + at * dtype_size(from_type), from_type, some));
        TRY(opencl_check(cl.clEnqueueWriteBuffer(o->queue, o->blocks[to.block], 0, (size_t)(to.offset + at * size),
                                                 (size_t)(some * size), o->staging[slot], 0, NULL, &o->written[slot]),
                         "writing"));
        device->counters.writes++;
        device->counters.written += some * size;
    }
    return OK;
}

static enum status read_bytes(struct device *device, void *to, struct operand from, int64_t bytes)
{
    struct opencl *o = opencl_of(device);
    if (!bytes)
        return OK;
    device->counters.reads++;
    device->counters.read += bytes;
    device->counters.syncs++;
    return opencl_check(
        cl.clEnqueueReadBuffer(o->queue, o->blocks[from.block], 1, (size_t)from.offset, (size_t)bytes, to, 0, NULL, NULL),
        "reading");
}

static enum status later_open(struct device *device, int64_t bytes)
{
    struct opencl *o = opencl_of(device);
    for (int i = 0; i < DEVICE_LATER; i++)
        TRY(opencl_wait_for(o, &o->arrived[i]));
    return device_later_alloc(o->later, bytes);
}

static enum status read_later(struct device *device, int slot, struct operand from, int64_t bytes)
{
    struct opencl *o = opencl_of(device);
    TRY(opencl_wait_for(o, &o->arrived[slot]));
    device->counters.reads++;
    device->counters.read += bytes;
    TRY(opencl_check(cl.clEnqueueReadBuffer(o->queue, o->blocks[from.block], 0, (size_t)from.offset, (size_t)bytes,
                                            o->later[slot], 0, NULL, &o->arrived[slot]),
                     "reading"));
    return opencl_check(cl.clFlush(o->queue), "starting");
}

static enum status read_wait(struct device *device, int slot, const void **data)
{
    struct opencl *o = opencl_of(device);
    *data = o->later[slot];
    return opencl_wait_for(o, &o->arrived[slot]);
}

/* --- commands ----------------------------------------------------------------------------------------------------------- */

static enum status gemm_query(struct device *device, const struct gemm *gemm, int64_t *workspace)
{
    bool takes;
    return opencl_gemm_query(opencl_of(device), gemm, &takes, workspace);
}

static void add_whole(struct step *step, int64_t value)
{
    step->argument[step->argument_count++] = (struct argument){.size = sizeof value, .whole = value};
}

static enum status opencl_prepare_launch(struct opencl *o, struct prepared *p, const struct command *command, struct step *step)
{
    const struct launch *launch = &command->launch;
    const struct kernel *kernel = launch->kernel;
    step->kind = COMMAND_LAUNCH;
    TRY(opencl_variant(o, command, &step->variant));
    step->argument = arena_array(&p->arena, ARGUMENTS, (int64_t)sizeof *step->argument);
    if (!step->argument)
        return ERR_MEMORY;
    for (int i = 0; i < kernel->operands; i++) {
        struct operand at = command->operand[i];
        cl_mem block = at.block < 0 ? NULL : o->blocks[at.block];
        step->argument[step->argument_count++] = (struct argument){.size = sizeof block, .block = block};
        add_whole(step, block ? at.offset / dtype_size(launch->dtype[i]) : 0);
    }
    add_whole(step, launch->rows);
    for (int i = 0; i < kernel->sizes; i++)
        add_whole(step, launch->dim[i]);
    for (int i = 0; i < kernel->numbers; i++)
        step->argument[step->argument_count++] = (struct argument){.size = sizeof(float), .number = (float)launch->number[i]};
    step->group = (size_t)kernel->group;
    step->items = (size_t)(kernel_groups(launch) * kernel->group);
    return OK;
}

static enum status opencl_prepare_product(struct opencl *o, struct prepared *p, const struct command *command, struct step *step)
{
    struct command launch, product;
    if (!command->gemm.bias)
        return opencl_gemm_prepare(o, command, &step->product);
    kernel_of_bias(&launch, &product, command);
    step->bias = arena_array(&p->arena, 1, (int64_t)sizeof *step->bias);
    if (!step->bias)
        return ERR_MEMORY;
    TRY(opencl_prepare_launch(o, p, &launch, step->bias));
    return opencl_gemm_prepare(o, &product, &step->product);
}

static enum status prepare_collective(struct opencl *o, struct prepared *p, const struct command *command, struct step *step)
{
    TRY(device_collective_check(&o->device));
    step->collective = command->collective;
    step->collective.ticket = 0; /* through host memory: it is done at once */
    for (int i = 0; i < COLLECTIVE_OPERANDS; i++) {
        step->side[i] = o->blocks[command->operand[i].block];
        step->side_offset[i] = (size_t)command->operand[i].offset;
    }
    step->host = arena_array(&p->arena, collective_bytes(&step->collective), 1);
    return step->host || !step->collective.count ? OK : ERR_MEMORY;
}

static enum status opencl_prepare_step(struct opencl *o, struct prepared *p, const struct command *command, struct step *step)
{
    struct command launch;
    int64_t workspace;
    bool takes;
    step->kind = command->kind;
    switch (command->kind) {
    case COMMAND_LAUNCH: o->device.counters.kernels++; return opencl_prepare_launch(o, p, command, step);
    case COMMAND_GEMM:
        o->device.counters.gemms++;
        TRY(opencl_gemm_query(o, &command->gemm, &takes, &workspace));
        if (takes)
            return opencl_prepare_product(o, p, command, step);
        kernel_of_gemm(&launch, command, o->device.gemm_tile, !o->gpu);
        return opencl_prepare_launch(o, p, &launch, step);
    case COMMAND_FILL:
        step->to = o->blocks[command->operand[0].block];
        step->offset = command->operand[0].offset;
        step->bytes = command->bytes;
        return OK;
    case COMMAND_COLLECTIVE: return prepare_collective(o, p, command, step);
    case COMMAND_WAIT: return OK;
    case COMMAND_COPY:
    case COMMAND_ARRIVE: break; /* there is nothing to copy from */
    }
    return fail(ERR_INTERNAL, "a command of unknown kind %d", (int)command->kind);
}

static void discard(struct device *device, struct prepared *prepared)
{
    (void)device;
    for (int64_t i = 0; i < prepared->count && prepared->step; i++)
        if (prepared->step[i].kind == COMMAND_GEMM)
            opencl_gemm_discard(&prepared->step[i].product);
    arena_free(&prepared->arena);
    memory_free(prepared);
}

static enum status prepare(struct device *device, const struct command *commands, int64_t count, struct prepared **out)
{
    struct opencl *o = opencl_of(device);
    struct prepared *p = memory_alloc(sizeof *p);
    if (!p)
        return ERR_MEMORY;
    p->count = count;
    p->step = arena_array(&p->arena, count, (int64_t)sizeof *p->step);
    enum status status = p->step || !count ? OK : ERR_MEMORY;
    for (int64_t i = 0; i < count && status == OK; i++)
        status = opencl_prepare_step(o, p, &commands[i], &p->step[i]);
    if (status != OK) {
        discard(device, p);
        return status;
    }
    device->counters.prepared++;
    *out = p;
    return OK;
}

static enum status run_launch(struct opencl *o, const struct step *step)
{
    cl_kernel kernel = o->variants[step->variant].kernel;
    for (int i = 0; i < step->argument_count; i++)
        TRY(opencl_check(cl.clSetKernelArg(kernel, (cl_uint)i, step->argument[i].size, &step->argument[i].whole),
                         "setting an argument"));
    if (!step->items)
        return OK;
    return opencl_check(cl.clEnqueueNDRangeKernel(o->queue, kernel, 1, NULL, &step->items, &step->group, 0, NULL, NULL),
                        "launching a kernel");
}

static enum status run_product(struct opencl *o, const struct step *step)
{
    TRY(opencl_gemm_run(o, &step->product));
    return step->bias ? run_launch(o, step->bias) : OK;
}

/* Through host memory, in place: what is only a part lies in the whole where it belongs. */
static enum status run_collective(struct opencl *o, const struct step *step)
{
    struct group *g = o->device.group;
    const struct collective *c = &step->collective;
    size_t whole = (size_t)collective_bytes(c), part = whole / (size_t)g->size, place = part * (size_t)g->rank;
    bool gathers = c->kind == COLLECTIVE_ALL_GATHER, scatters = c->kind == COLLECTIVE_REDUCE_SCATTER;
    char *from = step->host + (gathers ? place : 0), *to = step->host + (scatters ? place : 0);
    if (!whole)
        return OK;
    o->device.counters.syncs++;
    TRY(opencl_check(cl.clEnqueueReadBuffer(o->queue, step->side[COLLECTIVE_FROM], 1, step->side_offset[COLLECTIVE_FROM],
                                            gathers ? part : whole, from, 0, NULL, NULL),
                     "reading for a collective"));
    TRY(group_collective(g, c, from, to, NULL));
    if (c->kind == COLLECTIVE_REDUCE && g->rank != c->root)
        return OK;
    return opencl_check(cl.clEnqueueWriteBuffer(o->queue, step->side[COLLECTIVE_TO], 1, step->side_offset[COLLECTIVE_TO],
                                                scatters ? part : whole, to, 0, NULL, NULL),
                        "writing after a collective");
}

static enum status run(struct device *device, struct prepared *prepared)
{
    struct opencl *o = opencl_of(device);
    for (int64_t i = 0; i < prepared->count; i++) {
        const struct step *step = &prepared->step[i];
        TRY(step->kind == COMMAND_LAUNCH       ? run_launch(o, step)
            : step->kind == COMMAND_GEMM       ? run_product(o, step)
            : step->kind == COMMAND_FILL       ? opencl_fill(o, step->to, step->offset, step->bytes)
            : step->kind == COMMAND_COLLECTIVE ? run_collective(o, step)
                                               : OK);
    }
    device->counters.launches += prepared->count;
    device->counters.runs++;
    return opencl_check(cl.clFlush(o->queue), "starting");
}

const struct device_class device_opencl = {
    .name = "opencl",
    .compiles = true,
    .asynchronous = true,
    .open = open_opencl,
    .count = opencl_count,
    .close = close_opencl,
    .info = info,
    .alloc = alloc,
    .release = release_block,
    .sharing = &opencl_sharing,
    .write = write_elements,
    .read = read_bytes,
    .later_open = later_open,
    .read_later = read_later,
    .read_wait = read_wait,
    .gemm_query = gemm_query,
    .prepare = prepare,
    .run = run,
    .discard = discard,
};
