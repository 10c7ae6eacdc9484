/* A word while a model encodes it: its symbols, which become tokens. */
#ifndef TEXT_TOKENIZER_WORD_H
#define TEXT_TOKENIZER_WORD_H

#include "base/memory.h"

/* A symbol, from [begin, end) of the word's bytes. The rest is for merging: the rank and result of the merge with the symbol
 * after, and the neighbours. */
struct word_symbol {
    int32_t id, begin, end, rank, merged, prev, next;
};

/* The best way to encode a word up to some byte: see unigram.c. */
struct word_path {
    double score;
    int32_t from, id; /* where the last token begins; -1: nothing ends here */
};

/* Starts as {0}, is reused, and belongs to one thread. */
struct word {
    struct word_symbol *symbols;
    int64_t count, capacity;
    uint64_t *heap; /* the pairs that may be merged, and how many there is room for */
    int64_t heap_capacity;
    struct word_path *paths;
    int64_t path_capacity;
    struct buffer content;
};

/* Empties the word and makes room for so many symbols. */
enum status word_start(struct word *word, int64_t symbols);
void word_free(struct word *word);

static inline void word_add(struct word *word, int32_t id, int64_t begin, int64_t end)
{
    word->symbols[word->count++] = (struct word_symbol){.id = id, .begin = (int32_t)begin, .end = (int32_t)end};
}

#endif
