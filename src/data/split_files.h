/* The files of a split ("train", "valid" or "test") in a directory of data.
 *
 * The idea: names say it, as on the Hugging Face hub. A file called by the split's word, or one file of several parts
 * (train-00000-of-00002.parquet), lies in the directory, in its folder `data`, or in a folder called by the word.
 */
#ifndef DATA_SPLIT_FILES_H
#define DATA_SPLIT_FILES_H

#include "base/memory.h"

/* The paths of the split's files, in order; none: *count is 0. Two endings of one name, two places or two words that mean the
 * same split, and missing parts are ERR_ARGUMENT. All is in the arena. */
enum status split_find(struct arena *arena, const char *dir, const char *split, const char ***paths, int64_t *count);

/* Whether a path of data is a directory with files of the split. */
enum status split_has(struct arena *arena, const char *path, const char *split, bool *has);

/* ERR_IO with what is in the directory instead. */
enum status split_missing(const char *dir, const char *split);

#endif
