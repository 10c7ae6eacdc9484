/* NCCL's stand-in, between processes of one machine that each have a simulated device.
 *
 * A collective is work of its stream like any other: it runs late, can be captured and replayed, and ends only when every rank
 * has come to it. There each rank compares what all of them called: another kind, count, type, operation, root or stream, or a
 * captured call with one that is not or was captured apart, is reported by all ranks at once. The real library would hang, or mix
 * up the data.
 *
 * A communicator with blocking = 0 is as slow as the real one may be: calls say ncclInProgress, and the work is on the stream
 * only once ncclCommGetAsyncError has said ncclSuccess. */
#include "ncclsim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ncclsim_peers.h"
#include "ncclsim_reduce.h"

enum { KIND_ALL_REDUCE, KIND_REDUCE_SCATTER, KIND_ALL_GATHER, KIND_BROADCAST, KIND_REDUCE };
enum { PENDING_MAX = 1024, STREAMS_MAX = 8 };
#define MAGIC 0x4e43434cu

struct work { /* a call, as the stream gets it */
    ncclComm_t comm;
    struct ncclsim_call call;
    CUdeviceptr from, to;
    CUstream stream;
};

struct ncclComm {
    unsigned magic;
    struct ncclComm *before; /* of those that are gone */
    int blocking, joined;
    ncclResult_t state; /* what ncclCommGetAsyncError says next */
    char why[512];
    struct ncclsim_peers peers;
    uint64_t sequence; /* of the last call that ran */
    int given;         /* the next one's data is where the others find it */
    double since;      /* when the stream came to it; 0: not yet */
    CUstream stream[STREAMS_MAX];
    int streams;
    int captured;                     /* collectives that graphs have */
    int captures;                     /* that were captured so far: the number of the next is one more */
    int leaving;                      /* ncclCommFinalize was called */
    struct work pending[PENDING_MAX]; /* not on the stream yet */
    int pending_count;
};

static _Thread_local int group_depth;
static _Thread_local ncclComm_t group_comm;
static _Thread_local char last_error[512];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double limit(void)
{
    const char *text = getenv("CUDASIM_NCCL_LIMIT");
    return text ? atof(text) : 30;
}

static ncclResult_t refuse(ncclComm_t comm, ncclResult_t result, const char *message)
{
    snprintf(last_error, sizeof last_error, "%s", message);
    if (comm && comm->state == ncclSuccess && result != ncclInvalidArgument) {
        comm->state = result;
        snprintf(comm->why, sizeof comm->why, "%s", message);
    }
    cudasim_rule(message);
    return result;
}

static int live(ncclComm_t comm)
{
    return comm && comm->magic == MAGIC;
}

/* --- communicators ------------------------------------------------------------------------------------------------------ */

ncclResult_t ncclGetVersion(int *version)
{
    const char *text = getenv("CUDASIM_NCCL");
    *version = text ? atoi(text) : 22907;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    unsigned long long bits[2];
    FILE *random = fopen("/dev/urandom", "rb");
    if (!random || fread(bits, sizeof bits, 1, random) != 1)
        return ncclSystemError;
    fclose(random);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "ncclsim.%016llx%016llx", bits[0], bits[1]);
    return ncclSuccess;
}

/* Asks once whether all ranks are there. */
static void join(ncclComm_t comm)
{
    if (comm->joined || comm->state != ncclInProgress)
        return;
    if (peers_complete(&comm->peers, comm->why, sizeof comm->why)) {
        comm->joined = 1;
        comm->since = 0;
        comm->state = ncclSuccess;
    } else if (*comm->why) {
        comm->state = ncclRemoteError;
    } else if (now() - comm->since > limit()) {
        snprintf(comm->why, sizeof comm->why, "ncclCommInitRank: not all ranks have come within %g s", limit());
        comm->state = ncclSystemError;
    }
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    CUcontext context = NULL;
    *out = NULL;
    if (cuCtxGetCurrent(&context) || !context)
        return refuse(NULL, ncclUnhandledCudaError, "ncclCommInitRank: this thread has no context");
    if (cudasim_capturing(NULL))
        return refuse(NULL, ncclInvalidUsage, "ncclCommInitRank during a capture: it allocates");
    if (size < 1 || size > RANKS_MAX || rank < 0 || rank >= size || strncmp(id.internal, "ncclsim.", 8) ||
        strnlen(id.internal, sizeof id.internal) != 40)
        return refuse(NULL, ncclInvalidArgument, "ncclCommInitRank: an invalid size, rank or id");
    if (config && (config->magic != NCCL_MAGIC || config->version < 21400 || config->size < 24))
        return refuse(NULL, ncclInvalidArgument, "ncclCommInitRank: the configuration is not initialised");
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm)
        return ncclSystemError;
    comm->magic = MAGIC;
    comm->blocking = !config || config->blocking != 0;
    comm->state = ncclInProgress;
    comm->since = now();
    if (!peers_join(&comm->peers, id.internal, rank, size, comm->why, sizeof comm->why)) {
        refuse(NULL, ncclInvalidUsage, comm->why);
        free(comm);
        return ncclInvalidUsage;
    }
    *out = comm;
    while (comm->blocking && comm->state == ncclInProgress) {
        join(comm);
        usleep(100);
    }
    return comm->state;
}

