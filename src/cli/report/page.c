/* Writing HTML. */
#include "cli/report/page.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/view/out.h"

/* The policy lets a browser load nothing and send nothing: not even a text that was not escaped could. */
enum status page_begin(struct buffer *page, const char *title, const char *style)
{
    static const char head[] =
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    TRY(buffer_append(page, head, (int64_t)sizeof head - 1));
    TRY(page_put(page, "<title>hone: ", title, "</title>\n<style>\n"));
    TRY(buffer_append(page, style, (int64_t)strlen(style)));
    return buffer_format(page, "</style>\n<main>\n");
}

/* What stands for a character of HTML, or for one that cannot be shown. NULL: it stands for itself. What joins letters or emoji
 * does no harm. */
static const char *entity(const char *text, bool shown)
{
    static const char joins[][4] = {"\u200c", "\u200d"};
    if (!shown)
        return *text == '\n' || *text == '\t' || !strncmp(text, joins[0], 3) || !strncmp(text, joins[1], 3) ? NULL : "\ufffd";
    switch (*text) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

enum status page_escaped(struct buffer *page, const char *text, int64_t length)
{
    for (int64_t i = 0; i < length;) {
        bool shown;
        int n = utf8_next(text + i, length - i, &shown);
        const char *instead = entity(text + i, shown);
        TRY(instead ? buffer_append(page, instead, (int64_t)strlen(instead)) : buffer_append(page, text + i, n));
        i += n;
    }
    return OK;
}

enum status page_format(struct buffer *page, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    enum status status = out_format(page, page_escaped, format, values);
    va_end(values);
    return status;
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
