/* Which sequences of an optimizer step a rank takes: as many tokens as the others, not as many sequences.
 *
 * Every rank knows all sequences of the step, and finds the same shares without a word: the longest sequence that is left goes to
 * the rank with the fewest tokens. A share is in the order of the step.
 */
#ifndef TRAIN_SHARE_H
#define TRAIN_SHARE_H

#include "run/batch.h"

struct share_item {
    int64_t tokens, number; /* in the step */
};

struct share {
    struct share_item *item; /* of the step, longest first */
    int64_t *load;           /* [ranks] tokens */
    int64_t *mine;           /* numbers of the sequences that this rank takes, ascending */
    struct sequence *sequence;
    int64_t count, item_capacity, mine_capacity, sequence_capacity;
    int rank, ranks;
};

enum status share_open(struct share *s, int rank, int ranks);
void share_close(struct share *s);

/* A step's sequences are added one by one; share_end then sets ->mine and ->count. */
void share_begin(struct share *s);
enum status share_add(struct share *s, int64_t tokens);
enum status share_end(struct share *s);

/* All of it: the rank's own sequences of these, each with its number, that of the first being `first`. */
enum status share_sequences(struct share *s, const struct sequence *sequences, int64_t count, int64_t first,
                            const struct sequence **mine, int64_t *mine_count);

#endif
