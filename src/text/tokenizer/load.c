/* Reading a tokenizer.json: the vocabulary and the merges, which are nearly all of it, front to back by json_reader; the rest as
 * a tree.
 */
#include <string.h>

#include "base/file.h"
#include "base/lost.h"
#include "base/utf8.h"
#include "text/tokenizer/parts.h"

#define FILE_BYTES_MAX ((int64_t)256 << 20)

/* The parts of a file. */
struct source {
    const char *path;
    struct buffer text;
    json_t *top, *model; /* all members but those: */
    struct json_span vocabulary, merges;
};

/* A member of an object into a tree. */
static enum status take_member(struct json_reader *r, json_t *object, struct json_span key, struct arena *arena)
{
    const char *name = arena_text(arena, key.text, key.length);
    struct json_span value;
    json_t *tree = NULL;
    if (!name)
        return ERR_MEMORY;
    if (json_object_get(object, name))
        return json_reader_fail(r, "a repeated member");
    TRY(json_reader_value(r, &value));
    TRY(json_parse(&tree, value.text, value.length, r->where));
    return json_object_set_new(object, name, tree) == 0 ? OK : fail(ERR_MEMORY, "%s: out of memory", r->where);
}

static bool is(struct json_span key, const char *name)
{
    return (int64_t)strlen(name) == key.length && memcmp(key.text, name, (size_t)key.length) == 0;
}

static enum status split_model(struct json_reader *r, struct source *s, struct arena *arena)
{
    bool more;
    if (s->model)
        return json_reader_fail(r, "a repeated member");
    if (!(s->model = json_object()))
        return fail(ERR_MEMORY, "%s: out of memory", s->path);
    TRY(json_reader_enter(r, '{'));
    for (;;) {
        struct json_span key;
        TRY(json_reader_next(r, '}', &more));
        if (!more)
            return OK;
        TRY(json_reader_key(r, &key));
        struct json_span *kept = is(key, "vocab") ? &s->vocabulary : is(key, "merges") ? &s->merges : NULL;
        if (kept && kept->text)
            return json_reader_fail(r, "a repeated member");
        TRY(kept ? json_reader_value(r, kept) : take_member(r, s->model, key, arena));
    }
}

static enum status split(struct json_reader *r, struct source *s, struct arena *arena)
{
    bool more = true;
    if (!(s->top = json_object()))
        return fail(ERR_MEMORY, "%s: out of memory", s->path);
    TRY(json_reader_enter(r, '{'));
    while (more) {
        struct json_span key;
        TRY(json_reader_next(r, '}', &more));
        if (!more)
            break;
        TRY(json_reader_key(r, &key));
        TRY(is(key, "model") && json_reader_peek(r) == '{' ? split_model(r, s, arena) : take_member(r, s->top, key, arena));
    }
    return json_reader_peek(r) ? json_reader_fail(r, "something after the end") : OK;
}

static enum status read_source(struct source *s)
{
    TRY(file_read(&s->text, s->path, FILE_BYTES_MAX));
    TRY(lost_content(s->path, s->text.data, s->text.size, "a tokenizer.json"));
    int64_t bad = utf8_invalid(s->text.data, s->text.size);
    if (bad >= 0)
        return fail(ERR_FORMAT, "%s: byte %lld is not UTF-8", s->path, (long long)bad);
    struct json_reader reader;
    struct arena arena = {0};
    json_reader_init(&reader, s->text.data, s->text.size, s->path);
    enum status status = split(&reader, s, &arena);
    json_reader_free(&reader);
    arena_free(&arena);
    return status;
}

/* Parts of a BPE model that change its result and that hone does not follow. */
static enum status read_bpe(struct tokenizer *t, const struct source *s)
{
    const char *prefix = "", *suffix = "", *unknown = NULL;
    struct bpe_options options = {.bytes = t->pretokenizer.bytes, .unknown = -1};
    double dropout = 0;
    TRY(vocabulary_read(&t->vocabulary, s->vocabulary, s->path));
    TRY(json_get_text(s->model, "continuing_subword_prefix", &prefix, s->path));
    TRY(json_get_text(s->model, "end_of_word_suffix", &suffix, s->path));
    TRY(json_get_text(s->model, "unk_token", &unknown, s->path));
    TRY(json_get_real(s->model, "dropout", &dropout, s->path));
    TRY(json_get_bool(s->model, "byte_fallback", &options.byte_fallback, s->path));
    TRY(json_get_bool(s->model, "fuse_unk", &options.fuse_unknown, s->path));
    TRY(json_get_bool(s->model, "ignore_merges", &options.ignore_merges, s->path));
    const char *part = *prefix                                  ? "continuing_subword_prefix"
                       : *suffix                                ? "end_of_word_suffix"
                       : dropout < 0 || dropout > 0             ? "dropout"
                       : options.byte_fallback && options.bytes ? "byte_fallback after a ByteLevel"
                                                                : NULL;
    if (part)
        return fail(ERR_UNSUPPORTED, "%s: a BPE model with %s is not supported", s->path, part);
    if (unknown && (options.unknown = vocabulary_id(&t->vocabulary, unknown, (int64_t)strlen(unknown))) < 0)
        return fail(ERR_FORMAT, "%s: unk_token \"%.60s\" is not in the vocabulary", s->path, unknown);
    return bpe_read(&t->bpe, &t->vocabulary, options, s->merges, s->path);
}

