/* The CUDA device: blocks are allocations, a prepared list is launches with the values of their arguments and matmuls with their
 * addresses, a run enqueues it all on one stream, and what runs beside on others, as one graph where that works, and waits
 * for nothing.
 */
#include "device/cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "base/number.h"
#include "device/card.h"
#include "device/prefer.h"

static struct cuda *cuda_of(struct device *device)
{
    return (struct cuda *)device;
}

static enum status enter(struct cuda *c)
{
    return cuda_check(cu.cuCtxSetCurrent(c->context), "using the context");
}

enum status cuda_wait(struct cuda *c)
{
    if (!c->busy)
        return OK;
    c->device.counters.syncs++;
    TRY(cuda_wait_for(c, NULL, "waiting for the device"));
    c->busy = false;
    for (int i = 0; i < CUDA_RING; i++)
        c->in_flight[i] = false;
    return OK;
}

static struct mutex turn = MUTEX_FREE;

enum status cuda_turn_begin(struct cuda *c)
{
    mutex_take(&turn);
    TRY(cuda_wait(c));
    return cuda_check(cu.cuCtxSynchronize(), "waiting for the device");
}

void cuda_turn_end(void)
{
    mutex_give(&turn);
}

CUdeviceptr cuda_address(const struct cuda *c, struct operand operand)
{
    if (operand.block < 0 || !c->blocks[operand.block])
        return 0;
    return c->blocks[operand.block] + (CUdeviceptr)operand.offset;
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static enum status read_capability(struct cuda *c, int number)
{
    int major = 0, minor = -1;
    TRY(cuda_check(cu.cuDeviceGet(&c->number, number), "asking for the device"));
    TRY(cuda_check(cu.cuDeviceGetName(c->name, (int)sizeof c->name, c->number), "asking for the device's name"));
    CUresult code = cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, c->number);
    if (code == CUDA_SUCCESS)
        code = cu.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, c->number);
    TRY(cuda_check(code, "reading the compute capability"));
    if (major < 1 || major > 99 || minor < 0 || minor > 9)
        return fail(ERR_DEVICE, "CUDA: %s says that its compute capability is %d.%d, which cannot be", c->name, major, minor);
    c->target = major * 10 + minor;
    const char *cores = getenv("HONE_TENSOR_CORES");
    c->device.tensor_cores = c->target >= DEVICE_MMA && !(cores && !strcmp(cores, "off"));
    return OK;
}

/* A thread that waits sleeps. Where the process has a context already, as with PyTorch beside hone, it stays as it is. */
static enum status sleep_when_waiting(const struct cuda *c)
{
    unsigned flags;
    int active;
    TRY(cuda_check(cu.cuDevicePrimaryCtxGetState(c->number, &flags, &active), "asking for the context"));
    if (active)
        return OK;
    return cuda_check(cu.cuDevicePrimaryCtxSetFlags(c->number, CU_CTX_SCHED_BLOCKING_SYNC), "setting up the context");
}

static enum status open_context(struct cuda *c, int number)
{
    TRY(read_capability(c, number));
    TRY(cuda_compile_open(c));
    TRY(sleep_when_waiting(c));
    TRY(cuda_check(cu.cuDevicePrimaryCtxRetain(&c->context, c->number), "creating a context"));
    TRY(enter(c));
    TRY(cuda_check(cu.cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING), "creating a stream"));
    TRY(cuda_copy_open(c));
    return cuda_gemm_open(c);
}

static void release_block(struct device *device, int32_t block)
{
    struct cuda *c = cuda_of(device);
    bool used = c->blocks[block] || c->block_host[block];
    if (used && enter(c) == OK && cuda_settle(c)) {
        if (c->block_host[block])
            cu.cuMemFreeHost(c->block_host[block]);
        else
            cu.cuMemFree(c->blocks[block]);
        device->counters.bytes -= c->blocks[block] ? c->block_bytes[block] : 0;
    }
    c->blocks[block] = 0;
    c->block_host[block] = NULL;
}

