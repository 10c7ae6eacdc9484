/* Micro-batches of a trainer: their size and their programs. Running them is trainer_add. */
#ifndef TRAIN_MICRO_H
#define TRAIN_MICRO_H

#include "train/trainer.h"

/* Chooses place.slots and the way of recomputing, by the options and the memory that is free, and adds the largest program, which
 * must be the session's first. */
enum status micro_size(struct trainer *t);

/* Adds the other programs that the run's steps need; none if only a plan is wanted. */
enum status micro_add(struct trainer *t, bool planning);

/* Adds the programs of trainer_add_with. */
enum status micro_add_logits(struct trainer *t);

#endif
