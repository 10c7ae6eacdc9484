/* Byte-pair encoding over bytes: the "model" of a tokenizer.json. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "base/json.h"
#include "base/map.h"

/* A token's content in the byte alphabet; text == NULL: no token has this id. */
struct bpe_token {
    const char *text;
    int64_t length;
};

struct bpe {
    struct arena arena;                 /* the contents */
    struct map ids;                     /* content to id */
    struct bpe_token *tokens;           /* by id */
    int64_t limit;                      /* one more than the largest id */
    struct bpe_merge *merges;           /* a hash table by pair of ids */
    uint64_t mask;
    int32_t byte_id[256];               /* -1: the vocabulary lacks the byte */
    int32_t unknown;                    /* stands for bytes without a token; -1: they are left out */
    bool fuse_unknown, ignore_merges;
};

/* A symbol of a word, from [begin, end) of its bytes. The rest is for merging: the rank and result of the merge with the
 * symbol behind, and the neighbours. */
struct bpe_symbol {
    int32_t id, begin, end, rank, merged, prev, next;
};

struct bpe_word {
    struct bpe_symbol *symbols;
    uint64_t *heap;
    int64_t count, capacity;
    struct buffer content;
};

/* On failure bpe_close still has to be called. */
enum status bpe_open(struct bpe *bpe, const json_t *model, const char *where);
void bpe_close(struct bpe *bpe);

/* Leaves the tokens of a word in word->symbols, word->count of them. A word starts as {0} and is used again and again. */
enum status bpe_encode(const struct bpe *bpe, const char *bytes, int64_t length, struct bpe_word *word);
void bpe_word_free(struct bpe_word *word);

/* The table of merges, which bpe_load.c fills: linear probing from bpe_slot(key). */
struct bpe_merge {
    uint64_t key;                       /* bpe_key of the pair; 0: free */
    int32_t rank, id;
};

static inline uint64_t bpe_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static inline uint64_t bpe_slot(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 32;
}

#endif
