/* Micro-batches of a trainer: their size, their programs, and starting one. */
#ifndef TRAIN_MICRO_H
#define TRAIN_MICRO_H

#include "train/trainer.h"

/* Chooses place.slots and the kind of recompute from the options and the free memory, and adds the largest program, which must be
 * the session's first. */
enum status micro_size(struct trainer *t);

/* The rows of a step, and how many of them this rank takes: those at micro_mine(0), micro_mine(1), ... */
enum status micro_rows(struct trainer *t, int64_t step, const int64_t **rows, int64_t *count);
int64_t micro_mine(const struct trainer *t, int64_t i);

/* Whether all ranks must run the same lists of commands at the same time: a graph with collectives of NCCL is launched together
 * with the graphs that the other ranks captured with it, and no others. Then there is one program alone, the largest. */
bool micro_same_lists(const struct trainer *t);

/* Adds the other programs that the run's steps need; none when planning. */
enum status micro_add(struct trainer *t, bool planning);

/* Calls `visit` for each micro-batch of a step, as a run would pack it. */
typedef enum status micro_visit(struct trainer *t, int64_t tokens, int64_t targets, void *context);
enum status micro_pack(struct trainer *t, int64_t step, micro_visit *visit, void *context);

/* The smallest program that holds this many tokens and targets. */
int64_t micro_program(const struct trainer *t, int64_t tokens, int64_t targets);

/* Adds the programs of trainer_add_with. */
enum status micro_add_logits(struct trainer *t);

/* Allocates the host memory of micro-batches that are waited for, once their size is known. */
enum status micro_open(struct trainer *t);
void micro_close(struct trainer *t);

/* Clears the sums since the last step. */
void micro_start_over(struct trainer *t);

/* The same, and the next sequence is the one of this number, counted from 0, of an earlier step: dropout draws what it drew. */
void micro_go_back(struct trainer *t, int64_t step, int64_t sequence);

struct micro { /* a running micro-batch */
    const struct net *net;
    int64_t sequences, tokens, targets;
    bool ended; /* the gradient sums are those of all ranks */
};

/* Packs as many of the sequences as fit, in order, into a micro-batch, and starts its program. `ends`: the one that has the last
 * of them is the last of its step, so that its program may add up the gradients of all ranks as it completes them. */
enum status micro_run(struct trainer *t, const struct sequence *sequences, int64_t count, bool ends, struct micro *micro);

/* Where programs of training have collectives: runs empty micro-batches, so that all ranks run as many in this step, of which
 * these are the rank's own sequences. */
enum status micro_even_out(struct trainer *t, const struct sequence *sequences, int64_t count);

/* Adds the tokens, targets and weights of sequences whose losses are read later, by this rank or another, to the sums. */
void micro_weigh(struct trainer *t, const struct sequence *sequences, int64_t count);

/* Writes the weights of the sequences' targets in the order of the program's losses and, unless it is NULL, the number of the
 * sequence of each, counted from `first`. Returns the number of targets, at most that of the slots. */
int64_t micro_weights(const struct sequence *sequences, int64_t count, float *weights, int32_t *sequence, int64_t first);

#endif
