/* Lists of weights, and the tensors of those that are stored in parts. */
#include "models/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "format/hf_config.h"
#include "models/gguf_names.h"
#include "models/weights_safetensors.h"

enum { PART_NAME_SIZE = NAME_SIZE + 32 };

enum status weights_init(struct weights *w)
{
    *w = (struct weights){.quantise = WEIGHT_DENSE};
    TRY(map_init(&w->names, 64));
    return map_init(&w->parted_names, 64);
}

void weights_free(struct weights *w)
{
    map_free(&w->names);
    map_free(&w->parted_names);
    memory_free(w->list);
    memory_free(w->parted);
    arena_free(&w->arena);
    *w = (struct weights){0};
}

/* Names of text parts in files, old and new, and alone. A text part that transformers has saved for itself may have either. */
static const struct {
    const char *nested, *alone;
} prefixes[] = {{HF_CONFIG_TEXT, "model."}, {"language_model.model.", "model."}, {"language_model.lm_head.", "lm_head."}};

static const char *alone(char name[static NAME_SIZE], const char *in_file)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (!strncmp(in_file, prefixes[i].nested, strlen(prefixes[i].nested))) {
            snprintf(name, NAME_SIZE, "%s%s", prefixes[i].alone, in_file + strlen(prefixes[i].nested));
            return name;
        }
    return in_file;
}

const char *weights_file_name(const struct weights *w, char name[static NAME_SIZE], const char *of)
{
    if (w->nested)
        return hf_config_whole_name(name, of);
    snprintf(name, NAME_SIZE, "%s", of);
    return name;
}

enum status weights_add(struct weights *w, const struct stored *stored)
{
    TRY(memory_grow(&w->list, &w->capacity, w->count + 1, (int64_t)sizeof *w->list));
    struct stored *at = &w->list[w->count];
    *at = *stored;
    char text[NAME_SIZE];
    const char *name = alone(text, stored->name);
    at->name = arena_text(&w->arena, name, (int64_t)strlen(name));
    at->file_name = name == stored->name ? at->name : arena_text(&w->arena, stored->name, (int64_t)strlen(stored->name));
    at->kind = arena_text(&w->arena, stored->kind, (int64_t)strlen(stored->kind));
    if (!at->name || !at->kind || !at->file_name)
        return ERR_MEMORY;
    int64_t old;
    TRY(map_put(&w->names, at->name, (int64_t)strlen(at->name), w->count, &old));
    if (old >= 0 && !at->adapter)
        return fail(ERR_FORMAT, "the files have two tensors for %s: are they all of one model?", at->name);
    w->count++;
    w->listed = true;
    return OK;
}

const struct stored *weights_find(const struct weights *w, const char *name)
{
    int64_t i = map_get(&w->names, name, (int64_t)strlen(name));
    return i < 0 ? NULL : &w->list[i];
}

