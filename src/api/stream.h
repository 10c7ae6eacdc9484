/* The text of an answer as it is made: tokens to whole characters. */
#ifndef API_STREAM_H
#define API_STREAM_H

#include "hone.h"
#include "text/tokenizer/tokenizer.h"

/* The beginning of a character waits in `held` for its rest. */
struct stream {
    hone_text_sink sink;
    void *context;
    const struct tokenizer *tokenizer;
    bool started; /* a token was passed on: what comes off the beginning of a text has come off */
    struct buffer held, ready;
};

/* Passes on what a token completes. Bytes that are no UTF-8 become U+FFFD. ERR_STOPPED if the sink says so. */
enum status stream_token(struct stream *s, int32_t token);

/* Passes on what still waits. */
enum status stream_end(struct stream *s);
void stream_free(struct stream *s);

#endif
