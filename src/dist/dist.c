/* One group for the process, until it ends. */
#include "dist/dist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/process.h"
#include "base/processors.h"
#include "device/prefer.h"
#include "dist/launcher.h"
#include "dist/mpi.h"
#include "dist/nccl.h"
#include "dist/tcp.h"

static struct group *joined;
static void (*finish)(struct group *group);

static void dist_leave(void)
{
    if (joined)
        finish(joined);
    joined = NULL;
}

enum status dist_join(struct group **out, int64_t patience)
{
    struct launcher launcher;
    *out = joined;
    if (joined)
        return joined->class->check(joined);
    TRY(launcher_read(&launcher));
    if (launcher.kind == LAUNCHER_ALONE) {
        if (launcher_strangers() > 1)
            log_message(
                LOG_WARNING,
                "srun started %d tasks, and tells none of them of the others: each trains alone. To train together, start "
                "them by srun --mpi=pmix, or --mpi=pmi2 (docs/clusters.md)",
                launcher_strangers());
        return OK;
    }
    bool variables = launcher.kind == LAUNCHER_VARIABLES;
    TRY(variables ? tcp_open(&joined, &launcher) : mpi_open(&joined, &launcher, patience));
    finish = variables ? tcp_finish : mpi_finish;
    joined->patience = patience;
    atexit(dist_leave);
    device_prefer((int)max(joined->local_rank, 0));
    *out = joined;
    return OK;
}

/* Where a rank computes. */
struct seat {
    char host[PROCESS_HOST];
    uint64_t processors;
};

enum status dist_seat(struct group *group, int *threads, int *neighbours)
{
    struct seat mine = {.processors = processors_set()}, *all;
    int sharing = 0;
    *threads = 0;
    *neighbours = 1;
    if (!group)
        return OK;
    all = memory_alloc(group->size * (int64_t)sizeof *all);
    if (!all)
        return ERR_MEMORY;
    process_host(mine.host);
    enum status status = group_share(group, &mine, all, (int64_t)sizeof mine);
    *neighbours = 0;
    for (int i = 0; i < group->size && status == OK; i++) {
        GROUP_TEXT(all[i].host);
        bool near = !strcmp(all[i].host, mine.host);
        *neighbours += near;
        sharing += near && all[i].processors == mine.processors;
    }
    memory_free(all);
    *threads = sharing ? (int)max(processors_usable() / sharing, 1) : 0;
    return status;
}

/* What `--device auto` finds may differ from machine to machine. Ranks on different kinds of device would send sums in different
 * pieces. */
static enum status check_devices(const struct device *device, struct group *group)
{
    char first[32] = "";
    snprintf(first, sizeof first, "%s", device->class->name);
    TRY(group_tell(group, first, sizeof first));
    GROUP_TEXT(first);
    double others = strcmp(first, device->class->name) != 0;
    TRY(group_sum(group, &others, 1));
    if (others > 0)
        return fail(ERR_DEVICE,
                    "%d of %d ranks do not compute on %s, as rank 0 does: all must compute on the same kind of device. `hone "
                    "devices` says what a machine has, and --device cpu is for all of them",
                    (int)others, group->size, first);
    return device->class != &device_cuda && finish == tcp_finish ? tcp_refuse() : OK;
}

/* Whether ranks wait for each collective at once. Those that do have others between them, so all must. */
static enum status read_overlap(struct group *group, bool *waits)
{
    const char *overlap = getenv("HONE_OVERLAP");
    *waits = overlap && !strcmp(overlap, "off");
    double ranks = *waits;
    TRY(group_sum(group, &ranks, 1));
    if (ranks > 0 && ranks < group->size)
        return fail(ERR_ARGUMENT, "HONE_OVERLAP is off on %d of %d ranks: set it on all of them, or on none", (int)ranks,
                    group->size);
    return OK;
}

enum status dist_attach(struct device *device, struct group *group)
{
    bool waits = false;
    if (group)
        TRY(check_devices(device, group));
    if (group)
        TRY(read_overlap(group, &waits));
    device->group = group;
    if (group && device->class == &device_cuda)
        TRY(nccl_open(&device->group, group, device));
    if (group)
        device->group->waits = waits;
    return OK;
}