static bool skipped(const struct weights *w, const char *name)
{
    char module[NAME_SIZE];
    snprintf(module, sizeof module, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
    for (int i = 0; w->skips && w->skips[i]; i++)
        if (name_ends_with(module, w->skips[i]))
            return true;
    return false;
}

int weights_type(const struct weights *w, const char *name, bool linear)
{
    const struct stored *stored = weights_find(w, name);
    if (stored && stored->type != WEIGHT_DENSE)
        return stored->type;
    return linear && !skipped(w, name) ? w->quantise : WEIGHT_DENSE;
}

static enum status make_tensors(struct store *store, struct parted *p)
{
    const struct weight_type *type = weight_types[p->type];
    for (int i = 0; i < weight_parts(p->type); i++) {
        const struct weight_part *part = &type->part[i];
        char name[PART_NAME_SIZE];
        snprintf(name, sizeof name, "%s#%s", part->shared ? "" : p->name, part->name);
        enum dtype dtype = part->role == ROLE_INDEX ? DTYPE_I32 : DTYPE_F32;
        int64_t words = weight_words(p->type, i, p->rows, p->columns);
        TRY(store_tensor(&p->part[i], store, name, LIFE_WEIGHTS, dtype, 1, &words));
    }
    return OK;
}

enum status weights_parted(struct weights *w, struct store *store, const char *name, enum weight_id type, int64_t rows,
                           int64_t columns, const struct parted **out)
{
    int64_t i = map_get(&w->parted_names, name, (int64_t)strlen(name));
    if (i >= 0) {
        const struct parted *p = *out = &w->parted[i];
        return p->type == type && p->rows == rows && p->columns == columns
                   ? OK
                   : fail(ERR_INTERNAL, "weight %s is asked for in two shapes", name);
    }
    TRY(memory_grow(&w->parted, &w->parted_capacity, w->parted_count + 1, (int64_t)sizeof *w->parted));
    struct parted *p = &w->parted[w->parted_count];
    *p = (struct parted){
        .name = arena_text(&w->arena, name, (int64_t)strlen(name)), .type = type, .rows = rows, .columns = columns};
    if (!p->name)
        return ERR_MEMORY;
    TRY(make_tensors(store, p));
    TRY(map_put(&w->parted_names, p->name, (int64_t)strlen(p->name), w->parted_count, NULL));
    w->parted_count++;
    *out = p;
    return OK;
}

bool weights_is_part(const struct tensor *t)
{
    return strchr(t->name, '#') != NULL;
}

void weights_place(const struct parted *p, const struct stored *from, bool host_memory)
{
    for (int i = 0; i < weight_parts(p->type); i++) {
        struct tensor *t = p->part[i];
        const struct stored_part *part = from ? &from->part[i] : NULL;
        bool in_place = host_memory && from && from->type == (int)p->type && from->in_place && part->map;
        /* The last word may reach beyond the part, but not beyond the file. */
        t->in_file = in_place && (uintptr_t)part->data % 4 == 0 && part->offset + tensor_bytes(t) <= part->map->size;
        t->mapped = t->in_file ? part->data : NULL;
    }
}

void weights_drop(const struct stored *stored)
{
    for (int i = 0; i < WEIGHT_PARTS; i++)
        if (stored->part[i].map)
            file_map_drop(stored->part[i].map, stored->part[i].offset, stored->part[i].bytes);
}

void weights_drop_files(const struct weights *w)
{
    const struct file_map *last = NULL;
    for (int64_t i = 0; i < w->count * WEIGHT_PARTS; i++) {
        const struct file_map *map = w->list[i / WEIGHT_PARTS].part[i % WEIGHT_PARTS].map;
        if (map && map != last)
            file_map_drop(map, 0, map->size);
        last = map ? map : last;
    }
}

enum status weights_check_files(const struct weights *w)
{
    const struct file_map *last = NULL;
    for (int64_t i = 0; i < w->count * WEIGHT_PARTS; i++) {
        const struct file_map *map = w->list[i / WEIGHT_PARTS].part[i % WEIGHT_PARTS].map;
        if (map && map != last)
            TRY(file_map_check(map));
        last = map ? map : last;
    }
    return OK;
}

static void order_rows(const struct stored *from, const struct stored_part *part, char *to)
{
    int64_t rows = from->shape[0], bytes = part->bytes / rows;
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + gguf_permuted_row(r, rows, from->heads) * bytes, (const char *)part->data + r * bytes, (size_t)bytes);
}

static enum status add_number(const struct stored *from, float *to)
{
    int64_t count = shape_elements(from->rank, from->shape);
    if (!dtype_convert(to, DTYPE_F32, from->part[0].data, (enum dtype)from->dtype, count))
        return fail(ERR_UNSUPPORTED, "tensor %s has type %s, and 1 cannot be taken from it", from->name, from->kind);
    for (int64_t i = 0; i < count; i++)
        to[i] += from->add;
    return OK;
}

