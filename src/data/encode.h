/* Rows to tokens, by all cores. */
#ifndef DATA_ENCODE_H
#define DATA_ENCODE_H

#include "data/data.h"

/* Appends to the cache what is left of the source, block by block, and completes it. The error is that of the first row that
 * cannot be used, with its file and line in front; with limits->skip_bad such rows are listed in the cache instead. */
enum status encode_rows(struct token_cache *cache, struct source *source, const struct chat *chat,
                        const struct data_limits *limits);

#endif
