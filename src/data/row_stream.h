/* A data file as text of JSON rows, whatever its format.
 *
 * The idea: a table (CSV, TSV, Parquet) is turned into lines of JSON as it is read, so that everything after this sees one form.
 * Lines are the file's own; of a Parquet file a line is a row.
 */
#ifndef DATA_ROW_STREAM_H
#define DATA_ROW_STREAM_H

#include <stdbool.h>

#include "base/hash.h"
#include "data/columns.h"

enum stream_form { STREAM_JSON, STREAM_CSV, STREAM_TSV, STREAM_PARQUET };

struct stream;

/* JSON may be packed by gzip or zstd, and so may CSV and TSV, which are recognised by the file's name; Parquet is recognised by
 * its first bytes. Other formats are an error with their name and what to do. `columns`, which may be NULL, are those of a table
 * that are read; keys of JSON objects stay as they are. It and the path outlive the stream. */
enum status stream_open(struct stream **out, const char *path, const struct columns *columns);
void stream_close(struct stream *stream); /* NULL is fine */

enum stream_form stream_form(const struct stream *stream);

/* The next bytes of the text; less than `max_bytes`: the end. */
enum status stream_read(struct stream *stream, void *bytes, int64_t max_bytes, int64_t *got);

/* Whether it is packed by gzip or zstd, and how many of the file's bytes on disk were read so far; of Parquet, which is read here
 * and there, all of them. */
bool stream_packed(const struct stream *stream);
int64_t stream_taken(const struct stream *stream);

/* Of the file's bytes as they are on disk, once the end was read. */
enum status stream_digest(const struct stream *stream, struct digest *digest);

#endif
