/* What kind of row a row is. Its keys decide, never their values, and before anything of it is read; a row that could be two
 * kinds is none.
 */
#ifndef DATA_KIND_H
#define DATA_KIND_H

#include "base/json.h"

enum row_kind { ROW_MESSAGES, ROW_PROMPT, ROW_TEXT, ROW_ALPACA, ROW_SHAREGPT, ROW_PREFERENCE, ROW_KINDS };

const char *row_kind_name(enum row_kind kind);

struct row_outline {
    enum row_kind kind;
    bool alone;   /* there are no keys but those of its kind */
    json_t *tree; /* NULL, unless it had to be read to know the kind; the caller's, also after a failure */
};

/* Recognises the text of a row. ERR_DATA with the cause: it is broken, no object, of no kind or of two. */
enum status row_recognise(struct row_outline *out, const char *text, int64_t length);

#endif
