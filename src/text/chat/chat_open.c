/* Opening a chat from a model's directory (or its GGUF file): the tokenizer, the special tokens, the templates, what ends a
 * turn. */
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "text/chat/chat_inside.h"

#define PLAIN_TEMPLATE "chat_template.jinja"
#define TOOLS_TEMPLATE "additional_chat_templates/tool_use.jinja"

enum { CONFIG_BYTES_MAX = 64 << 20 };

static enum status chat_open_out_of_memory(void)
{
    return fail(ERR_MEMORY, "out of memory: a JSON value");
}

/* Adds the special tokens that templates may name, a string or an object with its content, unless known already. */
static enum status chat_open_take_specials(struct chat *chat, const json_t *config)
{
    for (int i = 0; i < TOKENIZER_NAMES; i++) {
        const char *key = tokenizer_names[i];
        const json_t *value = json_object_get(config, key);
        const json_t *token = json_is_object(value) ? json_object_get(value, "content") : value;
        if (!json_is_string(token) || json_object_get(chat->special, key))
            continue;
        if (json_object_set_new(chat->special, key, json_stringn(json_string_value(token), json_string_length(token))) != 0)
            return chat_open_out_of_memory();
    }
    return OK;
}

static enum status parse_json_template(struct jinja **out, const json_t *text, const char *path)
{
    if (*out)
        return fail(ERR_FORMAT, "%s: two chat templates of one name", path);
    if (!json_is_string(text))
        return fail(ERR_FORMAT, "%s: \"chat_template\" must be a string or a list of {\"name\", \"template\"}", path);
    return jinja_parse(out, json_string_value(text), (int64_t)json_string_length(text), path);
}

static enum status take_templates(struct chat *chat, const json_t *config, const char *path)
{
    const json_t *given = json_object_get(config, "chat_template");
    if (!given || json_is_null(given))
        return OK;
    if (!json_is_array(given))
        return parse_json_template(&chat->plain.jinja, given, path);
    size_t i;
    const json_t *item;
    json_array_foreach(given, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            TRY(parse_json_template(&chat->plain.jinja, json_object_get(item, "template"), path));
        else if (name && strcmp(name, "tool_use") == 0)
            TRY(parse_json_template(&chat->tools.jinja, json_object_get(item, "template"), path));
    }
    return OK;
}

static enum status open_templates(struct chat *chat, const char *dir, const json_t *config, const char *config_path)
{
    const char *plain = file_join(&chat->arena, dir, PLAIN_TEMPLATE), *tools = file_join(&chat->arena, dir, TOOLS_TEMPLATE);
    if (!plain || !tools)
        return ERR_MEMORY;
    if (!file_exists(plain))
        return take_templates(chat, config, config_path);
    TRY(jinja_parse_file(&chat->plain.jinja, plain));
    return file_exists(tools) ? jinja_parse_file(&chat->tools.jinja, tools) : OK;
}

/* One id or a list of them, as hf_config.c reads it; what is no id, or not the tokenizer's, is left out. */
static enum status take_eos(struct chat *chat, const json_t *ids, const char *path)
{
    size_t i, count = json_array_size(ids);
    const json_t *id;
    if (count > HF_CONFIG_EOS_MAX)
        return fail(ERR_UNSUPPORTED, "%s: %zu token ids in \"eos_token_id\", at most %d are supported", path, count,
                    HF_CONFIG_EOS_MAX);
    if (json_is_integer(ids))
        return chat_add_eos(chat, json_integer_value(ids));
    json_array_foreach(ids, i, id) if (json_is_integer(id)) TRY(chat_add_eos(chat, json_integer_value(id)));
    return OK;
}

