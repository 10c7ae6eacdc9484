/* Layers that do not stay on the device: their frozen weights lie in memory of the host, as they are stored, and a program copies
 * each of them ahead of its use.
 *
 * The weights of such a layer are one run of bytes. Two stages on the device, each as large as the largest of them, hold those in
 * use: even ones, counted among themselves, the first, odd ones the second. To commands, a weight lies in its stage. Once all
 * programs are lowered and planned, a COPY is put after the last command that uses what a stage holds, and an ARRIVE before the
 * first that needs the next: the copy runs at the same time as the commands between them. A program begins with empty stages.
 *
 * The layers that stay lie between the others, evenly: while the device computes with them, the next one is on its way.
 */
#ifndef TENSOR_STREAMED_H
#define TENSOR_STREAMED_H

#include "tensor/lower.h"

enum { STREAMED_STAGES = 2, STREAMED_AUTO = -1 }; /* their lanes are the first ones */

struct streamed_layer {
    int64_t bytes;
    struct tensor *kept; /* in host memory */
};

struct streamed {
    bool wanted;         /* set before engine_place */
    int64_t resident;    /* with it: layers that stay. STREAMED_AUTO is for the code that chooses, before engine_place */
    int64_t layers;      /* of the model; from engine_place on, and what follows */
    int64_t count;       /* of layers that are copied; 0: all stay */
    int64_t bytes;       /* of all of them, in host memory */
    int64_t stage_bytes; /* of both stages together */
    struct streamed_layer *layer;
    struct tensor *stage[STREAMED_STAGES];
};

struct engine;

/* The layers with frozen weights, and the bytes of the device that are saved if so many of them stay: less than 0 or 0 where the
 * stages take as much. */
enum status streamed_saves(const struct store *store, int64_t resident, int64_t *layers, int64_t *bytes);

/* What a forward and a backward pass copy then. */
enum status streamed_copies(const struct store *store, int64_t resident, int64_t *bytes);

/* For engine_place: gives the weights their places in host memory and in stages, and puts the copies into all programs. */
enum status streamed_place(struct engine *e);
void streamed_free(struct streamed *s);

#endif