static void retire(ncclComm_t comm, bool failed)
{
    peers_leave(&comm->peers, failed);
    static ncclComm_t last;
    comm->magic = 0; /* its memory stays: graphs may still name it */
    comm->before = last;
    last = comm;
}

/* What the real library waits for, in ncclCommFinalize, ncclCommDestroy and ncclCommAbort. */
static bool in_graphs(ncclComm_t comm, const char *call)
{
    char message[160];
    for (double start = now(); comm->captured && now() - start < limit();)
        usleep(1000);
    snprintf(message, sizeof message, "%s while a graph has its collectives: the real one never returns", call);
    if (comm->captured)
        refuse(comm, ncclInvalidUsage, message);
    return comm->captured;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (!live(comm))
        return ncclInvalidArgument;
    if (comm->state == ncclSuccess) {
        comm->leaving = 1;
        comm->state = ncclInProgress;
        if (comm->blocking)
            comm->state = in_graphs(comm, "ncclCommFinalize") ? ncclInvalidUsage : ncclSuccess;
    }
    return comm->state;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!live(comm))
        return ncclInvalidArgument;
    if (comm->since > 0 || comm->pending_count)
        refuse(comm, ncclInvalidUsage, "ncclCommDestroy while a collective is in flight");
    in_graphs(comm, "ncclCommDestroy");
    retire(comm, comm->state != ncclSuccess);
    return ncclSuccess;
}

/* It returns when all is freed, also on a communicator that does not block: its kernels end, and graphs that have its collectives
 * are waited for. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!live(comm))
        return ncclInvalidArgument;
    if (cudasim_capturing(NULL))
        return refuse(comm, ncclInvalidUsage, "ncclCommAbort during a capture: it waits for streams and frees memory");
    retire(comm, true);
    cuCtxSynchronize(); /* a card goes on by itself, also where a graph was launched on another stream than that of its
                           collectives */
    return in_graphs(comm, "ncclCommAbort") ? ncclInvalidUsage : ncclSuccess;
}

static void enqueue_pending(ncclComm_t comm);

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    char why[400];
    if (!live(comm))
        return ncclInvalidArgument;
    join(comm);
    *result = comm->state;
    if (comm->joined && comm->state == ncclInProgress && !(comm->leaving && comm->captured))
        enqueue_pending(comm); /* and the next answer says so */
    if (comm->state == ncclSuccess && peers_lost(&comm->peers, comm->sequence + 1, why, sizeof why) >= 0 && comm->since > 0) {
        *result = comm->state = ncclRemoteError;
        snprintf(comm->why, sizeof comm->why, "%s", why);
    }
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",         "unhandled cuda error", "unhandled system error",          "internal error",
        "invalid argument", "invalid usage",        "remote process exited or failed", "operation in progress",
    };
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm && *comm->why ? comm->why : last_error;
}

/* --- collectives -------------------------------------------------------------------------------------------------------- */

