/* NCCL as a group.
 *
 * Its communicator does not block: what takes longer is in progress (ncclInProgress), and the host asks until it is done. So a
 * rank that never comes is noticed, by NCCL or by the launcher's group, instead of waited for. A communicator that has failed is
 * used no more, and aborted when the device says so: only then do kernels that wait for the lost rank end, and the stream can be
 * used to end the run. ncclCommAbort waits for every graph that has a collective of the communicator: those are freed before it.
 * It may wait for the ranks of this machine to abort too: they are told before it.
 */
#include "dist/nccl.h"

#include <stdio.h>

#include "base/clock.h"
#include "dist/nccl_api.h"

struct nccl {
    struct group group;
    struct group *host;
    ncclComm_t comm;     /* NULL: none yet, or aborted */
    enum status failure; /* after which only the abort is left; OK: none */
    char why[512];       /* of it */
};

static const double LIMIT = 120; /* seconds for what is in progress: connecting ranks, at the first collective of a size too */
static const double PAUSE = 100e-6;

static struct nccl *nccl_of(struct group *group)
{
    return (struct nccl *)group;
}

static enum status nccl_failed(struct nccl *n, enum status status)
{
    n->failure = status;
    return fail(status, "%s", n->why);
}

/* NCCL's last error is that of the process: a communicator need not be there. */
static enum status nccl_broken(struct nccl *n, enum status status, const char *what, ncclResult_t result)
{
    const char *last = nc.ncclGetLastError(n->comm);
    snprintf(n->why, sizeof n->why, "NCCL: %s: %s%s%s", what, nc.ncclGetErrorString(result), last && *last ? ": " : "",
             last ? last : "");
    return nccl_failed(n, status);
}

static void nccl_end(struct nccl *n)
{
    if (n->comm)
        nc.ncclCommAbort(n->comm);
    n->comm = NULL;
}

static void abandon(struct group *group)
{
    struct nccl *n = nccl_of(group);
    if (n->failure == OK) {
        snprintf(n->why, sizeof n->why, "NCCL: the communicator was aborted");
        n->failure = ERR_RANK;
    }
    n->host->class->close(n->host, n->failure, n->why);
    nccl_end(n);
}

/* A failure that the launcher's group tells has the better name for the rank. */
static enum status nccl_check_ranks(struct nccl *n, const char *what, ncclResult_t *state)
{
    if (n->failure != OK)
        return nccl_failed(n, n->failure);
    enum status status = n->host->class->check(n->host);
    if (status != OK) {
        snprintf(n->why, sizeof n->why, "%s", status_message());
        return nccl_failed(n, status);
    }
    ncclResult_t result = nc.ncclCommGetAsyncError(n->comm, state);
    if (result != ncclSuccess || (*state != ncclSuccess && *state != ncclInProgress))
        return nccl_broken(n, ERR_RANK, what, result != ncclSuccess ? result : *state);
    return OK;
}

static enum status check(struct group *group)
{
    ncclResult_t state;
    return nccl_check_ranks(nccl_of(group), "the ranks computed together", &state);
}

/* Until what a call began is done. */
static enum status nccl_settle(struct nccl *n, const char *what, ncclResult_t result)
{
    for (double start = clock_seconds(); result == ncclInProgress; clock_wait(PAUSE)) {
        TRY(nccl_check_ranks(n, what, &result));
        if (result == ncclInProgress && clock_seconds() - start > LIMIT) {
            snprintf(n->why, sizeof n->why, "NCCL: %s: not done after %g s", what, LIMIT);
            return nccl_failed(n, ERR_RANK);
        }
    }
    return result == ncclSuccess ? OK : nccl_broken(n, ERR_RANK, what, result);
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
    if (n->failure != OK)
        return nccl_failed(n, n->failure);
    switch (c->kind) {
    case COLLECTIVE_ALL_REDUCE: result = nc.ncclAllReduce(from, to, count, type, ncclSum, n->comm, stream); break;
    case COLLECTIVE_ALL_GATHER: result = nc.ncclAllGather(from, to, part, type, n->comm, stream); break;
    case COLLECTIVE_REDUCE_SCATTER: result = nc.ncclReduceScatter(from, to, part, type, ncclSum, n->comm, stream); break;
    case COLLECTIVE_BROADCAST: result = nc.ncclBroadcast(from, to, count, type, c->root, n->comm, stream); break;
    case COLLECTIVE_REDUCE: result = nc.ncclReduce(from, to, count, type, ncclSum, c->root, n->comm, stream); break;
    case COLLECTIVES: return fail(ERR_INTERNAL, "a collective of unknown kind");
    }
    return nccl_settle(n, collective_name(c->kind), result);
}

static enum status share(struct group *group, const void *mine, void *all, int64_t bytes)
{
    return group_share(nccl_of(group)->host, mine, all, bytes);
}

/* Graphs with collectives in them must be gone: NCCL waits for that. After a failure of the device the communicator is left to
 * the end of the process. The others are told of a failure by the launcher's group. */
static void close_nccl(struct group *group, enum status status, const char *message)
{
    struct nccl *n = nccl_of(group);
    (void)message;
    if (status == OK && n->comm) {
        if (n->failure == OK && nccl_settle(n, "leaving", nc.ncclCommFinalize(n->comm)) == OK)
            nc.ncclCommDestroy(n->comm);
        else
            abandon(group);
    }
    memory_free(n);
}

static const struct group_class group_nccl = {
    .name = "NCCL",
    .device_memory = true,
    .collective = collective,
    .share = share,
    .check = check,
    .abandon = abandon,
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
    return result == ncclSuccess ? OK : nccl_broken(n, ERR_DEVICE, "making an id", result);
}

static enum status nccl_join(struct nccl *n, const struct invitation *invitation)
{
    ncclConfig_t config = {.size = sizeof config, .magic = NCCL_MAGIC, .version = NCCL_VERSION_MIN, .blocking = 0};
    ncclResult_t result = nc.ncclCommInitRankConfig(&n->comm, n->group.size, invitation->id, n->group.rank, &config);
    return nccl_settle(n, "connecting the ranks", result);
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
    return group_agree(n->host, nccl_join(n, &theirs));
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
    nccl_end(n); /* all ranks have failed */
    memory_free(n);
    return status;
}
