/* Frozen weights of layers that do not lie on the device as a whole: a program fetches each layer ahead of its use.
 *
 * The weights of such a layer are one run of bytes. Two stages on the device, each as large as the largest of them, hold those in
 * use: even ones, counted among themselves, the first, odd ones the second. To commands, a weight lies in its stage. A fetch
 * begins after the last command that uses what the stage holds, while the device computes with the layer in the other one, and
 * has arrived before the first that needs it. A program begins with empty stages.
 *
 * Gathered: rank r keeps the r-th part of every layer's bytes, and a fetch is an all_gather. After lowering; it is begun ahead
 * where the device computes meanwhile (device_overlaps). All programs with the same order of layers make the same collectives,
 * however many tokens they have: ranks run as many programs as each other, over MPI not always the same ones (train/micro.c).
 *
 * Streamed: a layer lies in memory of the host, as it is stored, and a fetch is a COPY, which ends with an ARRIVE. Once all
 * programs are lowered and planned. The layers that stay on the device lie between the others, evenly: while it computes with
 * them, the next one is on its way.
 */
#ifndef TENSOR_STAGED_H
#define TENSOR_STAGED_H

#include "tensor/lower.h"

enum { STAGES = 2, RESIDENT_AUTO = -1 }; /* the lanes of their copies are the first ones */

struct staged_layer {
    int64_t bytes;       /* of all its weights, rounded up to equal parts of ranks */
    struct tensor *kept; /* of them: this rank's part, or all in host memory */
};

struct staged {
    bool wanted;         /* set before the first engine_add; to stream, before engine_place */
    int64_t resident;    /* with it: layers that stay. RESIDENT_AUTO is for the code that chooses, before engine_place */
    int64_t layers;      /* of the model; once they have their places, and what follows */
    int64_t count;       /* of layers that are fetched; 0: all stay */
    int64_t bytes;       /* of all of them */
    int64_t stage_bytes; /* of both stages together */
    struct staged_layer *layer;
    struct tensor *stage[STAGES];
};

struct engine;

/* The layers with frozen weights, and the bytes of the device that are saved if so many of them stay and the others are streamed:
 * less than 0 or 0 where the stages take as much. */
enum status staged_saves(const struct store *store, int64_t resident, int64_t *layers, int64_t *bytes);

/* What a forward and a backward pass copy then. */
enum status staged_copies(const struct store *store, int64_t resident, int64_t *bytes);

/* After lowering: gives weights that are gathered their places, once, and puts the collectives in. */
enum status staged_gather(struct engine *e, struct lowering *l);

/* For engine_place: gives weights that are streamed their places, and puts the copies into all programs. */
enum status staged_stream(struct engine *e);

/* Fills what this rank keeps of `count` elements of such a weight, from `first` on; or of one in host memory all of it. */
enum status staged_upload(struct engine *e, const struct tensor *tensor, int64_t first, int64_t count, const void *from,
                          enum dtype from_type);
void staged_free(struct staged *s);

#endif
