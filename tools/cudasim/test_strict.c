/* What the simulator checks beyond test_checks.c: cubins, captures seen from other threads, asynchronous copies, and global
 * memory that was never written or that two blocks touch. Every check with its fault and without. */
#include <pthread.h>

#include "test.h"

static int defaults(void **unused)
{
    static const char *const NAMES[] = {"CUDASIM_CC", "CUDASIM_UNWRITTEN", "CUDASIM_BLOCKS"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        unsetenv(NAMES[i]);
    return device_open(unused);
}

/* --- cubins ------------------------------------------------------------------------------------------------------------- */

/* Puts `new` in place of every `old` of the same length. */
static char *with(const char *from, size_t size, const char *old, const char *new, size_t length)
{
    char *image = malloc(size);
    memcpy(image, from, size);
    for (size_t i = 0; i + length <= size; i++)
        if (!memcmp(image + i, old, length))
            memcpy(image + i, new, length);
    return image;
}

/* What is not as the PTX says is refused: a symbol, a parameter's size (8 becomes 4 in the upper bits of an attribute). */
static void a_cubin_is_checked_and_its_ptx_runs(void **unused)
{
    (void)unused;
    enum { N = 100 };
    static const char size8[] = {0, (char)0xf0, 0x21, 0}, size4[] = {0, (char)0xf0, 0x11, 0};
    size_t size;
    char *image = file_bytes("vector_add.cubin", &size), *wrong;
    CUmodule module;
    CUfunction f;
    setenv("CUDASIM_CC", "8.0", 1);
    float x[N], y[N] = {0};
    long long n = N, base = 0;
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    CUdeviceptr a = device_new(x, sizeof x), b = device_new(x, sizeof x), c = device_new(y, sizeof y);
    assert_ok(cuModuleLoadData(&module, image));
    assert_int_equal(cudasim_count("cubins"), 1);
    assert_ok(cuModuleGetFunction(&f, module, "vector_add"));
    assert_ok(launch(f, 1, 128, ARGS(&c, &a, &b, &n, &base)));
    read_back(y, c, sizeof y);
    assert_true(y[7] == 14);
    int registers;
    assert_ok(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
    assert_true(registers > 4 && registers != 32);
    wrong = with(image, size, ".text.vector_add", ".text.vector_bad", 16);
    assert_result(cuModuleLoadData(&module, wrong), CUDA_ERROR_INVALID_IMAGE);
    assert_said("kernel vector_add of the PTX is not in the cubin");
    free(wrong);
    wrong = with(image, size, size8, size4, 4);
    assert_result(cuModuleLoadData(&module, wrong), CUDA_ERROR_INVALID_IMAGE);
    assert_said("parameter 0 has 4 bytes at 0 in the cubin, 8 at 0 in the PTX");
    free(wrong);
    wrong = with(image, size, ".target sm_80", ".target sm_75", 13);
    assert_result(cuModuleLoadData(&module, wrong), CUDA_ERROR_INVALID_IMAGE);
    assert_said("the PTX after a cubin for sm_80 is for sm_75");
    free(wrong);
    wrong = with(image, size, ".target sm_80", ".tardis sm_80", 13);
    assert_result(cuModuleLoadData(&module, wrong), CUDA_ERROR_NOT_SUPPORTED);
    assert_said("no PTX lies after the cubin");
    free(wrong);
    free(image);
}

/* --- PTX of these tests ------------------------------------------------------------------------------------------------- */

/* A kernel f(to, from) whose thread t of block b has r1 = t, r2 = b, rd1 = to and rd2 = from, both moved by 4 t. */
static CUfunction kernel_of(const char *body)
{
    char text[4096];
    CUmodule module;
    CUfunction f;
    snprintf(text, sizeof text,
             ".version 8.0\n.target sm_80\n.address_size 64\n"
             ".visible .entry f(.param .u64 to, .param .u64 from)\n{\n"
             ".reg .b16 %%h<4>;\n.reg .b32 %%r<16>;\n.reg .b64 %%rd<16>;\n.reg .pred %%p<4>;\n"
             ".shared .align 16 .b8 s[1024];\n"
             "ld.param.u64 %%rd1, [to];\nld.param.u64 %%rd2, [from];\n"
             "mov.u32 %%r1, %%tid.x;\nmov.u32 %%r2, %%ctaid.x;\n"
             "mul.wide.u32 %%rd3, %%r1, 4;\nadd.s64 %%rd1, %%rd1, %%rd3;\nadd.s64 %%rd2, %%rd2, %%rd3;\n"
             "mov.u32 %%r3, s;\nshl.b32 %%r4, %%r1, 2;\nadd.u32 %%r3, %%r3, %%r4;\n%s\nret;\n}\n",
             body);
    assert_ok(cuModuleLoadData(&module, text));
    assert_ok(cuModuleGetFunction(&f, module, "f"));
    return f;
}

static CUresult run(CUfunction f, unsigned blocks, CUdeviceptr to, CUdeviceptr from)
{
    CUresult result = launch(f, blocks, 32, ARGS(&to, &from));
    return result ? result : cuStreamSynchronize(stream);
}

/* --- asynchronous copies ------------------------------------------------------------------------------------------------ */

/* Two copies in two groups; returns what a thread finds of each after `wait`. */
static void copied(const char *wait, uint32_t found[2])
{
    char body[1024];
    uint32_t in[64], out[64];
    for (uint32_t i = 0; i < 64; i++)
        in[i] = 1000 + i;
    CUdeviceptr from = device_new(in, sizeof in), to = device_new(in, sizeof in);
    snprintf(body, sizeof body,
             "cp.async.ca.shared.global [%%r3], [%%rd2], 4;\ncp.async.commit_group;\n"
             "cp.async.ca.shared.global [%%r3+128], [%%rd2+128], 4;\ncp.async.commit_group;\n%s\nbar.sync 0;\n"
             "ld.shared.u32 %%r5, [%%r3];\nld.shared.u32 %%r6, [%%r3+128];\n"
             "st.global.u32 [%%rd1], %%r5;\nst.global.u32 [%%rd1+128], %%r6;",
             wait);
    assert_ok(run(kernel_of(body), 1, to, from));
    read_back(out, to, sizeof out);
    found[0] = out[5];
    found[1] = out[32 + 5];
}

static void a_copy_lands_at_its_wait(void **unused)
{
    (void)unused;
    static const struct {
        const char *wait;
        uint32_t found[2];
    } CASES[] = {{"", {~0u, ~0u}},
                 {"cp.async.wait_group 2;", {~0u, ~0u}},
                 {"cp.async.wait_group 1;", {1005, ~0u}},
                 {"cp.async.wait_group 0;", {1005, 1037}},
                 {"cp.async.wait_all;", {1005, 1037}}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        uint32_t found[2];
        copied(CASES[i].wait, found);
        assert_int_equal(found[0], CASES[i].found[0]);
        assert_int_equal(found[1], CASES[i].found[1]);
    }
}

/* --- memory that was never written -------------------------------------------------------------------------------------- */

static void reads_of_what_was_never_written_are_found_at_any_size(void **unused)
{
    (void)unused;
    static const char *const READS[] = {"ld.global.u8 %r5, [%rd2+3];", "ld.global.u16 %h1, [%rd2+2];",
                                        "ld.global.u32 %r5, [%rd2];"};
    setenv("CUDASIM_UNWRITTEN", "1", 1);
    for (int i = 0; i < 3; i++)
        for (int whole = 1; whole >= 0; whole--) {
            CUfunction f = kernel_of(READS[i]);
            CUdeviceptr from = device_new(NULL, 128), to = device_new(NULL, 128);
            assert_ok(cuMemsetD8Async(from, 0, whole ? 128 : 127, stream));
            assert_result(run(f, 1, to, from), whole ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
            if (!whole) {
                assert_said("thread (31, 0, 0)");
                assert_said("a read of byte 127 of allocation");
                assert_said("which was never written");
                device_close(NULL);
                device_open(NULL);
            }
        }
    CUfunction copy = kernel_of("ld.global.u32 %r5, [%rd2];\nst.global.u32 [%rd1], %r5;");
    CUdeviceptr a = device_new(NULL, 128), b = device_new(NULL, 128);
    assert_ok(cuMemsetD8Async(a, 0, 128, stream));
    assert_ok(run(copy, 1, b, a));
    assert_ok(run(copy, 1, a, b)); /* what a kernel has written may be read */
}

/* --- races between blocks ----------------------------------------------------------------------------------------------- */

static void two_blocks_that_touch_the_same_bytes_are_found(void **unused)
{
    (void)unused;
    static const struct {
        const char *body, *said;
    } CASES[] = {
        {"st.global.u32 [%rd1], %r2;", "a write of byte 0 of allocation"},
        {"ld.global.u32 %r5, [%rd2];\nst.global.u32 [%rd2], %r5;", "which block 0 wrote in the same launch"},
        {"setp.ne.u32 %p1, %r2, 0;\n@%p1 st.global.u32 [%rd2], %r2;\n@!%p1 ld.global.u32 %r5, [%rd2];",
         "which block 0 read in the same launch"},
        {"red.global.add.u32 [%rd1], %r1;\nld.global.u32 %r5, [%rd1];", "which an atomic wrote"},
        {"ld.global.u32 %r5, [%rd2];", NULL},
        {"red.global.add.u32 [%rd1], %r1;", NULL},
        {"mul.wide.u32 %rd4, %r2, 128;\nadd.s64 %rd1, %rd1, %rd4;\nst.global.u32 [%rd1], %r1;\nld.global.u32 %r5, [%rd1];\n"
         "st.global.u32 [%rd1], %r5;",
         NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int on = 0; on < 2; on++) {
            setenv("CUDASIM_BLOCKS", on ? "1" : "0", 1);
            device_close(NULL);
            device_open(NULL);
            CUfunction f = kernel_of(CASES[i].body);
            CUdeviceptr from = device_new(NULL, 256), to = device_new(NULL, 256);
            assert_result(run(f, 2, to, from), on && CASES[i].said ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
            if (on && CASES[i].said)
                assert_said(CASES[i].said);
            else
                assert_ok(run(f, 1, to, from)); /* another launch comes after it */
        }
}

/* --- captures, from another thread -------------------------------------------------------------------------------------- */

static void *wait_for_context(void *context)
{
    cuCtxSetCurrent(context);
    return (void *)(intptr_t)cuCtxSynchronize();
}

static void no_thread_waits_for_a_context_that_another_captures(void **unused)
{
    (void)unused;
    CUcontext context;
    CUgraph graph;
    pthread_t other;
    void *result;
    assert_ok(cuCtxGetCurrent(&context));
    assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_int_equal(pthread_create(&other, NULL, wait_for_context, context), 0);
    assert_int_equal(pthread_join(other, &result), 0);
    assert_int_equal((intptr_t)result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_said("no thread may wait for the context");
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(pthread_create(&other, NULL, wait_for_context, context), 0);
    assert_int_equal(pthread_join(other, &result), 0);
    assert_int_equal((intptr_t)result, CUDA_SUCCESS);
}

/* --- the order between streams ------------------------------------------------------------------------------------------ */

static CUresult fill(CUdeviceptr at, CUstream on)
{
    return cuMemsetD8Async(at, 1, 4, on);
}

/* A copy on a stream of its own, after what uses its target, or what it reads if it goes to the host, on the first stream and
 * before what uses that next. `missing`: which of the two events nobody waits for. */
static CUresult copy_between(CUdeviceptr to, void *pinned, bool out, CUstream side, const CUevent *event, int missing)
{
    assert_ok(fill(to, stream));
    assert_ok(cuEventRecord(event[0], stream));
    if (missing != 0)
        assert_ok(cuStreamWaitEvent(side, event[0], 0));
    CUresult result = out ? cuMemcpyDtoHAsync_v2(pinned, to, 64, side) : cuMemcpyHtoDAsync_v2(to, pinned, 64, side);
    if (result)
        return result;
    assert_ok(cuEventRecord(event[1], side));
    if (missing != 1)
        assert_ok(cuStreamWaitEvent(stream, event[1], 0));
    return fill(to + 60, stream);
}

static void a_copy_needs_an_event_before_it_and_one_after_it(void **unused)
{
    (void)unused;
    CUstream side;
    CUevent event[2];
    CUgraph graph;
    void *pinned;
    CUdeviceptr to = device_new(NULL, 64);
    assert_ok(cuMemHostAlloc(&pinned, 64, 0));
    memset(pinned, 0, 64);
    assert_ok(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++)
        assert_ok(cuEventCreate(&event[i], 0));
    for (int i = 0; i < 6; i++) {
        bool out = i % 2;
        int missing = i / 2; /* 2: none */
        assert_ok(copy_between(to, pinned, out, side, event, 2));
        assert_ok(cuCtxSynchronize());
        assert_result(copy_between(to, pinned, out, side, event, missing), missing < 2 ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS);
        if (missing < 2)
            assert_said(!missing ? "may still be using" : out ? "before the copy out of it" : "before the copy to it");
        assert_ok(cuCtxSynchronize());
    }
    /* In a graph the second stream joins by the first event: without it the copy is not captured. */
    for (int out = 0; out < 2; out++) {
        assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        assert_ok(copy_between(to, pinned, out, side, event, 2));
        assert_ok(copy_between(to, pinned, out, side, event, 2));
        assert_ok(cuStreamEndCapture(stream, &graph));
        assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        assert_result(copy_between(to, pinned, out, side, event, 1), CUDA_ERROR_ILLEGAL_STATE);
        assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
}

static void the_last_copy_of_a_capture_is_joined(void **unused)
{
    (void)unused;
    CUstream side;
    CUevent event[3];
    CUgraph graph;
    void *pinned;
    CUdeviceptr a = device_new(NULL, 64), b = device_new(NULL, 64);
    assert_ok(cuMemHostAlloc(&pinned, 64, 0));
    assert_ok(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++)
        assert_ok(cuEventCreate(&event[i], 0));
    for (int last = 0; last < 3; last++) { /* 2: and then for what was before it */
        assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        assert_ok(cuEventRecord(event[0], stream));
        assert_ok(cuStreamWaitEvent(side, event[0], 0));
        assert_ok(cuMemcpyHtoDAsync_v2(a, pinned, 64, side));
        assert_ok(cuEventRecord(event[2], side));
        if (!last)
            assert_ok(cuEventRecord(event[1], side));
        assert_ok(cuMemcpyHtoDAsync_v2(b, pinned, 64, side));
        if (last)
            assert_ok(cuEventRecord(event[1], side));
        assert_ok(cuStreamWaitEvent(stream, event[1], 0));
        if (last == 2)
            assert_ok(cuStreamWaitEvent(stream, event[2], 0));
        assert_result(cuStreamEndCapture(stream, &graph), last ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
}

/* --- faults where they happen ------------------------------------------------------------------------------------------- */

static void a_launch_waits_and_fails_if_the_environment_says_so(void **unused)
{
    (void)unused;
    for (int blocking = 0; blocking < 2; blocking++) {
        CUfunction f = kernel_of("st.global.u32 [%rd1], %r1;");
        CUdeviceptr wild = 64, from = device_new(NULL, 128);
        setenv("CUDA_LAUNCH_BLOCKING", blocking ? "1" : "0", 1);
        assert_result(launch(f, 1, 32, ARGS(&wild, &from)), blocking ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS);
        assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        device_close(NULL);
        device_open(NULL);
    }
    unsetenv("CUDA_LAUNCH_BLOCKING");
}

int main(void)
{
#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, defaults, device_close)
    const struct CMUnitTest tests[] = {
        TEST(a_cubin_is_checked_and_its_ptx_runs),
        TEST(a_copy_lands_at_its_wait),
        TEST(reads_of_what_was_never_written_are_found_at_any_size),
        TEST(two_blocks_that_touch_the_same_bytes_are_found),
        TEST(no_thread_waits_for_a_context_that_another_captures),
        TEST(a_copy_needs_an_event_before_it_and_one_after_it),
        TEST(the_last_copy_of_a_capture_is_joined),
        TEST(a_launch_waits_and_fails_if_the_environment_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
