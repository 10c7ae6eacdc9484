/* Whole characters from bytes that come in pieces. */
#include "api/stream.h"

#include <string.h>

#include "base/utf8.h"

static enum status flush(struct stream *s, bool end)
{
    int64_t at = 0;
    s->ready.size = 0;
    while (at < s->held.size) {
        int n = utf8_sequence(s->held.data + at, s->held.size - at);
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
    TRY(tokenizer_decode_more(s->tokenizer, &token, 1, false, !s->started, &s->held));
    s->started = s->started || !tokenizer_is_special(s->tokenizer, token);
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
