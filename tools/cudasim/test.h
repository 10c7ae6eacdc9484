/* What the simulator's own tests share: cmocka, a new device for every test, and PTX of kernels/ loaded by name. */
#ifndef TOOLS_CUDASIM_TEST_H
#define TOOLS_CUDASIM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cudasim.h"

#define assert_result(call, expected)                                                                                            \
    do {                                                                                                                         \
        CUresult assert_got = (call);                                                                                            \
        if (assert_got != (expected)) {                                                                                          \
            print_error("%s: result %d, expected %d; %s\n", #call, assert_got, (expected), cudasim_last_error());                \
            _fail(__FILE__, __LINE__);                                                                                           \
        }                                                                                                                        \
    } while (0)
#define assert_ok(call) assert_result(call, CUDA_SUCCESS)
/* The simulator's last message contains the text. */
#define assert_said(text)                                                                                                        \
    do {                                                                                                                         \
        if (!strstr(cudasim_last_error(), text)) {                                                                               \
            print_error("\"%s\" is not in: %s\n", text, cudasim_last_error());                                                   \
            _fail(__FILE__, __LINE__);                                                                                           \
        }                                                                                                                        \
    } while (0)

static CUstream stream; /* non-blocking, one for each test */

static int device_open(void **unused)
{
    (void)unused;
    CUcontext context;
    CUdevice device;
    setenv("CUDASIM_QUIET", "1", 0);
    cudasim_reset();
    assert_ok(cuInit(0));
    assert_ok(cuDeviceGet(&device, 0));
    assert_ok(cuDevicePrimaryCtxRetain(&context, device));
    assert_ok(cuCtxSetCurrent(context));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return 0;
}

static inline int device_close(void **unused)
{
    (void)unused;
    cudasim_reset();
    return 0;
}

/* A file of kernels/ with a zero byte after it, to be freed. */
static char *file_bytes(const char *name, size_t *size)
{
    char path[512];
    const char *folder = getenv("CUDASIM_PTX");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : CUDASIM_KERNELS, name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        print_error("%s is missing\n", path);
        _fail(__FILE__, __LINE__);
    }
    char *bytes = calloc(1, 1 << 20);
    *size = fread(bytes, 1, (1 << 20) - 1, f);
    fclose(f);
    return bytes;
}

static char *file_text(const char *name)
{
    char file[64];
    size_t size;
    snprintf(file, sizeof file, "%s.ptx", name);
    return file_bytes(file, &size);
}

static inline CUfunction kernel(const char *file, const char *name)
{
    CUmodule module;
    CUfunction function;
    char *text = file_text(file);
    assert_ok(cuModuleLoadData(&module, text));
    free(text);
    assert_ok(cuModuleGetFunction(&function, module, name));
    return function;
}

static inline CUdeviceptr device_new(const void *data, size_t bytes)
{
    CUdeviceptr p;
    assert_ok(cuMemAlloc_v2(&p, bytes));
    if (data)
        assert_ok(cuMemcpyHtoD_v2(p, data, bytes));
    return p;
}

static inline CUresult launch(CUfunction f, unsigned blocks, unsigned threads, void **params)
{
    return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

static inline void read_back(void *to, CUdeviceptr from, size_t bytes)
{
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuMemcpyDtoH_v2(to, from, bytes));
}

/* Numbers in [-1, 1) that are the same on every machine. */
static inline float noise(uint32_t i)
{
    uint32_t h = i * 2654435761u + 12345u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float)(h >> 8) * 0x1p-23f - 1.0f;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, device_open, device_close)
#define ARGS(...) ((void *[]){__VA_ARGS__})

#endif
