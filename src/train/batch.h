/* Micro-batches: sequences side by side in T token slots, and what a program needs to know of them. */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include "models/net.h"
#include "tensor/engine.h"
#include "train/data.h"

/* Rows [first, first + count) of a data set, in file order. */
struct batch {
    int64_t first, count;
    int64_t tokens, trained;
};

/* Cuts a data set into batches of at most `slots` tokens; each row must fit. *batches is allocated. */
enum status batch_cut(const struct data *data, int64_t slots, struct batch **batches, int64_t *count);

/* The capacity for loss rows that a batch needs in a program of T slots: T/8, T/4, T/2 or T. */
int64_t batch_rows(int64_t T, int64_t trained);

/* Lays sequence `count` tokens of `ids` into slots from `slot` on. */
void batch_place(struct engine *e, const struct net *n, int64_t slot, const int32_t *ids, int64_t count);

/* Fills the slots from `slot` to the end, and the rows from `row` to the end, with what changes nothing. */
void batch_pad(struct engine *e, const struct net *n, int64_t slot, int64_t row);

/* A whole batch into a loss program: tokens, rows and targets. */
void batch_write(struct engine *e, const struct net *n, const struct data *data, const struct batch *batch);

#endif
