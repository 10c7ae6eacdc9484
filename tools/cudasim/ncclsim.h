/* NCCL as the simulator provides it: names, values and signatures of the real library. */
#ifndef TOOLS_CUDASIM_NCCL_H
#define TOOLS_CUDASIM_NCCL_H

#include "cudasim.h"

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;
typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 } ncclRedOp_t;
typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
} ncclDataType_t;

/* The members of NCCL 2.14, with which every later one begins; `size` and `version` say which a caller has. */
typedef struct ncclConfig {
    size_t size;
    unsigned magic, version;
    int blocking;
} ncclConfig_t;
#define NCCL_MAGIC 0xcafebeefu

/* Every function of NCCL is one line of nccl.def; here are the prototypes. */
#define C(result, name, args) CUDASIM_EXPORT result name args;
#include "nccl.def"
#undef C

#endif
