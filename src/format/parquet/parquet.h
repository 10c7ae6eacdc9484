/* Parquet files as rows of JSON.
 *
 * The idea: a file is columns, each cut into pages; a row is put together again from one cursor in each column that was chosen,
 * so memory is that of a page for each of them, whatever the file holds.
 *
 *     TRY(parquet_open(&p, path));
 *     for (int i = 0; i < parquet_columns(p); i++)
 *         TRY(parquet_choose(p, i, parquet_column(p, i)));
 *     do
 *         TRY(parquet_next(p, &text, &more));
 *     while (more);
 *
 * Read are: data pages of version 1 and 2; the encodings PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY and, of booleans and levels,
 * RLE; pages that are not packed or by Snappy, gzip or zstd; strings, integers, floats and booleans, in structs and lists of any
 * depth, optional or not. Everything else is ERR_UNSUPPORTED with its name. A broken file is ERR_FORMAT with the place, and one
 * that would give a thousand times its size ERR_LIMIT.
 */
#ifndef FORMAT_PARQUET_PARQUET_H
#define FORMAT_PARQUET_PARQUET_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/memory.h"

struct parquet;

/* Whether a file that begins with these bytes is one. */
bool parquet_begins(const void *bytes, int64_t count);

enum status parquet_open(struct parquet **out, const char *path);
void parquet_close(struct parquet *p); /* NULL is fine */

int parquet_columns(const struct parquet *p);
const char *parquet_column(const struct parquet *p, int column); /* its name */

/* Rows have this column, under that key, which is copied. ERR_UNSUPPORTED if it has a type that is not read. */
enum status parquet_choose(struct parquet *p, int column, const char *key);

/* Appends the next row to the text: a JSON object and a newline. *more is false if there was none. */
enum status parquet_next(struct parquet *p, struct buffer *text, bool *more);

/* Of the file's bytes, read from the beginning to the end. */
enum status parquet_digest(const struct parquet *p, struct digest *digest);

#endif
