/* The memory of enqueued steps, for trainer_open and trainer_close; the functions that step are in trainer.h. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/trainer.h"

/* After place.slots is known. */
enum status step_open(struct trainer *t);
void step_close(struct trainer *t);

#endif
