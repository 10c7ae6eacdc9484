/* Work that a stream or a graph runs: kernels, copies, memsets and calls of libraries. Everything is checked when it runs,
 * because memory may have been freed, and pinned sources changed, since it was enqueued. */
#include "queue.h"
#include "shadow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t op_checksum(const void *bytes, uint64_t size)
{
    const uint8_t *p = bytes;
    uint64_t h = 1469598103934665603ull;
    for (; size >= 8; size -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * 1099511628211ull;
        h ^= h >> 29;
    }
    for (; size; size--)
        h = (h ^ *p++) * 1099511628211ull;
    return h;
}

void op_count(const struct op *op)
{
    switch (op->kind) {
    case OP_LAUNCH: state_count("launches", 1); break;
    case OP_H2D:
        state_count("copies_h2d", 1);
        state_count("bytes_h2d", (long long)op->bytes);
        break;
    case OP_D2H:
        state_count("copies_d2h", 1);
        state_count("bytes_d2h", (long long)op->bytes);
        break;
    case OP_D2D: state_count("copies_d2d", 1); break;
    case OP_MEMSET: state_count("memsets", 1); break;
    case OP_CALL: state_count(op->what, 1); break;
    case OP_GRAPH:
        state_count("graph_launches", 1);
        for (size_t i = 0; i < op->list->count; i++)
            op_count(op->list->ops[i]);
        break;
    default: break;
    }
}

static CUresult run_launch(const struct op *op)
{
    char message[640];
    int64_t lanes = 0;
    CUmodule module = op->function->module;
    if (!module->object.live)
        return state_report(CUDA_ERROR_INVALID_HANDLE, "kernel %s runs after its module was unloaded",
                            op->function->kernel->name);
    struct launch launch = {
        .ptx = module->ptx, .kernel = op->function->kernel, .dynamic_bytes = op->dynamic_bytes, .params = op->data};
    memcpy(launch.grid, op->grid, sizeof launch.grid);
    memcpy(launch.size, op->size, sizeof launch.size);
    CUresult result = launch_run(&launch, message, sizeof message, &lanes);
    state_add_instructions(lanes);
    return result ? state_report(result, "%s", message) : CUDA_SUCCESS;
}

static uint8_t *device_bytes(uint64_t address, uint64_t bytes, const char *what)
{
    char why[256];
    uint8_t *p = memory_bytes(address, bytes, why, sizeof why);
    if (!p)
        state_report(CUDA_ERROR_ILLEGAL_ADDRESS, "%s: %s", what, why);
    return p;
}

static CUresult run_h2d(const struct op *op, uint64_t checksum)
{
    uint8_t *to = device_bytes(op->to, op->bytes, "a copy to the device");
    if (!to)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    shadow_write(op->to, op->bytes);
    if (op->data) {
        memcpy(to, op->data, op->bytes);
        return CUDA_SUCCESS;
    }
    if (op->pinned && !op->pinned->live)
        return state_report(CUDA_ERROR_ILLEGAL_ADDRESS, "a copy to the device: its pinned source was freed before it ran");
    if (op->pinned && !op->pinned->returned && op_checksum(op->host, op->bytes) != checksum)
        return state_report(CUDA_ERROR_ILLEGAL_STATE,
                            "a copy of %llu bytes to the device: its pinned source was overwritten in flight",
                            (unsigned long long)op->bytes);
    memcpy(to, op->host, op->bytes);
    return CUDA_SUCCESS;
}

static CUresult run_d2h(const struct op *op)
{
    const uint8_t *from = device_bytes(op->from, op->bytes, "a copy from the device");
    if (!from)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (op->pinned && !op->pinned->live)
        return state_report(CUDA_ERROR_ILLEGAL_ADDRESS, "a copy from the device: its pinned destination was freed before it ran");
    memcpy(op->host, from, op->bytes);
    queue_rewritten(op->host, (uint8_t *)op->host + op->bytes);
    return CUDA_SUCCESS;
}

