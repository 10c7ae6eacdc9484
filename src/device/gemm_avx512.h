/* Float32 matmuls of many rows by code of hone's own, for processors with AVX-512. */
#ifndef DEVICE_GEMM_AVX512_H
#define DEVICE_GEMM_AVX512_H

#include "device/device.h"

struct avx512_plan {              /* how a matmul is cut; all of it follows from the matmul, except how many lanes there are */
    int64_t rows, columns, terms; /* of a piece of C, and of what is packed for it at a time */
    int64_t lanes, lane;          /* how many pieces may be in progress at once, and the bytes of workspace of each */
    int64_t panel, block_at, sums_at; /* bytes of a packed panel; places in a lane's workspace */
    bool packs_a, waits;              /* waits: sums do, between parts of the terms */
};

/* false: not a matmul for this code. */
bool gemm_avx512_plan(struct avx512_plan *plan, const struct gemm *gemm);
void gemm_avx512_run(const struct avx512_plan *plan, const struct gemm *gemm, void *const address[GEMM_OPERANDS]);

#endif
