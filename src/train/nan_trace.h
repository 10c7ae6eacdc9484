/* What is at fault where a step is not finite: weights, or which of its sequences, each of which is computed once more, on its
 * own. */
#ifndef TRAIN_NAN_TRACE_H
#define TRAIN_NAN_TRACE_H

#include "train/stepper.h"

enum nan_trace_fault {
    NAN_TRACE_NONE,
    NAN_TRACE_LOSS,
    NAN_TRACE_GRADIENT
}; /* what is not finite: the loss, or only the gradient */

/* Of the step of this number, counted from 1, whose sequences these are. Weights and the optimizer's state are read and not
 * changed: where a later step is in flight, they are those after it. */
enum status nan_trace_step(struct stepper *st, int64_t step, const struct sequence *sequences, int64_t count,
                           enum nan_trace_fault *faults);

/* ERR_DATA if a trained weight is not finite: no later step can repair it, and checkpoints of it would take the place of good
 * ones. ERR_FORMAT if one in the model's files is, which are read once: *base_is_finite starts as false. All ranks of the step
 * call it. */
enum status nan_trace_weights(struct stepper *st, bool *base_is_finite);

#endif
