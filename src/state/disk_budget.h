/* Room on the disk for what a run will save: looked for before the first step, not found missing after hours. */
#ifndef STATE_DISK_BUDGET_H
#define STATE_DISK_BUDGET_H

#include "state/snapshot.h"

/* About the bytes of a checkpoint, rather more than less, and of the adapter or model in it. */
int64_t disk_budget_checkpoint(const struct snapshot *snap, int64_t *result);

/* How many checkpoints the run will add to its `existing` ones at the worst moment: a new one is whole before an old one goes. */
int64_t disk_budget_count(const struct snapshot *snap, int64_t existing);

/* The disk that a run needs at its worst moment, and what is free for it; -1: the system does not say. */
struct disk_budget {
    int64_t checkpoint, count, bytes, room;
};
enum status disk_budget_plan(const struct snapshot *snap, struct disk_budget *budget);

/* ERR_IO if the checkpoints and the result do not fit on the disk of the output, which need not exist. */
enum status disk_budget_check(const struct snapshot *snap);

#endif
