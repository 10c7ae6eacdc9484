/* Each check of the simulator catches its fault, and passes the same thing done right. */
#include "test.h"

#include <pthread.h>

static int checks_close(void **unused)
{
    static const char *const NAMES[] = {"CUDASIM_CC",      "CUDASIM_DRIVER", "CUDASIM_STEPS",
                                        "CUDASIM_PENDING", "CUDASIM_MEMORY", "CUDASIM_UNWRITTEN"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        unsetenv(NAMES[i]);
    return device_close(unused);
}
#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, device_open, checks_close)

/* vector_add over n elements of three buffers. */
static CUresult add(CUfunction f, CUdeviceptr c, CUdeviceptr a, CUdeviceptr b, long long n)
{
    long long base = 0;
    return launch(f, (unsigned)((n + 255) / 256), 256, ARGS(&c, &a, &b, &n, &base));
}

static void an_access_out_of_bounds_is_named(void **unused)
{
    (void)unused;
    CUdeviceptr a = device_new(NULL, 400), b = device_new(NULL, 396), c = device_new(NULL, 400);
    assert_ok(add(kernel("vector_add", "vector_add"), c, a, b, 100));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_said("kernel vector_add, block (0, 0, 0), thread (99, 0, 0)");
    assert_said("byte 396 of allocation 2, which has only 396");
    assert_result(cuMemAlloc_v2(&a, 4), CUDA_ERROR_ILLEGAL_ADDRESS); /* the context is lost, as on the real driver */
}

static void memory_that_was_freed_is_recognised(void **unused)
{
    (void)unused;
    CUfunction f = kernel("vector_add", "vector_add");
    CUdeviceptr a = device_new(NULL, 400), b = device_new(NULL, 400), c = device_new(NULL, 400);
    assert_ok(add(f, c, a, b, 100));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(add(f, c, a, b, 100));
    assert_ok(cuMemFree_v2(b));
    CUdeviceptr other = device_new(NULL, 400);
    assert_true(other != b); /* no address is used twice */
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_said("which was freed");
}

static void freeing_twice_is_refused(void **unused)
{
    (void)unused;
    CUdeviceptr a = device_new(NULL, 400);
    assert_ok(cuMemFree_v2(a));
    assert_result(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
    assert_said("freed already");
}

static void a_misaligned_access_is_named(void **unused)
{
    (void)unused;
    CUdeviceptr a = device_new(NULL, 1024), c = device_new(NULL, 1024);
    assert_ok(add(kernel("vector_add", "vector_add"), c, a + 2, a, 8));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_said("not a multiple of 4");
}

static void a_vector_load_needs_the_alignment_of_the_vector(void **unused)
{
    (void)unused;
    CUdeviceptr a = device_new(NULL, 1024), c = device_new(NULL, 1024), shifted = a + 4;
    int n = 4;
    assert_ok(launch(kernel("gemm", "copy4"), 1, 32, ARGS(&c, &shifted, &n)));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_said("not a multiple of 16");
}

static void a_missing_barrier_is_a_race(void **unused)
{
    (void)unused;
    int columns = 256;
    CUdeviceptr x = device_new(NULL, 1024), y = device_new(NULL, 4);
    CUfunction right = kernel("reduce", "row_sum"), wrong = kernel("reduce", "row_sum_race");
    assert_ok(cuMemsetD32Async(x, 0, 256, stream));
    assert_ok(launch(right, 1, 256, ARGS(&y, &x, &columns)));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(launch(wrong, 1, 256, ARGS(&y, &x, &columns)));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    assert_said("a race");
}

static void overwriting_what_another_thread_may_still_read_is_a_race(void **unused)
{
    (void)unused;
    CUdeviceptr y = device_new(NULL, 256);
    assert_ok(launch(kernel("reduce", "read_then_write"), 1, 64, ARGS(&y)));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    assert_said("a race: a write at byte");
}

static void threads_at_different_barriers_are_reported(void **unused)
{
    (void)unused;
    CUdeviceptr y = device_new(NULL, 256);
    assert_ok(launch(kernel("reduce", "split_barrier"), 1, 64, ARGS(&y)));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    assert_said("at another barrier");
}

static void shared_memory_has_bounds(void **unused)
{
    (void)unused;
    CUdeviceptr y = device_new(NULL, 256);
    CUfunction f = kernel("reduce", "shared_bounds");
    int last = 0;
    assert_ok(cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 256, stream, ARGS(&y, &last), NULL));
    assert_ok(cuStreamSynchronize(stream));
    last = 1;
    assert_ok(cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 256, stream, ARGS(&y, &last), NULL));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_said("byte 256 of shared memory, which has 256");
}

