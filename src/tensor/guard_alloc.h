/* Guard mode, for tests ($HONE_GUARD=1): every value of every program, and every tensor, is an allocation of its own, as large as
 * it is and not filled. A command that reaches beyond a value, or reads what nothing has written, then touches memory that the
 * device can tell apart; in the usual blocks it would find a neighbour or zeros. What the engine promises to be zero still is:
 * gradient sums, the optimizer's state, the cache, and what lies between trained tensors, which the optimizer steps too.
 *
 * Inputs are copied one by one, and reads for later are done at once: a run is slower, and its results are the same.
 */
#ifndef TENSOR_GUARD_ALLOC_H
#define TENSOR_GUARD_ALLOC_H

#include "tensor/engine.h"

/* What there is of guard mode in an engine. Inputs and outputs outlive the preparation of their program. */
struct guard_alloc {
    struct guard_alloc_program {
        struct guard_alloc_value {
            const struct value *value;
            struct operand place; /* the engine's block, and bytes into it */
        } * value;
        int64_t count, capacity;
    } * programs;
    char *later[DEVICE_LATER]; /* outputs, at the places that they have in their block */
};

bool guard_alloc_wanted(void);

/* Gives every value of every program a block; after engine_place has done its own. */
enum status guard_alloc_place(struct engine *e);
void guard_alloc_free(struct engine *e);

/* Where a value is: the engine's block, and bytes into it. */
struct operand guard_alloc_operand(const struct engine *e, const struct value *value);

/* Whether a block must hold zeros when it is allocated. */
bool guard_alloc_zeroed(enum lifetime lifetime);

enum status guard_alloc_write_inputs(struct engine *e, int64_t index);
enum status guard_alloc_later_open(struct engine *e, int64_t index);
enum status guard_alloc_read_later(struct engine *e, int slot, const struct value *output);

#endif
