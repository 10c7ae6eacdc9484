/* Case and category from utf8proc's tables, with our own table for newer characters. */
#include "text/unicode.h"

#include <utf8proc.h>

#include "base/utf8.h"

static const struct {
    uint32_t first, last;
    unsigned classes;
} NEWER[] = {
#define NEW(first, last, classes) {first, last, classes},
#include "text/unicode_new.def"
#undef NEW
};

enum { NEWER_COUNT = sizeof NEWER / sizeof *NEWER };

static unsigned newer_class(uint32_t code)
{
    int low = 0, high = NEWER_COUNT;
    while (low < high) { /* the first range that ends at the code or after it */
        int middle = (low + high) / 2;
        if (NEWER[middle].last >= code)
            high = middle;
        else
            low = middle + 1;
    }
    return low < NEWER_COUNT && NEWER[low].first <= code ? NEWER[low].classes : 0;
}

unsigned unicode_class(uint32_t code)
{
    static const uint16_t CLASSES[] = {
        [UTF8PROC_CATEGORY_LU] = UNICODE_UPPER,
        [UTF8PROC_CATEGORY_LL] = UNICODE_LOWER,
        [UTF8PROC_CATEGORY_LT] = UNICODE_TITLE,
        [UTF8PROC_CATEGORY_LM] = UNICODE_MODIFIER,
        [UTF8PROC_CATEGORY_LO] = UNICODE_LETTER_OTHER,
        [UTF8PROC_CATEGORY_MN] = UNICODE_MARK,
        [UTF8PROC_CATEGORY_MC] = UNICODE_MARK,
        [UTF8PROC_CATEGORY_ME] = UNICODE_MARK,
        [UTF8PROC_CATEGORY_ND] = UNICODE_DIGIT,
        [UTF8PROC_CATEGORY_NL] = UNICODE_NUMBER_OTHER,
        [UTF8PROC_CATEGORY_NO] = UNICODE_NUMBER_OTHER,
        [UTF8PROC_CATEGORY_PC] = UNICODE_PUNCTUATION,
        [UTF8PROC_CATEGORY_PD] = UNICODE_PUNCTUATION,
        [UTF8PROC_CATEGORY_PS] = UNICODE_PUNCTUATION,
        [UTF8PROC_CATEGORY_PE] = UNICODE_PUNCTUATION,
        [UTF8PROC_CATEGORY_PI] = UNICODE_PUNCTUATION,
        [UTF8PROC_CATEGORY_PF] = UNICODE_PUNCTUATION,
        [UTF8PROC_CATEGORY_PO] = UNICODE_PUNCTUATION,
        [UTF8PROC_CATEGORY_SM] = UNICODE_SYMBOL,
        [UTF8PROC_CATEGORY_SC] = UNICODE_SYMBOL,
        [UTF8PROC_CATEGORY_SK] = UNICODE_SYMBOL,
        [UTF8PROC_CATEGORY_SO] = UNICODE_SYMBOL,
        [UTF8PROC_CATEGORY_ZS] = UNICODE_SPACE,
        [UTF8PROC_CATEGORY_ZL] = UNICODE_SPACE,
        [UTF8PROC_CATEGORY_ZP] = UNICODE_SPACE,
        [UTF8PROC_CATEGORY_CC] = 0,
        [UTF8PROC_CATEGORY_CF] = 0,
        [UTF8PROC_CATEGORY_CS] = 0,
        [UTF8PROC_CATEGORY_CO] = 0,
    };
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    if (category == UTF8PROC_CATEGORY_CN)
        return newer_class(code);
    if (category == UTF8PROC_CATEGORY_CC)
        return utf8_is_space(code) ? UNICODE_SPACE : 0;
    return CLASSES[category];
}

bool unicode_is_new(uint32_t code)
{
    return newer_class(code) != 0;
}

bool unicode_new(int i, uint32_t *first, uint32_t *last, unsigned *classes)
{
    if (i >= NEWER_COUNT)
        return false;
    *first = NEWER[i].first;
    *last = NEWER[i].last;
    *classes = NEWER[i].classes;
    return true;
}

bool unicode_breaks(uint32_t left, uint32_t right, int32_t *state)
{
    return utf8proc_grapheme_break_stateful((utf8proc_int32_t)left, (utf8proc_int32_t)right, state);
}

int32_t unicode_upper(int32_t code)
{
    return utf8proc_toupper(code);
}

int32_t unicode_lower(int32_t code)
{
    return utf8proc_tolower(code);
}

int32_t unicode_title(int32_t code)
{
    return utf8proc_totitle(code);
}

bool unicode_printable(int32_t code)
{
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

const char *unicode_library(void)
{
    return utf8proc_version();
}