static const char *describe(const struct ncclsim_call *c, char *text, size_t room)
{
    static const char *const kinds[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast", "ncclReduce"};
    int length = snprintf(text, room, "%s of %llu elements of type %d (operation %d, root %d, stream %d", kinds[c->kind],
                          (unsigned long long)c->count, c->type, c->op, c->root, c->stream);
    if (c->captured)
        length += snprintf(text + length, room - (size_t)length, ", captured as number %d", c->captured);
    snprintf(text + length, room - (size_t)length, ")");
    return text;
}

static bool same(const struct ncclsim_call *a, const struct ncclsim_call *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* A call's counts are of what the smaller buffer has. */
static size_t bytes_from(const struct work *w)
{
    size_t ranks = w->call.kind == KIND_REDUCE_SCATTER ? (size_t)w->comm->peers.size : 1;
    return w->call.count * ranks * reduce_size(w->call.type);
}

static size_t bytes_to(const struct work *w)
{
    size_t ranks = w->call.kind == KIND_ALL_GATHER ? (size_t)w->comm->peers.size : 1;
    return w->call.count * ranks * reduce_size(w->call.type);
}

/* A broadcast reads only the root's. */
static bool gives(const struct work *w)
{
    return w->call.kind != KIND_BROADCAST || w->comm->peers.rank == w->call.root;
}

static int fault(ncclComm_t comm, ncclResult_t result, const char *message)
{
    comm->state = result;
    snprintf(comm->why, sizeof comm->why, "%s", message);
    cudasim_rule(message);
    return POLL_NEVER;
}

static int compare(ncclComm_t comm)
{
    char text[512], mine[128], other[128];
    for (int i = 0; i < comm->peers.size; i++) {
        if (same(peers_call(&comm->peers, i), peers_call(&comm->peers, comm->peers.rank)))
            continue;
        snprintf(text, sizeof text, "call %llu of the communicator: rank %d has %s, rank %d has %s",
                 (unsigned long long)comm->sequence + 1, comm->peers.rank,
                 describe(peers_call(&comm->peers, comm->peers.rank), mine, sizeof mine), i,
                 describe(peers_call(&comm->peers, i), other, sizeof other));
        return fault(comm, ncclInvalidUsage, text);
    }
    return POLL_READY;
}

static int poll(const void *args)
{
    const struct work *w = args;
    ncclComm_t comm = w->comm;
    uint64_t number = comm->sequence + 1;
    char why[400];
    if (!live(comm))
        return POLL_READY; /* aborted: the kernel ends and does nothing */
    if (comm->state != ncclSuccess && comm->state != ncclInProgress)
        return POLL_NEVER;
    comm->since = comm->since > 0 ? comm->since : now();
    if (!comm->given && peers_done(&comm->peers, number - 1)) {
        const void *data = gives(w) ? cudasim_memory(w->from, bytes_from(w), "the source of a collective") : NULL;
        if ((gives(w) && !data) || !peers_give(&comm->peers, number, &w->call, data, data ? bytes_from(w) : 0))
            return fault(comm, ncclSystemError, "a collective's data cannot be given");
        comm->given = 1;
    }
    if (comm->given && peers_arrived(&comm->peers, number))
        return compare(comm);
    if (peers_lost(&comm->peers, number, why, sizeof why) >= 0) {
        comm->state = ncclRemoteError;
        snprintf(comm->why, sizeof comm->why, "%s", why);
        return POLL_NEVER;
    }
    if (now() - comm->since > limit())
        return fault(comm, ncclInternalError, "a collective that not all ranks have come to");
    return POLL_WAITS;
}

static bool reduce(const struct work *w, char *to)
{
    const struct ncclsim_peers *p = &w->comm->peers;
    size_t element = reduce_size(w->call.type), wide = reduce_wide_size(w->call.type), count = w->call.count;
    uint64_t offset = w->call.kind == KIND_REDUCE_SCATTER ? (uint64_t)p->rank * count * element : 0;
    char *sum = malloc(count * wide), *part = malloc(count * wide), *raw = malloc(count * element);
    bool fine = sum && part && raw;
    for (int i = 0; i < p->size && fine; i++) {
        fine = peers_take(p, i, raw, offset, count * element);
        if (fine)
            reduce_widen(i ? part : sum, raw, count, w->call.type);
        if (fine && i)
            reduce_add(sum, part, count, w->call.type, w->call.op);
    }
    if (fine)
        reduce_narrow(to, sum, count, w->call.type, w->call.op, p->size);
    free(sum);
    free(part);
    free(raw);
    return fine;
}

static void run(const void *args)
{
    const struct work *w = args;
    ncclComm_t comm = w->comm;
    bool fine = true;
    if (!live(comm))
        return;
    char *to = cudasim_memory(w->to, bytes_to(w), "the destination of a collective");
    size_t part = w->call.count * reduce_size(w->call.type);
    if (!to)
        return;
    if (w->call.kind == KIND_REDUCE && comm->peers.rank == w->call.root)
        fine = reduce(w, to);
    else if (w->call.kind == KIND_ALL_REDUCE || w->call.kind == KIND_REDUCE_SCATTER)
        fine = reduce(w, to);
    else if (w->call.kind == KIND_BROADCAST)
        fine = peers_take(&comm->peers, w->call.root, to, 0, part);
    for (int i = 0; i < comm->peers.size && w->call.kind == KIND_ALL_GATHER && fine; i++)
        fine = peers_take(&comm->peers, i, to + (size_t)i * part, 0, part);
    if (!fine)
        fault(comm, ncclSystemError, "a collective's data cannot be taken");
    comm->since = 0;
    comm->given = 0;
    peers_finish(&comm->peers, ++comm->sequence);
}

static void drop(const void *args)
{
    const struct work *w = args;
    w->comm->captured -= w->call.captured != 0;
}

/* --- calls -------------------------------------------------------------------------------------------------------------- */

static int stream_number(ncclComm_t comm, CUstream stream)
{
    int i = 0;
    while (i < comm->streams && comm->stream[i] != stream)
        i++;
    if (i == comm->streams && i < STREAMS_MAX)
        comm->stream[comm->streams++] = stream;
    return i;
}

static void enqueue_pending(ncclComm_t comm)
{
    comm->state = ncclSuccess;
    for (int i = 0; i < comm->pending_count && comm->state == ncclSuccess; i++) {
        struct work *w = &comm->pending[i];
        int capturing = cudasim_capturing(w->stream);
        w->call.captured = capturing == 1 ? ++comm->captures : 0;
        w->call.stream = stream_number(comm, w->stream);
        if (capturing == 2) {
            refuse(comm, ncclInvalidUsage, "a collective on a stream other than the one that this thread captures");
            break;
        }
        comm->captured += w->call.captured != 0;
        if (cudasim_enqueue_polled(w->stream, poll, run, drop, w, sizeof *w, "collectives"))
            refuse(comm, ncclUnhandledCudaError, "a collective cannot be enqueued");
    }
    comm->pending_count = 0;
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!group_depth)
        return refuse(NULL, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    ncclComm_t comm = group_comm;
    if (--group_depth || !comm)
        return ncclSuccess;
    group_comm = NULL;
    if (comm->blocking) {
        enqueue_pending(comm);
        return comm->state;
    }
    return comm->state = ncclInProgress;
}

static bool overlap(const struct work *w)
{
    CUdeviceptr from = w->from, to = w->to, part = w->call.count * reduce_size(w->call.type);
    CUdeviceptr mine = part * (CUdeviceptr)w->comm->peers.rank;
    if (from + bytes_from(w) <= to || to + bytes_to(w) <= from || !gives(w))
        return false;
    return w->call.kind == KIND_ALL_GATHER       ? from != to + mine
           : w->call.kind == KIND_REDUCE_SCATTER ? to != from + mine
                                                 : from != to;
}

static ncclResult_t call(struct work w)
{
    ncclComm_t comm = w.comm;
    size_t element = reduce_size(w.call.type);
    if (!live(comm))
        return ncclInvalidArgument;
    if (comm->state == ncclInProgress)
        return refuse(comm, ncclInvalidArgument, "a communicator is used before ncclCommGetAsyncError has said ncclSuccess");
    if (comm->state != ncclSuccess)
        return comm->state;
    if (!element || w.call.op < 0 || w.call.op > ncclAvg || w.call.root < 0 || w.call.root >= comm->peers.size)
        return refuse(comm, ncclInvalidArgument, "a collective with an invalid type, operation or root");
    if (w.call.op == ncclAvg && w.call.type < ncclFloat16)
        return refuse(comm, ncclInvalidArgument, "an average of integers is not simulated");
    if (w.from % element || w.to % element || overlap(&w))
        return refuse(comm, ncclInvalidUsage, "a collective whose buffers are misaligned, or overlap without being in place");
    if (comm->pending_count == PENDING_MAX)
        return refuse(comm, ncclInvalidUsage, "a group of too many collectives");
    if (group_depth && group_comm && group_comm != comm)
        return refuse(comm, ncclInvalidUsage, "a group of several communicators is not simulated");
    ncclGroupStart();
    group_comm = comm;
    if (w.call.count)
        comm->pending[comm->pending_count++] = w;
    return ncclGroupEnd();
}

#define WORK(KIND, OP, ROOT)                                                                                                     \
    call((struct work){.comm = comm,                                                                                             \
                       .from = (uintptr_t)from,                                                                                  \
                       .to = (uintptr_t)to,                                                                                      \
                       .stream = stream,                                                                                         \
                       .call = {.kind = KIND, .type = (int)type, .op = (int)(OP), .root = ROOT, .count = count}})

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           CUstream stream)
{
    return WORK(KIND_ALL_REDUCE, op, 0);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               CUstream stream)
{
    return WORK(KIND_REDUCE_SCATTER, op, 0);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, CUstream stream)
{
    return WORK(KIND_ALL_GATHER, ncclSum, 0);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           CUstream stream)
{
    return WORK(KIND_BROADCAST, ncclSum, root);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                        CUstream stream)
{
    return WORK(KIND_REDUCE, op, root);
}
