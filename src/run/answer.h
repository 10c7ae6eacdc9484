/* Answers: a prompt to tokens, tokens to text as they are generated. */
#ifndef RUN_ANSWER_H
#define RUN_ANSWER_H

#include "run/answer_stream.h"
#include "run/generation.h"
#include "text/chat/chat.h"

/* The tokens of a user's message (`system` may be NULL) by the model's template, or of a raw text. */
enum status answer_encode(const struct chat *chat, const char *system, const char *prompt, bool raw, struct chat_row *row);

/* How to answer. */
struct answer {
    struct generator *generator;
    const struct chat *chat;
    struct sampling sampling;
    int64_t max_new_tokens; /* of which the cache has room for one at least */
    const int32_t *stop;    /* tokens that end it besides the model's own */
    int64_t stops;
    const char *const *stop_texts; /* that end it; one that is a special token is this token too */
    int64_t stop_text_count;
    int64_t logprobs, prompt_logprobs; /* of how many of the most likely tokens, at each token; the second 0: of no token */
    bool reuse;                        /* what the generator was fed before and the prompt begins with is not fed again */
};

enum { LOGPROBS_MAX = 1024, BIAS_MAX = 100 };

/* ERR_ARGUMENT if it names a token that the model does not have; `where` begins the message. */
enum status answer_check(const struct answer *a, int64_t vocabulary, const char *where);

/* What came of it. */
struct answered {
    int64_t prompt_tokens, new_tokens;
    bool ended; /* by the model itself, or by a stop token or text */
    double startup_seconds, prefill_seconds, decode_seconds;
    int64_t reused_tokens; /* of the prompt: those that the generator was fed before */
};

/* Feeds the prompt and passes on the answer, until it ends, has max_new_tokens, or the cache is full. */
enum status answer_prompt(const struct answer *a, struct stream *stream, const int32_t *ids, int64_t count,
                          struct answered *result);

#endif
