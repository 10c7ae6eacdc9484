/* Matmuls of many rows on the tiles of AMX, by code of hone's own: bfloat16, and float32 as sums of bfloat16 numbers. */
#ifndef DEVICE_GEMM_AMX_H
#define DEVICE_GEMM_AMX_H

#include "device/device.h"

struct amx_plan {                     /* how a matmul is cut; the order of its sums follows only from k */
    int64_t rows, columns, terms;     /* of a piece of C, and of what is packed for it at a time */
    int64_t lanes, lane;              /* how many pieces may be in progress at once, and the bytes of workspace of each */
    int64_t panel, block_at, sums_at; /* bytes of a packed panel; places in a lane's workspace */
    int64_t chain;                    /* terms that are summed before the next rows or columns are taken */
    int parts;                        /* bfloat16 numbers that a number is the sum of */
    bool waits;                       /* sums do, between what is packed at a time */
};

/* false: not a matmul for this code. */
bool gemm_amx_plan(struct amx_plan *plan, const struct gemm *gemm);
void gemm_amx_run(const struct amx_plan *plan, const struct gemm *gemm, void *const address[GEMM_OPERANDS]);

#endif
