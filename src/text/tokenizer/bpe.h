/* Byte-pair encoding: the "model" of most tokenizers, over the bytes of a word or over its characters. */
#ifndef TEXT_TOKENIZER_BPE_H
#define TEXT_TOKENIZER_BPE_H

#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word.h"

struct bpe_options {
    bool bytes;         /* words are bytes, and the vocabulary is written in the byte alphabet */
    bool byte_fallback; /* a character without a token becomes the tokens <0x..> of its bytes */
    bool fuse_unknown, ignore_merges;
    int32_t unknown; /* the token for unknown text; -1: it is left out */
    bool gaps;       /* neighbours of what is left out never merge, as in llama.cpp; else they may */
};

struct bpe {
    const struct vocabulary *vocabulary;
    struct bpe_options options;
    struct bpe_merge *merges; /* a hash table by pair of ids */
    uint64_t mask;
    int32_t byte_id[256];    /* of a byte's character, or of <0x..>; -1: the vocabulary lacks it */
    int32_t ascii_id[128];   /* of single characters, if words are text */
    bool cut;                /* words may be cut: see bpe_cut */
    bool space_cut;          /* no token has a U+2581 after another character */
    uint64_t joined[128][2]; /* bit b of row a: some token has the ASCII characters a and b side by side */
};

/* Two tokens that a merge joins, by content. */
struct bpe_pair {
    const char *left, *right;
    int64_t left_length, right_length;
};

/* The vocabulary must outlive the model. Pairs are in the order of their rank. On failure bpe_close still has to be called. */
enum status bpe_init(struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_options options,
                     const struct bpe_pair *pairs, int64_t count, const char *where);

/* The merges of a SentencePiece vocabulary: two tokens are joined if their text is a token, the highest score first. */
enum status bpe_init_scores(struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_options options, const float *scores,
                            const char *where);

/* Reads the merges of a tokenizer.json: ["left right", ...] or [["left", "right"], ...]. */
enum status bpe_read(struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_options options, struct json_span merges,
                     const char *where);
void bpe_close(struct bpe *bpe);

/* Leaves the tokens of a text in the word. */
enum status bpe_encode(const struct bpe *bpe, const char *text, int64_t length, struct word *word);

/* The end of the piece of a word that begins at `from`: it lies between characters that no token has side by side. No merge can
 * reach across the end of a piece, so pieces may be encoded one by one. Without bpe->cut the piece is the whole word. */
int64_t bpe_cut(const struct bpe *bpe, const char *text, int64_t length, int64_t from);

/* The table of merges, which bpe_load.c fills: linear probing from bpe_slot(key). */
struct bpe_merge {
    uint64_t key; /* bpe_key of the pair; 0: free */
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
