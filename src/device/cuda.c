/* The CUDA device: blocks are allocations, a prepared list is launches with the values of their arguments and matmuls with their
 * addresses, a run enqueues it all on one stream, and what runs at the same time on others, as one graph where that works, and
 * waits for nothing. The table of its functions is here, and no other file of the device calls this one. */
#include "device/cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/gpu_spec.h"
#include "device/prefer.h"

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

/* A thread that waits sleeps. Where the process has a context already, as with PyTorch in the same process, it stays as it is. */
static enum status sleep_when_waiting(const struct cuda *c)
{
    unsigned flags;
    int active;
    TRY(cuda_check(cu.cuDevicePrimaryCtxGetState(c->number, &flags, &active), "asking for the context"));
    if (active)
        return OK;
    return cuda_check(cu.cuDevicePrimaryCtxSetFlags(c->number, CU_CTX_SCHED_BLOCKING_SYNC), "setting up the context");
}

static enum status cuda_open_context(struct cuda *c, int number)
{
    TRY(read_capability(c, number));
    TRY(cuda_compile_open(c));
    TRY(sleep_when_waiting(c));
    TRY(cuda_check(cu.cuDevicePrimaryCtxRetain(&c->context, c->number), "creating a context"));
    TRY(cuda_enter(c));
    TRY(cuda_check(cu.cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING), "creating a stream"));
    TRY(cuda_copy_open(c));
    return cuda_gemm_open(c);
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
    bool settled = c->context && cuda_enter(c) == OK && cuda_settle(c);
    leave_group(c);
    if (settled) {
        cuda_side_stream_close(&c->streamed);
        for (int32_t i = 0; i < c->block_count; i++)
            cuda_release(device, i);
        cuda_gemm_close(c);
        cuda_copy_close(c);
        cuda_compile_close(c);
        cuda_side_stream_close(&c->sent);
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
        return device_no_such_number("cuda", number, count);
    struct cuda *c = memory_alloc(sizeof *c);
    if (!c)
        return ERR_MEMORY;
    c->device.class = &device_cuda;
    enum status status = cuda_open_context(c, number < 0 ? device_preferred(count) : number);
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

static bool cuda_begins(const char *text, const char *with)
{
    while (*with && tolower((unsigned char)*text) == tolower((unsigned char)*with))
        text++, with++;
    return !*with;
}

static enum status find_cuda(const char *id, int *number)
{
    int count, found = 0;
    bool known = strlen(id) > 4 && (cuda_begins(id, "GPU-") || cuda_begins(id, "MIG-"));
    TRY(cuda_load_driver(&count));
    if (!count)
        return ERR_DEVICE; /* the message says what is missing */
    for (int i = 0; i < count && known; i++) {
        char text[48];
        CUdevice device;
        TRY(cuda_check(cu.cuDeviceGet(&device, i), "asking for the device"));
        read_id(device, text);
        if (!*text || !cuda_begins(text + 4, id + 4))
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
    if (cuda_enter(c) != OK || cu.cuMemGetInfo(&left, &total) != CUDA_SUCCESS)
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

/* --- preparing ---------------------------------------------------------------------------------------------------------- */

/* cuBLAS has a workspace of its own, but it adds no biases. */
static enum status gemm_query(struct device *device, const struct gemm *gemm, int64_t *workspace)
{
    *workspace = cuda_gemm_takes(cuda_of(device), gemm) ? kernel_bias_workspace(gemm) : 0;
    return OK;
}

static void discard(struct device *device, struct prepared *prepared)
{
    struct cuda *c = cuda_of(device);
    struct prepared **at = &c->lists;
    if (cuda_enter(c) == OK && cuda_settle(c)) /* it may find that the group is lost, which frees all graphs of the lists */
        cuda_graph_discard(prepared);
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
    TRY(cuda_enter(c));
    for (int64_t i = 0; i < count; i++)
        TRY(load_code(c, &commands[i]));
    TRY(cuda_warm_up(c));
    return cuda_gemm_warm_up(c, commands, count);
}

/* All modules first, then one run of what has not run yet, then the capture. */
static enum status cuda_prepare_list(struct cuda *c, struct prepared *p, const struct command *commands, int64_t count)
{
    TRY(cuda_enter(c));
    p->step = arena_array(&p->arena, count, (int64_t)sizeof *p->step);
    if (!p->step && count)
        return ERR_MEMORY;
    p->count = count;
    for (int64_t i = 0; i < count; i++)
        TRY(cuda_step_prepare(c, p, &commands[i], &p->step[i]));
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
    enum status status = cuda_prepare_list(c, p, commands, count);
    if (status != OK) {
        discard(device, p);
        return status;
    }
    device->counters.prepared++;
    *out = p;
    return OK;
}

/* --- running ------------------------------------------------------------------------------------------------------------ */

static enum status run(struct device *device, struct prepared *prepared)
{
    struct cuda *c = cuda_of(device);
    bool launched;
    TRY(cuda_enter(c));
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
    .alloc = cuda_alloc,
    .alloc_host = cuda_alloc_host,
    .release = cuda_release,
    .sharing = &cuda_sharing,
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
