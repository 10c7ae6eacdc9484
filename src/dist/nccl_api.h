/* NCCL, opened at run time. Nothing of it is needed to build: these declarations are its ABI, as far as hone uses it
 * (nccl_symbols.def), under NVIDIA's names. tests/cuda/headers.py compares them with NVIDIA's nccl.h. */
#ifndef DIST_NCCL_API_H
#define DIST_NCCL_API_H

#include "device/cuda_api.h"

typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct nccl_communicator_object *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

/* As in NCCL 2.14, with which every later one begins: `size` and `version` tell the library that the rest is not there. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} ncclConfig_t;

enum { NCCL_VERSION_MIN = 21400 }; /* also the version of the configuration */

#define NCCL_MAGIC 0xcafebeefu /* what NCCL_CONFIG_INITIALIZER puts into `magic` */

enum {
    ncclSuccess = 0,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclSum = 0,
    ncclInt32 = 2,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
};

struct nccl_library {
#define NCCL(result, name, arguments) result(*name) arguments;
#include "dist/nccl_symbols.def"
};

extern struct nccl_library nc; /* filled by nccl_load, once for the process */

/* ERR_DEVICE if it is missing, older than 2.14, or has not all that hone uses; the message says what to install. */
enum status nccl_load(int *version);

#endif
