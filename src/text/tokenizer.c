/* Tokenizers: the parts of a tokenizer.json put together.
 *
 * Encoding goes through the text once, each part handing what it finds to the next: added tokens of the raw text, the
 * normalizer, added tokens of the normalised text, the pre-tokenizer, the model. Views carry where their bytes came from.
 */
#include "text/tokenizer.h"

#include <string.h>

#include "text/added.h"
#include "text/alphabet.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/utf8.h"

#define FILE_MOST ((int64_t)256 << 20)

enum { ADDED = 1, SPECIAL = 2 };

struct tokenizer {
    struct bpe model;
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    struct added added;
    int64_t vocabulary;
    uint8_t *flags;                     /* by id */
    int32_t *added_index;               /* by id: the added token, or -1 */
};

/* Kinds of "post_processor". They put special tokens around a text or trim offsets; hone does neither. */
static const char *const POST_PROCESSORS[] = {"ByteLevel", "TemplateProcessing", "Sequence", "RobertaProcessing",
                                              "BertProcessing"};

static enum status check_type(const json_t *json, const char *const *names, size_t count, const char *what, const char *where)
{
    const char *type = "";
    TRY(json_get_text(json, "type", &type, where));
    for (size_t i = 0; i < count; i++)
        if (strcmp(type, names[i]) == 0)
            return OK;
    return fail(ERR_UNSUPPORTED, "%s: a %s of type \"%s\" is not supported", where, what, type);
}

static enum status check_decoder(const json_t *decoder, const char *where)
{
    static const char *const NAMES[] = {"ByteLevel"};
    const json_t *list = json_object_get(decoder, "decoders");
    if (json_array_size(list) == 1)     /* a Sequence of one */
        decoder = json_array_get(list, 0);
    return check_type(decoder, NAMES, 1, "decoder", where);
}

static enum status open_model(struct tokenizer *t, const json_t *model, const char *where)
{
    static const char *const NAMES[] = {"BPE"};
    if (!json_is_object(model))
        return fail(ERR_FORMAT, "%s: \"model\" is missing; is this a tokenizer.json?", where);
    if (json_object_get(model, "type") || !json_is_array(json_object_get(model, "merges")))     /* old files have no type */
        TRY(check_type(model, NAMES, 1, "model", where));
    return bpe_open(&t->model, model, where);
}

static enum status open_tables(struct tokenizer *t)
{
    t->vocabulary = t->model.limit > t->added.limit ? t->model.limit : t->added.limit;
    t->flags = memory_alloc(t->vocabulary);
    t->added_index = memory_alloc(t->vocabulary * (int64_t)sizeof *t->added_index);
    if (!t->flags || !t->added_index)
        return ERR_MEMORY;
    for (int64_t i = 0; i < t->vocabulary; i++)
        t->added_index[i] = -1;
    for (int64_t i = 0; i < t->added.count; i++) {
        const struct added_token *token = &t->added.tokens[i];
        t->flags[token->id] = (uint8_t)(ADDED | (token->special ? SPECIAL : 0));
        t->added_index[token->id] = (int32_t)i;
    }
    return OK;
}

static enum status open_parts(struct tokenizer *t, const json_t *json, const char *where)
{
    struct arena names = {0};
    const char *normalizer = arena_format(&names, "%s: normalizer", where);
    const char *pretokenizer = arena_format(&names, "%s: pre_tokenizer", where);
    enum status status = normalizer && pretokenizer ? OK : ERR_MEMORY;
    if (status == OK)
        status = normalizer_open(&t->normalizer, json_object_get(json, "normalizer"), normalizer);
    if (status == OK)
        status = pretokenizer_open(&t->pretokenizer, json_object_get(json, "pre_tokenizer"), pretokenizer);
    arena_free(&names);
    TRY(status);
    TRY(check_decoder(json_object_get(json, "decoder"), where));
    const json_t *post = json_object_get(json, "post_processor");
    if (post && !json_is_null(post))
        TRY(check_type(post, POST_PROCESSORS, sizeof POST_PROCESSORS / sizeof *POST_PROCESSORS, "post_processor", where));
    TRY(open_model(t, json_object_get(json, "model"), where));
    TRY(added_open(&t->added, json_object_get(json, "added_tokens"), &t->model.ids, t->model.ids.count, &t->normalizer, where));
    return open_tables(t);
}

enum status tokenizer_open(struct tokenizer **out, const char *path)
{
    json_t *json = NULL;
    TRY(json_parse_file(&json, path, FILE_MOST));
    struct tokenizer *t = memory_alloc(sizeof *t);
    enum status status = t ? open_parts(t, json, path) : ERR_MEMORY;
    json_decref(json);
    if (status != OK) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return OK;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    normalizer_close(&t->normalizer);
    pretokenizer_close(&t->pretokenizer);
    added_close(&t->added);
    bpe_close(&t->model);
    memory_free(t->flags);
    memory_free(t->added_index);
    memory_free(t);
}

/* One call of tokenizer_encode. */
struct encoder {
    const struct tokenizer *t;
    struct tokens *tokens;
    struct regex_search *search;
    struct normalize_scratch normalize;
    struct pretokenize_scratch pretokenize;
    struct bpe_word word;
    struct view view;                   /* the text that added tokens are being looked for in */
    const struct text_range *plain;
    int64_t plain_count;
};

