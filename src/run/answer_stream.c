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

/* A sink of texts hears of no token that completes nothing. */
static enum status answer_stream_pass_on(struct stream *s, int32_t token, double logprob)
{
    const char *text = s->ready.size ? s->ready.data : "";
    size_t length = (size_t)s->ready.size;
    bool stop = s->sink && length && s->sink(s->context, text, length) != 0;
    if (s->token_sink && (length || token >= 0))
        stop = s->token_sink(s->context, token, logprob, text, length) != 0;
    return stop ? fail(ERR_STOPPED, "stopped by the reader of the text") : OK;
}

enum status stream_token(struct stream *s, int32_t token, double logprob)
{
    TRY(tokenizer_decode_more(s->tokenizer, &token, 1, false, !s->started, &s->held));
    s->started = s->started || !tokenizer_is_special(s->tokenizer, token);
    TRY(stream_characters(&s->held, &s->ready, false));
    return answer_stream_pass_on(s, token, logprob);
}

enum status stream_end_token(struct stream *s, int32_t token, double logprob)
{
    s->ready.size = 0;
    return answer_stream_pass_on(s, token, logprob);
}

enum status stream_end(struct stream *s)
{
    TRY(stream_characters(&s->held, &s->ready, true));
    return answer_stream_pass_on(s, -1, 0);
}

void stream_free(struct stream *s)
{
    buffer_free(&s->held);
    buffer_free(&s->ready);
}
