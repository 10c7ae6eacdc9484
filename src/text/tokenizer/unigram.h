/* Unigram: of all ways to cut a word into tokens, the one whose scores have the largest sum. */
#ifndef TEXT_TOKENIZER_UNIGRAM_H
#define TEXT_TOKENIZER_UNIGRAM_H

#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word.h"

struct unigram {
    const struct vocabulary *vocabulary;
    double *scores;  /* by id */
    int32_t *sorted; /* ids by content; those that start with byte c are first[c] .. first[c + 1] */
    int64_t first[257];
    double unknown_score;
    int32_t unknown; /* -1: a character without a token cannot be encoded */
    bool byte_fallback;
    int32_t byte_id[256];
};

/* The vocabulary must outlive the model; scores are copied. On failure unigram_close still has to be called. */
enum status unigram_init(struct unigram *unigram, const struct vocabulary *vocabulary, const double *scores, int32_t unknown,
                         bool byte_fallback, const char *where);

/* Reads [["token", score], ...]: a token's id is its place. Also fills the vocabulary. */
enum status unigram_read(struct unigram *unigram, struct vocabulary *vocabulary, struct json_span json, int32_t unknown,
                         bool byte_fallback, const char *where);
void unigram_close(struct unigram *unigram);

/* Leaves the tokens of a text in the word. */
enum status unigram_encode(const struct unigram *unigram, const char *text, int64_t length, struct word *word);

#endif
