/* tokenizer.json to lists: tokens by id with their types, and merges or scores. */
#include "export/gguf_vocabulary.h"

#include <string.h>

#include "base/file.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

#define KEY(name) "tokenizer.ggml." name

enum { FILE_MAX = 256 << 20 };

struct vocabulary {
    const struct model *model;
    const char *dir, *path;
    struct arena arena;
    json_t *tree, *config; /* tokenizer.json, and tokenizer_config.json or NULL */
    const struct tokenizer *tokenizer;
    int64_t count;
    struct gguf_text *tokens;
    int32_t *types;
    float *scores;
    bool bytes; /* byte-level BPE; else SentencePiece's */
};

static enum status put_token(struct vocabulary *v, int64_t id, const char *text, int64_t length, int32_t type)
{
    if (id < 0 || id >= v->count)
        return fail(ERR_UNSUPPORTED, "%s: token %lld is beyond the model's %lld rows", v->path, (long long)id,
                    (long long)v->count);
    v->tokens[id] = (struct gguf_text){text, length};
    v->types[id] = type;
    return OK;
}

static bool is_byte(const char *token)
{
    return strlen(token) == 6 && !strncmp(token, "<0x", 3) && token[5] == '>';
}

static enum status list_tokens(struct vocabulary *v)
{
    json_t *model = json_object_get(v->tree, "model"), *id;
    const char *text, *unknown = json_string_value(json_object_get(model, "unk_token"));
    size_t i;
    const json_t *added;
    json_object_foreach(json_object_get(model, "vocab"), text, id)
    {
        int32_t type = !v->bytes && is_byte(text) ? WORD_BYTE : unknown && !strcmp(text, unknown) ? WORD_UNKNOWN : WORD_NORMAL;
        TRY(put_token(v, json_integer_value(id), text, (int64_t)strlen(text), type));
    }
    json_array_foreach(json_object_get(v->tree, "added_tokens"), i, added)
    {
        const json_t *content = json_object_get(added, "content");
        int64_t at = json_integer_value(json_object_get(added, "id"));
        bool special = json_is_true(json_object_get(added, "special"));
        bool is_unknown = special && at >= 0 && at < v->count && v->types[at] == WORD_UNKNOWN;
        TRY(put_token(v, at, json_string_value(content), (int64_t)json_string_length(content),
                      is_unknown ? WORD_UNKNOWN
                      : special  ? WORD_CONTROL
                                 : WORD_USER));
    }
    for (int64_t k = 0; k < v->count; k++) /* rows that no token has */
        if (!v->tokens[k].text) {
            const char *name = arena_format(&v->arena, "[PAD%lld]", (long long)k);
            if (!name)
                return ERR_MEMORY;
            TRY(put_token(v, k, name, (int64_t)strlen(name), WORD_UNUSED));
        }
    return OK;
}

/* Both halves of merge i: a list of two, or a text with a space between. */
static enum status merge_text(struct vocabulary *v, const json_t *merge, const char **text)
{
    *text = json_string_value(merge);
    if (json_array_size(merge) == 2)
        *text = arena_format(&v->arena, "%s %s", json_string_value(json_array_get(merge, 0)),
                             json_string_value(json_array_get(merge, 1)));
    return *text ? OK : fail(ERR_FORMAT, "%s: a merge must be two tokens", v->path);
}

static enum status put_merges(struct vocabulary *v, struct gguf_head *head)
{
    const json_t *merges = json_object_get(json_object_get(v->tree, "model"), "merges"), *merge;
    struct gguf_text *texts = arena_array(&v->arena, (int64_t)json_array_size(merges) + 1, sizeof *texts);
    size_t i;
    if (!texts)
        return ERR_MEMORY;
    json_array_foreach(merges, i, merge)
    {
        TRY(merge_text(v, merge, &texts[i].text));
        texts[i].length = (int64_t)strlen(texts[i].text);
    }
    return gguf_put_texts(head, KEY("merges"), texts, (int64_t)json_array_size(merges));
}

