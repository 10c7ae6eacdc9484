/* Plain text for training: no chat template, and what is trained is all behind a prompt.
 *
 * The ids are those that Hugging Face's tokenizers give for the whole text, so text that spells a special token is that token.
 * The end-of-text token is put behind unless the text ends with it, as TRL does.
 */
#ifndef TEXT_PLAIN_H
#define TEXT_PLAIN_H

#include "text/chat.h"

/* Replaces `out` by the ids of prompt and rest as one text. Trained are the tokens with bytes of the rest, and of an empty
 * prompt's text all. */
enum status plain_encode(const struct chat *chat, const char *prompt, int64_t prompt_length, const char *rest,
                         int64_t rest_length, struct chat_row *out);

#endif
