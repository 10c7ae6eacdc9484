/* Copying a model directory without its weights. */
#include "models/model_copy.h"

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

static enum status copy_config(const char *from, const char *to, const char *dtype)
{
    json_t *tree = NULL;
    TRY(json_parse_file(&tree, from, 16 << 20));
    json_object_del(tree, "torch_dtype");
    json_object_del(tree, "quantization_config"); /* the copy's weights are plain */
    json_object_del(json_object_get(tree, "text_config"), "quantization_config");
    json_object_set_new(tree, "dtype", json_string(dtype));
    enum status status = json_replace_file(to, tree);
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
