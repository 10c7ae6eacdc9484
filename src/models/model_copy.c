/* Copying a model directory without its weights. */
#include "models/model_copy.h"

#include <stdio.h>
#include <string.h>

#include "base/checksums.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/name.h"

#define CONFIG_FILE "config.json"
#define MORE_TEMPLATES "additional_chat_templates"

/* What is copied as it is, then the one file that is not. */
static const char *const model_copy_names[] = {"generation_config.json",
                                               "tokenizer.json",
                                               "tokenizer_config.json",
                                               "tokenizer.model",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "chat_template.jinja",
                                               "vocab.json",
                                               "merges.txt",
                                               CONFIG_FILE,
                                               NULL};
enum { COPIED = sizeof model_copy_names / sizeof model_copy_names[0] - 2, FILE_MAX = 256 << 20 };

bool model_is_file(const char *name)
{
    int length = 0; /* of a shard's name */
    sscanf(name, "model-%*[0-9]-of-%*[0-9].safetensors%n", &length);
    if (length && !name[length])
        return true;
    for (const char *const *of = model_copy_names; *of; of++)
        if (!strcmp(name, *of))
            return true;
    return !strcmp(name, "model.safetensors") || !strcmp(name, "model.safetensors.index.json");
}

static enum status model_copy_read_config(const char *from, const char *dtype, json_t **out)
{
    TRY(json_parse_file(out, from, 16 << 20));
    json_object_del(*out, "torch_dtype");
    json_object_del(*out, "quantization_config"); /* the copy's weights are plain */
    json_object_del(json_object_get(*out, "text_config"), "quantization_config");
    json_object_set_new(*out, "dtype", json_string(dtype));
    return OK;
}

static enum status copy_config(const char *from, const char *to, const char *dtype)
{
    json_t *tree = NULL;
    TRY(model_copy_read_config(from, dtype, &tree));
    enum status status = json_replace_file(to, tree);
    json_decref(tree);
    return status;
}

static enum status config_bytes(const char *from, const char *dtype, int64_t *bytes)
{
    json_t *tree = NULL;
    TRY(model_copy_read_config(from, dtype, &tree));
    char *text = json_file_text(tree);
    *bytes = text ? (int64_t)strlen(text) : 0;
    enum status status = text ? OK : fail_at(ERR_MEMORY, "%s: ", from);
    json_text_free(text);
    json_decref(tree);
    return status;
}

static enum status copy_file(struct arena *arena, const char *from, const char *to, const char *name, const char *dtype)
{
    const char *source = file_join(arena, from, name), *target = file_join(arena, to, name);
    if (!source || !target)
        return ERR_MEMORY;
    if (dtype)
        return copy_config(source, target, dtype);
    return file_exists(source) ? file_copy(source, target) : OK;
}

enum status model_copy(const char *from, const char *to, const char *dtype)
{
    struct arena arena = {0};
    enum status status = OK;
    for (int i = 0; i < COPIED && status == OK; i++)
        status = copy_file(&arena, from, to, model_copy_names[i], NULL);
    if (status == OK)
        status = copy_file(&arena, from, to, CONFIG_FILE, dtype);
    const char *more = status == OK ? file_join(&arena, from, MORE_TEMPLATES) : NULL;
    if (more && file_exists(more)) /* a checkpoint has no directories, and other readers do not know this name either */
        log_message(LOG_WARNING, "%s: is not copied to %s; rows with tools are rendered by other templates there", more, to);
    arena_free(&arena);
    return status;
}

/* Before it is hashed or copied: it need not be one that hone reads. */
static enum status check_size(const char *path)
{
    if (file_size(path) <= FILE_MAX)
        return OK;
    return fail(ERR_FORMAT, "%s: %lld bytes, more than the %lld that a file next to weights may have", path,
                (long long)file_size(path), (long long)FILE_MAX);
}

/* A file that is cut off is reported while it can be said whose it is. tokenizer.json has a reader of its own. */
static enum status model_copy_check_file(const char *path, const char *name)
{
    json_t *tree = NULL;
    TRY(check_size(path));
    if (file_size(path) == 0)
        return fail(ERR_FORMAT, "%s: is empty: download it again, or remove it", path);
    if (!name_ends_with(name, ".json") || !strcmp(name, "tokenizer.json"))
        return OK;
    TRY(json_parse_file_reals(&tree, path, 64 << 20));
    json_decref(tree);
    return OK;
}

static enum status list(struct arena *arena, const char *from, const char *dtype, model_copy_each *each, void *context)
{
    int64_t bytes = 0;
    for (int i = 0; i < COPIED; i++) {
        const char *path = file_join(arena, from, model_copy_names[i]);
        if (!path)
            return ERR_MEMORY;
        if (!file_exists(path))
            continue;
        TRY(model_copy_check_file(path, model_copy_names[i]));
        TRY(each(context, model_copy_names[i], file_size(path)));
    }
    const char *config = file_join(arena, from, CONFIG_FILE);
    if (!config)
        return ERR_MEMORY;
    TRY(config_bytes(config, dtype, &bytes));
    return each(context, CONFIG_FILE, bytes);
}

enum status model_copy_list(const char *from, const char *dtype, model_copy_each *each, void *context)
{
    struct arena arena = {0};
    enum status status = list(&arena, from, dtype, each, context);
    arena_free(&arena);
    return status;
}

static enum status model_copy_add_file(struct arena *arena, const char *from, const char *name, struct hash *hash)
{
    struct digest digest;
    const char *path = file_join(arena, from, name);
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return OK;
    TRY(check_size(path));
    TRY(checksums_digest(path, &digest));
    hash_add(hash, name, (int64_t)strlen(name) + 1);
    hash_add(hash, &digest, (int64_t)sizeof digest);
    return OK;
}

enum status model_copy_digest(const char *from, struct digest *digest)
{
    struct arena arena = {0};
    struct hash hash;
    enum status status = OK;
    hash_init(&hash);
    for (int i = 0; model_copy_names[i] && status == OK; i++)
        status = model_copy_add_file(&arena, from, model_copy_names[i], &hash);
    *digest = hash_end(&hash);
    arena_free(&arena);
    return status;
}

int64_t model_copy_bytes(const char *from)
{
    struct arena arena = {0};
    int64_t bytes = 0;
    for (int i = 0; i < COPIED; i++) {
        const char *path = file_join(&arena, from, model_copy_names[i]);
        int64_t size = path ? file_size(path) : 0;
        bytes += size > 0 ? size : 0;
    }
    arena_free(&arena);
    return bytes;
}
