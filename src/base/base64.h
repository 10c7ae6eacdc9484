/* Base64 of RFC 4648 in its one form: padded, and without bits that stand for nothing, so that no two texts are the same bytes.
 */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include "base/memory.h"

/* Whether the text is exactly `count` bytes in base64, which are then in `bytes`. */
bool base64_decode(const char *text, int64_t length, void *bytes, int64_t count);

enum status base64_append(struct buffer *text, const void *bytes, int64_t count);

#endif
