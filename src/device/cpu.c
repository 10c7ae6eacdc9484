/* The CPU: blocks are host memory, a prepared list is the commands with their addresses filled in, a run is a loop over it.
 *
 * Matmuls of the same shape share one plan of the engine; the rows of a launch are divided among threads.
 */
#include "device/cpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/heartbeat.h"
#include "base/isa.h"
#include "base/limits.h"
#include "base/parallel.h"
#include "device/cpu_pace.h"
#include "device/share.h"

struct block {
    char *data;
    int64_t bytes;
    bool mapped; /* memory of the caller, or shared */
};

struct shape { /* of a matmul that some command uses */
    struct gemm gemm;
    struct gemm_plan *plan;
    int64_t workspace;
    double fastest; /* seconds; 0: it was not run yet */
};

struct cpu {
    struct device device;
    const struct gemm_engine *engine;
    void *engine_state;
    struct block *blocks;
    int32_t block_count;
    struct shape *shapes;
    int64_t shape_count;
    double gemm_seconds;
    char *later[DEVICE_LATER]; /* what device_read_later has read */
};

struct step { /* a command with addresses */
    enum command_kind kind;
    union {
        struct {
            const struct kernel *kernel;
            struct call call;
            int64_t rows, block;
        };
        struct {
            struct gemm_plan *plan;
            void *address[GEMM_OPERANDS];
            int64_t shape;
        };
        struct {
            void *to;
            int64_t bytes;
        };
        struct {
            struct collective collective;
            void *side[COLLECTIVE_OPERANDS];
        };
    };
};

struct prepared {
    int64_t count;
    struct step step[];
};

static struct cpu *cpu_of(struct device *device)
{
    return (struct cpu *)device;
}

enum status cpu_open(struct device **out, const struct gemm_engine *engine)
{
    struct cpu *cpu = memory_alloc(sizeof *cpu);
    if (!cpu)
        return ERR_MEMORY;
    cpu->device.class = &device_cpu;
    cpu->engine = engine;
    enum status status = engine->open(&cpu->engine_state);
    if (status != OK) {
        memory_free(cpu);
        return status;
    }
    *out = &cpu->device;
    return OK;
}

static enum status open_with_onednn(struct device **out, int number)
{
    (void)number;
    return cpu_open(out, &gemm_onednn);
}

static void release(struct device *device, int32_t block)
{
    struct block *b = &cpu_of(device)->blocks[block];
    if (b->data && !b->mapped) {
        munmap(b->data, (size_t)b->bytes);
        device->counters.bytes -= b->bytes;
    }
    *b = (struct block){0};
}

static void close_cpu(struct device *device)
{
    struct cpu *cpu = cpu_of(device);
    for (int32_t i = 0; i < cpu->block_count; i++)
        release(device, i);
    for (int64_t i = 0; i < cpu->shape_count; i++)
        cpu->engine->destroy(cpu->shapes[i].plan);
    cpu->engine->close(cpu->engine_state);
    for (int i = 0; i < DEVICE_LATER; i++)
        memory_free(cpu->later[i]);
    memory_free(cpu->shapes);
    memory_free(cpu->blocks);
    memory_free(cpu);
}

