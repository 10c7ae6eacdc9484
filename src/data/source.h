/* The rows of a data set as they lie in its files, block by block, in order.
 *
 * The idea: files are read in pieces and never mapped, so that memory does not grow with them; what a block holds is whole rows,
 * not yet parsed. A file is one JSON object per line, or one JSON array of objects, told apart by its first byte; its bytes may
 * be packed by gzip or zstd, recognised by the first bytes. Blank lines, a byte order mark, CRLF and a missing last newline are
 * fine. Tables (CSV, TSV, Parquet) come as lines of JSON (data/row_stream.h).
 */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/memory.h"

struct source;

struct source_position {
    int64_t file;
    int64_t offset;       /* into the file's text, unpacked */
    int64_t line;         /* of the text at offset, from 1; below 1 means 1, so that {0} is the beginning */
    struct digest before; /* of the file's text up to offset */
};

/* One row's JSON, without white space around it. */
struct source_row {
    const char *text;
    int64_t length, line; /* line: where it begins */
};

/* Starts as {0}; each read replaces what the previous one left. */
struct source_block {
    struct source_row *rows;
    int64_t count, capacity;
    struct buffer text;          /* what rows point into, */
    struct buffer renamed;       /* or this, if their keys were changed */
    int64_t file;                /* all rows of a block are of one file */
    struct source_position next; /* where the block after this one begins */
};

void source_block_free(struct source_block *block);

/* `paths` is what --data says: files and directories, separated by commas, each with ":weight" after it or without. A directory
 * stands for its files of `split` ("train", "valid" or "test"; data/split_files.h). Anything else is an error that says what was
 * expected. A path that exists as written is taken as one path, whatever commas and colons it has. `columns` is what
 * --column-mapping says (data/columns.h), or NULL.
 */
enum status source_open(struct source **out, const char *paths, const char *split, const char *columns);
void source_close(struct source *source); /* NULL is fine */

int64_t source_files(const struct source *source);
const char *source_path(const struct source *source, int64_t file);
int source_form(const struct source *source, int64_t file); /* what it was read as: the same bytes may be two things */

/* How often a row of this file is taken in an epoch: its whole part, and once more for the seeded choice of rows that is the
 * rest. 1 by default; 0.5 takes half of the rows, 2 takes each twice, 2.5 each twice and half of them a third time. */
double source_weight(const struct source *source, int64_t file);

/* The bytes of all files as they are on disk, and how many of those were read so far (of Parquet, files that were begun). */
int64_t source_bytes(const struct source *source);
int64_t source_taken(const struct source *source);

/* The digest of the file's bytes as they are on disk, read, not mapped. From then on it is an error if, read to its end, the file
 * does not have those bytes: then what was hashed is not what was read. */
enum status source_digest(struct source *source, int64_t file, struct digest *digest);
bool source_digest_known(const struct source *source, int64_t file, struct digest *digest); /* whether it was asked for before */

/* Where the next block begins: the beginning, {0}, or a block's `next`. The text before it is read again. *same is false if it is
 * not the text that the position was taken in; seek elsewhere then. */
enum status source_seek(struct source *source, const struct source_position *position, bool *same);

/* The next block: about `bytes` of text in whole rows, at least one row, of any length up to a fixed limit. No rows: the end.
 * Invalid JSON between the rows of an array, a truncated packed file, and a row beyond the limit are errors that begin with the
 * file and the place. A packed file that gives far more than it has, in bytes or in rows, is ERR_LIMIT. */
enum status source_read(struct source *source, struct source_block *block, int64_t bytes);

#endif
