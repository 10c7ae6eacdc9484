/* CSV and TSV with a header, as rows of JSON.
 *
 * The idea: a record becomes one line of JSON, and a newline for each line of the file that it took, so that lines have the
 * numbers that they have in the file. All values are strings; a field without anything in it, not even quotes, is null. A field
 * may stand in quotes, with separators and newlines in it and quotes doubled (RFC 4180). Blank lines are passed over; CRLF, a
 * byte order mark and a missing last newline are fine.
 */
#ifndef DATA_CSV_H
#define DATA_CSV_H

#include "base/decompress.h"
#include "base/memory.h"

struct csv;

/* Reads the header from an open file, which stays the caller's. `opening` is what was read of it already. A separator of 0: the
 * one of comma, semicolon and tab that comes first in the header. */
enum status csv_open(struct csv **out, struct decompress *file, const char *path, const struct buffer *opening, char separator);
void csv_close(struct csv *csv); /* NULL is fine */

int64_t csv_columns(const struct csv *csv);
const char *const *csv_names(const struct csv *csv);

/* Under which key rows have each column; NULL: not at all. The keys live as long as the reader. */
void csv_choose(struct csv *csv, const char *const *keys);

/* Appends the next record, or only newlines if there was a blank line. *more is false at the end. ERR_DATA after the file and the
 * line if a record has more or fewer fields than the header, or quotes that do not fit. */
enum status csv_next(struct csv *csv, struct buffer *text, bool *more);

#endif
