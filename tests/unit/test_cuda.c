/* The parts of the CUDA device that need no CUDA: which code it accepts, and its errors if nothing is installed. */
#include <stdlib.h>

#include "device/cuda.h"
#include "test.h"

/* The first bytes of a cubin, as NVRTC 12 (ABI 7) and 13 (ABI 8) write them. */
static void make_cubin(unsigned char bytes[64], int abi, uint32_t flags)
{
    memset(bytes, 0, 64);
    memcpy(bytes, "\177ELF\002\001\001", 7);
    bytes[8] = (unsigned char)abi;
    memcpy(bytes + 48, &flags, sizeof flags);
}

/* Seen to fail with the comparison in cuda_check_target removed. */
static void code_of_another_target_is_refused_by_name(void **state)
{
    (void)state;
    static const char ptx[] = "//\n.version 8.7\n.target sm_90\n.address_size 64\n",
                      special[] = ".version 8.7\n.target sm_90a, debug\n";
    unsigned char cubin[64];
    assert_ok(cuda_check_target("add", ptx, sizeof ptx, 90));
    assert_fails(cuda_check_target("add", ptx, sizeof ptx, 89), ERR_DEVICE, "kernel add is code for sm_90, the device is sm_89");
    assert_fails(cuda_check_target("add", special, sizeof special, 90), ERR_DEVICE, "code for sm_90a");
    assert_fails(cuda_check_target("add", "no code", 8, 90), ERR_DEVICE, "nothing known");
    assert_fails(cuda_check_target("add", ptx, sizeof ptx - 1, 90), ERR_DEVICE, "nothing known");
    assert_fails(cuda_check_target("add", ptx, 0, 90), ERR_DEVICE, "nothing known");
    make_cubin(cubin, 7, 0x00590559);
    assert_ok(cuda_check_target("add", cubin, sizeof cubin, 89));
    assert_fails(cuda_check_target("add", cubin, sizeof cubin, 86), ERR_DEVICE,
                 "kernel add is code for sm_89, the device is sm_86");
    make_cubin(cubin, 8, 0x06007902);
    assert_ok(cuda_check_target("add", cubin, sizeof cubin, 121));
    assert_fails(cuda_check_target("add", cubin, sizeof cubin, 120), ERR_DEVICE, "sm_121");
    assert_fails(cuda_check_target("add", cubin, 63, 121), ERR_DEVICE, "nothing known");
}

static void a_driver_that_cannot_be_opened_is_named(void **state)
{
    (void)state;
    struct device *device = NULL;
    setenv("HONE_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
    assert_fails(device_open(&device, "cuda"), ERR_DEVICE, "/nowhere/libcuda.so");
    assert_null(device);
    assert_fails(device_open(&device, "auto"), ERR_DEVICE, "--device cpu");
    assert_ok(device_open(&device, "cpu"));
    device_close(device);
    unsetenv("HONE_CUDA_LIBRARY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_of_another_target_is_refused_by_name),
        cmocka_unit_test(a_driver_that_cannot_be_opened_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
