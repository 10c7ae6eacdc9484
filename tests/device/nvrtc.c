/* Stands in for NVRTC in tests of how its library is found. It has the version of its build (RELEASE) and compiles nothing. It
 * knows a target only if it can open its other library by the bare name, as NVRTC 13.0 does when it compiles. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda_api.h"

static nvrtcResult answer(const char *function, int *first, int *second)
{
    if (!strcmp(function, "nvrtcVersion"))
        return sscanf(RELEASE, "%d.%d", first, second) != 2;
    if (!strcmp(function, "nvrtcGetNumSupportedArchs"))
        return *first = 1, !dlopen("libnvrtc-builtins.so." RELEASE, RTLD_LAZY);
    if (!strcmp(function, "nvrtcGetSupportedArchs"))
        return *first = 89, 0;
    return 1;
}

#define NVRTC(name, arguments)                                                                                                   \
    __attribute__((visibility("default"))) nvrtcResult name(int *first, int *second);                                            \
    nvrtcResult name(int *first, int *second)                                                                                    \
    {                                                                                                                            \
        return answer(#name, first, second);                                                                                     \
    }
#include "device/cuda_symbols.def"