/* The text after a key of one of the system's tables ("model name : Xeon"), or "". */
static void system_entry(const char *path, const char *key, char *text, size_t size)
{
    struct buffer table = {0};
    *text = 0;
    if (file_read(&table, path, 16 << 20) == OK) {
        const char *at = strstr(table.data, key), *colon = at ? strchr(at, ':') : NULL;
        if (colon) {
            colon += 1 + strspn(colon + 1, " \t");
            snprintf(text, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        }
    }
    buffer_free(&table);
}

static void info(struct device *device, struct device_info *out)
{
    struct memory_room room;
    limits_memory(&room, "");
    *out = (struct device_info){
        .memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
        .memory_free = room.allocate,
        .max_block = INT64_MAX,
        .host_memory = true,
        .bf16 = cpu_of(device)->engine->has_bf16(),
        .widens = cpu_of(device)->engine->widens && cpu_of(device)->engine->widens(),
        .threads = parallel_threads(),
        .instructions = isa_called(isa()),
    };
    system_entry("/proc/cpuinfo", "model name", out->name, sizeof out->name);
}

static void costs(struct device *device, int64_t kernels, int64_t commands, struct device_costs *out)
{
    (void)device;
    (void)kernels;
    *out = (struct device_costs){.lists = commands * (int64_t)sizeof(struct step)};
}

static enum status cpu_add_block(struct cpu *cpu, struct block block, int32_t *number)
{
    struct block *blocks = memory_resize(cpu->blocks, (cpu->block_count + 1) * (int64_t)sizeof *blocks);
    if (!blocks)
        return ERR_MEMORY;
    cpu->blocks = blocks;
    cpu->device.counters.allocations++;
    blocks[cpu->block_count] = block;
    *number = cpu->block_count++;
    return OK;
}

/* Fresh pages from the system: zeroed, and resident only once they are touched. */
static enum status make_pages(struct device *device, int64_t bytes, void **out)
{
    (void)device;
    void *data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return fail(ERR_MEMORY, "out of memory: a block of %lld bytes: %s", (long long)bytes, strerror(errno));
    madvise(data, (size_t)bytes, MADV_HUGEPAGE); /* fewer faults and misses where the system has them */
    *out = data;
    return OK;
}

static void free_pages(struct device *device, void *data, int64_t bytes)
{
    (void)device;
    munmap(data, (size_t)bytes);
}

static enum status alloc(struct device *device, int64_t bytes, int32_t *number)
{
    void *data = NULL;
    if (bytes <= 0)
        return cpu_add_block(cpu_of(device), (struct block){0}, number);
    TRY(make_pages(device, bytes, &data));
    enum status status = cpu_add_block(cpu_of(device), (struct block){data, bytes, false}, number);
    if (status != OK)
        free_pages(device, data, bytes);
    else
        device->counters.bytes += bytes;
    return status;
}

static enum status map(struct device *device, const void *host, int64_t bytes, int32_t *number)
{
    return cpu_add_block(cpu_of(device), (struct block){(char *)host, bytes, true}, number);
}

/* All devices of this class have the process's memory. */
static const void *where(const struct device *device)
{
    (void)device;
    return NULL;
}

static enum status use_pages(struct device *device, void *data, int32_t *number)
{
    return cpu_add_block(cpu_of(device), (struct block){.data = data, .mapped = true}, number);
}

static const struct device_sharing sharing = {.where = where, .make = make_pages, .free = free_pages, .use = use_pages};

static void *address(struct cpu *cpu, struct operand operand)
{
    if (operand.block < 0)
        return NULL;
    const struct block *block = &cpu->blocks[operand.block];
    return block->data ? block->data + operand.offset : NULL;
}

static enum status write_elements(struct device *device, struct operand to, enum dtype to_type, const void *from,
                                  enum dtype from_type, int64_t count)
{
    device->counters.writes++;
    device->counters.written += count * dtype_size(to_type);
    return device_convert(address(cpu_of(device), to), to_type, from, from_type, count);
}

static enum status read_bytes(struct device *device, void *to, struct operand from, int64_t bytes)
{
    if (bytes)
        memcpy(to, address(cpu_of(device), from), (size_t)bytes);
    device->counters.reads++;
    device->counters.read += bytes;
    return OK;
}

static enum status later_open(struct device *device, int64_t bytes)
{
    return device_later_alloc(cpu_of(device)->later, bytes);
}

/* Runs are done when they return, so the bytes are there now. */
static enum status read_later(struct device *device, int slot, struct operand from, int64_t bytes)
{
    return read_bytes(device, cpu_of(device)->later[slot], from, bytes);
}

static enum status read_wait(struct device *device, int slot, const void **data)
{
    *data = cpu_of(device)->later[slot];
    return OK;
}

static enum status find_shape(struct cpu *cpu, const struct gemm *gemm, const struct shape **out)
{
    for (int64_t i = 0; i < cpu->shape_count; i++)
        if (device_same_gemm(&cpu->shapes[i].gemm, gemm)) {
            *out = &cpu->shapes[i];
            return OK;
        }
    struct shape *shapes = memory_resize(cpu->shapes, (cpu->shape_count + 1) * (int64_t)sizeof *shapes);
    if (!shapes)
        return ERR_MEMORY;
    cpu->shapes = shapes;
    struct shape *shape = &shapes[cpu->shape_count];
    *shape = (struct shape){.gemm = *gemm};
    TRY(cpu->engine->create(cpu->engine_state, gemm, &shape->plan, &shape->workspace));
    cpu->shape_count++;
    cpu->device.counters.gemms++;
    *out = shape;
    return OK;
}

static enum status gemm_query(struct device *device, const struct gemm *gemm, int64_t *workspace)
{
    const struct shape *shape;
    TRY(find_shape(cpu_of(device), gemm, &shape));
    *workspace = shape->workspace;
    return OK;
}

static bool gemm_joins(struct device *device, const struct gemm *gemm)
{
    const struct gemm_engine *engine = cpu_of(device)->engine;
    return engine->joins && engine->joins(gemm);
}

static enum status cpu_prepare_step(struct cpu *cpu, const struct command *command, struct step *step)
{
    step->kind = command->kind;
    switch (command->kind) {
    case COMMAND_LAUNCH:
        step->kernel = command->launch.kernel;
        step->rows = command->launch.rows;
        step->block = command->launch.block;
        for (int i = 0; i < OPERANDS; i++)
            step->call.data[i] = address(cpu, command->operand[i]);
        memcpy(step->call.dtype, command->launch.dtype, sizeof step->call.dtype);
        memcpy(step->call.dim, command->launch.dim, sizeof step->call.dim);
        memcpy(step->call.number, command->launch.number, sizeof step->call.number);
        cpu->device.counters.kernels++;
        return OK;
    case COMMAND_GEMM: {
        const struct shape *shape;
        TRY(find_shape(cpu, &command->gemm, &shape));
        step->plan = shape->plan;
        step->shape = shape - cpu->shapes;
        for (int i = 0; i < GEMM_OPERANDS; i++)
            step->address[i] = address(cpu, command->operand[i]);
        return OK;
    }
    case COMMAND_FILL:
        step->to = address(cpu, command->operand[0]);
        step->bytes = command->bytes;
        return OK;
    case COMMAND_COLLECTIVE:
        step->collective = command->collective;
        for (int i = 0; i < COLLECTIVE_OPERANDS; i++)
            step->side[i] = address(cpu, command->operand[i]);
        return device_collective_check(&cpu->device);
    case COMMAND_WAIT: step->collective = command->collective; return device_collective_check(&cpu->device);
    case COMMAND_COPY:
    case COMMAND_ARRIVE: break; /* there is nothing to copy from */
    }
    return fail(ERR_INTERNAL, "a command of unknown kind %d", (int)command->kind);
}

static enum status prepare(struct device *device, const struct command *commands, int64_t count, struct prepared **out)
{
    struct prepared *p = memory_alloc((int64_t)sizeof *p + count * (int64_t)sizeof p->step[0]);
    if (!p)
        return ERR_MEMORY;
    p->count = count;
    for (int64_t i = 0; i < count; i++) {
        enum status status = cpu_prepare_step(cpu_of(device), &commands[i], &p->step[i]);
        if (status != OK) {
            memory_free(p);
            return status;
        }
    }
    device->counters.prepared++;
    *out = p;
    return OK;
}

static void run_rows(void *context, int64_t begin, int64_t end)
{
    const struct step *step = context;
    step->kernel->host(&step->call, begin, end);
}

double cpu_gemm_seconds(const struct device *device)
{
    return device->class == &device_cpu ? ((const struct cpu *)device)->gemm_seconds : 0;
}

static enum status run_gemm(struct cpu *cpu, const struct step *step)
{
    struct shape *shape = &cpu->shapes[step->shape];
    double start = clock_seconds();
    TRY(cpu->engine->run(step->plan, step->address));
    double seconds = clock_seconds() - start;
    if (shape->fastest <= 0 || seconds < shape->fastest)
        shape->fastest = seconds;
    cpu->gemm_seconds += shape->fastest;
    return OK;
}

static enum status run(struct device *device, struct prepared *prepared)
{
    struct cpu *cpu = cpu_of(device);
    for (int64_t i = 0; i < prepared->count; i++) {
        struct step *step = &prepared->step[i];
        heartbeat_made();
        switch (step->kind) {
        case COMMAND_LAUNCH: parallel_for(step->rows, step->block, run_rows, step); break;
        case COMMAND_GEMM: TRY(run_gemm(cpu, step)); break;
        case COMMAND_FILL: memset(step->to, 0, (size_t)step->bytes); break;
        case COMMAND_COLLECTIVE:
            TRY(group_collective(device->group, &step->collective, step->side[COLLECTIVE_FROM], step->side[COLLECTIVE_TO], NULL));
            break;
        case COMMAND_WAIT: TRY(group_wait(device->group, step->collective.ticket)); break;
        case COMMAND_COPY:
        case COMMAND_ARRIVE: break; /* never prepared */
        }
        TRY(group_progress(device->group));
    }
    device->counters.launches += prepared->count;
    device->counters.runs++;
    return OK;
}

static void discard(struct device *device, struct prepared *prepared)
{
    (void)device;
    memory_free(prepared);
}

const struct device_class device_cpu = {
    .name = "cpu",
    .overlaps = true,
    .open = open_with_onednn,
    .close = close_cpu,
    .info = info,
    .costs = costs,
    .alloc = alloc,
    .map = map,
    .release = release,
    .sharing = &sharing,
    .write = write_elements,
    .read = read_bytes,
    .later_open = later_open,
    .read_later = read_later,
    .read_wait = read_wait,
    .gemm_query = gemm_query,
    .gemm_joins = gemm_joins,
    .prepare = prepare,
    .run = run,
    .discard = discard,
};
