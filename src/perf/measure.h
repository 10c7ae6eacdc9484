/* Measurements of training steps on synthetic data: the commands that the device gets, the time that they take, next to that of
 * only their matmuls, and whether capturing steps as graphs changes anything but the time. */
#ifndef PERF_MEASURE_H
#define PERF_MEASURE_H

#include "train/trainer.h"

struct measured {
    int64_t steps;                   /* that were counted: those after the first two, which warm up */
    int64_t tokens;                  /* of each */
    double seconds;                  /* of them all */
    struct device_counters counters; /* what they added */
    int64_t host_allocations;
    int64_t communicated[COLLECTIVES]; /* bytes handed to collectives */
    double waited;                     /* seconds that the host waited for other ranks */
    struct engine_op *ops;             /* of them all */
    int64_t op_count, op_capacity;
    int64_t layer_commands; /* that one decoder layer adds to a micro-batch, forward and backward; -1: not known */
    int64_t layer_bytes;    /* of their operands */
};

/* Runs and counts steps of a trainer of trainer_bench. As in a run, they are reported one step late where the
 * device works on its own. */
enum status measure_steps(struct trainer *t, int64_t steps, struct measured *m);
void measured_free(struct measured *m);

struct profile_op { /* of a step: all commands of one op */
    const struct op *op;
    int64_t calls, bytes;
    double flops;
    double seconds, bare_seconds; /* and of only its matmuls; medians over the rounds */
};

struct profile {
    int64_t rounds;
    struct profile_op *ops; /* those that take longest first */
    int64_t op_count, op_capacity;
    double step_seconds; /* of a step as in a run */
    double ops_seconds;  /* of all ops, each waited for */
    double bare_seconds; /* of only the matmuls of a step (tensor/timing.h) */
    double flops;
};

/* The matmuls of attention (tensor/timing.h): which head a query belongs to does not matter to the number of multiplications. */
int measure_products(const struct node *n, struct gemm product[TIMING_PRODUCTS]);

/* Each round runs a step as in a run, one whose commands are timed, and only the matmuls of a step, so that other load on the
 * machine affects all three the same. The trainer is one of trainer_bench with measure_products; its weights are of no use after
 * it. */
enum status measure_profile(struct trainer *t, int64_t rounds, struct profile *p);
void profile_free(struct profile *p);

struct measured_graphs {
    int64_t steps;                               /* whose results were compared */
    int64_t timed;                               /* of each kind */
    bool captured;                               /* false: the device made no graphs, and said why */
    bool same;                                   /* losses, weights and the optimizer's state are the same bytes */
    double captured_seconds, uncaptured_seconds; /* of a step: the medians of several alternating rounds */
};

/* Runs the same steps captured and uncaptured, each with its own trainer, then times both kinds in turn with one of them. */
enum status measure_graphs(const struct options *options, int64_t steps, struct measured_graphs *m);

#endif
