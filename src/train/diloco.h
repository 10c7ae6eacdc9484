/* Runs over slow networks (--sync-every H): DiLoCo, arXiv:2311.08105. Ranks step on their own for H steps, each with the
 * gradients of its own share of the rows, and then exchange how far they went. The mean of that is the gradient of an outer
 * optimizer, Nesterov's, which moves the weights that all began with. So the weights travel
 * once in H steps, and nothing else does.
 *
 * Ranks also exchange before a validation and before a checkpoint, which then see one set of weights. The state of the inner
 * optimizer stays each rank's own.
 */
#ifndef TRAIN_DILOCO_H
#define TRAIN_DILOCO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct options;
struct stepper;

struct diloco {
    bool on, int8;    /* int8: what is exchanged is rounded to 8 bits, and what that loses is added to the next exchange */
    int64_t elements; /* of the trained array */
    float *start;     /* the weights after the last exchange */
    float *moved;     /* how far this rank went since, then all on average */
    float *momentum;
    float *lost;        /* by rounding; NULL: it is not rounded */
    int8_t *packed;     /* [ranks]: scales of blocks, then a byte for each element */
    int64_t part_bytes; /* of a rank's part of `packed` */
};

/* The weights must be those that training begins with; `resumed`: out of a checkpoint. ERR_UNSUPPORTED where ranks cannot
 * exchange host memory. */
enum status diloco_open(struct stepper *st, bool resumed);
void diloco_close(struct diloco *s);

/* The weights are others now: the next exchange counts from these, without momentum. */
enum status diloco_start_over(struct stepper *st);

/* Whether ranks exchange after this step; the same on all of them. */
bool diloco_due(const struct stepper *st, int64_t step);

/* Between two steps, with nothing in flight; all ranks call it. */
enum status diloco_exchange(struct stepper *st);

#endif
