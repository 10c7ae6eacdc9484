/* Whole characters from bytes that come in pieces. */
#include "run/answer_stream.h"

#include <string.h>

#include "base/utf8.h"

enum status stream_characters(struct buffer *held, struct buffer *ready, bool end)
{
    int64_t at = 0;
    ready->size = 0;
    while (at < held->size) {
        int n = utf8_sequence(held->data + at, held->size - at);
        if (n == 0 && !end)
            break;
        TRY(n > 0 ? buffer_append(ready, held->data + at, n) : buffer_append(ready, "\xef\xbf\xbd", 3));
        at = n == 0 ? held->size : at + (n > 0 ? n : -n);
    }
    if (at)
        memmove(held->data, held->data + at, (size_t)(held->size - at));
    held->size -= at;
    return OK;
}

static enum status answer_stream_pass_on(struct stream *s, struct answer_token token, const char *text, int64_t length)
{
    token.text = length ? text : "";
    token.length = (size_t)length;
    bool heard = s->sink && (length || token.id >= 0);
    return heard && s->sink(s->context, &token) ? fail(ERR_STOPPED, "stopped by the reader of the text") : OK;
}

/* Where a stop text begins, or with `part` what may become one; else the end of the text. */
static int64_t stream_find_stop(const struct stream *s, bool part)
{
    int64_t found = s->text.size;
    for (int64_t i = 0; i < s->stop_count; i++) {
        int64_t length = (int64_t)strlen(s->stops[i]);
        for (int64_t at = 0; at < found; at++) {
            int64_t left = s->text.size - at, n = left < length ? left : length;
            if ((n == length || part) && memcmp(s->text.data + at, s->stops[i], (size_t)n) == 0)
                found = at;
        }
    }
    return found;
}

/* Passes on what is ready, as far as it is certain that it is no part of a stop text. */
static enum status answer_stream_pass_on_ready(struct stream *s, struct answer_token token, bool end)
{
    TRY(buffer_append(&s->text, s->ready.data, s->ready.size));
    int64_t certain = stream_find_stop(s, false);
    s->stopped = certain < s->text.size;
    if (!s->stopped && !end)
        certain = stream_find_stop(s, true);
    TRY(answer_stream_pass_on(s, token, s->text.data, certain));
    if (certain)
        memmove(s->text.data, s->text.data + certain, (size_t)(s->text.size - certain));
    s->text.size -= certain;
    return OK;
}

enum status stream_token(struct stream *s, struct answer_token token)
{
    TRY(tokenizer_decode_more(s->tokenizer, &token.id, 1, false, !s->started, &s->held));
    s->started = s->started || !tokenizer_is_special(s->tokenizer, token.id);
    TRY(stream_characters(&s->held, &s->ready, false));
    return answer_stream_pass_on_ready(s, token, false);
}

enum status stream_bare_token(struct stream *s, struct answer_token token)
{
    return answer_stream_pass_on(s, token, NULL, 0);
}

enum status stream_end(struct stream *s)
{
    if (s->stopped)
        return OK;
    TRY(stream_characters(&s->held, &s->ready, true));
    return answer_stream_pass_on_ready(s, (struct answer_token){.id = -1, .most = &(struct likely){0}}, true);
}

void stream_free(struct stream *s)
{
    buffer_free(&s->held);
    buffer_free(&s->ready);
    buffer_free(&s->text);
}