/* SentencePiece joins the pair whose result has the highest score: the earlier a merge makes a token, the higher. */
static enum status put_scores(struct vocabulary *v, struct gguf_head *head)
{
    const json_t *model = json_object_get(v->tree, "model"), *vocab = json_object_get(model, "vocab"), *merge;
    int64_t count = (int64_t)json_array_size(json_object_get(model, "merges"));
    size_t i;
    v->scores = arena_array(&v->arena, v->count, sizeof *v->scores);
    if (!v->scores)
        return ERR_MEMORY;
    for (int64_t k = 0; k < v->count; k++)
        v->scores[k] = (float)-count - 1;
    json_array_foreach(json_object_get(model, "merges"), i, merge)
    {
        const char *pair, *space;
        TRY(merge_text(v, merge, &pair));
        space = strchr(pair + 1, ' ');
        const char *joined = space ? arena_format(&v->arena, "%.*s%s", (int)(space - pair), pair, space + 1) : NULL;
        const json_t *id = joined ? json_object_get(vocab, joined) : NULL;
        int64_t at = id ? json_integer_value(id) : -1;
        if (at >= 0 && at < v->count && v->scores[at] < (float)-count)
            v->scores[at] = -(float)i;
    }
    return gguf_put_reals(head, KEY("scores"), v->scores, v->count);
}

/* The id of a token that tokenizer_config.json names, or what config.json says. */
static int64_t special_id(const struct vocabulary *v, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(v->config, key);
    const json_t *token = json_is_object(value) ? json_object_get(value, "content") : value;
    int32_t id =
        json_is_string(token) ? tokenizer_id(v->tokenizer, json_string_value(token), (int64_t)json_string_length(token)) : -1;
    return id >= 0 ? id : otherwise;
}

static enum status put_id(struct gguf_head *head, const char *key, int64_t id)
{
    return id < 0 ? OK : gguf_put_size(head, key, id);
}

static enum status put_specials(const struct vocabulary *v, struct gguf_head *head)
{
    const struct hf_config *hf = &v->model->hf;
    int64_t bos = special_id(v, "bos_token", hf->bos), eos = special_id(v, "eos_token", hf->eos_count ? hf->eos[0] : -1);
    struct tokens around = {0};
    enum status status = tokenizer_encode_surrounded(v->tokenizer, "", 0, &around);
    bool begins = status == OK && around.count && around.id[0] == bos;
    bool ends = status == OK && around.count && around.id[around.count - 1] == eos && around.count > begins;
    tokens_free(&around);
    TRY(status);
    TRY(put_id(head, KEY("bos_token_id"), bos));
    TRY(put_id(head, KEY("eos_token_id"), eos));
    TRY(put_id(head, KEY("unknown_token_id"), special_id(v, "unk_token", -1)));
    TRY(put_id(head, KEY("padding_token_id"), special_id(v, "pad_token", hf->pad)));
    TRY(gguf_put_bool(head, KEY("add_bos_token"), begins));
    return gguf_put_bool(head, KEY("add_eos_token"), ends);
}

static bool has_type(const json_t *part, const char *type)
{
    const char *own = json_string_value(json_object_get(part, "type"));
    size_t i;
    const json_t *inner;
    if (own && !strcmp(own, type))
        return true;
    json_array_foreach(json_object_get(part, "pretokenizers"), i, inner) if (has_type(inner, type)) return true;
    json_array_foreach(json_object_get(part, "normalizers"), i, inner) if (has_type(inner, type)) return true;
    return false;
}

static enum status put_kind(struct vocabulary *v, struct gguf_head *head)
{
    const json_t *model = json_object_get(v->tree, "model"), *cut = json_object_get(v->tree, "pre_tokenizer");
    const char *type = json_string_value(json_object_get(model, "type")), *pre = "default";
    v->bytes = has_type(cut, "ByteLevel");
    if ((type && strcmp(type, "BPE")) || (!v->bytes && !json_is_true(json_object_get(model, "byte_fallback"))))
        return fail(ERR_UNSUPPORTED, "%s: GGUF files have no name for this kind of tokenizer; write safetensors instead",
                    v->path);
    if (v->bytes)
        pre = tokenizer_pre_name(cut, json_is_true(json_object_get(model, "ignore_merges")));
    if (!pre)
        return fail(ERR_UNSUPPORTED, "%s: GGUF files have no name for how this tokenizer cuts text; write safetensors instead",
                    v->path);
    TRY(gguf_put_text(head, KEY("model"), v->bytes ? "gpt2" : "llama"));
    return gguf_put_text(head, KEY("pre"), pre);
}

