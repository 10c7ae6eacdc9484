/* Rows to tokens, on all cores. */
#ifndef DATA_ENCODE_H
#define DATA_ENCODE_H

#include "data/data.h"

/* Appends the rest of the source to the cache, block by block, and completes it. The error is that of the first row that
 * cannot be used, after its file and line; with limits->skip_bad such rows are listed in the cache instead. */
enum status encode_rows(struct token_cache *cache, struct source *source, const struct chat *chat,
                        const struct data_limits *limits);

#endif
