/* Writing JSON piece by piece. */
#ifndef BASE_JSON_QUOTE_H
#define BASE_JSON_QUOTE_H

#include "base/memory.h"

/* Appends a text as a JSON string, in quotes, with escapes where JSON needs them. Bytes that are not UTF-8 stay as they are: what
 * reads the string says so. */
enum status json_quote(struct buffer *out, const char *text, int64_t count);

/* How many bytes that takes: up to six times the text. */
int64_t json_quoted_size(const char *text, int64_t count);

#endif
