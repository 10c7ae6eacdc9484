/* The estimate of a step on several cards that share the rows of a step: what each of them holds, sends, and waits for.
 *
 * A ring moves 2 (N - 1) / N of what is reduced through every rank's link, and (N - 1) / N of what is gathered or scattered. A
 * network reaches an assumed share of its published rate, and every collective takes an assumed time to begin, which grows with
 * the logarithm of N. Two bounds are given: communication after the work, and under it.
 */
#ifndef PERF_CLUSTER_H
#define PERF_CLUSTER_H

#include "perf/estimate.h"

/* What each rank keeps only its part of: the words of --shard. */
enum scale_layout_id {
    SCALE_NONE,      /* every rank holds everything; gradient sums are reduced once a step */
    SCALE_OPTIMIZER, /* the optimizer's state: sums are scattered, new weights gathered */
    SCALE_GRADIENTS, /* and the gradient sums: those of each layer are reduced in every micro-batch */
    SCALE_WEIGHTS,   /* and the frozen weights of layers, as stored: each is gathered before its forward and its backward pass */
    SCALE_COUNT
};

struct scale_layout {
    const char *name, *words;
    int64_t rank_bytes; /* of the device's memory */
    bool fits;
    double payload;                      /* bytes that a rank hands to collectives in a step */
    double sent;                         /* bytes that a rank sends */
    double seconds;                      /* that this takes */
    double after_seconds, under_seconds; /* of a step, with communication after the work, and under it */
    double after_tokens, under_tokens;   /* a second, of all ranks */
};

struct scale {
    int64_t ranks;
    double network;        /* bits a second of each rank's link, each way, as published */
    double share, latency; /* assumed: of that rate, and seconds for a collective to begin, times the logarithm of the ranks */
    struct scale_layout layout[SCALE_COUNT];
};

/* `e` is of one rank's share of a step. `peak` is what the device needs of memory without any sharing, `memory` what it has. */
void scale_make(const struct build *b, const struct estimate *e, int64_t ranks, double network, int64_t peak, int64_t memory,
                struct scale *s);

#endif