static enum status read_unigram(struct tokenizer *t, const struct source *s)
{
    int64_t unknown = -1;
    bool byte_fallback = false;
    TRY(json_get_int(s->model, "unk_id", &unknown, s->path));
    TRY(json_get_bool(s->model, "byte_fallback", &byte_fallback, s->path));
    if (unknown < -1 || unknown > INT32_MAX)
        return fail(ERR_FORMAT, "%s: unk_id cannot be %lld", s->path, (long long)unknown);
    return unigram_read(&t->unigram, &t->vocabulary, s->vocabulary, (int32_t)unknown, byte_fallback, s->path);
}

static enum status find_kind(struct tokenizer *t, const struct source *s)
{
    const char *type = NULL;
    if (!s->model)
        return fail(ERR_FORMAT, "%s: \"model\" is missing; is this a tokenizer.json?", s->path);
    TRY(json_get_text(s->model, "type", &type, s->path));
    if (!type) /* old files have no type */
        type = s->merges.text ? "BPE" : "";
    t->kind = strcmp(type, "Unigram") == 0 ? MODEL_UNIGRAM : MODEL_BPE;
    if (t->kind == MODEL_BPE && strcmp(type, "BPE") != 0)
        return fail(ERR_UNSUPPORTED, "%s: a model of type \"%s\" is not supported", s->path, type);
    return OK;
}

static enum status build(struct tokenizer *t, const struct source *s, const struct tokenizer_config *config, struct arena *names)
{
    const char *normalizer = arena_format(names, "%s: normalizer", s->path);
    const char *pretokenizer = arena_format(names, "%s: pre_tokenizer", s->path);
    if (!normalizer || !pretokenizer)
        return ERR_MEMORY;
    TRY(find_kind(t, s));
    TRY(normalizer_open(&t->normalizer, json_object_get(s->top, "normalizer"), normalizer));
    TRY(pretokenizer_open(&t->pretokenizer, json_object_get(s->top, "pre_tokenizer"), t->kind == MODEL_BPE, pretokenizer));
    TRY(decoder_open(&t->decoder, json_object_get(s->top, "decoder"), s->path));
    TRY(t->kind == MODEL_BPE ? read_bpe(t, s) : read_unigram(t, s));
    TRY(added_read(&t->added, json_object_get(s->top, "added_tokens"), s->path));
    for (int i = 0; i < TOKENIZER_CONFIGS; i++) {
        TRY(added_read_config(&t->added, json_object_get(config[i].tree, "added_tokens_decoder"), config[i].path));
        TRY(added_read_names(&t->added, &t->vocabulary, config[i].tree, config[i].path));
    }
    TRY(added_build(&t->added, &t->vocabulary, &t->normalizer, s->path));
    TRY(tokenizer_finish(t));
    return post_process_open(&t->post, json_object_get(s->top, "post_processor"), t->limit, s->path);
}

enum status tokenizer_open_with(struct tokenizer **out, const char *path, const struct tokenizer_config config[TOKENIZER_CONFIGS])
{
    struct source source = {.path = path};
    struct arena names = {0};
    struct tokenizer *t = NULL;
    enum status status = read_source(&source);
    if (status == OK && !(t = memory_alloc(sizeof *t)))
        status = ERR_MEMORY;
    if (status == OK)
        status = build(t, &source, config, &names);
    arena_free(&names);
    json_decref(source.top);
    json_decref(source.model);
    buffer_free(&source.text);
    if (status != OK) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return OK;
}

enum status tokenizer_open(struct tokenizer **out, const char *path)
{
    return tokenizer_open_with(out, path, (struct tokenizer_config[TOKENIZER_CONFIGS]){{NULL, ""}, {NULL, ""}});
}
