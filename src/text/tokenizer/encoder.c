/* Encoding: one pass over the text, in which each part passes what it finds to the next: added tokens of the raw text, the
 * normalizer, added tokens of the normalised text, the pre-tokenizer, the model. Views carry the origin of their bytes, and
 * short words are looked up among those that this encoder has seen before.
 */
#include <stdatomic.h>

#include "base/utf8.h"
#include "text/tokenizer/parts.h"
#include "text/tokenizer/word_cache.h"

struct encoder {
    const struct tokenizer *t;
    struct regex_search *search;
    struct normalize_scratch normalize;
    struct pretokenize_scratch pretokenize;
    struct word word;
    struct word_cache cache;
    /* of one text */
    struct tokens *tokens;
    struct added_guard guard;
    struct view view; /* the text that added tokens are being looked for in */
    struct view part; /* what the pre-tokenizer got */
    bool first;       /* the view is at the very beginning */
};

enum status encoder_open(struct encoder **out, const struct tokenizer *t)
{
    struct encoder *e = memory_alloc(sizeof *e);
    if (!e)
        return ERR_MEMORY;
    e->t = t;
    enum status status = regex_search_init(&e->search);
    if (status == OK)
        status = word_cache_init(&e->cache);
    if (status != OK) {
        encoder_close(e);
        return status;
    }
    e->normalize.search = e->pretokenize.search = e->search;
    *out = e;
    return OK;
}

void encoder_close(struct encoder *e)
{
    if (!e)
        return;
    normalize_scratch_free(&e->normalize);
    pretokenize_scratch_free(&e->t->pretokenizer, &e->pretokenize);
    word_free(&e->word);
    word_cache_free(&e->cache);
    regex_search_free(e->search);
    memory_free(e);
}

static enum status encoder_reserve(struct tokens *tokens, int64_t more)
{
    int64_t need = tokens->count + more, begin = tokens->place_capacity, end = begin; /* those of places grow together */
    TRY(memory_grow(&tokens->id, &tokens->capacity, need, (int64_t)sizeof *tokens->id));
    if (tokens->ids_only || need <= begin)
        return OK;
    TRY(memory_grow(&tokens->begin, &begin, need, (int64_t)sizeof *tokens->begin));
    TRY(memory_grow(&tokens->end, &end, need, (int64_t)sizeof *tokens->end));
    tokens->place_capacity = end;
    return OK;
}

/* There is room for it. */
static void encoder_put(struct tokens *tokens, int32_t id, const struct view *view, int64_t from, int64_t to)
{
    int64_t begin, end, at = tokens->count++;
    tokens->id[at] = id;
    if (tokens->ids_only)
        return;
    view_origin(view, from, to, &begin, &end);
    tokens->begin[at] = (int32_t)begin;
    tokens->end[at] = (int32_t)end;
}

static enum status encoder_append(struct tokens *tokens, int32_t id, const struct view *view, int64_t from, int64_t to)
{
    TRY(encoder_reserve(tokens, 1));
    encoder_put(tokens, id, view, from, to);
    return OK;
}

/* Keeps the word's tokens for the next time, if there are few and they follow each other without gaps. */
static void encoder_keep(const struct word *word, int64_t length, struct word_cached *cached)
{
    int64_t done = 0;
    if (word->count > WORD_CACHE_TOKENS) {
        cached->length = 0;
        return;
    }
    for (int64_t i = 0; i < word->count; done = word->symbols[i++].end) {
        if (word->symbols[i].begin != done) {
            cached->length = 0;
            return;
        }
        cached->id[i] = word->symbols[i].id;
        cached->end[i] = (uint8_t)word->symbols[i].end;
    }
    cached->count = (int8_t)word->count;
    cached->length = done == length ? cached->length : 0;
}

static enum status encode_unknown_word(struct encoder *e, const struct view *word, struct word_cached *cached)
{
    const struct tokenizer *t = e->t;
    enum status status = t->kind == MODEL_BPE ? bpe_encode(&t->bpe, word->text, word->length, &e->word)
                                              : unigram_encode(&t->unigram, word->text, word->length, &e->word);
    if (cached)
        cached->length = status == OK ? cached->length : 0;
    TRY(status);
    if (cached)
        encoder_keep(&e->word, word->length, cached);
    for (int64_t i = 0; i < e->word.count; i++)
        TRY(encoder_append(e->tokens, e->word.symbols[i].id, word, e->word.symbols[i].begin, e->word.symbols[i].end));
    return OK;
}

static enum status encode_piece(struct encoder *e, const struct view *word)
{
    if (word->length > WORD_CACHE_BYTES)
        return encode_unknown_word(e, word, NULL);
    uintptr_t at = (uintptr_t)word->text - (uintptr_t)e->part.text; /* words of rewritten text are elsewhere */
    int64_t left = at < (uintptr_t)e->part.length ? e->part.length - (int64_t)at : word->length;
    struct word_cached *cached = word_cache_find(&e->cache, word->text, word->length, left);
    if (cached->count < 0)
        return encode_unknown_word(e, word, cached);
    struct tokens *tokens = e->tokens;
    TRY(encoder_reserve(tokens, cached->count));
    for (int64_t i = 0, done = 0; i < cached->count; done = cached->end[i++])
        encoder_put(tokens, cached->id[i], word, done, cached->end[i]);
    return OK;
}