/* The group after the graphs that were captured with it, which NCCL waits for, and before the context. After a fault the driver
 * may free no graph any more, and NCCL is not asked. */
static void leave_group(struct cuda *c)
{
    struct group *group = c->device.group;
    if (group && group->class->device_memory)
        group_close(group, c->broken ? ERR_RANK : cuda_is_fault(cu.cuStreamQuery(c->stream)) ? ERR_DEVICE : OK);
    c->device.group = NULL;
}

static void close_cuda(struct device *device)
{
    struct cuda *c = cuda_of(device);
    bool settled = c->context && enter(c) == OK && cuda_settle(c);
    leave_group(c);
    if (settled) {
        cuda_beside_close(&c->streamed);
        for (int32_t i = 0; i < c->block_count; i++)
            release_block(device, i);
        cuda_gemm_close(c);
        cuda_copy_close(c);
        cuda_compile_close(c);
        cuda_beside_close(&c->sent);
        if (c->stream)
            cu.cuStreamDestroy(c->stream);
        cu.cuDevicePrimaryCtxRelease(c->number);
    }
    cuda_code_close(&c->code);
    memory_free(c->collectives);
    memory_free(c->blocks);
    memory_free(c->block_host);
    memory_free(c->block_bytes);
    memory_free(c);
}

static enum status open_cuda(struct device **out, int number)
{
    int count;
    *out = NULL;
    TRY(cuda_load_driver(&count));
    if (!count)
        return number == DEVICE_AUTO ? OK : ERR_DEVICE; /* the message says what is missing */
    if (number >= count)
        return device_no_such_number(&device_cuda, number, count);
    struct cuda *c = memory_alloc(sizeof *c);
    if (!c)
        return ERR_MEMORY;
    c->device.class = &device_cuda;
    enum status status = open_context(c, number < 0 ? device_preferred(count) : number);
    if (status != OK) {
        close_cuda(&c->device);
        return status;
    }
    *out = &c->device;
    return OK;
}

static int count_cuda(void)
{
    int count;
    return cuda_load_driver(&count) == OK ? count : 0;
}

/* As nvidia-smi and CUDA_VISIBLE_DEVICES have it: GPU-, or MIG- for a part of a card, and 32 digits in five groups. */
static void read_id(CUdevice device, char text[48])
{
    CUuuid uuid;
    *text = 0;
    if (cu.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS)
        return;
    int at = snprintf(text, 48, "GPU-");
    for (int i = 0; i < 16; i++)
        at += snprintf(text + at, (size_t)(48 - at), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                       (unsigned)(unsigned char)uuid.bytes[i]);
}

static bool begins(const char *text, const char *with)
{
    while (*with && tolower((unsigned char)*text) == tolower((unsigned char)*with))
        text++, with++;
    return !*with;
}

static enum status find_cuda(const char *id, int *number)
{
    int count, found = 0;
    bool known = strlen(id) > 4 && (begins(id, "GPU-") || begins(id, "MIG-"));
    TRY(cuda_load_driver(&count));
    if (!count)
        return ERR_DEVICE; /* the message says what is missing */
    for (int i = 0; i < count && known; i++) {
        char text[48];
        CUdevice device;
        TRY(cuda_check(cu.cuDeviceGet(&device, i), "asking for the device"));
        read_id(device, text);
        if (!*text || !begins(text + 4, id + 4))
            continue;
        *number = i;
        found++;
    }
    if (found == 1)
        return OK;
    return fail(ERR_DEVICE,
                found ? "the ids of %d cards begin with %s: write more of it (hone devices prints them)"
                      : "%d cards of this machine have an id that begins with %s; hone devices prints them",
                found, id);
}

