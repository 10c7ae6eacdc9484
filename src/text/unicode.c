/* Case and category from utf8proc's tables. */
#include "text/unicode.h"

#include <utf8proc.h>

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
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}