static enum status encode_word(void *context, struct view word)
{
    struct encoder *e = context;
    if (!e->t->bpe.cut)
        return encode_piece(e, &word);
    for (int64_t from = 0, to; from < word.length; from = to) {
        to = bpe_cut(&e->t->bpe, word.text, word.length, from);
        struct view piece = view_slice(word, from, to);
        TRY(encode_piece(e, &piece));
    }
    return OK;
}

static enum status encode_normalized(void *context, const struct added_token *token, int64_t begin, int64_t end)
{
    struct encoder *e = context;
    struct view part = view_slice(e->view, begin, end);
    if (token)
        return encoder_append(e->tokens, token->id, &part, 0, part.length);
    e->part = part;
    return pretokenizer_run(&e->t->pretokenizer, &e->pretokenize, part, e->first && begin == 0, encode_word, e);
}

static enum status encode_raw(void *context, const struct added_token *token, int64_t begin, int64_t end)
{
    struct encoder *e = context;
    struct view text = e->view, part = view_slice(text, begin, end);
    if (token)
        return encoder_append(e->tokens, token->id, &part, 0, part.length);
    TRY(normalizer_run(&e->t->normalizer, &e->normalize, &part));
    e->view = part;
    e->first = begin == 0;
    const struct added *added = &e->t->added;
    enum status status = added_split(added, &added->normalized, e->search, part, e->guard, encode_normalized, e);
    e->view = text;
    return status;
}

static enum status check_ranges(const struct text_range *plain, int64_t count, int64_t length)
{
    int64_t done = 0;
    for (int64_t i = 0; i < count; done = plain[i++].end)
        if (plain[i].begin < done || plain[i].end < plain[i].begin || plain[i].end > length)
            return fail(ERR_ARGUMENT, "range %lld of a text of %lld bytes, from %lld to %lld, is not after the one before it",
                        (long long)i, (long long)length, (long long)plain[i].begin, (long long)plain[i].end);
    return OK;
}

enum status encoder_encode(struct encoder *e, const char *text, int64_t length, const struct text_range *plain, int64_t count,
                           struct tokens *tokens)
{
    if (length > TEXT_BYTES_MAX)
        return fail(ERR_LIMIT, "a text of %lld bytes: the max is %lld; cut it into several", (long long)length,
                    (long long)TEXT_BYTES_MAX);
    TRY(check_ranges(plain, count, length));
    int64_t bad = utf8_invalid(text, length);
    if (bad >= 0)
        return fail(ERR_DATA, "byte %lld of the text is not UTF-8 (0x%02x); convert the text to UTF-8", (long long)bad,
                    (unsigned)(uint8_t)text[bad]);
    int64_t before = tokens->count;
    e->tokens = tokens;
    e->guard = (struct added_guard){plain, count};
    e->view = (struct view){.text = text, .length = length};
    regex_search_restart(e->search);
    enum status status = added_split(&e->t->added, &e->t->added.raw, e->search, e->view, e->guard, encode_raw, e);
    if (status != OK)
        tokens->count = before;
    return status;
}

/* Idle encoders: a thread that takes one empties its slot. */
enum { SLOTS = 64 };

struct encoder_pool {
    _Atomic(struct encoder *) idle[SLOTS];
};

enum status encoder_pool_open(struct encoder_pool **out)
{
    *out = memory_alloc(sizeof **out);
    return *out ? OK : ERR_MEMORY;
}

void encoder_pool_close(struct encoder_pool *pool)
{
    for (int i = 0; pool && i < SLOTS; i++)
        encoder_close(atomic_load(&pool->idle[i]));
    memory_free(pool);
}

static enum status borrow(const struct tokenizer *t, struct encoder **out)
{
    for (int i = 0; i < SLOTS; i++)
        if (atomic_load_explicit(&t->pool->idle[i], memory_order_relaxed) && (*out = atomic_exchange(&t->pool->idle[i], NULL)))
            return OK;
    return encoder_open(out, t);
}

static void give_back(const struct tokenizer *t, struct encoder *e)
{
    for (int i = 0; i < SLOTS; i++) {
        struct encoder *none = NULL;
        if (atomic_compare_exchange_strong(&t->pool->idle[i], &none, e))
            return;
    }
    encoder_close(e);
}

enum status tokenizer_encode_guarded(const struct tokenizer *t, const char *text, int64_t length, const struct text_range *plain,
                                     int64_t count, struct tokens *tokens)
{
    struct encoder *e = NULL;
    TRY(borrow(t, &e));
    enum status status = encoder_encode(e, text, length, plain, count, tokens);
    give_back(t, e);
    return status;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, int64_t length, struct tokens *tokens)
{
    return tokenizer_encode_guarded(t, text, length, NULL, 0, tokens);
}

static enum status append_all(struct tokens *tokens, const int32_t *ids, int count, int64_t place)
{
    TRY(encoder_reserve(tokens, count));
    for (int i = 0; i < count; i++, tokens->count++) {
        tokens->id[tokens->count] = ids[i];
        if (!tokens->ids_only)
            tokens->begin[tokens->count] = tokens->end[tokens->count] = (int32_t)place;
    }
    return OK;
}

enum status tokenizer_encode_surrounded(const struct tokenizer *t, const char *text, int64_t length, struct tokens *tokens)
{
    int64_t before = tokens->count;
    enum status status = append_all(tokens, t->post.before, t->post.before_count, 0);
    if (status == OK)
        status = tokenizer_encode(t, text, length, tokens);
    if (status == OK)
        status = append_all(tokens, t->post.after, t->post.after_count, length);
    if (status != OK)
        tokens->count = before;
    return status;
}
