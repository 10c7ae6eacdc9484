/* Gradients of all ranks, added up by the programs of training themselves, each as soon as it is complete.
 *
 * What is trained lies in one array (tensor/tensors.h), which is cut into buckets: one for each layer, and what comes before and
 * after them. After lowering, collectives are put in after the last command that adds to a bucket's gradients. They are only
 * begun there, where the device can compute meanwhile (device_overlaps): the backward pass goes on.
 *
 * SCATTER_SUM: every rank keeps all sums, and only the last run of an optimizer step has the collectives (engine_run_ending): an
 * all_reduce of each bucket, in place, waited for at the program's end.
 *
 * SCATTER_KEEP: rank r keeps the r-th part of the sums. In a program a bucket is an activation like any other: it is born, as
 * zeros, before the first command that adds to a gradient in it. Once it is complete its pieces are reduced, each to the rank
 * that keeps it, which adds it to what it keeps; it dies when the next bucket is complete. So of whole gradients a rank holds
 * those of two layers, and of what is used in the whole backward pass, as an embedding that is the head too. Every run has the
 * collectives.
 *
 * All programs of training make the same collectives in the same order, however many tokens they have: ranks need not run the
 * same ones.
 */
#ifndef TENSOR_SCATTER_H
#define TENSOR_SCATTER_H

#include "tensor/lower.h"

enum scatter_kind { SCATTER_NONE, SCATTER_SUM, SCATTER_KEEP };

struct scatter_bucket {
    int64_t begin, end; /* elements of the array */
};

struct scatter {
    enum scatter_kind kind; /* set before the first engine_add */
    struct scatter_bucket *bucket;
    int64_t bucket_count;
    int64_t *order; /* in which the programs complete the buckets */
    int64_t order_count;
    struct tensor *sums; /* the array, or what this rank keeps of it; NULL before the first program of training */
};

struct engine;

/* After lowering: gives gradients their place, and puts in the collectives. */
enum status scatter_lower(struct engine *e, struct lowering *l);
void scatter_free(struct scatter *s);

#endif
