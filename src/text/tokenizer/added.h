/* Added tokens: found in the text before anything else is done to it. */
#ifndef TEXT_TOKENIZER_ADDED_H
#define TEXT_TOKENIZER_ADDED_H

#include "base/json.h"
#include "base/map.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/vocabulary.h"

struct added_token {
    const char *content, *pattern; /* pattern: what is looked for, the content or its normalised form */
    int64_t length, pattern_length;
    int32_t id;
    bool single_word, strip_left, strip_right, normalized, special;
};

/* Tokens that are looked for together, sorted by pattern; those that start with byte c are first[c] .. first[c + 1]. */
struct added_set {
    const struct added_token **tokens;
    int64_t count, first[257];
    uint8_t starts[256]; /* some token starts with the byte */
    int only;            /* the one byte that all start with; -1: there are several */
};

struct added {
    struct arena arena;
    struct added_token *tokens;       /* in the order of the file */
    int64_t count, capacity, limit;   /* limit: one more than the largest id */
    struct map index;                 /* content to index in tokens */
    struct added_set raw, normalized; /* looked for in the text as it is, and in the normalised text */
    struct regex *word;               /* one character of a word; NULL unless a token needs it */
};

/* First tokens are added, then the sets are built. `added` starts as {0}; on failure added_close still has to be called.
 * Only the content, the id and the flags of a token are used; an empty one is left out, and one with known content replaces the
 * earlier one. */
enum status added_add(struct added *added, const struct added_token *token, const char *where);

/* The "added_tokens" of a tokenizer.json, or the "added_tokens_decoder" of a tokenizer_config.json, whose flags replace those of
 * a token that is known already; one that is special stays so. json may be NULL. */
enum status added_read(struct added *added, const json_t *json, const char *where);
enum status added_read_config(struct added *added, const json_t *json, const char *where);

/* The special tokens that a tokenizer_config.json or special_tokens_map.json names, as far as they are in the vocabulary and not
 * yet among the added ones. config may be NULL. */
enum status added_read_names(struct added *added, const struct vocabulary *vocabulary, const json_t *config, const char *where);

/* Ids must be those of the vocabulary, or follow it in order. */
enum status added_build(struct added *added, const struct vocabulary *vocabulary, const struct normalizer *normalizer,
                        const char *where);
void added_close(struct added *added);

/* Gets the text in order: a token and where it was found, or NULL and the text between tokens. */
typedef enum status added_sink(void *context, const struct added_token *token, int64_t begin, int64_t end);

/* Bytes of the original text in which no special token may be found, ascending and disjoint. */
struct added_guard {
    const struct text_range *plain;
    int64_t count;
};

/* The longest token at the leftmost place, again and again. A special token with any byte from a guarded range does not
 * count: the next longest is taken. */
enum status added_split(const struct added *added, const struct added_set *set, struct regex_search *search, struct view text,
                        struct added_guard guard, added_sink *sink, void *context);

#endif