static void info(struct device *device, struct device_info *out)
{
    struct cuda *c = cuda_of(device);
    size_t left = 0, total = 0;
    int units = 0;
    if (enter(c) != OK || cu.cuMemGetInfo(&left, &total) != CUDA_SUCCESS)
        left = total = 0;
    cu.cuDeviceGetAttribute(&units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->number);
    *out = (struct device_info){
        .memory = (int64_t)total,
        .memory_free = (int64_t)left,
        .max_block = total ? (int64_t)total : INT64_MAX,
        .bf16 = c->target >= 80,
        .stand_in = cuda_stand_in(),
        .threads = units,
    };
    read_id(c->number, out->id);
    snprintf(out->name, sizeof out->name, "%s (compute capability %d.%d)", c->name, c->target / 10, c->target % 10);
}

static void costs(struct device *device, int64_t kernels, int64_t commands, struct device_costs *out)
{
    const struct cuda *c = cuda_of(device);
    card_costs(c->target, c->cublas, cuda_capture_wanted(c, commands), kernels, commands, out);
}

/* --- blocks ------------------------------------------------------------------------------------------------------------- */

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

static int32_t add_block(struct cuda *c, CUdeviceptr address, char *host, int64_t bytes)
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

static enum status alloc_host(struct device *device, int64_t bytes, int32_t *number)
{
    struct cuda *c = cuda_of(device);
    void *host = NULL;
    TRY(enter(c));
    TRY(grow_blocks(c));
    TRY(cuda_beside_open(&c->streamed));
    if (bytes > 0)
        TRY(check_pinned(cu.cuMemHostAlloc(&host, (size_t)bytes, 0), bytes));
    *number = add_block(c, 0, host, bytes);
    return OK;
}

static enum status alloc(struct device *device, int64_t bytes, int32_t *number)
{
    struct cuda *c = cuda_of(device);
    CUdeviceptr address = 0;
    TRY(enter(c));
    TRY(grow_blocks(c));
    if (bytes > 0) {
        char what[64];
        snprintf(what, sizeof what, "allocating a block of %lld bytes", (long long)bytes);
        TRY(cuda_check(cu.cuMemAlloc(&address, (size_t)bytes), what));
        c->busy = true;
        enum status status = OK;
        if (!device->unfilled)
            status = cuda_check(cu.cuMemsetD8Async(address, 0, (size_t)bytes, c->stream), "filling with zeros");
        if (status != OK) {
            cu.cuMemFree(address);
            return status;
        }
        device->counters.bytes += bytes;
    }
    *number = add_block(c, address, NULL, bytes);
    return OK;
}

/* --- preparing ---------------------------------------------------------------------------------------------------------- */

/* cuBLAS has a workspace of its own, but it adds no biases. */
static enum status gemm_query(struct device *device, const struct gemm *gemm, int64_t *workspace)
{
    *workspace = cuda_gemm_takes(cuda_of(device), gemm) ? kernel_bias_workspace(gemm) : 0;
    return OK;
}

static enum status prepare_launch(struct cuda *c, struct prepared *p, const struct command *command, struct cuda_step *step)
{
    const struct launch *launch = &command->launch;
    const struct kernel *kernel = launch->kernel;
    int count = kernel->operands + 1 + kernel->sizes + kernel->numbers, at = 0;
    int64_t variant, groups = kernel_groups(launch);
    TRY(cuda_variant(c, command, &variant));
    if (groups > INT32_MAX)
        return fail(ERR_UNSUPPORTED, "kernel %s: %lld groups are more than a launch can have: use fewer tokens at once",
                    kernel->name, (long long)groups);
    int64_t *value = arena_array(&p->arena, count, (int64_t)sizeof *value);
    step->argument = arena_array(&p->arena, count, (int64_t)sizeof *step->argument);
    if (!value || !step->argument)
        return ERR_MEMORY;
    for (int i = 0; i < kernel->operands; i++)
        value[at++] = (int64_t)cuda_address(c, command->operand[i]);
    value[at++] = launch->rows;
    for (int i = 0; i < kernel->sizes; i++)
        value[at++] = launch->dim[i];
    for (int i = 0; i < kernel->numbers; i++) {
        float number = (float)launch->number[i];
        memcpy(&value[at++], &number, sizeof number);
    }
    for (int i = 0; i < count; i++)
        step->argument[i] = &value[i];
    step->kind = COMMAND_LAUNCH;
    step->name = kernel->name;
    step->function = c->variants[variant].function;
    step->groups = (unsigned)groups;
    step->group = (unsigned)kernel->group;
    return OK;
}

