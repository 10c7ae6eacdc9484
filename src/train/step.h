/* The memory of enqueued steps, for trainer_open and trainer_close; the functions that step are in trainer.h. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/trainer.h"

/* After place.slots is known. */
enum status step_open(struct trainer *t);
void step_close(struct trainer *t);

/* The share of a step that its matmuls take at their fastest: 1 would be a step of nothing else. NAN: not known. */
double step_engine_share(const struct trainer_step *step);

#endif
