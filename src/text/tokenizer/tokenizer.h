/* Tokenizers as tokenizer.json describes them: text to ids and back.
 *
 * Any number of threads may use an open tokenizer, each with its own struct tokens. A thread that encodes many texts may hold an
 * encoder; tokenizer_encode borrows one.
 */
#ifndef TEXT_TOKENIZER_TOKENIZER_H
#define TEXT_TOKENIZER_TOKENIZER_H

#include "base/hash.h"
#include "base/json.h"
#include "text/tokenizer/aligned.h"

enum { TOKENIZER_FILE_MAX = 256 << 20 }; /* bytes of a tokenizer.json */

struct tokenizer;

/* Ids with the bytes of the text that each came from: token i covers [begin[i], end[i]). A token may be a part of a
 * character; where the normalizer rewrote a character, each token of the result covers all of it. Starts as {0}. */
struct tokens {
    int32_t *id, *begin, *end;
    int64_t count, capacity, place_capacity; /* the last is that of begin and end */
    bool ids_only;                           /* the next tokens get no places: begin and end are not written */
};

void tokens_free(struct tokens *tokens);
void tokens_drop_places(struct tokens *tokens); /* begin and end, which must not be read any more */

/* Adds to the hash the versions of the libraries that decide ids: of patterns (PCRE2), and of normal forms (utf8proc). */
void tokenizer_fingerprint(struct hash *hash);

/* Reads a tokenizer.json. A part of it that hone cannot follow exactly is ERR_UNSUPPORTED, never ignored. */
enum status tokenizer_open(struct tokenizer **out, const char *path);

/* The same with the files next to it, a tokenizer_config.json and a special_tokens_map.json, as transformers reads them: their
 * "added_tokens_decoder" adds tokens or changes the flags of known ones, and the special tokens that they name are such even if
 * tokenizer.json has them only in its vocabulary. */
struct tokenizer_config {
    const json_t *tree; /* NULL: there is none */
    const char *path;
};
enum { TOKENIZER_CONFIGS = 2, TOKENIZER_NAMES = 7 };
extern const char *const tokenizer_names[TOKENIZER_NAMES]; /* the keys of special tokens: "eos_token" */
enum status tokenizer_open_with(struct tokenizer **out, const char *path,
                                const struct tokenizer_config config[TOKENIZER_CONFIGS]);
void tokenizer_close(struct tokenizer *tokenizer); /* NULL is fine */

/* Appends the ids of a text. Added tokens are found first; no special token is put before or after. Bytes that are not
 * UTF-8 are an error that names the offset. As in Hugging Face's tokenizers, a byte that the vocabulary lacks is left out
 * unless the file has an unk_token. On failure nothing is appended. */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, int64_t length, struct tokens *tokens);

/* The same where some bytes were typed by a user: `count` ranges of the text, ascending and not overlapping, or ERR_ARGUMENT. A
 * special token of which any byte is in such a range is not recognised, so that what a user types never becomes one; a special
 * token that touches a range from outside is. Everything else is as without ranges: words and merges reach across their borders.
 */
enum status tokenizer_encode_guarded(const struct tokenizer *tokenizer, const char *text, int64_t length,
                                     const struct text_range *plain, int64_t count, struct tokens *tokens);

/* The same with the tokens before and after it that the file's post_processor adds, as Hugging Face's add_special_tokens=True
 * does; they cover no bytes. */
enum status tokenizer_encode_surrounded(const struct tokenizer *tokenizer, const char *text, int64_t length,
                                        struct tokens *tokens);

/* What one thread needs to encode, with the words that it has seen before. The tokenizer must outlive it. */
struct encoder;
enum status encoder_open(struct encoder **out, const struct tokenizer *tokenizer);
void encoder_close(struct encoder *encoder); /* NULL is fine */

/* tokenizer_encode_guarded. */
enum status encoder_encode(struct encoder *encoder, const char *text, int64_t length, const struct text_range *plain,
                           int64_t count, struct tokens *tokens);

/* Appends the bytes of ids, special tokens included or not. A character cut in two stays cut: the bytes are appended as they
 * are. An id without a token is ERR_DATA. */
enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count, bool with_special,
                             struct buffer *text);

/* The same for ids that continue others (`first` false): what a tokenizer strips from the beginning of a text, such as a space
 * that it put there, stays. */
enum status tokenizer_decode_more(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count, bool with_special,
                                  bool first, struct buffer *text);

/* One more than the largest id. */
int64_t tokenizer_vocabulary(const struct tokenizer *tokenizer);

/* The id of a token by its exact content, or -1. */
int32_t tokenizer_id(const struct tokenizer *tokenizer, const char *text, int64_t length);

bool tokenizer_is_added(const struct tokenizer *tokenizer, int32_t id);   /* one of the file's added tokens */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id); /* an added token marked special */

/* --- from plain lists, as a GGUF file has them: tokens, merges or scores, and the name of how text is cut ------------- */

/* Numbered as in the file. */
enum tokenizer_word_type { WORD_NORMAL = 1, WORD_UNKNOWN, WORD_CONTROL, WORD_USER, WORD_UNUSED, WORD_BYTE };

struct tokenizer_text {
    const char *text;
    int64_t length;
};

struct tokenizer_lists {
    const char *model;                   /* "gpt2": byte-level BPE; "llama": SentencePiece's BPE; "gemma4": BPE over characters */
    const char *pre;                     /* how gpt2's text is cut; NULL: unknown */
    const struct tokenizer_text *tokens; /* by id */
    const int32_t *types;                /* by id; NULL: all are normal */
    const float *scores;                 /* by id, for llama */
    int64_t count;
    const struct tokenizer_text *merges; /* "left right", for gpt2 and gemma4 */
    int64_t merge_count;
    int64_t unknown, bos, eos;          /* ids; -1: none */
    int add_bos, add_eos, space_prefix; /* -1: unknown */
};

/* Nothing of the lists is kept. `where` names them in messages. A model or a cut that hone cannot follow is ERR_UNSUPPORTED.
 * Control tokens are special; they and the user's are found in the text first, as in llama.cpp when it parses special ones. */
enum status tokenizer_open_lists(struct tokenizer **out, const struct tokenizer_lists *words, const char *where);

/* The name that such lists have for how a tokenizer.json cuts text, from its "pre_tokenizer" and the model's "ignore_merges".
 * NULL: it cuts in a way that has no name. */
const char *tokenizer_pre_name(const json_t *pre_tokenizer, bool ignore_merges);

#endif