static enum status prepare_product(struct cuda *c, struct prepared *p, const struct command *command, struct cuda_step *step)
{
    struct command launch, product = *command;
    if (command->gemm.bias) {
        kernel_of_bias(&launch, &product, command);
        step->bias = arena_array(&p->arena, 1, (int64_t)sizeof *step->bias);
        if (!step->bias)
            return ERR_MEMORY;
        TRY(prepare_launch(c, p, &launch, step->bias));
    }
    step->gemm = product.gemm;
    step->a = cuda_address(c, product.operand[GEMM_A]);
    step->b = cuda_address(c, product.operand[GEMM_B]);
    step->c = cuda_address(c, product.operand[GEMM_C]);
    return OK;
}

static enum status prepare_step(struct cuda *c, struct prepared *p, const struct command *command, struct cuda_step *step)
{
    struct command launch;
    step->kind = command->kind;
    switch (command->kind) {
    case COMMAND_LAUNCH: c->device.counters.kernels++; return prepare_launch(c, p, command, step);
    case COMMAND_GEMM:
        if (!cuda_gemm_takes(c, &command->gemm)) {
            c->device.counters.gemms++;
            kernel_of_gemm(&launch, command, c->device.gemm_tile, false);
            return prepare_launch(c, p, &launch, step);
        }
        return prepare_product(c, p, command, step);
    case COMMAND_FILL:
        step->to = cuda_address(c, command->operand[0]);
        step->bytes = command->bytes;
        return OK;
    case COMMAND_COLLECTIVE: p->collectives++; return cuda_collective_prepare(c, command, step);
    case COMMAND_WAIT: step->collective = command->collective; return OK;
    case COMMAND_COPY:
    case COMMAND_ARRIVE: return cuda_streamed_prepare(c, p, command, step);
    }
    return fail(ERR_INTERNAL, "a command of unknown kind %d", (int)command->kind);
}

static void discard(struct device *device, struct prepared *prepared)
{
    struct cuda *c = cuda_of(device);
    struct prepared **at = &c->lists;
    if (enter(c) == OK && cuda_settle(c)) /* it may find that the group is lost, which frees all graphs of the lists */
        cuda_capture_discard(prepared);
    while (*at != prepared)
        at = &(*at)->next;
    *at = prepared->next;
    arena_free(&prepared->arena);
    memory_free(prepared);
}

/* The kernel of a command, or of its bias, loaded. */
static enum status load_code(struct cuda *c, const struct command *command)
{
    struct command launch = *command, product;
    int64_t variant;
    if (command->kind == COMMAND_GEMM && !cuda_gemm_takes(c, &command->gemm))
        kernel_of_gemm(&launch, command, c->device.gemm_tile, false);
    else if (command->kind == COMMAND_GEMM && command->gemm.bias)
        kernel_of_bias(&launch, &product, command);
    return launch.kind == COMMAND_LAUNCH ? cuda_variant(c, &launch, &variant) : OK;
}

static enum status warm(struct device *device, const struct command *commands, int64_t count)
{
    struct cuda *c = cuda_of(device);
    TRY(enter(c));
    for (int64_t i = 0; i < count; i++)
        TRY(load_code(c, &commands[i]));
    TRY(cuda_warm_up(c));
    return cuda_gemm_warm_up(c, commands, count);
}

