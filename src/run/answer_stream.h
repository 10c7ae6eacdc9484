/* The text of an answer as it is generated: tokens to whole characters, up to a text that ends it. */
#ifndef RUN_ANSWER_STREAM_H
#define RUN_ANSWER_STREAM_H

#include "run/sample_token.h"
#include "text/tokenizer/tokenizer.h"

/* A token, and the text that is certain now that it is there: whole characters that begin no stop text. */
struct answer_token {
    int32_t id;     /* -1: none, but the rest of the text */
    bool of_prompt; /* which has no text here */
    double logprob; /* 0: not asked for, or nothing before it */
    const struct likely *most;
    const char *text;
    size_t length;
};

/* Other than 0 ends the answer. */
typedef int token_sink(void *context, const struct answer_token *token);

/* The beginning of a character waits in `held` for its rest, and in `text` what may become a stop text. */
struct stream {
    token_sink *sink; /* may be NULL */
    void *context;
    bool logprobs; /* the sink gets them */
    const struct tokenizer *tokenizer;
    const char *const *stops; /* texts that end the answer, and are no part of it; none is empty */
    int64_t stop_count;
    bool started; /* a token was passed on: what is stripped from the beginning of a text is gone */
    bool stopped; /* by a stop text: nothing else is passed on */
    struct buffer held, ready, text;
};

/* Passes on a token and what it completes. Bytes that are not UTF-8 become U+FFFD. ERR_STOPPED if the sink says so. */
enum status stream_token(struct stream *s, struct answer_token token);

/* Passes on a token that is no part of the text: of the prompt, or the one that ends the answer. */
enum status stream_bare_token(struct stream *s, struct answer_token token);

/* Passes on what is still held. */
enum status stream_end(struct stream *s);
void stream_free(struct stream *s);

/* Moves whole characters from `held` to `ready`, which is emptied first; at the end of a text, all of it. */
enum status stream_characters(struct buffer *held, struct buffer *ready, bool end);

#endif