static CUresult run_memset(const struct op *op)
{
    uint8_t *to = device_bytes(op->to, op->bytes, "a memset");
    if (!to)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    shadow_write(op->to, op->bytes);
    for (uint64_t i = 0; i < op->bytes; i += op->element)
        memcpy(to + i, &op->value, op->element);
    return CUDA_SUCCESS;
}

static CUresult run_call(struct op *op, bool patient)
{
    int state = op->poll ? op->poll(op->data) : POLL_READY;
    if (state == POLL_NEVER && patient)
        return state_report(CUDA_ERROR_LAUNCH_TIMEOUT, "%s: the host waits for work that never ends", op->what);
    if (state != POLL_READY)
        return CUDA_ERROR_NOT_READY;
    long long faults = cudasim_count("faults");
    op->run(op->data);
    return cudasim_count("faults") > faults ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

static CUresult run_one(struct op *op, uint64_t checksum, bool patient)
{
    switch (op->kind) {
    case OP_LAUNCH: return run_launch(op);
    case OP_H2D: return run_h2d(op, checksum);
    case OP_D2H: return run_d2h(op);
    case OP_MEMSET: return run_memset(op);
    case OP_D2D: {
        const uint8_t *from = device_bytes(op->from, op->bytes, "a copy on the device, from");
        uint8_t *to = from ? device_bytes(op->to, op->bytes, "a copy on the device, to") : NULL;
        if (!to)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        memmove(to, from, op->bytes);
        if (shadow_unwritten(op->from, op->bytes) < 0)
            shadow_write(op->to, op->bytes);
        return CUDA_SUCCESS;
    }
    case OP_RECORD: {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        op->event->time = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
        return CUDA_SUCCESS;
    }
    case OP_CALL: return run_call(op, patient);
    default: return CUDA_SUCCESS;
    }
}

CUresult op_run(struct op *op, bool patient)
{
    if (op->kind != OP_GRAPH)
        return run_one(op, op->checksum, patient);
    for (; op->at < op->list->count; op->at++) {
        CUresult result = run_one(op->list->ops[op->at], op->checksums[op->at], patient);
        if (result == CUDA_ERROR_NOT_READY)
            return result;
        if (result) {
            char replay[900];
            snprintf(replay, sizeof replay, "%s (node %zu of %zu of a replayed graph)", cudasim_last_error(), op->at,
                     op->list->count);
            return state_report(result, "%s", replay);
        }
    }
    return CUDA_SUCCESS;
}

CUresult cudasim_enqueue(CUstream stream, void (*run)(const void *args), const void *args, size_t size, const char *what)
{
    return cudasim_enqueue_polled(stream, NULL, run, NULL, args, size, what);
}

CUresult cudasim_enqueue_polled(CUstream stream, int (*poll)(const void *args), void (*run)(const void *args),
                                void (*drop)(const void *args), const void *args, size_t size, const char *what)
{
    ENTER(what);
    CUstream s = stream_of(stream);
    if (!s)
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_HANDLE, "%s on a stream that does not exist", what));
    struct op *op = op_new(OP_CALL);
    op->poll = poll;
    op->drop = drop;
    op->run = run;
    op->what = what;
    op->data = malloc(size);
    if (!op->data)
        abort();
    memcpy(op->data, args, size);
    op->data_size = size;
    LEAVE_WITH(queue_add(s, op));
}

void *cudasim_memory(CUdeviceptr pointer, size_t bytes, const char *what)
{
    return device_bytes(pointer, bytes, what);
}

void *cudasim_reads(CUdeviceptr pointer, size_t bytes, const char *what)
{
    void *memory = device_bytes(pointer, bytes, what);
    int64_t hole = memory ? shadow_unwritten(pointer, bytes) : -1;
    if (hole < 0)
        return memory;
    state_report(CUDA_ERROR_LAUNCH_FAILED, "%s: a read of byte %lld of %zu, which was never written", what, (long long)hole,
                 bytes);
    return NULL;
}

void *cudasim_writes(CUdeviceptr pointer, size_t bytes, const char *what)
{
    void *memory = device_bytes(pointer, bytes, what);
    if (memory)
        shadow_write(pointer, bytes);
    return memory;
}
