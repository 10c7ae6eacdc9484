/* A group whose collectives are NCCL's, between cards. Small things in host memory go over another group, that of the launcher.
 */
#ifndef DIST_NCCL_H
#define DIST_NCCL_H

#include "device/device.h"

/* All ranks of `host` call it, each with the card that it will use, before any block is allocated there. Returns with the same
 * verdict on all of them. `host` must outlive the group, which is closed without it. */
enum status nccl_open(struct group **out, struct group *host, struct device *device);

#endif
