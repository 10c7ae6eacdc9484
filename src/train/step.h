/* Optimizer steps of a trainer: what trainer_open and trainer_close need of them; the rest is in trainer.h. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/trainer.h"

/* The memory of queued steps, once place.slots is known. */
enum status step_open(struct trainer *t);
void step_close(struct trainer *t);

#endif
