/* What is at fault where a step is not finite: weights, or which of its sequences, each of which is computed once more, alone. */
#ifndef TRAIN_TRACE_H
#define TRAIN_TRACE_H

#include "train/trainer.h"

enum trace_fault { TRACE_NONE, TRACE_LOSS, TRACE_GRADIENT }; /* what is not finite: the loss, or the gradient alone */

/* Of the step of this number, counted from 1, whose sequences these are. Weights and the optimizer's state are read and not
 * changed: where a later step is in flight, they are those after it. */
enum status trace_step(struct trainer *t, int64_t step, const struct sequence *sequences, int64_t count,
                       enum trace_fault *faults);

/* ERR_DATA if a trained weight is not finite: no later step can mend it, and checkpoints of it would take the place of good ones.
 * ERR_FORMAT if one in the model's files is, which are read once: *base_is_finite starts as false. All ranks of the step call it.
 */
enum status trace_weights(struct trainer *t, bool *base_is_finite);

#endif
