/* Words that a thread has encoded before: most of a text is a few thousand words that recur. */
#ifndef TEXT_TOKENIZER_WORD_CACHE_H
#define TEXT_TOKENIZER_WORD_CACHE_H

#include "base/memory.h"

enum { WORD_CACHE_BYTES = 24, WORD_CACHE_TOKENS = 7 };

/* A word of at most 24 bytes and its tokens, in one cache line. Token i ends at byte end[i] of the word, and the next one
 * begins there. */
struct word_cached {
    uint64_t key[WORD_CACHE_BYTES / 8]; /* the bytes, with zeros after them */
    int32_t id[WORD_CACHE_TOKENS];
    uint8_t end[WORD_CACHE_TOKENS];
    uint8_t length; /* 0: free */
    int8_t count;   /* of tokens; -1: not known yet */
};

struct word_cache {
    struct word_cached *words; /* each in a cache line of its own */
    void *memory;
};

enum status word_cache_init(struct word_cache *cache);
void word_cache_free(struct word_cache *cache);

/* The word's place, where `length` is from 1 to WORD_CACHE_BYTES. If its count is -1 it is new, another word may have been
 * evicted, and the caller fills it in, or sets length to 0. `left` bytes may be read from `text` on. */
struct word_cached *word_cache_find(struct word_cache *cache, const char *text, int64_t length, int64_t left);

#endif
