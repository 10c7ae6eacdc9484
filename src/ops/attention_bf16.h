/* Attention in bfloat16 on the units that multiply it (ops/bf16_unit.h): the same kernels as in attention.c and attention_bwd.c,
 * over the same rows of their grids. */
#ifndef OPS_ATTENTION_BF16_H
#define OPS_ATTENTION_BF16_H

#include "ops/attention_tile.h"
#include "ops/bf16_unit.h"

#define BF16_HEAD_MAX 256 /* largest head size that they take */

#ifdef BF16_UNITS
void attention_bf16_forward(const struct bf16_unit *unit, const struct call *c, int64_t begin, int64_t end);

/* The unit for a call; NULL: it is not for one. */
static inline const struct bf16_unit *attention_unit(const struct call *c)
{
    return c->dtype[0] == DTYPE_BF16 && c->dim[AT_D] <= BF16_HEAD_MAX ? bf16_unit() : NULL;
}
#endif

#endif
