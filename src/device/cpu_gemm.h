/* Matmuls on the CPU by code of hone's own, and which one a processor takes: the first in the table that the processor has the
 * instructions for and that takes the matmul. oneDNN takes all others (device/gemm_onednn.c). */
#ifndef DEVICE_CPU_GEMM_H
#define DEVICE_CPU_GEMM_H

#include "base/isa.h"
#include "device/device.h"

struct cpu_gemm_plan {                /* how a matmul is cut; the order of its sums follows only from k */
    int64_t rows, columns, terms;     /* of a piece of C, and of what is packed for it at a time */
    int64_t lanes, lane;              /* how many pieces may be in progress at once, and the bytes of workspace of each */
    int64_t panel, block_at, sums_at; /* bytes of a packed panel; places in a lane's workspace */
    int64_t chain;                    /* terms that are summed before the next rows or columns are taken */
    int parts;                        /* bfloat16 numbers that a number is the sum of */
    bool packs_a, waits;              /* waits: sums do, between what is packed at a time */
};

struct cpu_gemm {
    enum isa needs;
    bool (*plan)(struct cpu_gemm_plan *plan, const struct gemm *gemm); /* false: not a matmul for this code */
    void (*run)(const struct cpu_gemm_plan *plan, const struct gemm *gemm, void *const address[GEMM_OPERANDS]);
};

/* NULL: none takes it. */
const struct cpu_gemm *cpu_gemm_choose(struct cpu_gemm_plan *plan, const struct gemm *gemm);

#endif
