/* NCCL as a group.
 *
 * Its communicator does not block: what takes longer is under way (ncclInProgress), and the host asks until it is done. So a rank
 * that never comes is noticed, by NCCL or by the launcher's group, instead of waited for. A communicator that has failed is
 * aborted at once: only then do kernels that wait for the lost rank end, and the stream can be used to end the run.
 */
#include "dist/nccl.h"

#include <stdio.h>

#include "base/clock.h"
#include "dist/nccl_api.h"

struct nccl {
    struct group group;
    struct group *host;
    ncclComm_t comm; /* NULL: none yet, or aborted */
    char why[512];   /* of the failure; empty: none */
};

static const double LIMIT = 120; /* seconds for what is under way: connecting ranks, at the first collective of a size too */
static const double PAUSE = 100e-6;

static struct nccl *nccl_of(struct group *group)
{
    return (struct nccl *)group;
}

static void give_up(struct nccl *n)
{
    if (n->comm)
        nc.ncclCommAbort(n->comm);
    n->comm = NULL;
}

/* Keeps the reason, aborts, and returns ERR_RANK. */
static enum status broken(struct nccl *n, const char *what, ncclResult_t result)
{
    const char *last = n->comm ? nc.ncclGetLastError(n->comm) : NULL;
    snprintf(n->why, sizeof n->why, "NCCL: %s: %s%s%s", what, nc.ncclGetErrorString(result), last && *last ? ": " : "",
             last ? last : "");
    give_up(n);
    return fail(ERR_RANK, "%s", n->why);
}

