/* Micro-batches of a trainer: their size and their programs. Running them is trainer_add. */
#ifndef TRAIN_MICRO_H
#define TRAIN_MICRO_H

#include "train/trainer.h"

/* Chooses place.slots and the way of recomputing, by the options and the memory that is free. */
enum status micro_size(struct trainer *t);

/* Adds the largest program and, unless only a plan is wanted, those that the run's steps need. */
enum status micro_add(struct trainer *t, bool planning);

/* Adds the programs of trainer_add_with. */
enum status micro_add_logits(struct trainer *t);

#endif
