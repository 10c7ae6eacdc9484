/* A process and its card: faults of kernels, waits, threads, and what is said while code is made. */
#include <pthread.h>

#include "base/clock.h"
#include "contract.h"
#include "trainer_rig.h"

void cudasim_reset(void); /* as cudasim_count in cuda_rig.h */

/* --- A fault of a kernel ends the run, and says how to find it ------------------------------------------------------------- */

/* Two launches, the second of which writes beyond the block. */
static struct prepared *prepare_fault(struct device *device, int32_t *block)
{
    struct prepared *prepared;
    assert_ok(device_alloc(device, 16 * SUMS, block));
    struct command commands[] = {launch_add(*block, 0, 4 * SUMS, 8 * SUMS), launch_add(*block, 0, 4 * SUMS, 1 << 20)};
    assert_ok(device_prepare(device, commands, 2, &prepared));
    return prepared;
}

/* Seen to fail without cuda_has_faulted in cuda_capture_give_up: a warning "no CUDA graph", and the second run was OK. */
static void a_fault_is_no_missing_graph(void **state)
{
    (void)state;
    struct device *device = open_device();
    int32_t block;
    float y;
    setenv("CUDASIM_QUIET", "1", 1);
    struct prepared *prepared = prepare_fault(device, &block);
    assert_ok(device_run(device, prepared)); /* it is enqueued */
    assert_fails(device_read(device, &y, (struct operand){block, 0}, sizeof y), ERR_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_non_null(strstr(status_message(), "CUDA_LAUNCH_BLOCKING=1"));
    assert_non_null(strstr(status_message(), "--cuda-graph off"));
    assert_fails(device_run(device, prepared), ERR_DEVICE, "launching the graph");
    assert_fails(device_run(device, prepared), ERR_DEVICE, "CUDA_LAUNCH_BLOCKING=1");
    assert_int_equal(warnings, 0);
    device_discard(device, prepared);
    device_close(device);
    cudasim_reset();
}

/* As the message says. Seen to fail with the kernel's name left out of issue_launch: "a launch" is what failed. */
static void the_advice_names_the_kernel(void **state)
{
    (void)state;
    struct device *device = open_device();
    int32_t block;
    device->options.cuda_graph = DEVICE_GRAPH_OFF;
    struct prepared *prepared = prepare_fault(device, &block);
    setenv("CUDASIM_QUIET", "1", 1);
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    assert_fails(device_run(device, prepared), ERR_DEVICE, "kernel add: an illegal memory access");
    assert_null(strstr(status_message(), "CUDA_LAUNCH_BLOCKING=1"));
    unsetenv("CUDA_LAUNCH_BLOCKING");
    device_discard(device, prepared);
    device_close(device);
    cudasim_reset();
}

/* cuBLAS has codes of its own. Seen to fail with check in place of check_product: "cuBLAS: a matrix product: error 13". */
static void a_fault_that_a_matmul_finds_is_reported(void **state)
{
    (void)state;
    struct device *device = open_device();
    struct prepared *faulty, *product;
    int32_t block, matrices;
    float y;
    device->options.cuda_graph = DEVICE_GRAPH_OFF;
    setenv("CUDASIM_QUIET", "1", 1);
    faulty = prepare_fault(device, &block);
    assert_ok(device_alloc(device, 3 * 4 * 64, &matrices));
    struct command gemm = {.kind = COMMAND_GEMM,
                           .operand = {{matrices, 0}, {matrices, 256}, {matrices, 512}, {-1, 0}, {-1, 0}},
                           .gemm = {.m = 8, .n = 8, .k = 8, .a = DTYPE_F32, .b = DTYPE_F32, .c = DTYPE_F32, .alpha = 1}};
    assert_ok(device_prepare(device, &gemm, 1, &product));
    assert_ok(device_run(device, faulty));
    assert_fails(device_read(device, &y, (struct operand){block, 0}, sizeof y), ERR_DEVICE, "ILLEGAL_ADDRESS");
    assert_fails(device_run(device, product), ERR_DEVICE, "a matrix product: an illegal memory access");
    device_discard(device, faulty);
    device_discard(device, product);
    device_close(device);
    cudasim_reset();
}

/* --- Waits sleep ------------------------------------------------------------------------------------------------------------ */

/* Seen to fail without cuDevicePrimaryCtxSetFlags, and without CU_EVENT_BLOCKING_SYNC. */
static void waiting_threads_sleep(void **state)
{
    (void)state;
    struct rig r;
    long long syncs = simulator_count("syncs"), spins = simulator_count("spins");
    open_rig(&r, &tied, 0, SETTINGS("device", "cuda"));
    for (int i = 0; i < 3; i++)
        step_once(&r.t, 0.01);
    close_rig(&r);
    assert_true(simulator_count("syncs") > syncs + 3);
    assert_int_equal(simulator_count("spins"), spins);
}

/* A context that somebody else has set up stays as it is. Seen to fail without the question whether it is active. */
static void a_context_of_others_is_left_alone(void **state)
{
    (void)state;
    CUcontext context;
    unsigned flags;
    int active;
    find_libraries();
    assert_int_equal(cu.cuDevicePrimaryCtxSetFlags(0, 2), 0);
    assert_int_equal(cu.cuDevicePrimaryCtxRetain(&context, 0), 0);
    device_close(open_device());
    assert_int_equal(cu.cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
    assert_true(active && flags == 2);
    assert_int_equal(cu.cuDevicePrimaryCtxRelease(0), 0);
    find_libraries();
    assert_int_equal(cu.cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
    assert_true(flags == CU_CTX_SCHED_BLOCKING_SYNC);
}

/* --- Threads ---------------------------------------------------------------------------------------------------------------- */

static _Atomic int captures_begun, loads_done, loads_in_capture;

static CUresult slow_end(CUstream stream, CUgraph *graph)
{
    int before = loads_done;
    captures_begun++;
    for (int i = 0; i < 100 && loads_done == before; i++) /* time for the other thread to load, if it does */
        clock_wait(0.005);
    loads_in_capture += loads_done - before;
    return genuine.cuStreamEndCapture(stream, graph);
}

static CUresult see_load(CUmodule *module, const void *image)
{
    CUresult code = genuine.cuModuleLoadData(module, image);
    loads_done++;
    return code;
}

static void *load_elsewhere(void *result)
{
    struct sums s;
    struct device *device;
    while (!captures_begun)
        clock_wait(0.001);
    *(enum status *)result = device_open(&device, "cuda");
    if (*(enum status *)result != OK)
        return NULL;
    *(enum status *)result = try_sums(&s, device);
    device_discard(device, s.prepared);
    device_close(device);
    return NULL;
}

/* Waiting for the context, as is done before code is loaded, ends every capture of its streams: the simulator refuses it. Seen to
 * fail without mutex_take in cuda_exclusive_begin: "cuCtxSynchronize during a capture". */
static void loads_and_captures_of_two_threads_take_turns(void **state)
{
    (void)state;
    struct sums s;
    pthread_t other;
    enum status status = ERR_INTERNAL;
    find_libraries();
    captures_begun = loads_done = loads_in_capture = 0;
    struct device *device = open_device();
    assert_int_equal(pthread_create(&other, NULL, load_elsewhere, &status), 0);
    cu.cuStreamEndCapture = slow_end;
    cu.cuModuleLoadData = see_load;
    prepare_sums(&s, device);
    run_sums(&s, 1);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(status, OK);
    assert_int_equal(loads_in_capture, 0);
    assert_true(captures_begun >= 2 && loads_done >= 2);
    assert_int_equal(warnings, 0);
    cu = genuine;
    drop_sums(&s);
}

/* --- What is said while code is made ---------------------------------------------------------------------------------------- */

static char said[4096];

static void keep_words(void *context, enum log_level level, const char *message)
{
    (void)context;
    (void)level;
    size_t length = strlen(said);
    snprintf(said + length, sizeof said - length, "%s|", message);
}

static nvrtcResult see_compile(nvrtcProgram program, int count, const char *const *options)
{
    assert_non_null(strstr(said, "kernel add is compiled: "));
    assert_null(strstr(said, "compiled in"));
    return genuine.nvrtcCompileProgram(program, count, options);
}

static CUresult see_named_load(CUmodule *module, const void *image)
{
    assert_non_null(strstr(said, "kernel add is loaded"));
    return genuine.cuModuleLoadData(module, image);
}

/* A compilation that takes minutes, or never ends, must not be nameless. Seen to fail with the message after the call. */
static void a_kernel_is_named_before_it_is_compiled_and_loaded(void **state)
{
    (void)state;
    struct sums s;
    find_libraries();
    own_cache();
    struct device *device = open_device();
    *said = 0;
    log_set_sink(keep_words, NULL);
    cu.nvrtcCompileProgram = see_compile;
    cu.cuModuleLoadData = see_named_load;
    prepare_sums(&s, device);
    assert_non_null(strstr(said, "kernel add compiled in"));
    cu = genuine;
    drop_sums(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CONTRACT("waiting-threads-sleep", waiting_threads_sleep),
        CONTRACT("waiting-threads-sleep", a_context_of_others_is_left_alone),
        CONTRACT("loads-and-captures-take-turns", loads_and_captures_of_two_threads_take_turns),
        CONTRACT("a-kernel-is-named-as-its-compilation-begins", a_kernel_is_named_before_it_is_compiled_and_loaded),
        CONTRACT("a-fault-is-reported", a_fault_is_no_missing_graph),
        CONTRACT("a-fault-is-reported", the_advice_names_the_kernel),
        CONTRACT("a-fault-is-reported", a_fault_that_a_matmul_finds_is_reported),
    };
    return CONTRACT_MAIN(tests, make_models, remove_models);
}
