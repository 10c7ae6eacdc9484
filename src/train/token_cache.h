/* The cache of encoded data sets: one file each, <cache_dir>/tokens/<32 hexadecimal digits>.tokens.
 *
 * The name is a hash of all that decides the content, so a file is either right or nobody's. Only this machine reads it again.
 * A cache never stops a run: what is damaged is warned of and written anew, what cannot be written is warned of.
 */
#ifndef TRAIN_TOKEN_CACHE_H
#define TRAIN_TOKEN_CACHE_H

#include "base/hash.h"
#include "train/data.h"

struct token_cache {
    struct arena arena;
    const char *dir, *path;
    struct digest key;
};

/* Finds the place of a data file's tokens as the limits' model_dir and all_tokens make them; cache_dir is needed. */
enum status token_cache_open(struct token_cache *cache, const struct file_map *file, const struct data_limits *limits);
void token_cache_close(struct token_cache *cache);

/* Maps what is there: ids and mask of data point into the file. Every number has been checked, but for what the limits say;
 * the counters are left to the caller. Not found is no error and leaves data as it was. */
enum status token_cache_read(const struct token_cache *cache, struct data *data, bool *found);

void token_cache_write(const struct token_cache *cache, const struct data *data);

#endif
