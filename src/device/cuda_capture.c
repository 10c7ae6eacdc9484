/* A prepared list as a CUDA graph: what the host would tell the device command by command becomes one launch.
 *
 * A capture may fail in any of its calls without harm: the list then runs command by command, with the same results, and the
 * reason is logged once. A fault of a kernel, which any call may report, is another matter: nothing runs after it.
 */
#include <stdlib.h>

#include "base/log.h"
#include "device/cuda.h"

/* A single command gains nothing. */
bool cuda_capture_wanted(const struct cuda *c, int64_t commands)
{
    const char *otherwise = getenv("CUDA_GRAPH");
    if (c->device.options.cuda_graph != DEVICE_GRAPH_AUTO)
        return c->device.options.cuda_graph == DEVICE_GRAPH_ON;
    if (otherwise && *otherwise)
        return strcmp(otherwise, "0") != 0;
    return commands > 1;
}

static enum status cuda_capture_give_up(struct cuda *c, struct prepared *p, enum status status)
{
    cuda_graph_discard(p);
    if (cuda_has_faulted())
        return status;
    if (!c->capture_failed)
        log_message(LOG_WARNING, "no CUDA graph (%s): commands are launched one by one, with the same results", status_message());
    c->capture_failed = true;
    return OK;
}

static enum status record(struct cuda *c, const struct prepared *p, CUgraph *graph)
{
    TRY(cuda_check(cu.cuStreamBeginCapture(c->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "beginning to capture"));
    enum status status = cuda_issue(c, p);
    if (status != OK) {
        cu.cuStreamEndCapture(c->stream, graph); /* the stream works again; the message is still that of the command */
        return status;
    }
    TRY(cuda_check(cu.cuStreamEndCapture(c->stream, graph), "ending the capture"));
    return *graph ? OK : fail(ERR_DEVICE, "CUDA: the capture is empty");
}

/* Made ready now rather than at the first launch. */
static enum status instantiate(struct cuda *c, struct prepared *p, CUgraph graph)
{
    CUgraphExec executable = NULL;
    TRY(cuda_check(cu.cuGraphInstantiateWithFlags(&executable, graph, 0), "instantiating the graph"));
    p->graph = executable;
    c->busy = true;
    TRY(cuda_check(cu.cuGraphUpload(p->graph, c->stream), "uploading the graph"));
    return cuda_wait(c);
}

static enum status cuda_capture_make(struct cuda *c, struct prepared *p)
{
    CUgraph graph = NULL;
    struct group_counters group = c->device.group ? c->device.group->counters : (struct group_counters){0};
    enum status status = cuda_exclusive_begin(c);
    struct device_counters before = c->device.counters;
    c->capturing = status == OK;
    if (status == OK)
        status = record(c, p, &graph);
    c->capturing = false;
    cuda_exclusive_end();
    c->device.counters = before; /* nothing has run */
    if (c->device.group)
        c->device.group->counters = group;
    c->busy = false;
    if (status == OK)
        status = instantiate(c, p, graph);
    if (graph)
        cu.cuGraphDestroy(graph);
    return status;
}

/* Whether all that a list lets run on side streams is waited for in it. Of a single command, which is timed, it may not be. */
static bool joined(const struct prepared *p)
{
    const struct cuda_step *first = p->step;
    bool alone = p->count == 1 && (first->kind == COMMAND_WAIT || first->kind == COMMAND_ARRIVE ||
                                   (first->kind == COMMAND_COLLECTIVE && first->collective.ticket));
    return !p->open_lanes && !alone;
}

enum status cuda_capture(struct cuda *c, struct prepared *p)
{
    struct group *group = p->collectives ? c->device.group : NULL;
    double wanted = cuda_capture_wanted(c, p->count) && !c->capture_failed && joined(p);
    TRY(group_sum(group, &wanted, 1));
    if ((int)wanted < group_size(group))
        return OK;
    TRY(cuda_wait(c));
    enum status status = cuda_capture_make(c, p);
    enum status lost = status != OK && group ? group->class->check(group) : OK;
    if (lost != OK)
        return cuda_group_lost(c, lost);
    status = group_agree(group, status);
    return status == OK || status == ERR_RANK ? status : cuda_capture_give_up(c, p, status);
}

enum status cuda_capture_launch(struct cuda *c, struct prepared *p, bool *launched)
{
    *launched = false;
    if (!p->graph || c->device.one_by_one)
        return OK;
    enum status status = cuda_check(cu.cuGraphLaunch(p->graph, c->stream), "launching the graph");
    if (status != OK) /* with collectives, the other ranks have launched theirs */
        return p->collectives ? status : cuda_capture_give_up(c, p, status);
    c->busy = *launched = true;
    c->device.counters.graph_launches++;
    cuda_streamed_count(c, p);
    for (int64_t i = 0; i < p->count && p->collectives; i++)
        if (p->step[i].kind == COMMAND_COLLECTIVE)
            group_count(c->device.group, &p->step[i].collective);
    return OK;
}
