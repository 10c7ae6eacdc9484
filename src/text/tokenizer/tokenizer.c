/* Tokenizers: tables by id, decoding, and closing. load.c and lists.c build them, encoder.c encodes. */
#include "text/tokenizer/tokenizer.h"

#include <string.h>

#include "base/number.h"
#include "text/tokenizer/parts.h"
#include "text/tokenizer/regex.h"
#include "text/unicode.h"

enum { ADDED = 1, SPECIAL = 2 };

enum status tokenizer_finish(struct tokenizer *t)
{
    t->limit = max(t->vocabulary.limit, t->added.limit);
    t->flags = memory_alloc(t->limit);
    t->added_index = memory_alloc(t->limit * (int64_t)sizeof *t->added_index);
    if (!t->flags || !t->added_index)
        return ERR_MEMORY;
    for (int64_t i = 0; i < t->limit; i++)
        t->added_index[i] = -1;
    for (int64_t i = 0; i < t->added.count; i++) {
        const struct added_token *token = &t->added.tokens[i];
        t->flags[token->id] = (uint8_t)(ADDED | (token->special ? SPECIAL : 0));
        t->added_index[token->id] = (int32_t)i;
    }
    return encoder_pool_open(&t->pool);
}

void tokenizer_fingerprint(struct hash *hash)
{
    char patterns[REGEX_LIBRARY];
    const char *libraries[] = {regex_library(patterns), unicode_library()};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        hash_add(hash, libraries[i], (int64_t)strlen(libraries[i]) + 1);
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    encoder_pool_close(t->pool);
    normalizer_close(&t->normalizer);
    pretokenizer_close(&t->pretokenizer);
    added_close(&t->added);
    decoder_close(&t->decoder);
    bpe_close(&t->bpe);
    unigram_close(&t->unigram);
    vocabulary_free(&t->vocabulary);
    memory_free(t->flags);
    memory_free(t->added_index);
    memory_free(t);
}

static enum status tokenizer_collect(const struct tokenizer *t, const int32_t *ids, int64_t count, bool with_special,
                                     struct decode_pieces *pieces)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t id = ids[i];
        if (id >= 0 && id < t->limit && t->added_index[id] >= 0) {
            const struct added_token *token = &t->added.tokens[t->added_index[id]];
            if (with_special || !token->special) /* a normalised token in its normalised form, as in Hugging Face */
                TRY(decode_pieces_add(pieces, token->pattern, token->pattern_length, true));
            continue;
        }
        if (id < 0 || id >= t->vocabulary.limit || !t->vocabulary.tokens[id].text)
            return fail(ERR_DATA, "id %d is not in the vocabulary of the tokenizer", id);
        TRY(decode_pieces_add(pieces, t->vocabulary.tokens[id].text, t->vocabulary.tokens[id].length, false));
    }
    return OK;
}

enum status tokenizer_decode_more(const struct tokenizer *t, const int32_t *ids, int64_t count, bool with_special, bool first,
                                  struct buffer *text)
{
    struct decode_pieces pieces = {0};
    enum status status = tokenizer_collect(t, ids, count, with_special, &pieces);
    if (status == OK && pieces.count)
        status = decoder_run(&t->decoder, &pieces, first, text);
    decode_pieces_free(&pieces);
    return status;
}

enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t count, bool with_special, struct buffer *text)
{
    return tokenizer_decode_more(t, ids, count, with_special, true, text);
}

int64_t tokenizer_vocabulary(const struct tokenizer *t)
{
    return t->limit;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *text, int64_t length)
{
    int64_t added = map_get(&t->added.index, text, length);
    return added >= 0 ? t->added.tokens[added].id : vocabulary_id(&t->vocabulary, text, length);
}

bool tokenizer_is_added(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->limit && t->flags[id] & ADDED;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->limit && t->flags[id] & SPECIAL;
}

void tokens_drop_places(struct tokens *tokens)
{
    memory_free(tokens->begin);
    memory_free(tokens->end);
    tokens->begin = tokens->end = NULL;
    tokens->place_capacity = 0;
}

void tokens_free(struct tokens *tokens)
{
    memory_free(tokens->id);
    tokens_drop_places(tokens);
    *tokens = (struct tokens){0};
}
