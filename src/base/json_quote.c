/* Texts as JSON strings. */
#include "base/json_quote.h"

#include <stdbool.h>
#include <string.h>

static bool json_quote_is_plain(char c)
{
    return (uint8_t)c >= ' ' && c != '"' && c != '\\';
}

/* Whether one of eight bytes needs an escape, all at once: a byte that is zero, or below 32, borrows into its highest bit. */
static bool some_escape(const char *text)
{
    const uint64_t ones = UINT64_MAX / 255, high = ones << 7;
    uint64_t x;
    memcpy(&x, text, sizeof x);
    uint64_t quote = x ^ ones * '"', slash = x ^ ones * '\\';
    return (((x - ones * ' ') & ~x) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & high;
}

/* The length of what needs no escape. */
static int64_t json_quote_plain_length(const char *text, int64_t count)
{
    int64_t n = 0;
    while (n + 8 <= count && !some_escape(text + n))
        n += 8;
    while (n < count && json_quote_is_plain(text[n]))
        n++;
    return n;
}

/* Where the letter of a character's short escape stands, or NULL. */
static const char *short_escape(uint8_t c)
{
    static const char known[] = "\"\"\\\\\nn\rr\tt\bb\ff"; /* a character, then its letter */
    return c ? strchr(known, c) : NULL;
}

static enum status json_quote_escape(struct buffer *out, uint8_t c)
{
    static const char hex[] = "0123456789abcdef";
    const char *letter = short_escape(c);
    const char text[6] = {'\\', letter ? letter[1] : 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    return buffer_append(out, text, letter ? 2 : 6);
}

enum status json_quote(struct buffer *out, const char *text, int64_t count)
{
    TRY(buffer_append(out, "\"", 1));
    for (int64_t at = 0; at < count; at++) {
        int64_t plain = json_quote_plain_length(text + at, count - at);
        TRY(buffer_append(out, text + at, plain));
        at += plain;
        if (at < count)
            TRY(json_quote_escape(out, (uint8_t)text[at]));
    }
    return buffer_append(out, "\"", 1);
}

int64_t json_quoted_size(const char *text, int64_t count)
{
    int64_t size = count + 2;
    for (int64_t at = 0; at < count; at++) {
        at += json_quote_plain_length(text + at, count - at);
        if (at < count)
            size += short_escape((uint8_t)text[at]) ? 1 : 5;
    }
    return size;
}
