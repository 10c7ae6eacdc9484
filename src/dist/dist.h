/* The processes of one run: joining those that a launcher started, and computing with them.
 *
 * A process that is alone opens nothing: no library, no network.
 */
#ifndef DIST_DIST_H
#define DIST_DIST_H

#include "device/device.h"

/* The group of this process, joined at the first call and the same one ever after; NULL: it is alone. It speaks in host memory
 * (group_share); with MPI it has collectives in host memory too. */
enum status dist_join(struct group **out);

/* How many threads this rank gets where several ranks share the processors of a machine; all ranks call it. Alone: 0, which
 * means what parallel_set_threads says. */
enum status dist_threads(struct group *group, int *threads);

/* Lets a device compute with the group: by NCCL on CUDA, by MPI on the others. NULL: alone. */
enum status dist_attach(struct device *device, struct group *group);

#endif
