/* The "added_tokens" of a tokenizer.json: found in the text before anything else is done to it. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include "base/json.h"
#include "base/map.h"
#include "text/normalize.h"
#include "text/regex.h"

struct added_token {
    const char *content, *pattern;      /* pattern: what is looked for, the content or its normalised form */
    int64_t length, pattern_length;
    int32_t id;
    bool single_word, strip_left, strip_right, normalized, special;
};

/* Tokens that are looked for together, sorted by pattern; those that start with byte c are first[c] .. first[c + 1]. */
struct added_set {
    const struct added_token **tokens;
    int64_t count, first[257];
};

struct added {
    struct arena arena;
    struct added_token *tokens;         /* in the order of the file */
    int64_t count, limit;               /* limit: one more than the largest id */
    struct map index;                   /* content to index in tokens */
    struct added_set raw, normalized;   /* looked for in the text as it is, and in the normalised text */
    struct regex *word;                 /* one character of a word; NULL unless a token needs it */
};

/* `vocabulary` maps contents to ids and has `size` of them. json may be NULL. On failure added_close still has to be called. */
enum status added_open(struct added *added, const json_t *json, const struct map *vocabulary, int64_t size,
                       const struct normalizer *normalizer, const char *where);
void added_close(struct added *added);

/* Gets the text in order: a token and where it was found, or NULL and the text between tokens. */
typedef enum status added_sink(void *context, const struct added_token *token, int64_t begin, int64_t end);

/* The longest token at the leftmost place, again and again. */
enum status added_split(const struct added *added, const struct added_set *set, struct regex_search *search, const char *text,
                        int64_t length, added_sink *sink, void *context);

#endif
