/* Tokenizers out of plain lists, as a GGUF file has them: tokens, merges or scores, and the name of how text is cut. */
#ifndef TEXT_TOKENIZER_WORDS_H
#define TEXT_TOKENIZER_WORDS_H

#include "text/tokenizer.h"

/* Numbered as in the file. */
enum tokenizer_word_type { WORD_NORMAL = 1, WORD_UNKNOWN, WORD_CONTROL, WORD_USER, WORD_UNUSED, WORD_BYTE };

struct tokenizer_text {
    const char *text;
    int64_t length;
};

struct tokenizer_words {
    const char *model;                  /* "gpt2": byte-level BPE; "llama": SentencePiece's BPE; "gemma4": BPE over characters */
    const char *pre;                    /* how gpt2's text is cut; NULL: not said */
    const struct tokenizer_text *tokens;        /* by id */
    const int32_t *types;               /* by id; NULL: all are normal */
    const float *scores;                /* by id, for llama */
    int64_t count;
    const struct tokenizer_text *merges;        /* "left right", for gpt2 and gemma4 */
    int64_t merge_count;
    int64_t unknown, bos, eos;          /* ids; -1: none */
    int add_bos, add_eos, space_prefix; /* -1: not said */
};

/* Nothing of the lists is kept. `where` names them in messages. A model or a cut that hone cannot follow is ERR_UNSUPPORTED.
 * Control tokens are special; they and the user's are found in the text first, as in llama.cpp when it parses special ones. */
enum status tokenizer_open_words(struct tokenizer **out, const struct tokenizer_words *words, const char *where);

#endif
