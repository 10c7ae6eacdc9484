/* The optimizer: one program that adds up the gradient sums of all ranks, divides them, takes their norm, clips, and updates all
 * trainable parameters.
 *
 * Trainable tensors become parts of one array, and so do their gradients. The optimizer's state (config/optimizers.def) and, in
 * 16-bit runs, the float32 masters are arrays with the same offsets. A table of ranges gives each part its group, which has its
 * own learning rate and weight decay. The count of updates is on the device and advances only when an update was applied.
 */
#ifndef JOB_OPTIMIZER_H
#define JOB_OPTIMIZER_H

#include "config/options.h"
#include "run/session.h"

enum { OPTIMIZER_GROUPS = 2 };   /* with decay, without */
enum { OPTIMIZER_STATES = 2 };   /* arrays of state that an optimizer can have */
enum { OPTIMIZER_CONTROLS = 5 }; /* numbers that its program outputs */

/* A row of optimizers.def. */
struct optimizer_kind {
    const char *name;
    int op;
    struct {
        const char *name; /* NULL: no more */
        enum role role;
    } state[OPTIMIZER_STATES];
};

const struct optimizer_kind *optimizer_kind(enum choice_optim choice);

/* The bytes of state for each trainable parameter, masters included. */
int64_t optimizer_state_bytes(const struct optimizer_kind *kind, enum run_type run);

/* Settings of one step; each step may have others. */
struct optimizer_settings {
    double learning_rate, beta1, beta2, epsilon;
    double weight_decay; /* of matrices; norms and biases have none */
    double max_norm;     /* that the gradient is clipped to; 0: no clipping */
};

struct optimizer {
    const struct optimizer_kind *kind;
    struct program program;
    int64_t index;      /* of the program */
    struct program sum; /* adds up the gradients of all ranks, where the last micro-batch of a step does not (SCATTER_SUM) */
    int64_t sum_index;  /* of that; -1: there is none */
    int64_t parameters; /* trainable ones */
    int64_t elements;   /* of the arrays: parts begin at multiples of 128 */
    bool sharded;       /* this rank keeps the state, and steps the weights, of `kept` elements from `first` on */
    int64_t first, kept;
    struct tensor *weights, *gradients;
    struct tensor *master; /* the weights themselves in a float32 run */
    struct tensor *state[OPTIMIZER_STATES];
    int states;
    struct tensor *count; /* (2): updates applied, steps skipped */
    struct value *hyper, *rates, *ranges, *control;
    int32_t *range; /* the table: end in units of 128 elements, group */
    int64_t range_count;
};

/* After all nets are built, before session_plan. `shard`: among the ranks of the device's group. Every rank then sums its own
 * part of the gradients of all (reduce_scatter; tensor/scatter.h does so before, where it is wanted), steps that part, and gets
 * the other parts of the weights (all_gather).
 * `alone`: the program has no collectives, and every rank steps with its own gradients. */
enum status optimizer_build(struct optimizer *o, struct session *s, const struct optimizer_kind *kind, bool shard, bool alone);
void optimizer_free(struct optimizer *o);

/* The tensors that steps change, for checkpoints: masters or weights, state, counts. Returns their number. */
enum { OPTIMIZER_TENSORS = 2 + OPTIMIZER_STATES };
int64_t optimizer_saved(const struct optimizer *o, const struct tensor *tensor); /* its elements, as one rank would have them */
int optimizer_tensors(const struct optimizer *o, struct tensor *tensor[OPTIMIZER_TENSORS], const char *name[OPTIMIZER_TENSORS]);

struct optimizer_result {
    double norm;  /* of the divided gradient, before clipping */
    bool applied; /* false: the norm was not finite or the divisor not above 0, and nothing was changed */
};

/* Its program leads (tensor/engine.h). optimizer_write writes its inputs for the next run: `divisor` is the weight of all losses
 * in the sums. The run also clears the gradient sums. */
void optimizer_write(const struct optimizer *o, struct session *s, double divisor, const struct optimizer_settings *settings);

/* Before the run, where no micro-batch has added up the gradients of all ranks; it does nothing where its program does. */
enum status optimizer_sum(const struct optimizer *o, struct session *s);

/* The result of a run, from the numbers that its program output. */
struct optimizer_result optimizer_read(const float control[OPTIMIZER_CONTROLS]);

/* One whole step: writes the inputs, runs the program, and waits for it. */
enum status optimizer_step(struct optimizer *o, struct session *s, double divisor, const struct optimizer_settings *settings,
                           struct optimizer_result *result);

/* Clears the gradient sums and changes nothing else. *norm is that of the sums, divided by nothing. */
enum status optimizer_clear(struct optimizer *o, struct session *s, double *norm);

#endif