/* All modules first, then one run of what has not run yet, then the capture. */
static enum status prepare_list(struct cuda *c, struct prepared *p, const struct command *commands, int64_t count)
{
    TRY(enter(c));
    p->step = arena_array(&p->arena, count, (int64_t)sizeof *p->step);
    if (!p->step && count)
        return ERR_MEMORY;
    p->count = count;
    for (int64_t i = 0; i < count; i++)
        TRY(prepare_step(c, p, &commands[i], &p->step[i]));
    TRY(cuda_collectives_compare(c, p));
    TRY(cuda_warm_up(c));
    TRY(cuda_gemm_warm_up(c, commands, count));
    for (int64_t i = 0; i < count; i++)
        if (p->step[i].kind == COMMAND_COLLECTIVE)
            TRY(cuda_collective_warm_up(c, &p->step[i]));
    TRY(cuda_wait(c));
    return cuda_capture(c, p);
}

static enum status prepare(struct device *device, const struct command *commands, int64_t count, struct prepared **out)
{
    struct prepared *p = memory_alloc(sizeof *p);
    if (!p)
        return ERR_MEMORY;
    struct cuda *c = cuda_of(device);
    p->next = c->lists;
    c->lists = p;
    enum status status = prepare_list(c, p, commands, count);
    if (status != OK) {
        discard(device, p);
        return status;
    }
    device->counters.prepared++;
    *out = p;
    return OK;
}

/* --- running ------------------------------------------------------------------------------------------------------------ */

static enum status issue_launch(struct cuda *c, const struct cuda_step *step)
{
    if (!step->groups)
        return OK;
    return cuda_check_launch(
        cu.cuLaunchKernel(step->function, step->groups, 1, 1, step->group, 1, 1, 0, c->stream, step->argument, NULL), step->name);
}

static enum status issue_step(struct cuda *c, const struct cuda_step *step)
{
    switch (step->kind) {
    case COMMAND_LAUNCH: return issue_launch(c, step);
    case COMMAND_GEMM: TRY(cuda_gemm_run(c, step)); return step->bias ? issue_launch(c, step->bias) : OK;
    case COMMAND_FILL:
        if (!step->bytes)
            return OK;
        return cuda_check(cu.cuMemsetD8Async(step->to, 0, (size_t)step->bytes, c->stream), "filling with zeros");
    case COMMAND_COLLECTIVE: return cuda_collective_run(c, step);
    case COMMAND_WAIT: return cuda_collective_wait(c, step->collective.ticket);
    case COMMAND_COPY:
    case COMMAND_ARRIVE: return cuda_streamed_run(c, step);
    }
    return OK;
}

enum status cuda_issue(struct cuda *c, const struct prepared *p)
{
    c->busy = true;
    for (int64_t i = 0; i < p->count; i++)
        TRY(issue_step(c, &p->step[i]));
    c->device.counters.launches += p->count;
    cuda_streamed_count(c, p);
    return OK;
}

static enum status run(struct device *device, struct prepared *prepared)
{
    struct cuda *c = cuda_of(device);
    bool launched;
    TRY(enter(c));
    if (c->broken)
        return cuda_wait_for(c, NULL, "running");
    TRY(cuda_capture_launch(c, prepared, &launched));
    if (!launched)
        TRY(cuda_issue(c, prepared));
    device->counters.runs++;
    return OK;
}

const struct device_class device_cuda = {
    .name = "cuda",
    .compiles = true,
    .asynchronous = true,
    .overlaps = true,
    .open = open_cuda,
    .count = count_cuda,
    .find = find_cuda,
    .close = close_cuda,
    .info = info,
    .costs = costs,
    .alloc = alloc,
    .alloc_host = alloc_host,
    .release = release_block,
    .write = cuda_write,
    .read = cuda_read,
    .later_open = cuda_later_open,
    .read_later = cuda_read_later,
    .read_wait = cuda_read_wait,
    .gemm_query = gemm_query,
    .warm = warm,
    .prepare = prepare,
    .run = run,
    .discard = discard,
};
