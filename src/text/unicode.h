/* Characters by Unicode's tables: classes, and simple case mappings, one code point to one. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

/* Classes of code points, as bits. They tell apart all general categories that tokenizers' patterns use. */
enum {
    UNICODE_UPPER = 1 << 0,           /* Lu */
    UNICODE_LOWER = 1 << 1,           /* Ll */
    UNICODE_TITLE = 1 << 2,           /* Lt */
    UNICODE_MODIFIER = 1 << 3,        /* Lm */
    UNICODE_LETTER_OTHER = 1 << 4,    /* Lo */
    UNICODE_LETTER = (1 << 5) - 1,    /* L: any of the five */
    UNICODE_MARK = 1 << 5,            /* M */
    UNICODE_DIGIT = 1 << 6,           /* Nd */
    UNICODE_NUMBER_OTHER = 1 << 7,    /* Nl, No */
    UNICODE_NUMBER = 1 << 6 | 1 << 7, /* N */
    UNICODE_PUNCTUATION = 1 << 8,     /* P */
    UNICODE_SYMBOL = 1 << 9,          /* S */
    UNICODE_SPACE = 1 << 10,          /* White_Space */
};

/* The classes of a code point by Unicode 16, whatever the installed library knows; 0: none of them. */
unsigned unicode_class(uint32_t code);

/* Assigned after Unicode 14. */
bool unicode_is_new(uint32_t code);

/* The ranges that unicode_class has beyond Unicode 14: range i, false after the last. */
bool unicode_new(int i, uint32_t *first, uint32_t *last, unsigned *classes);

/* Whether a grapheme cluster, a character as a reader sees it, ends between two neighbours. *state starts as 0 and follows the
 * text. */
bool unicode_breaks(uint32_t left, uint32_t right, int32_t *state);

int32_t unicode_upper(int32_t code);
int32_t unicode_lower(int32_t code);
int32_t unicode_title(int32_t code);

/* Not a control, format, surrogate, private, unassigned or separator code: what Python's repr shows as it is. */
bool unicode_printable(int32_t code);

/* The version of the library with these tables, for the keys of caches. */
const char *unicode_library(void);

#endif
