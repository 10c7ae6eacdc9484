/* Signs for people. */
#include "cli/view/escape.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static enum status character_out(uint32_t code, escape_sink *sink, void *context)
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
    return sink(context, sign, snprintf(sign, sizeof sign, "\\u%04x", (unsigned)code));
}

static enum status byte_out(uint8_t byte, escape_sink *sink, void *context)
{
    char sign[8];
    bool plain = byte >= ' ' && byte < 0x7f;
    return sink(context, sign, snprintf(sign, sizeof sign, plain ? "%c" : "\\x%02x", byte));
}

static enum status bytes_out(const char *hex, escape_sink *sink, void *context)
{
    for (; hex[0] && hex[1]; hex += 2) {
        char pair[3] = {hex[0], hex[1], 0};
        TRY(byte_out((uint8_t)strtol(pair, NULL, 16), sink, context));
    }
    return OK;
}

/* A newline and a tab, and what joins letters or emoji and does no harm in an answer. */
static bool is_fine(uint32_t code)
{
    return code == '\n' || code == '\t' || code == 0x200c || code == 0x200d;
}

static enum status text_out(const char *at, int64_t length, bool answer, escape_sink *sink, void *context)
{
    const char *end = at + length, *plain = at;
    while (at < end) {
        uint32_t code = 0;
        bool shown, valid = utf8_sequence(at, end - at) > 0;
        int size = utf8_next(at, end - at, &shown);
        if (valid)
            utf8_decode(at, &code);
        if (!shown && !(valid && answer && is_fine(code))) {
            if (plain < at)
                TRY(sink(context, plain, at - plain));
            TRY(valid ? character_out(code, sink, context) : byte_out((uint8_t)*at, sink, context));
            plain = at + size;
        }
        at += size;
    }
    return plain < end ? sink(context, plain, end - plain) : OK;
}

enum status escape_token(const json_t *token, escape_sink *sink, void *context)
{
    const json_t *text = json_object_get(token, "text");
    if (!json_is_string(text))
        return bytes_out(json_string_value(json_object_get(token, "bytes")), sink, context);
    return text_out(json_string_value(text), (int64_t)json_string_length(text), false, sink, context);
}

enum status escape_text(const char *text, int64_t length, escape_sink *sink, void *context)
{
    return text_out(text, length, true, sink, context);
}
