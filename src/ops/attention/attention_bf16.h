/* Attention in bfloat16 on the units that multiply it (ops/bf16_unit.h): the same kernels as in attention.c and attention_bwd.c,
 * over the same rows of their grids. */
#ifndef OPS_ATTENTION_ATTENTION_BF16_H
#define OPS_ATTENTION_ATTENTION_BF16_H

#include "ops/attention_tile.h"

enum attention_kernel { ATTENTION_FORWARD, ATTENTION_BACKWARD_Q, ATTENTION_BACKWARD_KV };

/* Whether it runs calls of this type and head size here. */
bool attention_bf16_takes(enum dtype dtype, int64_t D);

/* Runs rows of a kernel's grid. False: nothing was done, for the call is of another type, its heads are larger than 256, or the
 * processor has no unit. */
bool attention_bf16(enum attention_kernel kernel, const struct call *c, int64_t begin, int64_t end);

#endif
