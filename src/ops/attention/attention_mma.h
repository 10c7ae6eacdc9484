/* Attention on tensor cores: where attention_mma.kl and attention_mma_bwd.kl take the place of the plain kernels.
 *
 * They read 16 bytes at a time, so a head must have a whole number of them, and hold a part of a head's channels in registers: a
 * warp has MMA_PART bytes of a row at most, and up to four warps share it.
 */
#ifndef OPS_ATTENTION_ATTENTION_MMA_H
#define OPS_ATTENTION_ATTENTION_MMA_H

#include "ops/attention_tile.h"

enum { MMA_PART = 256, MMA_PART_KV = 160, MMA_PARTS = 4 }; /* a key has two sums and two fragments, a query less */

/* A kernel for 1, 2 and 4 warps that share a row. `instead` is the plain kernel, on the same operands. */
#define MMA_KERNEL(name, parts, threads, instead, more)                                                                          \
    {                                                                                                                            \
        SIGNATURE_##name, .group = (threads), .rows = 1, .has_width = true, .width = AT_D, .multiple = 16 * (parts),             \
                          .defines = " -DPARTS=" DEFINE_TEXT(parts) more, .plain = (instead)                                     \
    }
#define MMA_KERNELS(name, instead, more)                                                                                         \
    {                                                                                                                            \
        MMA_KERNEL(name, 1, 128, instead, more), MMA_KERNEL(name, 2, 256, instead, more),                                        \
            MMA_KERNEL(name, 4, 256, instead, more)                                                                              \
    }

/* Which of the three takes heads of these values, if `part` bytes of a row fit into a warp; NULL: none. */
static inline const struct kernel *mma_kernel(const struct kernel kernels[3], const struct lowering *l, int count,
                                              struct value *const *values, int64_t part)
{
    enum dtype type = values[0]->dtype;
    int64_t bytes = values[0]->shape[2] * dtype_size(type), parts = divide_up(bytes, part);
    if (!l->device->tensor_cores || (type != DTYPE_F32 && type != DTYPE_BF16 && type != DTYPE_F16) || bytes % 16)
        return NULL;
    for (int i = 0; i < count; i++)
        if (values[i]->dtype != type || values[i]->base_offset % 16)
            return NULL;
    return parts > MMA_PARTS ? NULL : &kernels[parts > 2 ? 2 : parts > 1];
}

/* How many rows (queries or keys) a group of such a kernel has. */
static inline int64_t mma_rows(const struct kernel *kernel)
{
    return (int64_t)kernel->group / 2 / (kernel->multiple / 16);
}

#endif
