/* Reading a tokenizer.json: the vocabulary and the merges, which are nearly all of it, front to back by json_reader; each of the
 * other parts as a tree, which is gone when the next is made.
 */
#include <string.h>

#include "base/file.h"
#include "base/path_hint.h"
#include "base/utf8.h"
#include "text/tokenizer/parts.h"

enum part { PART_NORMALIZER, PART_PRETOKENIZER, PART_DECODER, PART_ADDED, PART_POST, PARTS };

static const char *const NAMES[PARTS] = {"normalizer", "pre_tokenizer", "decoder", "added_tokens", "post_processor"};

/* The parts of a file. */
struct source {
    const char *path;
    struct buffer text;
    struct json_span part[PARTS], vocabulary, merges;
    json_t *model; /* what it has besides the vocabulary and the merges, and what is used */
};

static bool load_is(struct json_span key, const char *name)
{
    return (int64_t)strlen(name) == key.length && memcmp(key.text, name, (size_t)key.length) == 0;
}

/* The place of a key in a list, or count. */
static int place_of(struct json_span key, const char *const *names, int count)
{
    int i = 0;
    while (i < count && !load_is(key, names[i]))
        i++;
    return i;
}

/* A member of a model, if it is used; of one that should be a number or a text, only that it is a list or an object. */
static enum status load_take_member(struct json_reader *r, json_t *object, struct json_span key)
{
    static const char *const names[] = {"type",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "unk_token",
                                        "unk_id",
                                        "dropout",
                                        "byte_fallback",
                                        "fuse_unk",
                                        "ignore_merges"};
    enum { COUNT = sizeof names / sizeof *names };
    int i = place_of(key, names, COUNT);
    struct json_span value;
    json_t *tree = NULL;
    if (i < COUNT && json_object_get(object, names[i]))
        return json_reader_fail(r, "a repeated member");
    TRY(json_reader_value(r, &value));
    TRY(json_parse(&tree, value.text, value.length, r->where));
    json_object_clear(tree);
    json_array_clear(tree);
    if (i == COUNT) {
        json_decref(tree);
        return OK;
    }
    return json_object_set_new(object, names[i], tree) == 0 ? OK : fail(ERR_MEMORY, "%s: out of memory", r->where);
}

/* A part of the file, whose tree is made when it is needed; of others, that they are JSON. */
static enum status load_take_part(struct json_reader *r, struct source *s, struct json_span key)
{
    int i = place_of(key, NAMES, PARTS);
    struct json_span value;
    json_t *tree = NULL;
    if (i < PARTS && s->part[i].text)
        return json_reader_fail(r, "a repeated member");
    TRY(json_reader_value(r, i < PARTS ? &s->part[i] : &value));
    if (i == PARTS)
        TRY(json_parse(&tree, value.text, value.length, r->where));
    json_decref(tree);
    return OK;
}

static enum status split_model(struct json_reader *r, struct source *s)
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
        struct json_span *kept = load_is(key, "vocab") ? &s->vocabulary : load_is(key, "merges") ? &s->merges : NULL;
        if (kept && kept->text)
            return json_reader_fail(r, "a repeated member");
        TRY(kept ? json_reader_value(r, kept) : load_take_member(r, s->model, key));
    }
}

static enum status load_split(struct json_reader *r, struct source *s)
{
    bool more = true;
    TRY(json_reader_enter(r, '{'));
    while (more) {
        struct json_span key;
        TRY(json_reader_next(r, '}', &more));
        if (!more)
            break;
        TRY(json_reader_key(r, &key));
        TRY(load_is(key, "model") && json_reader_peek(r) == '{' ? split_model(r, s) : load_take_part(r, s, key));
    }
    return json_reader_peek(r) ? json_reader_fail(r, "something after the end") : OK;
}

static enum status load_read_source(struct source *s)
{
    TRY(file_read(&s->text, s->path, TOKENIZER_FILE_MAX));
    TRY(path_hint_content(s->path, s->text.data, s->text.size, "a tokenizer.json"));
    int64_t bad = utf8_invalid(s->text.data, s->text.size);
    if (bad >= 0)
        return fail(ERR_FORMAT, "%s: byte %lld is not UTF-8", s->path, (long long)bad);
    struct json_reader reader;
    json_reader_init(&reader, s->text.data, s->text.size, s->path);
    enum status status = load_split(&reader, s);
    json_reader_free(&reader);
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

static enum status load_open_part(struct tokenizer *t, enum part part, const json_t *tree, const char *where, const char *path)
{
    switch (part) {
    case PART_NORMALIZER: return normalizer_open(&t->normalizer, tree, where);
    case PART_PRETOKENIZER: return pretokenizer_open(&t->pretokenizer, tree, t->kind == MODEL_BPE, where);
    case PART_DECODER: return decoder_open(&t->decoder, tree, path);
    case PART_ADDED: return added_read(&t->added, tree, path);
    case PART_POST: return post_process_open(&t->post, tree, t->limit, path);
    case PARTS: break;
    }
    return OK;
}

static enum status load_read_part(struct tokenizer *t, const struct source *s, enum part part, struct arena *names)
{
    const char *where = arena_format(names, "%s: %s", s->path, NAMES[part]);
    json_t *tree = NULL;
    if (!where)
        return ERR_MEMORY;
    if (s->part[part].text)
        TRY(json_parse(&tree, s->part[part].text, s->part[part].length, s->path));
    enum status status = load_open_part(t, part, tree, where, s->path);
    json_decref(tree);
    return status;
}

static enum status load_build(struct tokenizer *t, const struct source *s, const struct tokenizer_config *config,
                              struct arena *names)
{
    TRY(find_kind(t, s));
    TRY(load_read_part(t, s, PART_NORMALIZER, names));
    TRY(load_read_part(t, s, PART_PRETOKENIZER, names));
    TRY(load_read_part(t, s, PART_DECODER, names));
    TRY(t->kind == MODEL_BPE ? read_bpe(t, s) : read_unigram(t, s));
    TRY(load_read_part(t, s, PART_ADDED, names));
    for (int i = 0; i < TOKENIZER_CONFIGS; i++) {
        TRY(added_read_config(&t->added, json_object_get(config[i].tree, "added_tokens_decoder"), config[i].path));
        TRY(added_read_names(&t->added, &t->vocabulary, config[i].tree, config[i].path));
    }
    TRY(added_build(&t->added, &t->vocabulary, &t->normalizer, s->path));
    TRY(tokenizer_finish(t));
    return load_read_part(t, s, PART_POST, names);
}

enum status tokenizer_open_with(struct tokenizer **out, const char *path, const struct tokenizer_config config[TOKENIZER_CONFIGS])
{
    struct source source = {.path = path};
    struct arena names = {0};
    struct tokenizer *t = NULL;
    enum status status = load_read_source(&source);
    if (status == OK && !(t = memory_alloc(sizeof *t)))
        status = ERR_MEMORY;
    if (status == OK)
        status = load_build(t, &source, config, &names);
    arena_free(&names);
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
