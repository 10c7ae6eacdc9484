/* The text of an answer as it is generated: tokens to whole characters. */
#ifndef API_STREAM_H
#define API_STREAM_H

#include "hone.h"
#include "text/tokenizer/tokenizer.h"

/* The beginning of a character waits in `held` for its rest. */
struct stream {
    hone_text_sink sink;
    void *context;
    const struct tokenizer *tokenizer;
    bool started; /* a token was passed on: what is stripped from the beginning of a text is gone */
    struct buffer held, ready;
};

/* Passes on what a token completes. Bytes that are not UTF-8 become U+FFFD. ERR_STOPPED if the sink says so. */
enum status stream_token(struct stream *s, int32_t token);

/* Passes on what is still held. */
enum status stream_end(struct stream *s);
void stream_free(struct stream *s);

#endif