enum status weights_read(const struct stored *from, int part, const void **data, enum dtype *dtype, void **copy)
{
    bool dense = from->type == WEIGHT_DENSE;
    *data = from->part[part].data;
    *dtype = dense ? (enum dtype)from->dtype : DTYPE_I32;
    *copy = NULL;
    if (!from->heads && from->add == 0 && !from->packed)
        return OK;
    if (from->packed) {
        *data = *copy = memory_alloc(dtype_size(*dtype) * shape_elements(from->rank, from->shape));
        if (*copy)
            (from->packed == PACKED_MXFP4 ? weights_unpack : weights_unpack_fp8)(from, *copy);
        return *copy ? OK : ERR_MEMORY;
    }
    TRY(gguf_check_heads(from->name, from->rank ? from->shape[0] : 0, from->heads));
    int64_t bytes = from->heads ? from->part[part].bytes : 4 * shape_elements(from->rank, from->shape);
    *data = *copy = memory_alloc(bytes);
    if (!*copy)
        return ERR_MEMORY;
    if (from->heads) {
        order_rows(from, &from->part[part], *copy);
        return OK;
    }
    *dtype = DTYPE_F32;
    return add_number(from, *copy);
}

/* A part's bytes fill its words, except those after the last one. */
static enum status upload_part(struct engine *e, const struct tensor *t, const void *from, int64_t bytes)
{
    if (bytes == tensor_bytes(t))
        return engine_upload(e, t, from, t->dtype);
    char *padded = memory_alloc(tensor_bytes(t));
    if (!padded)
        return ERR_MEMORY;
    memcpy(padded, from, (size_t)bytes);
    enum status status = engine_upload(e, t, padded, t->dtype);
    memory_free(padded);
    return status;
}

static enum status upload_stored(struct engine *e, const struct tensor *t, const struct stored *from, int part)
{
    const void *data;
    enum dtype dtype;
    void *copy;
    enum status status = weights_read(from, part, &data, &dtype, &copy);
    if (status == OK)
        status = upload_part(e, t, data, from->part[part].bytes);
    memory_free(copy);
    return status;
}

static enum status quantise(const struct parted *p, const struct stored *from, struct engine *e, void *const *parts)
{
    const struct weight_type *type = weight_types[p->type];
    const void *data;
    enum dtype dtype;
    void *copy;
    if (!type->quantise)
        return fail(ERR_UNSUPPORTED, "%s: weights cannot be quantised to %s at loading", p->name, type->name);
    enum status status = weights_read(from, 0, &data, &dtype, &copy);
    if (status == OK)
        status = type->quantise(data, dtype, p->rows, p->columns, parts);
    memory_free(copy);
    TRY(status);
    for (int i = 0; i < weight_parts(p->type); i++)
        TRY(engine_upload(e, p->part[i], parts[i], p->part[i]->dtype));
    return OK;
}

static enum status upload_quantised(const struct parted *p, const struct stored *from, struct engine *e)
{
    void *parts[WEIGHT_PARTS] = {0};
    enum status status = OK;
    for (int i = 0; i < weight_parts(p->type) && status == OK; i++) {
        parts[i] = memory_alloc(tensor_bytes(p->part[i]));
        status = parts[i] ? OK : ERR_MEMORY;
    }
    if (status == OK)
        status = quantise(p, from, e, parts);
    for (int i = 0; i < weight_parts(p->type); i++)
        memory_free(parts[i]);
    return status;
}

enum status weights_upload(const struct parted *p, const struct stored *from, struct engine *e)
{
    bool all_in_file = true;
    if (from->type != (int)p->type) {
        TRY(upload_quantised(p, from, e));
        weights_drop(from);
        return OK;
    }
    for (int i = 0; i < weight_parts(p->type); i++) {
        all_in_file &= p->part[i]->in_file;
        if (!p->part[i]->in_file)
            TRY(upload_stored(e, p->part[i], from, i));
    }
    if (!all_in_file)
        weights_drop(from);
    return OK;
}
