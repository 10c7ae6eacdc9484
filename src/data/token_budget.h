/* What a cache of tokens may take of the disk: a multiple of the data's size, and no more than is free. */
#ifndef DATA_TOKEN_BUDGET_H
#define DATA_TOKEN_BUDGET_H

#include "data/token_cache.h"

/* Before a block is appended, which is of what the source gave so far. ERR_LIMIT, and the cache is marked as refused, if the data
 * gives far more tokens than its size explains. ERR_IO, and the cache is marked as failed, if there is no room for the block, or
 * if twice the room would not do for the rest, should the rest be like what was read. */
enum status token_budget_check(struct token_cache *cache, const struct source *source, const struct token_block *block);

#endif
