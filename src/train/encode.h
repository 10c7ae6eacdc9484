/* JSONL rows to tokens, by all cores. */
#ifndef TRAIN_ENCODE_H
#define TRAIN_ENCODE_H

#include "train/data.h"

/* Appends the rows of a file to data, which owns its arrays; blank lines are no rows. The error is that of the first line
 * that cannot be used, with path and line in front. The counters of data but row_count and tokens are left to the caller. */
enum status encode_rows(struct data *data, const struct file_map *file, const char *path, const struct chat *chat,
                        const struct data_limits *limits);

#endif
