/* Room on the disk for what a run will save: looked for before the first step, not found missing after hours. */
#ifndef TRAIN_SPACE_H
#define TRAIN_SPACE_H

#include "train/trainer.h"

/* About the bytes of a checkpoint, rather more than less, and of the adapter or model in it. */
int64_t space_checkpoint(const struct trainer *t, int64_t *result);

/* How many checkpoints the run will add to its `existing` ones at the worst moment: a new one is whole before an old one goes. */
int64_t space_count(const struct trainer *t, int64_t existing);

/* The disk that a run needs at its worst moment, and what is free for it; -1: the system does not say. */
struct space {
    int64_t checkpoint, count, bytes, room;
};
enum status space_plan(const struct trainer *t, struct space *space);

/* ERR_IO if the checkpoints and the result do not fit on the disk of the output, which need not exist. */
enum status space_check(const struct trainer *t);

#endif
