/* Data sets: the rows of a JSONL file as tokens with their loss mask.
 *
 * A row that cannot be used is an error that names file and line; of several, the first of the file. No row is dropped or cut.
 * What was encoded once is kept in a cache of tokens, so that the next run needs neither the tokenizer nor the template.
 */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include "base/file.h"
#include "text/chat.h"

struct data_row {
    int64_t begin, count;               /* tokens */
    int64_t trained;                    /* how many of them are targets */
    int64_t line;
};

struct data {
    const int32_t *ids;
    const uint8_t *mask;                /* 1: this token is a target; never the first of a row */
    int64_t tokens, trained, longest;   /* of these rows */
    struct data_row *rows;
    int64_t row_count;

    /* What ids and mask point into: own arrays, or a mapped file of the cache, or neither: they belong to another data set. */
    int32_t *own_ids;
    uint8_t *own_mask;
    struct file_map map;
    int64_t id_capacity, mask_capacity, row_capacity;
};

struct data_limits {
    int64_t most_tokens;                /* of a row; more is an error */
    int64_t vocabulary;                 /* the model's; an id beyond it is an error */
    bool all_tokens;                    /* every token is a target, not the assistants' alone */
    const char *model_dir;              /* whose tokenizer and template; may be NULL where a chat is given and no cache */
    const char *cache_dir;              /* NULL: no cache */
};

/* ERR_DATA where an id is not in the model's vocabulary. */
enum status data_check_ids(const int32_t *ids, int64_t count, int64_t vocabulary);

/* ERR_DATA where a row has too many tokens, or one that the model does not know. */
enum status data_check_row(const int32_t *ids, int64_t count, const struct data_limits *limits);

/* Takes a whole file from the cache, or encodes it, by all cores and with the same result for any number of them, and leaves it
 * there. Only encoding needs *chat: where it is NULL it is then opened from model_dir. It is the caller's, who closes it, also
 * after an error. ERR_DATA if the file has no rows, or not one token to train. */
enum status data_open(struct data *data, const char *path, struct chat **chat, const struct data_limits *limits);
void data_close(struct data *data);

/* Rows of this many tokens each, drawn by the seed, all of them targets: for measurements. */
enum status data_make_up(struct data *data, int64_t rows, int64_t length, int64_t vocabulary, uint64_t seed);

/* Moves rows to `held`, which is closed before `data`: below 1 a part of the rows, rounded but one at least, otherwise that many.
 * The seed decides which; both keep the order of the file. On an error `data` is as it was. */
enum status data_split(struct data *data, struct data *held, double size, uint64_t seed);

#endif
