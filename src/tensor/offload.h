/* Activations that wait in memory of the host: what the backward pass needs of a layer lies unused while the layers after it are
 * computed, forward and backward.
 *
 * After lowering, an activation that a layer has used last before two more layers are computed is copied out, and copied in
 * again, to other memory, before its first use in the backward pass. Commands from there on use that. All of a layer go together:
 * their memory is free once the copies of the next layer begin, and the copies in begin when those of the layer after it are
 * first used. Copies run at the same time as the commands (device/device.h). To the planner they are uses like any other.
 */
#ifndef TENSOR_OFFLOAD_H
#define TENSOR_OFFLOAD_H

#include "tensor/lower.h"

struct offload {
    bool wanted;         /* set before engine_add */
    struct tensor *host; /* where they wait, those of all programs at the same place; NULL: nothing does */
};

struct engine;

/* After lowering, before planning: puts the copies in. *bytes: what waits in host memory. */
enum status offload_lower(struct engine *e, struct lowering *l, int64_t *bytes);

/* For engine_place: room for the programs that are left. */
void offload_place(struct engine *e);

#endif