/* A failure that the launcher's group tells has the better name for the rank. */
static enum status check(struct group *group)
{
    struct nccl *n = nccl_of(group);
    ncclResult_t state = ncclSuccess;
    enum status status = n->host->class->check(n->host);
    if (status != OK) {
        if (!*n->why)
            snprintf(n->why, sizeof n->why, "%s", status_message());
        give_up(n);
        return status;
    }
    if (!n->comm)
        return fail(ERR_RANK, "%s", *n->why ? n->why : "NCCL: the communicator was aborted");
    ncclResult_t result = nc.ncclCommGetAsyncError(n->comm, &state);
    if (result != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
        return broken(n, "the ranks computed together", result != ncclSuccess ? result : state);
    return OK;
}

/* Until what a call began is done. */
static enum status settle(struct nccl *n, const char *what, ncclResult_t result)
{
    for (double start = clock_seconds(); result == ncclInProgress; clock_wait(PAUSE)) {
        TRY(check(&n->group));
        ncclResult_t asked = nc.ncclCommGetAsyncError(n->comm, &result);
        result = asked == ncclSuccess ? result : asked;
        if (result == ncclInProgress && clock_seconds() - start > LIMIT) {
            snprintf(n->why, sizeof n->why, "NCCL: %s: not done after %g s", what, LIMIT);
            give_up(n);
            return fail(ERR_RANK, "%s", n->why);
        }
    }
    return result == ncclSuccess ? OK : broken(n, what, result);
}

static const ncclDataType_t TYPES[DTYPE_COUNT] = {
    [DTYPE_F32] = ncclFloat32, [DTYPE_BF16] = ncclBfloat16, [DTYPE_F16] = ncclFloat16,
    [DTYPE_F64] = ncclFloat64, [DTYPE_I32] = ncclInt32,
};

/* NCCL's counts are of the part, where there is one. */
static enum status collective(struct group *group, const struct collective *c, const void *from, void *to, void *stream)
{
    struct nccl *n = nccl_of(group);
    size_t count = (size_t)c->count, part = count / (size_t)group->size;
    ncclDataType_t type = TYPES[c->dtype];
    ncclResult_t result = ncclSuccess;
    if (!n->comm)
        return fail(ERR_RANK, "%s", n->why);
    switch (c->kind) {
    case COLLECTIVE_ALL_REDUCE: result = nc.ncclAllReduce(from, to, count, type, ncclSum, n->comm, stream); break;
    case COLLECTIVE_ALL_GATHER: result = nc.ncclAllGather(from, to, part, type, n->comm, stream); break;
    case COLLECTIVE_REDUCE_SCATTER: result = nc.ncclReduceScatter(from, to, part, type, ncclSum, n->comm, stream); break;
    case COLLECTIVE_BROADCAST: result = nc.ncclBroadcast(from, to, count, type, c->root, n->comm, stream); break;
    case COLLECTIVES: return fail(ERR_INTERNAL, "a collective of unknown kind");
    }
    return settle(n, collective_name(c->kind), result);
}

static enum status share(struct group *group, const void *mine, void *all, int64_t bytes)
{
    return group_share(nccl_of(group)->host, mine, all, bytes);
}

/* Graphs with collectives in them must be gone: NCCL waits for that. The others are told of a failure by the launcher's group. */
static void close_nccl(struct group *group, enum status status, const char *message)
{
    struct nccl *n = nccl_of(group);
    (void)message;
    if (status != OK)
        give_up(n);
    if (n->comm && settle(n, "leaving", nc.ncclCommFinalize(n->comm)) == OK)
        nc.ncclCommDestroy(n->comm);
    memory_free(n);
}

static const struct group_class group_nccl = {
    .name = "NCCL",
    .device_memory = true,
    .collective = collective,
    .share = share,
    .check = check,
    .close = close_nccl,
};

/* --- opening ------------------------------------------------------------------------------------------------------------ */

/* Rank 0's id and version, to all. */
struct invitation {
    ncclUniqueId id;
    int version;
};

static enum status invite(struct nccl *n, struct invitation *invitation)
{
    TRY(nccl_load(&invitation->version));
    if (n->group.rank)
        return OK;
    ncclResult_t result = nc.ncclGetUniqueId(&invitation->id);
    return result == ncclSuccess ? OK : fail(ERR_DEVICE, "NCCL: making an id: %s", nc.ncclGetErrorString(result));
}

static enum status join(struct nccl *n, const struct invitation *invitation)
{
    ncclConfig_t config = {.size = sizeof config, .magic = NCCL_MAGIC, .version = NCCL_VERSION_MIN, .blocking = 0};
    ncclResult_t result = nc.ncclCommInitRankConfig(&n->comm, n->group.size, invitation->id, n->group.rank, &config);
    return settle(n, "connecting the ranks", result);
}

static enum status open_nccl(struct nccl *n, struct device *device)
{
    struct device_info info;
    struct invitation mine = {0}, theirs;
    if (device->class != &device_cuda)
        return group_agree(n->host, fail(ERR_INTERNAL, "NCCL on device %s", device->class->name));
    TRY(group_agree(n->host, invite(n, &mine)));
    theirs = mine;
    TRY(group_tell(n->host, &theirs, (int64_t)sizeof theirs));
    enum status status = OK;
    if (theirs.version != mine.version)
        status = fail(ERR_DEVICE, "NCCL is of version %d here and of %d on rank 0: install the same on all machines",
                      mine.version, theirs.version);
    TRY(group_agree(n->host, status));
    device_info(device, &info); /* makes its context this thread's */
    return group_agree(n->host, join(n, &theirs));
}

enum status nccl_open(struct group **out, struct group *host, struct device *device)
{
    struct nccl *n = memory_alloc(sizeof *n);
    *out = NULL;
    enum status status = group_agree(host, n ? OK : ERR_MEMORY);
    if (status != OK) {
        memory_free(n);
        return status;
    }
    n->group = (struct group){.class = &group_nccl, .rank = host->rank, .size = host->size, .local_rank = host->local_rank};
    n->host = host;
    status = open_nccl(n, device);
    if (status == OK) {
        *out = &n->group;
        return OK;
    }
    give_up(n);
    memory_free(n);
    return status;
}
