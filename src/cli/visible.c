/* Signs for people. The text of a report is valid UTF-8, for its parser has checked it; that of an answer is by contract. */
#include "cli/visible.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static enum status character_out(const char *text, int size, uint32_t code, visible_sink *sink, void *context)
{
    char sign[16];
    if (code == '\n') {
        TRY(sink(context, "\u23ce", 3));
        return sink(context, "\n", 1);
    }
    if (code == '\t')
        return sink(context, "\u21e5", 3);
    if (code < ' ') {
        memcpy(sign, "\u2400", 3);
        sign[2] = (char)(sign[2] + (char)code);
        return sink(context, sign, 3);
    }
    if (utf8_is_hidden(code))
        return sink(context, sign, snprintf(sign, sizeof sign, "\\u%04x", (unsigned)code));
    return sink(context, text, size);
}

static enum status bytes_out(const char *hex, visible_sink *sink, void *context)
{
    for (; hex[0] && hex[1]; hex += 2) {
        char sign[8], pair[3] = {hex[0], hex[1], 0};
        long byte = strtol(pair, NULL, 16);
        int n = byte >= ' ' && byte < 0x7f ? snprintf(sign, sizeof sign, "%c", (char)byte)
                                           : snprintf(sign, sizeof sign, "\\x%s", pair);
        TRY(sink(context, sign, n));
    }
    return OK;
}

typedef bool is_shown(uint32_t code); /* as a sign, not as itself */

static enum status text_out(const char *at, int64_t length, is_shown *shown, visible_sink *sink, void *context)
{
    const char *end = at + length, *plain = at;
    while (at < end) {
        uint32_t code;
        int size = utf8_decode(at, &code);
        if (shown(code)) {
            if (plain < at)
                TRY(sink(context, plain, at - plain));
            TRY(character_out(at, size, code, sink, context));
            plain = at + size;
        }
        at += size;
    }
    return plain < end ? sink(context, plain, end - plain) : OK;
}

enum status visible_token(const json_t *token, visible_sink *sink, void *context)
{
    const json_t *text = json_object_get(token, "text");
    if (!json_is_string(text))
        return bytes_out(json_string_value(json_object_get(token, "bytes")), sink, context);
    return text_out(json_string_value(text), (int64_t)json_string_length(text), utf8_is_hidden, sink, context);
}

static bool is_control(uint32_t code)
{
    return (code < ' ' && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0);
}

enum status visible_text(const char *text, int64_t length, visible_sink *sink, void *context)
{
    return text_out(text, length, is_control, sink, context);
}
