/* Tokenizers as tokenizer.json describes them: text to ids and back.
 *
 * An open tokenizer is never written to: any number of threads may encode with it, each into its own struct tokens.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/memory.h"

struct tokenizer;

/* Ids with the bytes of the text that each came from: token i covers [begin[i], end[i]). A token may be a part of a
 * character; where the normalizer rewrote a character, each token of the result covers all of it. Starts as {0}. */
struct tokens {
    int32_t *id;
    int64_t *begin, *end;
    int64_t count, capacity;
};

void tokens_free(struct tokens *tokens);

/* Reads a tokenizer.json. A part of it that hone cannot follow exactly is ERR_UNSUPPORTED, never ignored. */
enum status tokenizer_open(struct tokenizer **out, const char *path);
void tokenizer_close(struct tokenizer *tokenizer);              /* NULL is fine */

/* Appends the ids of a text. Added tokens are found first; no special token is put before or behind. Bytes that are not
 * UTF-8 are an error that names the offset. As in Hugging Face's tokenizers, a byte that the vocabulary lacks is left out
 * unless the file has an unk_token. On failure nothing is appended. */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, int64_t length, struct tokens *tokens);

/* The same with ranges of the text, ascending and not overlapping, in which no special token is recognised: what a user typed. */
struct text_range {
    int64_t begin, end;
};

enum status tokenizer_encode_guarded(const struct tokenizer *tokenizer, const char *text, int64_t length,
                                     const struct text_range *plain, int64_t count, struct tokens *tokens);

/* Appends the bytes of ids, special tokens included or not. A character cut in two stays cut: the bytes are appended as they
 * are. An id without a token is ERR_DATA. */
enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count, bool with_special,
                             struct buffer *text);

/* One more than the largest id. */
int64_t tokenizer_vocabulary(const struct tokenizer *tokenizer);

/* The id of a token by its exact content, or -1. */
int32_t tokenizer_id(const struct tokenizer *tokenizer, const char *text, int64_t length);

bool tokenizer_is_added(const struct tokenizer *tokenizer, int32_t id);     /* one of the file's added tokens */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);   /* an added token marked special */

#endif
