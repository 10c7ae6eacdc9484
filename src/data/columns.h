/* --column-mapping: which columns of a file, or keys of a JSON object, are which keys of a row.
 *
 * The idea: "prompt=question,completion=answer" takes the column `question` as the key `prompt`. What is not named is left out,
 * if it is a key that rows may have: so a column is chosen where a file has those of two kinds. Without a mapping columns are the
 * keys that they are called.
 */
#ifndef DATA_COLUMNS_H
#define DATA_COLUMNS_H

#include "base/memory.h"

struct columns;

/* The text of the option; NULL gives NULL, which is no mapping to all functions. ERR_ARGUMENT says what is wrong with it. */
enum status columns_open(struct columns **out, const char *text);
void columns_close(struct columns *columns);

/* The key of each of a table's columns, or NULL for those that are not read. ERR_ARGUMENT if a column of the mapping is missing,
 * ERR_DATA if the columns give no kind of row, both with the columns that there are. */
enum status columns_choose(const struct columns *columns, const char *path, const char *const *names, int64_t count,
                           const char **keys);

/* Appends a JSON row with its keys changed, or as it is if it is no object: then its reader says what is wrong. */
enum status columns_rename(const struct columns *columns, const char *row, int64_t length, struct buffer *out);

#endif
