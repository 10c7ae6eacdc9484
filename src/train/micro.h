/* Micro-batches: starting one, and what it brings. */
#ifndef TRAIN_MICRO_H
#define TRAIN_MICRO_H

#include "train/stepper.h"

/* Allocates the host memory of micro-batches that are waited for, once their size is known. */
enum status micro_open(struct stepper *st);
void micro_close(struct stepper *st);

/* Clears the sums since the last step. */
void micro_start_over(struct stepper *st);

/* The same, and the next sequences are those of their numbers in an earlier step: dropout draws what it drew. */
void micro_go_back(struct stepper *st, int64_t step);

struct micro { /* a running micro-batch */
    const struct net *net;
    int64_t sequences, tokens, targets;
    bool ended; /* the gradient sums are those of all ranks */
};

/* Packs as many of the sequences as fit, in order, into a micro-batch, and starts its program of this loss. `ends`: the one that
 * has the last of them is the last of its step, so that its program may add up the gradients of all ranks as it completes them.
 */
enum status micro_run(struct stepper *st, const struct loss_use *loss, const struct sequence *sequences, int64_t count, bool ends,
                      struct micro *micro);

/* Where programs of training have collectives: runs empty micro-batches of this loss, so that all ranks run as many in this step
 * or call, of which these are the rank's own sequences. */
enum status micro_even_out(struct stepper *st, const struct loss_use *loss, const struct sequence *sequences, int64_t count);

/* The largest of the numbers that ranks bring. */
enum status micro_largest_of(const struct stepper *st, int64_t *number);

/* Adds the tokens, targets and weights of sequences whose losses are read later, by this rank or another, to the sums. */
void micro_weigh(struct stepper *st, const struct sequence *sequences, int64_t count);

/* Adds a target's weight to the sums. */
void micro_count_weight(struct micro_sums *sums, double weight);

/* Writes the weights of the sequences' targets in the order of the program's losses and, unless it is NULL, the number of the
 * sequence of each, counted from `first`. Returns the number of targets, at most that of the slots. */
int64_t micro_weights(const struct sequence *sequences, int64_t count, float *weights, int32_t *sequence, int64_t first);

#endif
