/* Which sequences of an optimizer step a rank takes: as many tokens as the others, not as many sequences.
 *
 * Every rank knows all sequences of the step, and finds the same shares without a word: the longest sequence that is left goes to
 * the rank with the fewest tokens. A share is in the order of the step.
 */
#ifndef JOB_RANK_SPLIT_H
#define JOB_RANK_SPLIT_H

#include "run/batch.h"

struct rank_split_item {
    int64_t tokens, number; /* in the step */
};

struct rank_split {
    struct rank_split_item *item; /* of the step, longest first */
    int64_t *load;                /* [ranks] tokens */
    int64_t *mine;                /* numbers of the sequences that this rank takes, ascending */
    struct sequence *sequence;
    int64_t count, item_capacity, mine_capacity, sequence_capacity;
    int rank, ranks;
};

enum status rank_split_open(struct rank_split *s, int rank, int ranks);
void rank_split_close(struct rank_split *s);

/* A step's sequences are added one by one; rank_split_end then sets ->mine and ->count. */
void rank_split_begin(struct rank_split *s);
enum status rank_split_add(struct rank_split *s, int64_t tokens);
enum status rank_split_end(struct rank_split *s);

/* All of it: the rank's own sequences of these, each with its number, that of the first being `first`. */
enum status rank_split_sequences(struct rank_split *s, const struct sequence *sequences, int64_t count, int64_t first,
                                 const struct sequence **mine, int64_t *mine_count);

#endif
