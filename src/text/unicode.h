/* Letters by Unicode's tables: simple case mappings, one code point to one. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

int32_t unicode_upper(int32_t code);
int32_t unicode_lower(int32_t code);
int32_t unicode_title(int32_t code);

/* Not a control, format, surrogate, private, unassigned or separator code: what Python's repr shows as it is. */
bool unicode_printable(int32_t code);

#endif
