/* NCCL's stand-in: what the collectives compute between two and three processes, and what is found where the ranks differ. Each
 * test starts the ranks as processes of their own, which all have to end well, and within seconds. */
#include "ncclsim.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "half.h"

enum { SECONDS_MAX = 10, COUNT = 1000 };

static ncclUniqueId id;
static ncclComm_t comm;
static int rank, size;

/* In a rank's process: ends it, and so fails the test. */
#define check(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "%s:%d: rank %d: not %s; %s; %s\n", __FILE__, __LINE__, rank, #condition, cudasim_last_error(),      \
                    ncclGetLastError(comm));                                                                                     \
            _exit(1);                                                                                                            \
        }                                                                                                                        \
    } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until the communicator says something else than that it is in progress. */
static ncclResult_t settled(void)
{
    ncclResult_t result = ncclInProgress;
    for (double start = now(); result == ncclInProgress && now() - start < SECONDS_MAX; usleep(100))
        check(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
    return result;
}

/* The same while the stream has work. */
static ncclResult_t drained(void)
{
    ncclResult_t result = settled();
    CUresult stream_state = CUDA_ERROR_NOT_READY;
    for (double start = now(); result == ncclSuccess && now() - start < SECONDS_MAX; usleep(100)) {
        stream_state = cuStreamQuery(stream);
        if (stream_state != CUDA_ERROR_NOT_READY)
            break;
        check(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
    }
    return result ? result : stream_state ? ncclUnhandledCudaError : ncclSuccess;
}

static ncclResult_t join(void)
{
    ncclConfig_t config = {.size = sizeof config, .magic = NCCL_MAGIC, .version = 21400, .blocking = 0};
    ncclResult_t result = ncclCommInitRankConfig(&comm, size, id, rank, &config);
    check(result == ncclInProgress || result == ncclSuccess);
    return settled();
}

/* Every rank runs the body and ends with 0. `killed` ends by a signal instead; -1: none. */
static void ranks(int count, int killed, void (*body)(void))
{
    pid_t child[8];
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    for (int i = 0; i < count; i++) {
        child[i] = fork();
        if (!child[i]) {
            rank = i;
            size = count;
            alarm(2 * SECONDS_MAX);
            device_open(NULL);
            body();
            _exit(0);
        }
    }
    for (int i = 0; i < count; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        if (i == killed)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static CUdeviceptr floats(size_t count, float first)
{
    float *values = calloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = first + (float)i;
    CUdeviceptr p = device_new(values, count * sizeof *values);
    free(values);
    return p;
}

static void expect(CUdeviceptr p, size_t i, float value)
{
    float got;
    check(cuMemcpyDtoH_v2(&got, p + 4 * i, 4) == CUDA_SUCCESS);
    if (got != value)
        fprintf(stderr, "element %zu is %g, not %g\n", i, (double)got, (double)value);
    check(got == value);
}

#define P(pointer) ((void *)(uintptr_t)(pointer))
static ncclResult_t all_reduce(CUdeviceptr p, size_t count)
{
    return ncclAllReduce(P(p), P(p), count, ncclFloat32, ncclSum, comm, stream);
}

/* --- right results ------------------------------------------------------------------------------------------------------ */

static void compute(void)
{
    size_t n = (size_t)size;
    CUdeviceptr a = floats(COUNT, (float)rank), whole = floats(COUNT * n, 0), part = floats(COUNT, 0);
    check(join() == ncclSuccess);
    check(all_reduce(a, COUNT) == ncclInProgress && drained() == ncclSuccess);
    for (size_t i = 0; i < COUNT; i += 37)
        expect(a, i, (float)(size * (size - 1) / 2) + (float)(n * i));

    CUdeviceptr mine = floats(COUNT, 100.0f * (float)rank);
    ncclAllGather(P(mine), P(whole), COUNT, ncclFloat32, comm, stream);
    check(drained() == ncclSuccess);
    for (size_t r = 0; r < n; r++)
        expect(whole, r * COUNT + 7, 100.0f * (float)r + 7);

    ncclReduceScatter(P(whole), P(part), COUNT, ncclFloat32, ncclSum, comm, stream);
    check(drained() == ncclSuccess);
    expect(part, 3, (float)size * (100.0f * (float)rank + 3));

    ncclBroadcast(P(mine), P(part), COUNT, ncclFloat32, size - 1, comm, stream);
    check(drained() == ncclSuccess);
    expect(part, 5, 100.0f * (float)(size - 1) + 5);

    /* In place, several in one group. */
    ncclGroupStart();
    ncclAllGather(P(whole + 4 * COUNT * (CUdeviceptr)rank), P(whole), COUNT, ncclFloat32, comm, stream);
    ncclAllReduce(P(mine), P(mine), COUNT, ncclFloat32, ncclMax, comm, stream);
    check(ncclGroupEnd() == ncclInProgress && drained() == ncclSuccess);
    expect(mine, 1, 100.0f * (float)(size - 1) + 1);

    uint16_t halves[2] = {bf16_of_float(1.0f + (float)rank), bf16_of_float(-2)};
    CUdeviceptr h = device_new(halves, sizeof halves);
    ncclAllReduce(P(h), P(h), 2, ncclBfloat16, ncclAvg, comm, stream);
    check(drained() == ncclSuccess && cuMemcpyDtoH_v2(halves, h, sizeof halves) == CUDA_SUCCESS);
    check(float_of_bf16(halves[0]) == 1 + (float)(size - 1) / 2 && float_of_bf16(halves[1]) == -2);
    check(ncclCommDestroy(comm) == ncclSuccess);
}

static void collectives_give_the_right_bytes(void **unused)
{
    (void)unused;
    ranks(2, -1, compute);
    ranks(3, -1, compute);
}

static void capture(void)
{
    CUgraph graph;
    CUgraphExec executable;
    CUdeviceptr a = floats(COUNT, 1);
    check(join() == ncclSuccess);
    check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    check(all_reduce(a, COUNT) == ncclInProgress && settled() == ncclSuccess);
    check(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    check(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    for (int i = 0; i < 3; i++)
        check(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    check(cudasim_count("collectives") == 3 && drained() == ncclSuccess);
    expect(a, 2, 24);
    check(cuGraphLaunch(executable, stream) == CUDA_SUCCESS && cuStreamSynchronize(stream) == CUDA_SUCCESS);
    expect(a, 2, 48);
    check(cuGraphDestroy(graph) == CUDA_SUCCESS && cudasim_count("faults") == 0);
    if (rank)
        check(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    setenv("CUDASIM_NCCL_LIMIT", "0.2", 1);
    check(ncclCommDestroy(comm) == ncclSuccess && cudasim_count("faults") == !rank); /* rank 0's graph is still there */
    if (!rank)
        assert_said("while a graph has its collectives");
}

/* A graph whose collective waits for a rank that does not come: freed in flight, it ends with the abort; kept, it holds it up. */
static void abort_captured(void)
{
    CUgraph graph;
    CUgraphExec executable;
    CUdeviceptr a = floats(COUNT, 1);
    check(join() == ncclSuccess);
    check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    check(all_reduce(a, COUNT) == ncclInProgress && settled() == ncclSuccess);
    check(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    check(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    check(cuGraphDestroy(graph) == CUDA_SUCCESS);
    if (rank == 1)
        return;
    check(cuGraphLaunch(executable, stream) == CUDA_SUCCESS && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    setenv("CUDASIM_NCCL_LIMIT", "0.2", 1);
    if (rank == 0) {
        check(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
        check(ncclCommAbort(comm) == ncclSuccess && cudasim_count("faults") == 0);
    } else {
        check(ncclCommAbort(comm) == ncclInvalidUsage && cudasim_count("faults") == 1);
        assert_said("ncclCommAbort while a graph has its collectives");
    }
}

static void an_abort_waits_for_graphs(void **unused)
{
    (void)unused;
    ranks(3, -1, abort_captured);
}

static void a_captured_collective_runs_at_every_launch(void **unused)
{
    (void)unused;
    ranks(2, -1, capture);
}

/* --- what is found ------------------------------------------------------------------------------------------------------ */

static void found(const char *text)
{
    double start = now();
    check(drained() == ncclInvalidUsage && now() - start < SECONDS_MAX);
    check(strstr(ncclGetLastError(comm), text) && cudasim_count("faults") > 0);
    check(ncclCommAbort(comm) == ncclSuccess);
    check(cuStreamSynchronize(stream) == CUDA_SUCCESS); /* what was aborted has ended */
}

static void other_count(void)
{
    CUdeviceptr a = floats(COUNT, 1);
    check(join() == ncclSuccess);
    all_reduce(a, COUNT - (size_t)rank);
    found("of 999 elements");
}

static void other_type(void)
{
    CUdeviceptr a = floats(COUNT, 1);
    check(join() == ncclSuccess);
    ncclAllReduce(P(a), P(a), 100, rank ? ncclInt32 : ncclFloat32, ncclSum, comm, stream);
    found("of type 2");
}

static void other_order(void)
{
    CUdeviceptr a = floats(COUNT, 1), b = floats(COUNT, 1);
    check(join() == ncclSuccess);
    ncclGroupStart();
    for (int i = 0; i < 2; i++)
        if (i == rank)
            all_reduce(a, COUNT);
        else
            ncclBroadcast(P(b), P(b), COUNT, ncclFloat32, 0, comm, stream);
    ncclGroupEnd();
    found("ncclBroadcast of 1000");
}

static void other_root(void)
{
    CUdeviceptr a = floats(COUNT, 1);
    check(join() == ncclSuccess);
    ncclBroadcast(P(a), P(a), COUNT, ncclFloat32, rank, comm, stream);
    found("root 1");
}

static void other_stream(void)
{
    CUstream second;
    CUdeviceptr a = floats(COUNT, 1);
    check(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && join() == ncclSuccess);
    check(all_reduce(a, COUNT) == ncclInProgress && drained() == ncclSuccess);
    stream = rank ? second : stream;
    all_reduce(a, COUNT);
    found("stream 1");
}

static void captured_by_one(void)
{
    CUgraph graph;
    CUgraphExec executable;
    CUdeviceptr a = floats(COUNT, 1);
    check(join() == ncclSuccess);
    if (rank)
        check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    check(all_reduce(a, COUNT) == ncclInProgress && settled() == ncclSuccess);
    if (rank) {
        check(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
        check(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
        check(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
        check(cuGraphExecDestroy(executable) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS);
    }
    found("captured");
}

static void differences_between_ranks_are_found(void **unused)
{
    (void)unused;
    double start = now();
    ranks(2, -1, other_count);
    ranks(2, -1, other_type);
    ranks(2, -1, other_order);
    ranks(2, -1, other_root);
    ranks(2, -1, other_stream);
    ranks(2, -1, captured_by_one);
    assert_true(now() - start < SECONDS_MAX);
}

static void one_dies(void)
{
    CUdeviceptr a = floats(COUNT, 1);
    check(join() == ncclSuccess);
    check(all_reduce(a, COUNT) == ncclInProgress && drained() == ncclSuccess);
    if (rank == 1)
        raise(SIGKILL);
    all_reduce(a, COUNT);
    check(drained() == ncclRemoteError && strstr(ncclGetLastError(comm), "rank 1 has ended"));
    check(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_TIMEOUT); /* a wait without a limit would not come back */
}

static void a_dead_rank_is_named(void **unused)
{
    (void)unused;
    ranks(2, 1, one_dies);
    ranks(3, 1, one_dies);
}

static void one_aborts(void)
{
    CUdeviceptr a = floats(COUNT, 1);
    check(join() == ncclSuccess);
    if (rank == 1) {
        check(ncclCommAbort(comm) == ncclSuccess);
        return;
    }
    all_reduce(a, COUNT);
    check(drained() == ncclRemoteError && strstr(ncclGetLastError(comm), "rank 1 has aborted"));
}

static void misuse(void)
{
    CUgraph graph;
    ncclComm_t other;
    CUdeviceptr a = floats(COUNT, 1);
    ncclConfig_t config = {.size = sizeof config, .magic = 1, .version = 21400};
    check(ncclCommInitRankConfig(&other, size, id, rank, &config) == ncclInvalidArgument);
    check(join() == ncclSuccess);
    check(all_reduce(a, COUNT) == ncclInProgress);
    check(all_reduce(a, COUNT) == ncclInvalidArgument); /* the one before was not waited for */
    check(drained() == ncclSuccess);
    check(ncclAllReduce(P(a), P(a + 4), 10, ncclFloat32, ncclSum, comm, stream) == ncclInvalidUsage);
    check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    check(ncclCommInitRankConfig(&other, size, id, rank, NULL) == ncclInvalidUsage);
    check(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void misuse_is_found(void **unused)
{
    (void)unused;
    ranks(2, -1, one_aborts);
    ranks(2, -1, misuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_give_the_right_bytes),
        cmocka_unit_test(a_captured_collective_runs_at_every_launch),
        cmocka_unit_test(an_abort_waits_for_graphs),
        cmocka_unit_test(differences_between_ranks_are_found),
        cmocka_unit_test(a_dead_rank_is_named),
        cmocka_unit_test(misuse_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
