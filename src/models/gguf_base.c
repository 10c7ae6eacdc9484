/* Opening GGUF files as a model, and listing their tensors. */
#include "models/gguf_base.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "models/net.h"

enum { FILES_MAX = 99999, PATH_BYTES_MAX = 4096 };

static enum status read_arch(struct gguf_base *base)
{
    static const char adapter[] = "adapter";
    struct gguf_text text = {0}, type = {0};
    char name[64], known[256] = "";
    TRY(gguf_get_text(base->file[0], "general.type", &type));
    if (type.length == (int64_t)strlen(adapter) && !memcmp(type.text, adapter, strlen(adapter)))
        return fail(ERR_FORMAT, "%s: is an adapter, not a model; hone reads adapters in PEFT's layout: --adapter DIR",
                    base->path);
    TRY(gguf_get_text(base->file[0], "general.architecture", &text));
    snprintf(name, sizeof name, "%.*s", (int)(text.length < 60 ? text.length : 60), text.text ? text.text : "");
    base->arch = gguf_arch_named(name, known, sizeof known);
    if (base->arch)
        return OK;
    return *name ? fail(ERR_UNSUPPORTED, "%s: general.architecture is \"%s\"; hone reads %s", base->path, name, known)
                 : fail(ERR_FORMAT, "%s: is not a model: it has no general.architecture", base->path);
}

static enum status check_place(const struct gguf *file, const char *path, int64_t number, int64_t count)
{
    int64_t is = -1, of = -1;
    TRY(gguf_get_int(file, "split.no", &is));
    TRY(gguf_get_int(file, "split.count", &of));
    if (is == number && of == count)
        return OK;
    return fail(ERR_FORMAT, "%s: says that it is not file %lld of %lld: it is of another model, or was renamed", path,
                (long long)number + 1, (long long)count);
}

/* The other files of a split model have its name with another number. */
static enum status gguf_base_open_split(struct gguf_base *base, int64_t count)
{
    char end[32], path[PATH_BYTES_MAX];
    int length = snprintf(end, sizeof end, "-00001-of-%05d.gguf", (int)count);
    if (!name_ends_with(base->path, end))
        return fail(ERR_ARGUMENT, "%s: is one of %lld files of a model: give the first, whose name ends with %s", base->path,
                    (long long)count, end);
    for (int64_t i = 1; i < count; i++) {
        snprintf(path, sizeof path, "%.*s-%05d-of-%05d.gguf", (int)strlen(base->path) - length, base->path, (int)i + 1,
                 (int)count);
        TRY(gguf_open(&base->file[i], path));
        base->files++;
        TRY(check_place(base->file[i], path, i, count));
    }
    return OK;
}

static enum status gguf_base_open_files(struct gguf_base *base, const char *path)
{
    int64_t count = 1;
    struct gguf *first;
    if (!(base->path = arena_text(&base->arena, path, (int64_t)strlen(path))))
        return ERR_MEMORY;
    TRY(gguf_open(&first, path));
    enum status status = gguf_get_int(first, "split.count", &count);
    count = count < 1 ? 1 : count;
    if (status == OK && count > FILES_MAX)
        status = fail(ERR_FORMAT, "%s: split.count is %lld", path, (long long)count);
    if (status == OK && !(base->file = arena_array(&base->arena, count, sizeof *base->file)))
        status = ERR_MEMORY;
    if (status != OK) {
        gguf_close(first);
        return status;
    }
    base->file[base->files++] = first;
    if (count > 1)
        TRY(gguf_base_open_split(base, count));
    return read_arch(base);
}

enum status gguf_base_open(struct gguf_base **out, const char *path)
{
    *out = NULL;
    struct gguf_base *base = memory_alloc((int64_t)sizeof *base);
    if (!base)
        return ERR_MEMORY;
    enum status status = gguf_base_open_files(base, path);
    if (status == OK)
        *out = base;
    else
        gguf_base_close(base);
    return status;
}

void gguf_base_close(struct gguf_base *base)
{
    if (!base)
        return;
    for (int64_t i = 0; i < base->files; i++)
        gguf_close(base->file[i]);
    arena_free(&base->arena);
    memory_free(base);
}

const struct gguf_tensor *gguf_base_find(const struct gguf_base *base, const char *name)
{
    const struct gguf_tensor *t = NULL;
    for (int64_t i = 0; i < base->files && !t; i++)
        t = gguf_tensor_find(base->file[i], name);
    return t;
}

/* --- listing ------------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    enum dtype dtype;
} dense[] = {{"F32", DTYPE_F32}, {"F16", DTYPE_F16}, {"BF16", DTYPE_BF16}, {"F64", DTYPE_F64}};

static bool same_name(const char *upper, const char *lower)
{
    while (*upper && tolower((unsigned char)*upper) == *lower) {
        upper++;
        lower++;
    }
    return *upper == *lower;
}

static enum status find_type(struct stored *stored, const char *path)
{
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++)
        if (!strcmp(stored->kind, dense[i].name)) {
            stored->dtype = (int)dense[i].dtype;
            return OK;
        }
    char known[256] = "F32, F16, BF16";
    for (int i = 0; i < WEIGHT_COUNT; i++) {
        size_t used = strlen(known);
        if (i >= WEIGHT_q8_0 && i <= WEIGHT_mxfp4)
            snprintf(known + used, sizeof known - used, ", %s", weight_types[i]->name);
        if (same_name(stored->kind, weight_types[i]->name)) {
            stored->type = i;
            return OK;
        }
    }
    for (char *c = known; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    return fail(ERR_UNSUPPORTED, "%s: tensor %s is of type %s, which hone does not compute with; take a file with %s", path,
                stored->name, stored->kind, known);
}

static enum status list_tensor(const struct gguf_base *base, const struct gguf *file, const struct gguf_tensor *t,
                               const struct model_config *config, struct weights *weights)
{
    char name[NAME_SIZE], in_model[NAME_SIZE];
    const struct file_map *map = gguf_map(file);
    snprintf(name, sizeof name, "%.*s", (int)(t->name.length < NAME_SIZE - 1 ? t->name.length : NAME_SIZE - 1), t->name.text);
    if (!strncmp(name, "rope_factors_", strlen("rope_factors_"))) /* a part of the configuration */
        return OK;
    bool found = gguf_name_in_model(base->arch, name, in_model);
    if (!strcmp(name, "rope_freqs.weight"))
        snprintf(in_model, sizeof in_model, "%s", NET_FREQUENCIES);
    else if (!found)
        snprintf(in_model, sizeof in_model, "%s", name);
    struct stored stored = {.name = in_model,
                            .kind = gguf_type_name(t->type),
                            .rank = t->rank,
                            .type = WEIGHT_DENSE,
                            .dtype = -1,
                            .part = {{t->data, t->bytes, map, t->data - map->data}},
                            .heads = gguf_permuted_heads(base->arch, in_model, config->heads, config->kv_heads),
                            .add = gguf_adds_one(base->arch, in_model) ? -1 : 0};
    stored.in_place = !stored.heads && stored.add == 0;
    for (int i = 0; i < t->rank; i++)
        stored.shape[i] = t->shape[t->rank - 1 - i];
    TRY(find_type(&stored, base->path));
    return weights_add(weights, &stored);
}

enum status gguf_base_list(const struct gguf_base *base, const struct model_config *config, struct weights *weights)
{
    for (int64_t i = 0; i < base->files; i++)
        for (int64_t k = 0; k < gguf_tensor_count(base->file[i]); k++)
            TRY(list_tensor(base, base->file[i], gguf_tensor_at(base->file[i], k), config, weights));
    weights->listed = true;
    return OK;
}
