/* Waiting for the card, which all other files of the device do: for an event, for the stream, for the whole context.
 *
 * A collective that another rank never comes to never ends, and no call of the driver that waits for it returns. So in a group
 * the host does not wait by the driver: it asks whether the stream is done and whether all ranks are there, until either says no
 * more.
 */
#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/mutex.h"
#include "device/cuda.h"

/* Asked without a pause at first, because most waits are short. */
enum { EAGER_QUERIES = 200 };
static const double PAUSE = 50e-6, CHECK_EVERY = 0.01;
static const double DRAIN = 2; /* seconds in which an aborted collective ends, if ever */

void cuda_graph_discard(struct prepared *p)
{
    if (p->graph)
        cu.cuGraphExecDestroy(p->graph);
    p->graph = NULL;
}

/* NCCL waits for graphs that have its collectives before it ends any that runs. One that runs is freed when it has ended. */
enum status cuda_group_lost(struct cuda *c, enum status status)
{
    c->broken = true;
    for (struct prepared *p = c->lists; p; p = p->next)
        cuda_graph_discard(p);
    c->device.group->class->abandon(c->device.group);
    return status;
}

static CUresult query(struct cuda *c, CUevent event)
{
    return event ? cu.cuEventQuery(event) : cu.cuStreamQuery(c->stream);
}

/* The card may be waiting for other ranks, and nobody can say whether it is. */
static enum status wait_in_group(struct cuda *c, struct group *group, CUevent event, const char *what)
{
    CUresult code = query(c, event);
    double checked = clock_seconds();
    for (int64_t i = 0; code == CUDA_ERROR_NOT_READY; i++) {
        if (i >= EAGER_QUERIES)
            clock_wait(PAUSE);
        if (clock_seconds() - checked >= CHECK_EVERY) {
            enum status status = group->class->check(group);
            if (status != OK)
                return cuda_group_lost(c, status);
            checked = clock_seconds();
        }
        code = query(c, event);
    }
    return cuda_check(code, what);
}

enum status cuda_wait_for(struct cuda *c, CUevent event, const char *what)
{
    struct group *group = c->device.group;
    if (!group || !group->class->device_memory)
        return cuda_check(event ? cu.cuEventSynchronize(event) : cu.cuStreamSynchronize(c->stream), what);
    if (c->broken)
        return group->class->check(group);
    heartbeat_wait();
    enum status status = wait_in_group(c, group, event, what);
    heartbeat_go_on();
    return status;
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

bool cuda_settle(struct cuda *c)
{
    if (!c->broken)
        cuda_wait(c);
    for (double start = clock_seconds(); c->broken && cu.cuStreamQuery(c->stream) == CUDA_ERROR_NOT_READY;
         clock_wait(CHECK_EVERY))
        if (clock_seconds() - start > DRAIN)
            return false;
    if (c->streamed.stream) /* a copy that nothing waits for, because its list was not issued to the end */
        cu.cuStreamSynchronize(c->streamed.stream);
    return true;
}

static struct mutex exclusive = MUTEX_FREE;

enum status cuda_exclusive_begin(struct cuda *c)
{
    mutex_take(&exclusive);
    TRY(cuda_wait(c));
    return cuda_check(cu.cuCtxSynchronize(), "waiting for the device");
}

void cuda_exclusive_end(void)
{
    mutex_give(&exclusive);
}
