/* What the processor can do, for tests that ask for more than every processor has. */
#ifndef TESTS_UNIT_PROCESSOR_H
#define TESTS_UNIT_PROCESSOR_H

#include "device/device.h"
#include "test.h"

/* Whether it multiplies bfloat16: not without AVX-512, so not under valgrind. tests/memcheck.py looks for the message. */
static inline bool processor_has_bf16(void)
{
    struct device *device;
    struct device_info info;
    assert_ok(device_open(&device, "cpu"));
    device_info(device, &info);
    device_close(device);
    if (!info.bf16)
        print_message("bfloat16 is left out: this processor does not multiply it\n");
    return info.bf16;
}

#endif
