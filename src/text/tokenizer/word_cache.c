/* A table without chains: a word has two places, side by side. A new word takes the first, whose old word moves to the second,
 * whose old word is evicted. */
#include "text/tokenizer/word_cache.h"

#include <string.h>

enum { PLACES = 1 << 15, WORDS = WORD_CACHE_BYTES / 8 };

enum status word_cache_init(struct word_cache *cache)
{
    enum { LINE = sizeof *cache->words };
    _Static_assert(LINE == 64, "a word is a cache line");
    cache->memory = memory_alloc((PLACES + 1) * (int64_t)LINE);
    if (!cache->memory)
        return ERR_MEMORY;
    cache->words = (struct word_cached *)(((uintptr_t)cache->memory + LINE - 1) / LINE * LINE);
    return OK;
}

void word_cache_free(struct word_cache *cache)
{
    memory_free(cache->memory);
    *cache = (struct word_cache){0};
}

static void word_cache_load(uint64_t key[WORDS], const char *text, int64_t length, int64_t left)
{
    key[0] = key[1] = key[2] = 0;
    if (left < WORD_CACHE_BYTES) {
        memcpy(key, text, (size_t)length);
        return;
    }
    memcpy(key, text, WORD_CACHE_BYTES); /* faster than only its own bytes */
    for (int64_t i = 0; i < WORDS; i++) {
        int64_t bytes = length - 8 * i;
        key[i] &= bytes >= 8 ? UINT64_MAX : bytes <= 0 ? 0 : UINT64_MAX >> (64 - 8 * bytes);
    }
}

static inline bool word_cache_is(const struct word_cached *word, const uint64_t key[WORDS], int64_t length)
{
    return word->key[0] == key[0] && word->length == length && word->key[1] == key[1] && word->key[2] == key[2];
}

struct word_cached *word_cache_find(struct word_cache *cache, const char *text, int64_t length, int64_t left)
{
    uint64_t key[WORDS];
    word_cache_load(key, text, length, left);
    uint64_t hash = (key[0] ^ (uint64_t)length) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 29 ^ key[1]) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 32 ^ key[2]) * 0x94d049bb133111ebu;
    struct word_cached *word = &cache->words[hash >> 48 & (PLACES - 2)];
    if (word_cache_is(word, key, length))
        return word;
    if (word_cache_is(word + 1, key, length))
        return word + 1;
    word[1] = word[0];
    memcpy(word->key, key, sizeof key);
    word->length = (uint8_t)length;
    word->count = -1;
    return word;
}
