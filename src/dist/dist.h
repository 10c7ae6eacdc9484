/* The processes of one run: joining those that a launcher started, and computing with them.
 *
 * A single process opens nothing: no library, no network.
 */
#ifndef DIST_DIST_H
#define DIST_DIST_H

#include "device/device.h"

/* The group of this process, joined at the first call and the same one ever after; NULL: a single process. It speaks in host
 * memory (group_share); with MPI it has collectives in host memory too. patience: seconds for which ranks wait for one that does
 * not start or does not get on; 0: for ever. */
enum status dist_join(struct group **out, int64_t patience);

/* What this rank shares with others of its machine; all ranks call it. threads: its part of the processors; 0 for a single
 * process, which means what parallel_set_threads says. neighbours: how many ranks share the memory, itself included. */
enum status dist_seat(struct group *group, int *threads, int *neighbours);

/* Lets a device compute with the group: by NCCL on CUDA, by MPI on the others. NULL: a single process. */
enum status dist_attach(struct device *device, struct group *group);

#endif
