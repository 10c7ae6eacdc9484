/* The driver's launches and graphs. A launch copies its arguments when it is enqueued; a graph keeps them, with every address, as
 * they were when it was captured. */
#include "queue.h"

#include <stdlib.h>
#include <string.h>

/* Why this launch is not possible, or null. */
static const char *launch_refused(const struct kernel *k, const uint32_t *grid, const uint32_t *size, uint32_t shared)
{
    uint64_t threads = (uint64_t)size[0] * size[1] * size[2];
    int max_shared;
    cuDeviceGetAttribute(&max_shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0);
    if (!grid[0] || !grid[1] || !grid[2] || !threads)
        return "an empty grid or block";
    if (grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535)
        return "a grid larger than 2147483647 x 65535 x 65535";
    if (size[0] > 1024 || size[1] > 1024 || size[2] > 64 || threads > LANES_MAX)
        return "a block of more than 1024 threads";
    if (k->max_threads && threads > k->max_threads)
        return "more threads than the kernel's launch bounds";
    if (shared && !k->dynamic_granted && shared + k->shared_bytes > 49152)
        return "more than 48 KB of shared memory without CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES";
    if (k->dynamic_granted && shared > (uint32_t)k->dynamic_granted)
        return "more dynamic shared memory than was granted by cuFuncSetAttribute";
    if (shared + k->shared_bytes > (uint32_t)max_shared)
        return "more shared memory than the device has";
    return NULL;
}

/* Arguments by an array of pointers, or by one buffer whose size must fit. */
static CUresult arguments(const struct kernel *k, struct op *op, void **params, void **extra)
{
    op->data = calloc(1, k->param_bytes + 8u);
    op->data_size = k->param_bytes;
    if (!op->data)
        abort();
    if (extra) {
        void *buffer = NULL;
        size_t size = 0;
        for (void **e = extra; *e; e += 2) {
            if (*e == (void *)1)
                buffer = e[1];
            else if (*e == (void *)2)
                size = *(size_t *)e[1];
        }
        if (params || !buffer || size < k->param_bytes || size > (k->param_bytes + 7u) / 8 * 8)
            return state_report(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernel %s: %zu bytes of arguments, the kernel has %u", k->name,
                                size, k->param_bytes);
        memcpy(op->data, buffer, k->param_bytes);
        return CUDA_SUCCESS;
    }
    for (uint32_t i = 0; i < k->param_count; i++) {
        if (!params || !params[i])
            return state_report(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernel %s: argument %u of %u is missing", k->name, i,
                                k->param_count);
        memcpy(op->data + k->params[i].offset, params[i], k->params[i].size);
    }
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **params, void **extra)
{
    ENTER("cuLaunchKernel");
    CUstream s = stream_of(stream);
    if (!function || !object_is(function->module, 'm') || !s)
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_HANDLE, "cuLaunchKernel: the %s does not exist", s ? "function" : "stream"));
    uint32_t grid[3] = {grid_x, grid_y, grid_z}, size[3] = {block_x, block_y, block_z};
    const char *refused = launch_refused(function->kernel, grid, size, shared);
    if (refused)
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernel %s: %s", function->kernel->name, refused));
    uint64_t registers = (function->kernel->registers + 7) / 8 * 8, warps = ((uint64_t)block_x * block_y * block_z + 31) / 32;
    if (registers * 32 * warps > 65536)
        LEAVE_WITH(state_report(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "cuLaunchKernel %s: %llu warps of %llu registers a thread",
                                function->kernel->name, (unsigned long long)warps, (unsigned long long)registers));
    struct op *op = op_new(OP_LAUNCH);
    op->function = function;
    op->dynamic_bytes = shared;
    memcpy(op->grid, grid, sizeof grid);
    memcpy(op->size, size, sizeof size);
    CUresult bad = arguments(function->kernel, op, params, extra);
    if (bad) {
        op_free(op);
        LEAVE_WITH(bad);
    }
    bad = queue_add(s, op);
    if (!bad && !s->capture && state_option("CUDA_LAUNCH_BLOCKING", 0))
        bad = queue_run(s, s->last);
    LEAVE_WITH(bad);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    ENTER("cuGraphInstantiate");
    if (!object_is(graph, 'g'))
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_VALUE, "cuGraphInstantiate of a graph that does not exist"));
    *exec = object_new(sizeof **exec, 'x');
    (*exec)->list = graph->list;
    graph->list->references++;
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    if (error)
        *error = NULL;
    if (log && size)
        *log = 0;
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    ENTER("cuGraphUpload");
    LEAVE_WITH(object_is(exec, 'x') && stream_of(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    ENTER("cuGraphLaunch");
    CUstream s = stream_of(stream);
    if (!object_is(exec, 'x') || !s)
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_VALUE, "cuGraphLaunch: the %s does not exist", s ? "graph" : "stream"));
    if (s->capture)
        LEAVE_WITH(capture_forbids_stream(s, "cuGraphLaunch (a graph within a graph is not simulated)"));
    struct op *op = op_new(OP_GRAPH);
    op->list = exec->list;
    op->list->references++;
    op->checksums = calloc(op->list->count + 1, sizeof *op->checksums);
    if (!op->checksums)
        abort();
    for (size_t i = 0; i < op->list->count; i++) {
        const struct op *node = op->list->ops[i];
        if (node->kind == OP_H2D && node->pinned && node->pinned->live)
            op->checksums[i] = op_checksum(node->host, node->bytes);
    }
    LEAVE_WITH(queue_add(s, op));
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    ENTER_ALWAYS();
    if (!object_is(exec, 'x'))
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_VALUE, "cuGraphExecDestroy of what does not exist"));
    exec->object.live = false;
    list_release(exec->list);
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER_ALWAYS();
    if (!object_is(graph, 'g'))
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_VALUE, "cuGraphDestroy of what does not exist"));
    graph->object.live = false;
    list_release(graph->list);
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    ENTER("cuGraphGetNodes");
    if (!object_is(graph, 'g') || !count)
        LEAVE_WITH(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; nodes && i < *count && i < graph->list->count; i++)
        nodes[i] = (CUgraphNode)(void *)graph->list->ops[i];
    *count = graph->list->count;
    LEAVE_WITH(CUDA_SUCCESS);
}
