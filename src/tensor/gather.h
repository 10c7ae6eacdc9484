/* Frozen weights by rank: each rank keeps a part of every layer's weights, as they are stored, and a program gathers a layer just
 * before it uses it.
 *
 * The weights of a layer are one run of bytes, of which rank r keeps the r-th part. Two stages, each as large as the largest
 * layer, hold the layers that are in use: even ones the first, odd ones the second. To commands, a weight lies in its stage.
 * After lowering, an all_gather is put in for each command that needs a layer which is not in its stage: after the last command
 * that used what was in that stage, while the layer in the other one is computed. Where the device computes meanwhile
 * (device_overlaps) it is begun there, and waited for before the command. A program begins with empty stages, so all programs
 * with the same order of layers make the same collectives, however many tokens they have: ranks run as many programs as each
 * other, over MPI not always the same ones (train/micro.c).
 */
#ifndef TENSOR_GATHER_H
#define TENSOR_GATHER_H

#include "tensor/lower.h"

enum { GATHER_STAGES = 2 };

struct gather_layer {
    int64_t bytes;       /* of all its weights, rounded up to equal parts */
    struct tensor *kept; /* bytes / ranks of them */
};

struct gather {
    bool wanted; /* set before the first engine_add */
    struct gather_layer *layer;
    int64_t layer_count;
    struct tensor *stage[GATHER_STAGES];
};

struct engine;

/* After lowering: gives the frozen weights of layers their place in the stages, once, and puts in the collectives. */
enum status gather_lower(struct engine *e, struct lowering *l);

/* Fills what this rank keeps of `count` elements of such a weight, from `first` on; or of one in host memory all of it. */
enum status gather_upload(struct engine *e, const struct tensor *tensor, int64_t first, int64_t count, const void *from,
                          enum dtype from_type);
void gather_free(struct gather *g);

#endif