static enum status append(struct tokens *tokens, int32_t id, int64_t begin, int64_t end)
{
    if (tokens->count == tokens->capacity) {
        int64_t capacity = tokens->capacity + tokens->capacity / 2 + 64;
        int32_t *ids = memory_resize(tokens->id, capacity * (int64_t)sizeof *ids);
        if (!ids)
            return ERR_MEMORY;
        tokens->id = ids;
        int64_t *begins = memory_resize(tokens->begin, capacity * (int64_t)sizeof *begins);
        if (!begins)
            return ERR_MEMORY;
        tokens->begin = begins;
        int64_t *ends = memory_resize(tokens->end, capacity * (int64_t)sizeof *ends);
        if (!ends)
            return ERR_MEMORY;
        tokens->end = ends;
        tokens->capacity = capacity;
    }
    tokens->id[tokens->count] = id;
    tokens->begin[tokens->count] = begin;
    tokens->end[tokens->count++] = end;
    return OK;
}

static enum status encode_word(void *context, struct view word)
{
    struct encoder *e = context;
    TRY(bpe_encode(&e->t->model, word.text, word.length, &e->word));
    for (int64_t i = 0; i < e->word.count; i++) {
        const struct bpe_symbol *symbol = &e->word.symbols[i];
        int64_t begin, end;
        view_origin(&word, symbol->begin, symbol->end, &begin, &end);
        TRY(append(e->tokens, symbol->id, begin, end));
    }
    return OK;
}

static enum status encode_token(struct encoder *e, const struct added_token *token, struct view found)
{
    int64_t begin, end;
    view_origin(&found, 0, found.length, &begin, &end);
    return append(e->tokens, token->id, begin, end);
}

static enum status encode_normalized(void *context, const struct added_token *token, int64_t begin, int64_t end)
{
    struct encoder *e = context;
    struct view part = view_slice(e->view, begin, end);
    return token ? encode_token(e, token, part) : pretokenizer_run(&e->t->pretokenizer, &e->pretokenize, part, encode_word, e);
}

static bool guarded(struct encoder *e, int64_t begin, int64_t end)
{
    while (e->plain_count && e->plain->end <= begin) {
        e->plain++;
        e->plain_count--;
    }
    return e->plain_count && e->plain->begin < end;
}

static enum status encode_raw(void *context, const struct added_token *token, int64_t begin, int64_t end)
{
    struct encoder *e = context;
    struct view text = e->view, part = view_slice(text, begin, end);
    if (token && !(token->special && guarded(e, begin, end)))
        return encode_token(e, token, part);
    TRY(normalizer_run(&e->t->normalizer, &e->normalize, &part));
    e->view = part;
    const struct added *added = &e->t->added;
    enum status status = added_split(added, &added->normalized, e->search, part.text, part.length, encode_normalized, e);
    e->view = text;
    return status;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, int64_t length, struct tokens *tokens)
{
    return tokenizer_encode_guarded(t, text, length, NULL, 0, tokens);
}

enum status tokenizer_encode_guarded(const struct tokenizer *t, const char *text, int64_t length, const struct text_range *plain,
                                     int64_t count, struct tokens *tokens)
{
    int64_t bad = utf8_invalid(text, length);
    if (bad >= 0)
        return fail(ERR_DATA, "byte %lld of the text is not UTF-8 (0x%02x); convert the text to UTF-8", (long long)bad,
                    (unsigned)(uint8_t)text[bad]);
    struct encoder e = {.t = t, .tokens = tokens, .view = {.text = text, .length = length},
                        .plain = plain, .plain_count = count};
    int64_t before = tokens->count;
    TRY(regex_search_init(&e.search));
    e.normalize.search = e.pretokenize.search = e.search;
    enum status status = added_split(&t->added, &t->added.raw, e.search, text, length, encode_raw, &e);
    if (status != OK)
        tokens->count = before;
    normalize_scratch_free(&e.normalize);
    pretokenize_scratch_free(&t->pretokenizer, &e.pretokenize);
    bpe_word_free(&e.word);
    regex_search_free(e.search);
    return status;
}

enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t count, bool with_special,
                             struct buffer *text)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t id = ids[i];
        if (id >= 0 && id < t->vocabulary && t->added_index[id] >= 0) {
            const struct added_token *token = &t->added.tokens[t->added_index[id]];
            if (with_special || !token->special)
                TRY(buffer_append(text, token->content, token->length));
            continue;
        }
        if (id < 0 || id >= t->model.limit || !t->model.tokens[id].text)
            return fail(ERR_DATA, "id %d is not in the vocabulary of the tokenizer", id);
        TRY(alphabet_decode(t->model.tokens[id].text, t->model.tokens[id].length, text));
    }
    return OK;
}

int64_t tokenizer_vocabulary(const struct tokenizer *t)
{
    return t->vocabulary;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *text, int64_t length)
{
    int64_t added = map_get(&t->added.index, text, length);
    return added >= 0 ? t->added.tokens[added].id : (int32_t)map_get(&t->model.ids, text, length);
}

bool tokenizer_is_added(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocabulary && t->flags[id] & ADDED;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocabulary && t->flags[id] & SPECIAL;
}

void tokens_free(struct tokens *tokens)
{
    memory_free(tokens->id);
    memory_free(tokens->begin);
    memory_free(tokens->end);
    *tokens = (struct tokens){0};
}
