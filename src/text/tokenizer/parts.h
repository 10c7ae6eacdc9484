/* What a tokenizer is made of; only the files that build and run one see it. */
#ifndef TEXT_TOKENIZER_PARTS_H
#define TEXT_TOKENIZER_PARTS_H

#include "text/tokenizer/added.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/post_process.h"
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer/token_decoder.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unigram.h"

enum model_kind { MODEL_BPE, MODEL_UNIGRAM };

struct tokenizer {
    struct vocabulary vocabulary;
    enum model_kind kind;
    struct bpe bpe;
    struct unigram unigram;
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    struct added added;
    struct decoder decoder;
    struct post_process post;
    int64_t limit;             /* one more than the largest id */
    uint8_t *flags;            /* by id */
    int32_t *added_index;      /* by id: the added token, or -1 */
    struct encoder_pool *pool; /* encoders that no thread is using */
};

/* The last step of building: tables by id, from the model and the added tokens. */
enum status tokenizer_finish(struct tokenizer *tokenizer);

enum status encoder_pool_open(struct encoder_pool **out);
void encoder_pool_close(struct encoder_pool *pool); /* NULL is fine */

#endif
