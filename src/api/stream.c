/* Whole characters out of bytes that come in pieces. */
#include "api/stream.h"

#include <string.h>

/* The length of the character that begins the text; 0: it is cut off at the end; negative: so many bytes that begin none. */
static int character(const unsigned char *text, int64_t size)
{
    unsigned char c = text[0];
    int length = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (!length)
        return -1;
    for (int i = 1; i < length; i++) {
        if (i == size)
            return 0;
        unsigned char low = 0x80, high = 0xbf;
        if (i == 1) {                                   /* no overlong forms, no surrogates, nothing beyond U+10FFFF */
            low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
            high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        }
        if (text[i] < low || text[i] > high)
            return -i;
    }
    return length;
}

static enum status flush(struct stream *s, bool end)
{
    int64_t at = 0;
    s->ready.size = 0;
    while (at < s->held.size) {
        int n = character((const unsigned char *)s->held.data + at, s->held.size - at);
        if (n == 0 && !end)
            break;
        TRY(n > 0 ? buffer_append(&s->ready, s->held.data + at, n) : buffer_append(&s->ready, "\xef\xbf\xbd", 3));
        at = n == 0 ? s->held.size : at + (n > 0 ? n : -n);
    }
    if (at)
        memmove(s->held.data, s->held.data + at, (size_t)(s->held.size - at));
    s->held.size -= at;
    bool stop = s->ready.size && s->sink && s->sink(s->context, s->ready.data, (size_t)s->ready.size) != 0;
    return stop ? fail(ERR_STOPPED, "stopped by the reader of the text") : OK;
}

enum status stream_token(struct stream *s, int32_t token)
{
    TRY(tokenizer_decode(s->tokenizer, &token, 1, false, &s->held));
    return flush(s, false);
}

enum status stream_end(struct stream *s)
{
    return flush(s, true);
}

void stream_free(struct stream *s)
{
    buffer_free(&s->held);
    buffer_free(&s->ready);
}
