/* Measurements of training steps on synthetic data: the commands that the device gets, the time that they take, and whether
 * capturing steps as graphs changes anything but the time. */
#ifndef TRAIN_MEASURE_H
#define TRAIN_MEASURE_H

#include "train/trainer.h"

struct measured {
    int64_t steps;                   /* that were counted: those after the first two, which warm up */
    int64_t tokens;                  /* of each */
    double seconds;                  /* of them all */
    struct device_counters counters; /* what they added */
    int64_t host_allocations;
    struct engine_op *ops; /* of them all */
    int64_t op_count, op_capacity;
    int64_t layer_commands; /* that one decoder layer adds to a micro-batch, forward and backward; -1: not known */
};

/* Runs and counts steps of a trainer that was opened with TRAINER_MEASURE. As in a run, they are reported one step late where the
 * device works on its own. */
enum status measure_steps(struct trainer *t, int64_t steps, struct measured *m);
void measured_free(struct measured *m);

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