/* The tokenizer's eos_token, and what generation_config.json names. */
static enum status find_eos(struct chat *chat, const char *dir)
{
    const json_t *token = json_object_get(chat->special, "eos_token");
    if (token) {
        int32_t id = tokenizer_id(chat->tokenizer, json_string_value(token), (int64_t)json_string_length(token));
        if (id < 0)
            return fail(ERR_UNSUPPORTED,
                        "%s: tokenizer_config.json names the eos_token \"%.40s\", which tokenizer.json does not have", dir,
                        json_string_value(token));
        TRY(chat_add_eos(chat, id));
    }
    const json_t *bos = json_object_get(chat->special, "bos_token");
    chat->bos = bos ? tokenizer_id(chat->tokenizer, json_string_value(bos), (int64_t)json_string_length(bos)) : -1;
    const char *path = file_join(&chat->arena, dir, "generation_config.json");
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return OK;
    json_t *config;
    TRY(json_parse_file(&config, path, HF_GENERATION_BYTES_MAX));
    enum status status = take_eos(chat, json_object_get(config, "eos_token_id"), path);
    json_decref(config);
    return status;
}

/* A file with the names of special tokens, if it is there. The caller owns *config, also after an error. */
static enum status chat_open_read_config(struct chat *chat, const char *path, json_t **config)
{
    if (!path)
        return ERR_MEMORY;
    if (file_exists(path))
        TRY(json_parse_file_reals(config, path, CONFIG_BYTES_MAX));
    if (*config && !json_is_object(*config))
        return fail(ERR_FORMAT, "%s: must be a JSON object", path);
    return chat_open_take_specials(chat, *config);
}

/* Older models have the parts of a tokenizer, from which transformers makes the whole. */
static enum status fail_no_tokenizer(struct arena *arena, const char *dir, const char *path)
{
    static const char *const parts[] = {"tokenizer.model", "vocab.json", "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *part = file_join(arena, dir, parts[i]);
        if (!part)
            return ERR_MEMORY;
        if (file_exists(part))
            return fail(ERR_IO,
                        "%s: no such file, but %s is there: download it with the model, or make it: python3 -c \"import sys, "
                        "transformers "
                        "as t; t.AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])\" DIR",
                        path, parts[i]);
    }
    return fail(ERR_IO, "%s: no such file; it is downloaded with the model, and text does not become tokens without it", path);
}

static enum status chat_open_read_files(struct chat *chat, const char *dir, json_t **config, json_t **map)
{
    const char *config_path = file_join(&chat->arena, dir, "tokenizer_config.json");
    const char *path = file_join(&chat->arena, dir, "tokenizer.json");
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return fail_no_tokenizer(&chat->arena, dir, path);
    TRY(chat_open_read_config(chat, config_path, config));
    TRY(open_templates(chat, dir, *config, config_path));
    const char *map_path = file_join(&chat->arena, dir, "special_tokens_map.json");
    TRY(chat_open_read_config(chat, map_path, map));
    return tokenizer_open_with(&chat->tokenizer, path,
                               (struct tokenizer_config[TOKENIZER_CONFIGS]){{*config, config_path}, {*map, map_path}});
}

/* What a chat is opened from, with the limits of its readers. */
static const struct chat_file {
    const char *name;
    int64_t max_bytes;
} files_of_chat[] = {{"tokenizer.json", TOKENIZER_FILE_MAX},
                     {"tokenizer_config.json", CONFIG_BYTES_MAX},
                     {PLAIN_TEMPLATE, JINJA_SOURCE_MAX},
                     {TOOLS_TEMPLATE, JINJA_SOURCE_MAX},
                     {"special_tokens_map.json", CONFIG_BYTES_MAX},
                     {"generation_config.json", HF_GENERATION_BYTES_MAX}};

static enum status chat_open_hash_file(struct hash *hash, struct arena *arena, const char *dir, const struct chat_file *file,
                                       bool *dated)
{
    static const char asks_date[] = "strftime_now";
    struct file_map map;
    const char *name = file->name, *path = file_join(arena, dir, name);
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return OK;
    TRY(file_map_within(&map, path, file->max_bytes));
    hash_add(hash, name, (int64_t)strlen(name) + 1);
    hash_add(hash, &map.size, (int64_t)sizeof map.size);
    hash_add(hash, map.data, map.size);
    *dated = *dated || (map.size && memmem(map.data, (size_t)map.size, asks_date, sizeof asks_date - 1));
    file_unmap(&map);
    return OK;
}

