/* Products of experts on tensor cores: where expert_linear_mma.kl takes the place of the plain kernels.
 *
 * The factors have 16 bits, and the rows of x are read 16 bytes at a time, so their length is a multiple of eight. So are the
 * strides of an expert's matrix where its elements lie side by side; else they are read one by one.
 */
#ifndef OPS_EXPERTS_EXPERT_LINEAR_MMA_H
#define OPS_EXPERTS_EXPERT_LINEAR_MMA_H

#include "ops/experts/expert_slots.h"

#define MMA_DOWN 64 /* rows of results of a work-group: two tiles */
#define MMA_ACROSS 128
enum { EIGHT = 8 }; /* elements of 16 bytes */

#define EXPERTS_MMA(name, instead, more)                                                                                         \
    {                                                                                                                            \
        SIGNATURE_##name, .group = 128, .rows = 1, .defines = " -DWIDTH=32 -DPARTS=1" DEFINE(MMA_DOWN) DEFINE(MMA_ACROSS) more,  \
                          .plain = (instead)                                                                                     \
    }

/* A kernel for each way that elements (k, j) of the right factor lie. */
enum { RIGHT_TERMS, RIGHT_COLUMNS, RIGHT_FAR_TERMS, RIGHT_FAR_COLUMNS, RIGHT_KINDS };
#define EXPERTS_MMA_KERNELS(name, instead)                                                                                       \
    {                                                                                                                            \
        EXPERTS_MMA(name, instead, " -DRIGHT=0"), EXPERTS_MMA(name, instead, " -DRIGHT=1"),                                      \
            EXPERTS_MMA(name, instead, " -DRIGHT=2"), EXPERTS_MMA(name, instead, " -DRIGHT=3")                                   \
    }

static inline bool experts_mma_takes(const struct lowering *l, const struct value *left, const struct value *right)
{
    return l->device->tensor_cores && (left->dtype == DTYPE_BF16 || left->dtype == DTYPE_F16) && right->dtype == left->dtype &&
           left->base_offset % 16 == 0 && left->shape[1] % EIGHT == 0;
}

/* Which kind a matrix is whose experts lie `expert` elements apart, terms `down` and columns `across`, and which begins at `at`.
 */
static inline int experts_mma_kind(const struct value *w, int64_t expert, int64_t down, int64_t across, int64_t at,
                                   int64_t columns)
{
    bool by_terms = down < across, whole = w->base_offset % 16 == 0 && expert % EIGHT == 0 && at % EIGHT == 0;
    if (whole && down == 1 && across % EIGHT == 0)
        return RIGHT_TERMS;
    if (whole && across == 1 && down % EIGHT == 0 && columns % EIGHT == 0)
        return RIGHT_COLUMNS;
    return by_terms ? RIGHT_FAR_TERMS : RIGHT_FAR_COLUMNS;
}

#endif
