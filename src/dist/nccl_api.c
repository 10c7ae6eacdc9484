/* Opening NCCL, wherever the system, the CUDA toolkit, conda or pip put it. */
#include "dist/nccl_api.h"

#include <stdlib.h>

#include "base/library.h"

struct nccl_library nc;

static enum status nccl_api_find(void)
{
    void *library;
    TRY(cuda_open_library(&library, "HONE_NCCL_LIBRARY", (const char *const[]){"libnccl.so.2", NULL}));
    if (!library)
        return fail(
            ERR_DEVICE,
            "NCCL, through which cards compute together, was not found in the system, $CUDA_HOME, conda or pip's packages: "
            "pip install nvidia-nccl-cu%d",
            *cuda_wheel_end() ? 12 : 13);
#define NCCL(result, name, arguments)                                                                                            \
    *(void **)&nc.name = library_symbol(library, #name);                                                                         \
    if (!nc.name)                                                                                                                \
        return fail(ERR_DEVICE, "NCCL has no " #name ": hone needs 2.14 or later");
#include "dist/nccl_symbols.def"
    return OK;
}

enum status nccl_load(int *version)
{
    if (!nc.ncclBroadcast) {
        setenv("NCCL_RUNTIME_CONNECT", "0",
               0); /* its buffers are taken when ranks connect: before blocks, as the plan wants it */
        TRY(nccl_api_find());
    }
    if (nc.ncclGetVersion(version) != ncclSuccess)
        return fail(ERR_DEVICE, "NCCL does not report its version");
    if (*version < NCCL_VERSION_MIN)
        return fail(ERR_DEVICE, "NCCL is of version %d.%d, hone needs 2.14 or later", *version / 10000, *version / 100 % 100);
    return OK;
}
