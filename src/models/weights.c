/* Lists of weights, and the tensors of those that are stored in parts. */
#include "models/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "format/hf_config.h"

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

/* Names of text parts in files, old and new, and in a text-only model. One that transformers saved for itself may have either. */
static const struct {
    const char *nested, *plain;
} prefixes[] = {{HF_CONFIG_TEXT, "model."}, {"language_model.model.", "model."}, {"language_model.lm_head.", "lm_head."}};

static const char *plain_name(char name[static NAME_SIZE], const char *in_file)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (!strncmp(in_file, prefixes[i].nested, strlen(prefixes[i].nested))) {
            snprintf(name, NAME_SIZE, "%s%s", prefixes[i].plain, in_file + strlen(prefixes[i].nested));
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
    const char *name = plain_name(text, stored->name);
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

enum dtype weights_matrix_dtype(const struct weights *w, const char *name, enum dtype of_run)
{
    const struct stored *stored = weights_find(w, name);
    bool in_file = stored ? stored->dtype == DTYPE_BF16 && stored->packed == PACKED_NOT : !w->listed;
    return w->narrow && in_file ? DTYPE_BF16 : of_run;
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
