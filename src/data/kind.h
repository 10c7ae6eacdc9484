/* The kind of a row. Its keys decide, never their values, before any value is read; a row that could be two kinds is an error.
 */
#ifndef DATA_KIND_H
#define DATA_KIND_H

#include "base/json.h"
#include "data/keys.h"

const char *row_kind_name(enum row_kind kind);

/* The kinds that have rows, by name. */
json_t *row_kinds_json(const int64_t rows[ROW_KINDS]);

/* Whether a row with these keys, of which some may be NULL, can be of a kind. If not: ERR_DATA for the file that has them, and
 * whose columns, as a text, are `columns`. */
bool row_kind_possible(const char *const *keys, int64_t count);
enum status row_no_kind(const char *path, const char *columns, const char *const *keys, int64_t count);

struct row_outline {
    enum row_kind kind;
    bool pure;    /* it has no keys but those of its kind */
    json_t *tree; /* NULL, unless it had to be parsed to find the kind; owned by the caller, also after a failure */
};

/* Recognises the text of a row. ERR_DATA with the cause: it is broken, not an object, of no kind or of two. */
enum status row_recognise(struct row_outline *out, const char *text, int64_t length);

#endif
