/* The CPU device over an engine for matrix products (matmuls): oneDNN in the library, plain double-precision loops in the tests'
 * reference. */
#ifndef DEVICE_CPU_H
#define DEVICE_CPU_H

#include "base/number.h"
#include "device/device.h"

struct gemm_plan; /* one matmul, ready to run on any addresses */

struct gemm_engine {
    enum status (*open)(void **state);
    void (*close)(void *state);
    enum status (*create)(void *state, const struct gemm *gemm, struct gemm_plan **out, int64_t *workspace);
    void (*destroy)(struct gemm_plan *plan);
    enum status (*run)(struct gemm_plan *plan, void *const address[GEMM_OPERANDS]); /* NULL: an operand that it does not have */
    bool (*joins)(const struct gemm *gemm); /* whether `create` takes this one, with its k2; NULL: it takes none */
    bool (*has_bf16)(void);
};

extern const struct gemm_engine gemm_onednn;

/* For engines: the size of even parts of whole steps, an even number of them if there are several, for most machines have that
 * many processors; each of `size_max` or about so. */
static inline int64_t gemm_even_parts(int64_t size, int64_t size_max, int64_t step)
{
    int64_t count = divide_up(size, size_max);
    return count < 2 ? round_up(size, step) : round_up(divide_up(size, round_up(count, 2)), step);
}

/* What multiplies bfloat16 here: AVX-512's dot products, or AMX's tiles, which the process may use then. It is what oneDNN finds,
 * and DNNL_MAX_CPU_ISA lowers it. */
enum cpu_bf16 { CPU_BF16_NONE, CPU_BF16_DOTS, CPU_BF16_TILES };
enum cpu_bf16 cpu_bf16(void);

enum status cpu_open(struct device **out, const struct gemm_engine *engine);

#endif
