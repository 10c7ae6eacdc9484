/* Answers: a prompt to tokens, tokens to text as they are generated. */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include "api/stream.h"
#include "run/generate.h"
#include "text/chat/chat.h"

/* The tokens of a user's message (`system` may be NULL) by the model's template, or of a raw text. */
enum status answer_encode(const struct chat *chat, const char *system, const char *prompt, bool raw, struct chat_row *row);

/* Feeds the prompt and passes on the answer, until it ends or has max_new_tokens. */
enum status answer_prompt(struct generator *g, const struct chat *chat, const struct sampling *sampling, int64_t max_new_tokens,
                          struct stream *stream, const struct chat_row *prompt, hone_generate_result *result);

#endif