static void shared_memory_that_was_never_written_is_reported_if_asked(void **unused)
{
    (void)unused;
    setenv("CUDASIM_UNWRITTEN", "1", 1);
    CUdeviceptr y = device_new(NULL, 256);
    int last = 1;
    assert_ok(cuLaunchKernel(kernel("reduce", "shared_bounds"), 1, 1, 1, 64, 1, 1, 512, stream, ARGS(&y, &last), NULL));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    assert_said("never written");
}

static void a_shuffle_may_not_name_a_lane_that_has_left(void **unused)
{
    (void)unused;
    CUdeviceptr x = device_new(NULL, 128), y = device_new(NULL, 128);
    assert_ok(launch(kernel("warp", "warp_left"), 1, 32, ARGS(&y, &x)));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    assert_said("names lane 5, which has left");
}

static void a_kernel_that_does_not_end_is_stopped(void **unused)
{
    (void)unused;
    setenv("CUDASIM_STEPS", "200", 1);
    int columns = 100000;
    CUdeviceptr x = device_new(NULL, 400000), y = device_new(NULL, 4);
    assert_ok(launch(kernel("reduce", "row_sum"), 1, 256, ARGS(&y, &x, &columns)));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_TIMEOUT);
}

static void a_launch_has_limits(void **unused)
{
    (void)unused;
    CUfunction f = kernel("vector_add", "vector_add"), g = kernel("reduce", "shared_bounds");
    CUdeviceptr a = device_new(NULL, 1024);
    long long n = 4, base = 0;
    int last = 0;
    void *params[] = {&a, &a, &a, &n, &base};
    assert_result(launch(f, 1, 1025, params), CUDA_ERROR_INVALID_VALUE);
    assert_result(launch(f, 1, 512, params), CUDA_ERROR_INVALID_VALUE);
    assert_said("launch bounds");
    assert_result(launch(f, 0, 32, params), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuLaunchKernel(f, 1, 65536, 1, 32, 1, 1, 0, stream, params, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuLaunchKernel(g, 1, 1, 1, 32, 1, 1, 50000, stream, ARGS(&a, &last), NULL), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuFuncSetAttribute(g, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200000), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuFuncSetAttribute(g, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    assert_ok(cuLaunchKernel(g, 1, 1, 1, 32, 1, 1, 50000, stream, ARGS(&a, &last), NULL));
    params[4] = NULL;
    assert_result(launch(f, 1, 32, params), CUDA_ERROR_INVALID_VALUE);
    assert_said("argument 4 of 5 is missing");
    size_t size = 39;
    char buffer[40] = {0};
    void *extra[] = {(void *)1, buffer, (void *)2, &size, NULL};
    assert_result(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, NULL, extra), CUDA_ERROR_INVALID_VALUE);
    assert_said("39 bytes of arguments, the kernel has 40");
}

static void a_module_for_another_target_is_refused(void **unused)
{
    (void)unused;
    CUmodule module;
    char *text = file_text("vector_add");
    setenv("CUDASIM_CC", "7.5", 1);
    assert_result(cuModuleLoadData(&module, text), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_said("PTX for sm_80 on a device of sm_75");
    setenv("CUDASIM_CC", "8.0", 1);
    assert_ok(cuModuleLoadData(&module, text));
    setenv("CUDASIM_DRIVER", "12000", 1);
    assert_result(cuModuleLoadData(&module, text), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    unsetenv("CUDASIM_DRIVER");
    free(text);
    unsigned char cubin[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, 7, [18] = 190, [48] = 90};
    assert_result(cuModuleLoadData(&module, cubin), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_said("a cubin for sm_90 on a device of sm_80");
    cubin[48] = 80;
    assert_result(cuModuleLoadData(&module, cubin), CUDA_ERROR_INVALID_IMAGE);
    assert_said("a cubin without sections");
    cubin[8] = 8; /* since CUDA 13 the target has another place */
    cubin[48] = 2;
    cubin[49] = 120;
    assert_result(cuModuleLoadData(&module, cubin), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_said("sm_120");
}

static void an_unknown_instruction_is_named(void **unused)
{
    (void)unused;
    CUmodule module;
    assert_result(cuModuleLoadData(&module,
                                   ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f()\n{\n.reg .b32 %r<3>;\n"
                                   "wgmma.fence.sync.aligned;\nret;\n}\n"),
                  CUDA_ERROR_INVALID_PTX);
    assert_said("line 7: the instruction wgmma.fence.sync.aligned is not simulated");
    assert_result(cuModuleLoadData(&module, "neither this nor that"), CUDA_ERROR_INVALID_IMAGE);
}

static void no_module_loads_while_work_is_pending(void **unused)
{
    (void)unused;
    CUmodule module;
    CUfunction f = kernel("vector_add", "vector_add");
    CUdeviceptr a = device_new(NULL, 1024);
    char *text = file_text("reduce");
    assert_ok(add(f, a, a, a, 4));
    assert_result(cuModuleLoadData(&module, text), CUDA_ERROR_ILLEGAL_STATE);
    assert_said("while the device has work");
    setenv("CUDASIM_PENDING", "1", 1); /* only counted */
    assert_ok(cuModuleLoadData(&module, text));
    assert_int_equal(cudasim_count("modules_pending"), 2);
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuModuleLoadDataEx(&module, text, 1, (int[]){0}, ARGS(NULL)));
    assert_int_equal(cudasim_count("modules_pending"), 2);
    assert_int_equal(cudasim_count("modules_jit"), 1);
    free(text);
}

/* A forbidden call inside a capture fails with this, the capture is invalid, and a new one works. */
static void invalidates(CUresult got, const char *said)
{
    CUgraph graph;
    int status;
    assert_result(got, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_said(said);
    assert_ok(cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    assert_ok(cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

static void a_capture_forbids_what_the_driver_forbids(void **unused)
{
    (void)unused;
    CUdeviceptr p, a = device_new(NULL, 64);
    CUmodule module;
    void *pinned;
    char *text = file_text("vector_add"), pageable[64] = {0};
    int mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CUgraph graph;
    assert_ok(cuStreamBeginCapture_v2(stream, mode));
    invalidates(cuMemAlloc_v2(&p, 64), "cuMemAlloc during a capture");
    assert_ok(cuStreamBeginCapture_v2(stream, mode));
    invalidates(cuModuleLoadData(&module, text), "cuModuleLoadData during a capture");
    assert_ok(cuStreamBeginCapture_v2(stream, mode));
    invalidates(cuMemFree_v2(a), "cuMemFree during a capture");
    assert_ok(cuStreamBeginCapture_v2(stream, mode));
    invalidates(cuMemHostAlloc(&pinned, 64, 0), "cuMemHostAlloc during a capture");
    assert_ok(cuStreamBeginCapture_v2(stream, mode));
    invalidates(cuStreamSynchronize(stream), "cuStreamSynchronize on a stream that is capturing");
    assert_ok(cuStreamBeginCapture_v2(stream, mode));
    invalidates(cuStreamQuery(stream), "cuStreamQuery on a stream that is capturing");
    assert_ok(cuStreamBeginCapture_v2(stream, mode));
    invalidates(cuCtxSynchronize(), "cuCtxSynchronize during a capture");
    assert_ok(cuStreamBeginCapture_v2(stream, mode));
    invalidates(cuMemcpyDtoH_v2(pageable, a, 64), "cuMemcpyDtoH during a capture");
    assert_ok(cuStreamBeginCapture_v2(stream, mode));
    invalidates(cuMemcpyHtoDAsync_v2(a, pageable, 64, stream), "pageable memory during a capture");
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuMemAlloc_v2(&p, 64));
    assert_ok(cuStreamEndCapture(stream, &graph));
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    free(text);
}

static void *allocate(void *result)
{
    CUcontext context;
    CUdeviceptr p;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    *(CUresult *)result = cuMemAlloc_v2(&p, 64);
    return NULL;
}

static void a_thread_local_capture_leaves_other_threads_alone(void **unused)
{
    (void)unused;
    CUresult result = CUDA_SUCCESS;
    CUgraph graph;
    pthread_t thread;
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    pthread_create(&thread, NULL, allocate, &result);
    pthread_join(thread, NULL);
    assert_ok(result);
    assert_ok(cuStreamEndCapture(stream, &graph));
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    pthread_create(&thread, NULL, allocate, &result);
    pthread_join(thread, NULL);
    assert_result(result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void a_pinned_source_overwritten_in_flight_is_found(void **unused)
{
    (void)unused;
    float *pinned, out[16];
    CUdeviceptr d = device_new(NULL, 64);
    assert_ok(cuMemHostAlloc((void **)&pinned, 64, 0));
    for (int i = 0; i < 16; i++)
        pinned[i] = (float)i;
    assert_ok(cuMemcpyHtoDAsync_v2(d, pinned, 64, stream));
    assert_ok(cuStreamSynchronize(stream));
    pinned[3] = 99; /* after the wait: allowed */
    assert_ok(cuMemcpyDtoH_v2(out, d, 64));
    assert_true(out[3] == 3.0f);
    assert_ok(cuMemcpyHtoDAsync_v2(d, pinned, 64, stream));
    pinned[3] = 100;
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_STATE);
    assert_said("overwritten in flight");
}

static void a_pageable_source_is_staged(void **unused)
{
    (void)unused;
    float pageable[4] = {1, 2, 3, 4}, out[4];
    CUdeviceptr d = device_new(NULL, 16);
    assert_ok(cuMemcpyHtoDAsync_v2(d, pageable, 16, stream));
    pageable[0] = 77;
    assert_ok(cuMemcpyDtoHAsync_v2(out, d, 16, stream)); /* waits, because it is pageable */
    assert_true(out[0] == 1.0f && out[3] == 4.0f);
}

static void work_runs_as_late_as_is_legal(void **unused)
{
    (void)unused;
    CUstream other;
    CUevent event;
    float *pinned, x[4] = {1, 2, 3, 4}, out[4];
    CUfunction f = kernel("vector_add", "vector_add");
    CUdeviceptr a = device_new(x, 16), c = device_new(x, 16);
    assert_ok(cuMemHostAlloc((void **)&pinned, 16, 0));
    assert_ok(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&event, 0));
    pinned[0] = -5;
    assert_ok(add(f, c, a, a, 4));
    assert_ok(cuEventRecord(event, stream));
    assert_ok(cuMemcpyDtoHAsync_v2(pinned, c, 16, other)); /* does not wait for the sum: reads the old bytes */
    assert_true(pinned[0] == -5);
    assert_ok(cuStreamSynchronize(other));
    assert_true(pinned[0] == 1.0f);
    assert_ok(cuMemcpyDtoH_v2(out, c, 16)); /* nor does the legacy stream wait for a non-blocking one */
    assert_true(out[0] == 1.0f);
    assert_ok(cuStreamWaitEvent(other, event, 0));
    assert_ok(cuMemcpyDtoHAsync_v2(pinned, c, 16, other));
    assert_ok(cuStreamSynchronize(other));
    assert_true(pinned[0] == 2.0f);
    assert_ok(add(f, c, a, c, 4));
    assert_ok(cuEventRecord(event, stream));
    assert_result(cuEventQuery(event), CUDA_ERROR_NOT_READY); /* once, then polling gets through */
    assert_ok(cuEventQuery(event));
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuMemcpyDtoH_v2(out, c, 16));
    assert_true(out[0] == 3.0f);
}

static void the_legacy_stream_waits_for_blocking_ones(void **unused)
{
    (void)unused;
    CUstream blocking;
    float x[4] = {1, 2, 3, 4}, out[4];
    CUfunction f = kernel("vector_add", "vector_add");
    CUdeviceptr a = device_new(x, 16), c = device_new(NULL, 16);
    long long n = 4, base = 0;
    assert_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    assert_ok(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, blocking, ARGS(&c, &a, &a, &n, &base), NULL));
    assert_ok(cuMemcpyDtoH_v2(out, c, 16));
    assert_true(out[3] == 8.0f);
}

/* Captures one H2D copy from pinned memory, a memset and a vector_add: c = a + b. */
static CUgraphExec captured(CUfunction f, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, float *pinned)
{
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_ok(cuMemcpyHtoDAsync_v2(a, pinned, 16, stream));
    assert_ok(cuMemsetD32Async(c, 0, 4, stream));
    assert_ok(add(f, c, a, b, 4));
    assert_ok(cuStreamEndCapture(stream, &graph));
    assert_ok(cuGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 3);
    assert_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_ok(cuGraphDestroy(graph));
    return exec;
}

static void a_graph_replays_addresses_and_arguments(void **unused)
{
    (void)unused;
    float *pinned, x[4] = {10, 20, 30, 40}, out[4];
    CUfunction f = kernel("vector_add", "vector_add");
    CUdeviceptr a = device_new(x, 16), b = device_new(x, 16), c = device_new(x, 16);
    assert_ok(cuMemHostAlloc((void **)&pinned, 16, 0));
    for (int i = 0; i < 4; i++)
        pinned[i] = 1;
    CUgraphExec exec = captured(f, a, b, c, pinned);
    assert_int_equal(cudasim_count("launches"), 0); /* a capture runs nothing */
    read_back(out, c, 16);
    assert_true(out[0] == 10.0f);
    for (int step = 1; step <= 3; step++) {
        pinned[0] = (float)step;
        assert_ok(cuGraphLaunch(exec, stream));
        read_back(out, c, 16);
        assert_true(out[0] == 10.0f + (float)step && out[3] == 41.0f);
    }
    assert_int_equal(cudasim_count("launches"), 3);
    assert_int_equal(cudasim_count("graph_launches"), 3);
    assert_ok(cuGraphLaunch(exec, stream));
    pinned[0] = 55; /* the replay has not read it yet */
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_STATE);
    assert_said("overwritten in flight");
}

static void a_stale_pointer_is_found_at_replay(void **unused)
{
    (void)unused;
    float *pinned, x[4] = {10, 20, 30, 40};
    CUfunction f = kernel("vector_add", "vector_add");
    CUdeviceptr a = device_new(x, 16), b = device_new(x, 16), c = device_new(x, 16);
    assert_ok(cuMemHostAlloc((void **)&pinned, 16, 0));
    CUgraphExec exec = captured(f, a, b, c, pinned);
    assert_ok(cuGraphLaunch(exec, stream));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuMemFree_v2(b));
    device_new(x, 16);
    assert_ok(cuGraphLaunch(exec, stream));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_said("which was freed");
    assert_said("node 2 of 3 of a replayed graph");
}

static void streams_join_a_capture_by_events(void **unused)
{
    (void)unused;
    CUstream other;
    CUevent fork, join;
    CUgraph graph;
    CUdeviceptr a = device_new(NULL, 64);
    assert_ok(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&fork, 0));
    assert_ok(cuEventCreate(&join, 0));
    for (int joined = 0; joined < 2; joined++) {
        assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        assert_ok(cuEventRecord(fork, stream));
        assert_ok(cuStreamWaitEvent(other, fork, 0));
        assert_ok(cuMemsetD8Async(a, 0, 64, other));
        if (joined) {
            assert_ok(cuEventRecord(join, other));
            assert_ok(cuStreamWaitEvent(stream, join, 0));
        }
        assert_result(cuStreamEndCapture(stream, &graph), joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    assert_result(cuEventSynchronize(fork), CUDA_ERROR_CAPTURED_EVENT);
    assert_ok(cuEventRecord(fork, other));
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_result(cuStreamWaitEvent(stream, fork, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void functions_are_found_by_base_name_and_version(void **unused)
{
    (void)unused;
    void *f, *wanted;
    int status;
    CUresult (*alloc)(CUdeviceptr *, size_t) = cuMemAlloc_v2;
    memcpy(&wanted, &alloc, sizeof wanted);
    assert_ok(cuGetProcAddress_v2("cuMemAlloc", &f, 12000, 0, &status));
    assert_ptr_equal(f, wanted);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
    assert_ok(cuGetProcAddress_v2("cuMemAlloc_v2", &f, 12000, 0, &status));
    assert_null(f);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    assert_ok(cuGetProcAddress_v2("cuGraphInstantiateWithFlags", &f, 11000, 0, &status));
    assert_null(f);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    assert_result(cuGetProcAddress_v2("cuMemAlloc", &f, 99000, 0, &status), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuGetProcAddress("cuNothing", &f, 12000, 0), CUDA_ERROR_NOT_FOUND);
    CUresult (*instantiate)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t) = cuGraphInstantiate_v2;
    memcpy(&wanted, &instantiate, sizeof wanted);
    assert_ok(cuGetProcAddress_v2("cuGraphInstantiate", &f, 12000, 0, &status));
    assert_ptr_equal(f, wanted);
}

static void calls_need_cuinit_and_a_context(void **unused)
{
    (void)unused;
    CUdeviceptr p;
    assert_ok(cuCtxSetCurrent(NULL));
    assert_result(cuMemAlloc_v2(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
    cudasim_reset();
    assert_result(cuMemAlloc_v2(&p, 4), CUDA_ERROR_NOT_INITIALIZED);
    const char *name;
    assert_ok(cuGetErrorName(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &name));
    assert_string_equal(name, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED");
}

static void memory_runs_out(void **unused)
{
    (void)unused;
    size_t free_bytes, total;
    CUdeviceptr p;
    setenv("CUDASIM_MEMORY", "1000000", 1);
    assert_ok(cuMemAlloc_v2(&p, 600000));
    assert_result(cuMemAlloc_v2(&p, 600000), CUDA_ERROR_OUT_OF_MEMORY);
    assert_ok(cuMemGetInfo_v2(&free_bytes, &total));
    assert_int_equal(total, 1000000);
    assert_int_equal(free_bytes, 400000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_access_out_of_bounds_is_named),
        TEST(memory_that_was_freed_is_recognised),
        TEST(freeing_twice_is_refused),
        TEST(a_misaligned_access_is_named),
        TEST(a_vector_load_needs_the_alignment_of_the_vector),
        TEST(a_missing_barrier_is_a_race),
        TEST(overwriting_what_another_thread_may_still_read_is_a_race),
        TEST(threads_at_different_barriers_are_reported),
        TEST(shared_memory_has_bounds),
        TEST(shared_memory_that_was_never_written_is_reported_if_asked),
        TEST(a_shuffle_may_not_name_a_lane_that_has_left),
        TEST(a_kernel_that_does_not_end_is_stopped),
        TEST(a_launch_has_limits),
        TEST(a_module_for_another_target_is_refused),
        TEST(an_unknown_instruction_is_named),
        TEST(no_module_loads_while_work_is_pending),
        TEST(a_capture_forbids_what_the_driver_forbids),
        TEST(a_thread_local_capture_leaves_other_threads_alone),
        TEST(a_pinned_source_overwritten_in_flight_is_found),
        TEST(a_pageable_source_is_staged),
        TEST(work_runs_as_late_as_is_legal),
        TEST(the_legacy_stream_waits_for_blocking_ones),
        TEST(a_graph_replays_addresses_and_arguments),
        TEST(a_stale_pointer_is_found_at_replay),
        TEST(streams_join_a_capture_by_events),
        TEST(functions_are_found_by_base_name_and_version),
        TEST(calls_need_cuinit_and_a_context),
        TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
