/* Listing the tensors of safetensors files, and what the readers of quantised ones share. */
#include "models/weights_safetensors.h"

#include <string.h>

#include "format/adapter.h"

static const int dtypes[SAFETENSORS_DTYPES] = {
    [SAFETENSORS_F32] = 1 + DTYPE_F32,
    [SAFETENSORS_BF16] = 1 + DTYPE_BF16,
    [SAFETENSORS_F16] = 1 + DTYPE_F16,
    [SAFETENSORS_F64] = 1 + DTYPE_F64,
};

int weights_dtype(const struct safetensors_tensor *t)
{
    return dtypes[t->dtype] - 1;
}

static enum status weights_safetensors_add(struct weights *w, const struct safetensors_tensor *t, const char *name, bool adapter)
{
    struct stored stored = {.name = name,
                            .kind = safetensors_dtype_name(t->dtype),
                            .rank = t->rank,
                            .type = WEIGHT_DENSE,
                            .dtype = weights_dtype(t),
                            .part = {{t->data, t->bytes, t->map, t->offset}},
                            .in_place = !adapter,
                            .adapter = adapter};
    memcpy(stored.shape, t->shape, sizeof stored.shape);
    return weights_add(w, &stored);
}

enum status weights_list_tensor(struct weights *w, const struct safetensors_tensor *t)
{
    return weights_safetensors_add(w, t, t->name, false);
}

enum status weights_list_files(struct weights *w, const struct safetensors *files)
{
    for (int64_t i = 0; i < safetensors_count(files); i++)
        TRY(weights_list_tensor(w, safetensors_at(files, i)));
    w->listed = true;
    return OK;
}

enum status weights_list_adapter(struct weights *w, const struct safetensors *files, const char *path)
{
    size_t prefix = strlen(ADAPTER_PREFIX);
    for (int64_t i = 0; i < safetensors_count(files); i++) {
        const struct safetensors_tensor *t = safetensors_at(files, i);
        if (strncmp(t->name, ADAPTER_PREFIX, prefix) != 0)
            return fail(ERR_FORMAT, "%s: tensor %s is not one of an adapter, whose names begin with " ADAPTER_PREFIX, path,
                        t->name);
        TRY(weights_safetensors_add(w, t, t->name + prefix, true));
    }
    return OK;
}

enum status weights_skip(struct weights *w, const struct hf_config *hf, const char *key)
{
    const json_t *skips = json_object_get(hf->quantised, key), *skip;
    const char **names = arena_array(&w->arena, (int64_t)json_array_size(skips) + 1, sizeof *names);
    size_t i;
    if (!names)
        return ERR_MEMORY;
    json_array_foreach(skips, i, skip)
    {
        names[i] = json_is_string(skip) ? json_string_value(skip) : NULL;
        if (!names[i])
            return fail(ERR_FORMAT, "%s: \"%s\" must be a list of names", hf->path, key);
    }
    w->skips = names;
    return OK;
}