/* What a directory's chat is opened from; *dated: a file asks for the date. */
static enum status chat_open_hash_files(const char *dir, struct digest *files, bool *dated)
{
    struct arena arena = {0};
    struct hash hash;
    enum status status = OK;
    hash_init(&hash);
    for (size_t i = 0; i < sizeof files_of_chat / sizeof *files_of_chat && status == OK; i++)
        status = chat_open_hash_file(&hash, &arena, dir, &files_of_chat[i], dated);
    *files = hash_end(&hash);
    arena_free(&arena);
    return status;
}

static enum status read_directory(struct chat *chat, const char *dir)
{
    json_t *config = NULL, *map = NULL;
    struct digest after;
    bool dated = false;
    TRY(chat_open_hash_files(dir, &chat->files, &dated));
    enum status status = chat_open_read_files(chat, dir, &config, &map);
    json_decref(config);
    json_decref(map);
    TRY(status);
    TRY(find_eos(chat, dir));
    TRY(chat_open_hash_files(dir, &after, &dated));
    return digest_equal(after, chat->files)
               ? OK
               : fail(ERR_IO, "%s: the tokenizer's files were changed while they were read; start again", dir);
}

static enum status chat_open_all(struct chat *chat, const char *dir)
{
    chat->special = json_object();
    if (!chat->special)
        return chat_open_out_of_memory();
    TRY(gguf_is_path(dir) ? chat_read_gguf(chat, dir) : read_directory(chat, dir));
    TRY(template_bind(chat, &chat->plain));
    TRY(template_bind(chat, &chat->tools));
    TRY(forms_learn(chat));
    return prompt_learn(chat);
}

enum status chat_open(struct chat **out, const char *model_dir)
{
    *out = NULL;
    struct chat *chat = memory_alloc((int64_t)sizeof *chat);
    if (!chat)
        return ERR_MEMORY;
    enum status status = chat_open_all(chat, model_dir);
    if (status == OK)
        *out = chat;
    else
        chat_close(chat);
    return status;
}

bool chat_is_there(const char *model_dir)
{
    struct arena arena = {0};
    char *path = file_join(&arena, model_dir, "tokenizer.json");
    bool there = gguf_is_path(model_dir) || (path && file_exists(path));
    arena_free(&arena);
    return there;
}

void chat_close(struct chat *chat)
{
    if (!chat)
        return;
    tokenizer_close(chat->tokenizer);
    jinja_free(chat->plain.jinja);
    jinja_free(chat->tools.jinja);
    json_decref(chat->special);
    memory_free(chat->eos);
    arena_free(&chat->arena);
    memory_free(chat);
}

void chat_set_moment(struct chat *chat, int64_t moment)
{
    if (chat->plain.jinja)
        jinja_set_moment(chat->plain.jinja, moment);
    if (chat->tools.jinja)
        jinja_set_moment(chat->tools.jinja, moment);
}

void chat_set_raw(struct chat *chat, bool raw)
{
    chat->raw = raw;
}

bool chat_takes_strings(const struct chat *chat)
{
    return chat_has_template(chat) && !chat->raw;
}

enum status chat_fingerprint(const char *model_dir, int64_t moment, struct hash *hash, struct digest *files)
{
    bool dated = false;
    TRY(gguf_is_path(model_dir) ? chat_hash_gguf(files, model_dir, &dated) : chat_open_hash_files(model_dir, files, &dated));
    tokenizer_fingerprint(hash);
    hash_add(hash, files, (int64_t)sizeof *files);
    if (dated) {
        char date[16];
        hash_add(hash, date, clock_text(moment, date, sizeof date, "%Y-%m-%d"));
    }
    return OK;
}

struct digest chat_files(const struct chat *chat)
{
    return chat->files;
}
