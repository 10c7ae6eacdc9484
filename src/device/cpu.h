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
    bool (*widens)(void); /* float32 matmuls take B in bfloat16; NULL: no */
};

extern const struct gemm_engine gemm_onednn;

/* For engines: the size of even parts of whole steps, an even number of them if there are several, for most machines have that
 * many processors; each of `size_max` or about so. */
static inline int64_t gemm_even_parts(int64_t size, int64_t size_max, int64_t step)
{
    int64_t count = divide_up(size, size_max);
    return count < 2 ? round_up(size, step) : round_up(divide_up(size, round_up(count, 2)), step);
}

enum status cpu_open(struct device **out, const struct gemm_engine *engine);

#endif
