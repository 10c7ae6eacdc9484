/* The text of an answer as it is generated: tokens to whole characters. */
#ifndef RUN_ANSWER_STREAM_H
#define RUN_ANSWER_STREAM_H

#include "text/tokenizer/tokenizer.h"

/* Whole characters of an answer; and each token with its log-probability and the whole characters that it completes, token -1 for
 * the rest. Other than 0 ends the answer. */
typedef int text_sink(void *context, const char *text, size_t length);
typedef int token_sink(void *context, int32_t token, double logprob, const char *text, size_t length);

/* The beginning of a character waits in `held` for its rest. Either sink may be NULL. */
struct stream {
    text_sink *sink;
    token_sink *token_sink;
    void *context;
    const struct tokenizer *tokenizer;
    bool started; /* a token was passed on: what is stripped from the beginning of a text is gone */
    struct buffer held, ready;
};

/* Passes on a token and what it completes. Bytes that are not UTF-8 become U+FFFD. ERR_STOPPED if the sink says so. */
enum status stream_token(struct stream *s, int32_t token, double logprob);

/* Passes on the token that ends the answer, and is no part of its text. */
enum status stream_end_token(struct stream *s, int32_t token, double logprob);

/* Passes on what is still held. */
enum status stream_end(struct stream *s);
void stream_free(struct stream *s);

/* Moves whole characters from `held` to `ready`, which is emptied first; at the end of a text, all of it. */
enum status stream_characters(struct buffer *held, struct buffer *ready, bool end);

#endif
