/* The optimizer: one program that divides the gradient sums, takes their norm, clips, and steps AdamW over all trainable
 * parameters at once.
 *
 * The tensors that training made trainable become parts of one array, and so do their gradients; the two moments and, in 16-bit
 * runs, the float32 masters lie beside them at the same offsets. A table of ranges gives each part its group, which has its own
 * learning rate and decay. Adam's count of updates is on the device and advances only when an update was applied.
 */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "run/session.h"

struct optimizer_options {
    double beta1, beta2, epsilon;
    double weight_decay; /* of matrices; norms and biases have none */
};

enum { OPTIMIZER_GROUPS = 2 }; /* with decay, without */

struct optimizer {
    struct program program;
    int64_t index;      /* of the program */
    int64_t parameters; /* trainable ones */
    int64_t elements;   /* of the arrays: parts begin at multiples of 128 */
    struct tensor *weights, *gradients, *moment1, *moment2;
    struct tensor *master; /* the weights themselves in a float32 run */
    struct tensor *count;  /* (2): updates applied, steps skipped */
    struct value *scalars, *rates, *ranges, *control;
    int32_t *range; /* the table: end in units of 128 elements, group */
    int64_t range_count;
    double weight_decay;
};

/* After all nets are built, before session_plan. */
enum status optimizer_build(struct optimizer *o, struct session *s, const struct optimizer_options *options);
void optimizer_free(struct optimizer *o);

struct optimizer_result {
    double norm;  /* of the divided gradient, before clipping */
    bool applied; /* false: the norm was not finite, and nothing was changed */
};

/* Its program leads (tensor/engine.h). optimizer_write lays out its inputs for the next run: `divisor` is the weight of all
 * losses in the sums, max_norm 0 means no clipping. The run also clears the gradient sums. */
void optimizer_write(const struct optimizer *o, struct session *s, double divisor, double max_norm, double learning_rate);

/* What it put out, from its control (5). */
struct optimizer_result optimizer_read(const float *control);

/* One step, all in one: written, run, and waited for. */
enum status optimizer_step(struct optimizer *o, struct session *s, double divisor, double max_norm, double learning_rate,
                           struct optimizer_result *result);

#endif
