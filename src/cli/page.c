/* Writing HTML. */
#include "cli/page.h"

#include <stdio.h>
#include <string.h>

enum status page_escaped(struct buffer *page, const char *text, int64_t length)
{
    for (int64_t i = 0; i < length; i++) {
        const char *name = text[i] == '&'    ? "&amp;"
                           : text[i] == '<'  ? "&lt;"
                           : text[i] == '>'  ? "&gt;"
                           : text[i] == '"'  ? "&quot;"
                           : text[i] == '\'' ? "&#39;"
                                             : NULL;
        TRY(name ? buffer_append(page, name, (int64_t)strlen(name)) : buffer_append(page, text + i, 1));
    }
    return OK;
}

enum status page_put(struct buffer *page, const char *before, const char *text, const char *after)
{
    TRY(buffer_append(page, before, (int64_t)strlen(before)));
    TRY(page_escaped(page, text, (int64_t)strlen(text)));
    return buffer_append(page, after, (int64_t)strlen(after));
}

enum status page_count(struct buffer *page, long long value)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", value), sign = value < 0;
    for (int i = 0; i < n; i++) {
        TRY(buffer_append(page, digits + i, 1));
        if (i >= sign && i + 1 < n && (n - i) % 3 == 1)
            TRY(buffer_append(page, ",", 1));
    }
    return OK;
}

const char *page_text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

long long page_number(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}
