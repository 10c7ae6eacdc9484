/* Copying a model directory without its weights. */
#include "models/model_copy.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

static const char *const beside[] = {"generation_config.json",
                                     "tokenizer.json",
                                     "tokenizer_config.json",
                                     "tokenizer.model",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "chat_template.jinja",
                                     "vocab.json",
                                     "merges.txt"};
enum { BESIDE = sizeof beside / sizeof beside[0] };

static enum status read_config(const char *from, const char *dtype, json_t **out)
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
    TRY(read_config(from, dtype, &tree));
    enum status status = json_replace_file(to, tree);
    json_decref(tree);
    return status;
}

static enum status config_bytes(const char *from, const char *dtype, int64_t *bytes)
{
    json_t *tree = NULL;
    TRY(read_config(from, dtype, &tree));
    char *text = json_file_text(tree);
    *bytes = text ? (int64_t)strlen(text) : 0;
    enum status status = text ? OK : fail_at(ERR_MEMORY, "%s: ", from);
    free(text);
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
    for (int i = 0; i < BESIDE && status == OK; i++)
        status = copy_file(&arena, from, to, beside[i], NULL);
    if (status == OK)
        status = copy_file(&arena, from, to, "config.json", dtype);
    arena_free(&arena);
    return status;
}

static enum status list(struct arena *arena, const char *from, const char *dtype, model_copy_each *each, void *context)
{
    int64_t bytes = 0;
    for (int i = 0; i < BESIDE; i++) {
        const char *path = file_join(arena, from, beside[i]);
        if (!path)
            return ERR_MEMORY;
        if (file_exists(path))
            TRY(each(context, beside[i], file_size(path)));
    }
    const char *config = file_join(arena, from, "config.json");
    if (!config)
        return ERR_MEMORY;
    TRY(config_bytes(config, dtype, &bytes));
    return each(context, "config.json", bytes);
}

enum status model_copy_list(const char *from, const char *dtype, model_copy_each *each, void *context)
{
    struct arena arena = {0};
    enum status status = list(&arena, from, dtype, each, context);
    arena_free(&arena);
    return status;
}

int64_t model_copy_bytes(const char *from)
{
    struct arena arena = {0};
    int64_t bytes = 0;
    for (int i = 0; i < BESIDE; i++) {
        const char *path = file_join(&arena, from, beside[i]);
        int64_t size = path ? file_size(path) : 0;
        bytes += size > 0 ? size : 0;
    }
    arena_free(&arena);
    return bytes;
}
