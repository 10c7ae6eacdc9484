/* Opening safetensors: which files a path means, and what was read from them. */
#include "format/safetensors_inside.h"

#include <string.h>

/* A directory without safetensors: which other weights are in it? */
static enum status safetensors_fail_no_weights(struct arena *arena, const char *dir)
{
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth",
                                         "tf_model.h5", "flax_model.msgpack"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *path = file_join(arena, dir, others[i]);
        if (!path)
            return ERR_MEMORY;
        if (file_exists(path))
            return fail(
                ERR_IO,
                "%s: has %s, but no model.safetensors, which hone reads: download that, or convert: python3 -c \"import sys, "
                "transformers as t; t.AutoModelForCausalLM.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])\" DIR",
                dir, others[i]);
    }
    return fail(
        ERR_IO,
        "%s: neither model.safetensors nor model.safetensors.index.json is there: download the weights too, with all files "
        "of the model",
        dir);
}

static enum status read_path(struct safetensors *file, const char *path)
{
    const char *one = path;
    if (file_is_directory(path)) {
        one = file_join(&file->arena, path, "model.safetensors");
        const char *index = file_join(&file->arena, path, "model.safetensors.index.json");
        if (!one || !index)
            return ERR_MEMORY;
        if (!file_exists(one)) {
            if (file_exists(index))
                return safetensors_read_index(file, path, index);
            return safetensors_fail_no_weights(&file->arena, path);
        }
    }
    TRY(safetensors_alloc_maps(file, 1));
    return safetensors_read_file(file, file->maps, one);
}

enum status safetensors_open(struct safetensors **out, const char *path)
{
    *out = NULL;
    struct safetensors *file = memory_alloc((int64_t)sizeof *file);
    if (!file)
        return ERR_MEMORY;
    file->metadata_end = &file->metadata;
    enum status status = read_path(file, path);
    if (status == OK)
        *out = file;
    else
        safetensors_close(file);
    return status;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    for (int64_t i = 0; i < file->map_count; i++)
        file_unmap(&file->maps[i]);
    map_free(&file->names);
    memory_free(file->tensors);
    arena_free(&file->arena);
    memory_free(file);
}

int64_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *file, int64_t i)
{
    return &file->tensors[i];
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
    int64_t i = map_get(&file->names, name, (int64_t)strlen(name));
    return i < 0 ? NULL : &file->tensors[i];
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
    for (const struct metadata *m = file->metadata; m; m = m->next)
        if (strcmp(m->key, key) == 0)
            return m->value;
    return NULL;
}
