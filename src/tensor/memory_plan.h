/* The planner: gives every value of a lowered program its place {lifetime's block, offset}, only from shapes.
 *
 * Dead activations give their memory to later ones; inputs and outputs lie side by side. The sizes are exact: they are what is
 * allocated.
 */
#ifndef TENSOR_MEMORY_PLAN_H
#define TENSOR_MEMORY_PLAN_H

#include "tensor/lower.h"

/* Sets place.offset of all roots that are not tensors and returns the bytes that each lifetime needs. */
enum status plan_program(const struct lowering *l, int64_t bytes[LIFE_COUNT]);

#endif
