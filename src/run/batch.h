/* Micro-batches: sequences side by side in T token slots, and what a program needs to know about them. */
#ifndef RUN_BATCH_H
#define RUN_BATCH_H

#include "data/data.h"
#include "models/net.h"
#include "tensor/engine.h"

/* Rows [first, first + count) of a data set, in file order. Starts as {0}, before the first row. */
struct batch {
    int64_t first, count;
    int64_t tokens, trained;
};

/* The next rows after a batch, as many as `slots` tokens hold; each row must fit. False: none are left. */
bool batch_next(const struct data *data, int64_t slots, struct batch *batch);

/* The capacity for loss rows that a batch needs in a program of T slots: a quarter of T, a half, three quarters or all. */
int64_t batch_rows(int64_t T, int64_t trained);

/* A sequence, and which of its tokens are asked about: those of the mask, or without one those whose weight is not 0. A token
 * weighs what `weights` say, or without them 1 if it is marked (data/token_cache.h) or none is. Of every array element i is about
 * token i, which is predicted from those before it. */
struct sequence {
    const int32_t *ids;     /* read by TOKEN_ID where they are marked */
    const int32_t *targets; /* what is predicted in place of the ids; NULL: the ids */
    const float *weights;
    const uint8_t *mask;
    const float *old_logprobs, *advantages; /* of each token, for losses that ask for them (ops/losses/loss.h); else NULL */
    bool marked;
    int64_t count;
    int64_t number; /* in the optimizer step; decides what dropout draws */
};

struct sequence batch_sequence(const struct data *data, int64_t row, int64_t number);

/* The weight of token i as a target; 0 for the first, which nothing predicts. */
float sequence_weight(const struct sequence *s, int64_t i);

/* Whether token i is asked about; never the first. */
bool sequence_asks(const struct sequence *s, int64_t i);

/* How many of its tokens are asked about. */
int64_t sequence_targets(const struct sequence *s);

/* A program's inputs being written: batch_put for each sequence, then batch_end. */
struct writer {
    struct engine *e;
    const struct net *n;
    int64_t slot, row; /* used so far */
};

/* Lays a sequence into the next slots. */
void batch_place(struct writer *w, const struct sequence *s);

/* The same, and asks for the losses of the tokens that are asked about. */
void batch_put(struct writer *w, const struct sequence *s);

/* Fills the remaining slots and rows with padding that changes nothing. */
void batch_end(struct writer *w);

/* A whole batch into a loss program. */
void batch_write(struct engine *e, const struct net *n, const struct data *data, const struct batch *batch);

#endif
