/* The table of hone's own matmuls on the CPU, the fastest first. */
#include "device/cpu_gemm.h"

#if defined(__x86_64__)
extern const struct cpu_gemm gemm_amx_few, gemm_amx, gemm_avx512, gemm_avx2;
static const struct cpu_gemm *const rows[] = {&gemm_amx_few, &gemm_amx, &gemm_avx512, &gemm_avx2, NULL};
#else
static const struct cpu_gemm *const rows[] = {NULL};
#endif

const struct cpu_gemm *cpu_gemm_choose(struct cpu_gemm_plan *plan, const struct gemm *gemm)
{
    int i = 0;
    while (rows[i] && (rows[i]->needs > isa() || !rows[i]->plan(plan, gemm)))
        i++;
    return rows[i];
}
