/* Data sets: the rows of a JSONL file as tokens with their loss mask.
 *
 * Rows are read one by one; a row that cannot be used is an error that names file and line. No row is dropped or cut.
 */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include "text/chat.h"

struct data_row {
    int64_t begin, count;               /* tokens */
    int64_t line;
};

struct data {
    int32_t *ids;
    uint8_t *mask;                      /* 1: this token is a target */
    int64_t tokens, trained, longest;
    struct data_row *rows;
    int64_t row_count, token_capacity, row_capacity;
};

struct data_limits {
    int64_t most_tokens;                /* of a row; more is an error */
    int64_t vocabulary;                 /* the model's; an id beyond it is an error */
    bool all_tokens;                    /* every token is a target, not the assistants' alone */
};

/* ERR_DATA where an id is beyond the model's vocabulary. */
enum status data_check_ids(const int32_t *ids, int64_t count, int64_t vocabulary);

/* Reads and encodes a whole file. ERR_DATA if it has no rows, or not one token to train. */
enum status data_open(struct data *data, const char *path, const struct chat *chat, const struct data_limits *limits);
void data_close(struct data *data);

#endif