static enum status put_lists(struct vocabulary *v, struct gguf_head *head)
{
    bool prefix = has_type(json_object_get(v->tree, "normalizer"), "Prepend") ||
                  has_type(json_object_get(v->tree, "pre_tokenizer"), "Metaspace");
    v->tokens = arena_array(&v->arena, v->count, sizeof *v->tokens);
    v->types = arena_array(&v->arena, v->count, sizeof *v->types);
    if (!v->tokens || !v->types)
        return ERR_MEMORY;
    TRY(put_kind(v, head));
    TRY(list_tokens(v));
    TRY(gguf_put_texts(head, KEY("tokens"), v->tokens, v->count));
    TRY(gguf_put_ints(head, KEY("token_type"), v->types, v->count));
    TRY(v->bytes ? put_merges(v, head) : put_scores(v, head));
    TRY(gguf_put_bool(head, KEY("add_space_prefix"), !v->bytes && prefix));
    return put_specials(v, head);
}

/* Of a model that is a GGUF file already. */
static enum status copy_keys(struct gguf_head *head, const struct gguf *file)
{
    static const char prefix[] = "tokenizer.";
    int64_t length = (int64_t)sizeof prefix - 1;
    for (int64_t i = 0; i < gguf_value_count(file); i++) {
        const struct gguf_value *value = gguf_value_at(file, i);
        if (value->key.length > length && !memcmp(value->key.text, prefix, (size_t)length))
            TRY(gguf_put_value(head, value));
    }
    return OK;
}

/* --- the template ------------------------------------------------------------------------------------------------------- */

static enum status config_template(const char *path, struct buffer *text)
{
    json_t *config = NULL;
    TRY(json_parse_file_reals(&config, path, FILE_MAX));
    const json_t *given = json_object_get(config, "chat_template"), *item;
    size_t i;
    json_array_foreach(given, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && !strcmp(name, "default")) {
            given = json_object_get(item, "template");
            break;
        }
    }
    enum status status =
        json_is_string(given) ? buffer_append(text, json_string_value(given), (int64_t)json_string_length(given)) : OK;
    json_decref(config);
    return status;
}

/* Nothing is appended if there is none. */
static enum status read_template(const char *dir, struct buffer *text)
{
    struct arena arena = {0};
    const char *own = file_join(&arena, dir, "chat_template.jinja"), *config = file_join(&arena, dir, "tokenizer_config.json");
    enum status status = !own || !config       ? ERR_MEMORY
                         : file_exists(own)    ? file_read(text, own, FILE_MAX)
                         : file_exists(config) ? config_template(config, text)
                                               : OK;
    arena_free(&arena);
    return status;
}

static enum status put_template(struct gguf_head *head, const char *dir)
{
    struct buffer text = {0};
    enum status status = read_template(dir, &text);
    if (status == OK && text.size)
        status = gguf_put_text(head, "tokenizer.chat_template", text.data);
    buffer_free(&text);
    return status;
}

static enum status gguf_vocabulary_put_all(struct vocabulary *v, struct gguf_head *head)
{
    const char *config = file_join(&v->arena, v->dir, "tokenizer_config.json");
    v->path = file_join(&v->arena, v->dir, "tokenizer.json");
    if (!config || !v->path)
        return ERR_MEMORY;
    TRY(json_parse_file(&v->tree, v->path, FILE_MAX));
    if (file_exists(config))
        TRY(json_parse_file_reals(&v->config, config, FILE_MAX));
    TRY(put_lists(v, head));
    return put_template(head, v->dir);
}

enum status gguf_put_vocabulary(struct gguf_head *head, const struct model *m, const char *dir)
{
    struct vocabulary v = {.model = m, .dir = dir, .count = m->config.vocabulary};
    struct chat *chat;
    if (m->gguf)
        return copy_keys(head, m->gguf->file[0]);
    TRY(chat_open(&chat, dir));
    v.tokenizer = chat_tokenizer(chat);
    enum status status = gguf_vocabulary_put_all(&v, head);
    json_decref(v.tree);
    json_decref(v.config);
    arena_free(&v.arena);
    chat_close(chat);
    return status;
}
