/* Reading safetensors. A header's tensors are sorted by offset; then "no hole, no overlap, all covered" is one comparison a
 * tensor: each begins where the previous one ended. */
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"

enum { HEADER_MAX = 100000000 };

struct metadata {
    const char *key, *value;
    struct metadata *next;
};

struct safetensors {
    struct arena arena; /* names, metadata, maps */
    struct file_map *maps;
    int64_t map_count;
    struct safetensors_tensor *tensors;
    int64_t count, capacity;
    struct map names;          /* to the tensor's number */
    struct metadata *metadata; /* in file order */
};

static const struct {
    const char *name;
    int bits;
} DTYPES[] = {
#define DTYPE(name, bits) {#name, bits},
#include "format/safetensors.def"
#undef DTYPE
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    return DTYPES[dtype].name;
}

int safetensors_dtype_bits(enum safetensors_dtype dtype)
{
    return DTYPES[dtype].bits;
}

/* A string, or NULL if it has zero bytes, which would cut it short. */
static const char *plain_text(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

static enum status read_dtype(struct safetensors_tensor *t, const json_t *info, const char *path)
{
    const char *text = plain_text(json_object_get(info, "dtype"));
    if (!text)
        return fail(ERR_FORMAT, "%s: tensor %s has no \"dtype\"", path, t->name);
    for (int i = 0; i < SAFETENSORS_DTYPES; i++)
        if (strcmp(DTYPES[i].name, text) == 0) {
            t->dtype = (enum safetensors_dtype)i;
            return OK;
        }
    return fail(ERR_FORMAT, "%s: tensor %s has the unknown dtype \"%s\"", path, t->name, text);
}

/* Also sets the bytes that the shape needs. */
static enum status read_shape(struct safetensors_tensor *t, const json_t *info, const char *path)
{
    const json_t *shape = json_object_get(info, "shape"), *item;
    if (!json_is_array(shape))
        return fail(ERR_FORMAT, "%s: tensor %s has no \"shape\"", path, t->name);
    if (json_array_size(shape) > SAFETENSORS_RANK_MAX)
        return fail(ERR_UNSUPPORTED, "%s: tensor %s has %zu dimensions, at most %d are supported", path, t->name,
                    json_array_size(shape), SAFETENSORS_RANK_MAX);
    int64_t bits = 1;
    size_t i;
    t->rank = (int)json_array_size(shape);
    json_array_foreach(shape, i, item)
    {
        if (!json_is_integer(item) || json_integer_value(item) < 0)
            return fail(ERR_FORMAT, "%s: tensor %s: dimension %zu is not a size", path, t->name, i);
        t->shape[i] = json_integer_value(item);
        if (__builtin_mul_overflow(bits, t->shape[i], &bits))
            return fail(ERR_FORMAT, "%s: tensor %s: the shape's product is too large", path, t->name);
    }
    if (__builtin_mul_overflow(bits, (int64_t)DTYPES[t->dtype].bits, &bits))
        return fail(ERR_FORMAT, "%s: tensor %s: the shape's product is too large", path, t->name);
    if (bits % 8)
        return fail(ERR_FORMAT, "%s: tensor %s does not fill whole bytes", path, t->name);
    t->bytes = bits / 8;
    return OK;
}

/* `data` is where the file's data begin: everything after it belongs to tensors. */
static enum status read_range(struct safetensors_tensor *t, const json_t *info, int64_t data, const char *path)
{
    const json_t *range = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(range, 0), *last = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return fail(ERR_FORMAT, "%s: tensor %s: \"data_offsets\" must be two whole numbers", path, t->name);
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin)
        return fail(ERR_FORMAT, "%s: tensor %s: data_offsets %lld to %lld are not a range", path, t->name, (long long)begin,
                    (long long)end);
    if (end > t->map->size - data)
        return fail(ERR_FORMAT, "%s: tensor %s ends beyond the file, which may be incomplete: download it again", path, t->name);
    if (end - begin != t->bytes)
        return fail(ERR_FORMAT, "%s: tensor %s has %lld bytes, its shape and dtype need %lld", path, t->name,
                    (long long)(end - begin), (long long)t->bytes);
    t->offset = data + begin;
    t->data = t->map->data + t->offset;
    return OK;
}

static enum status read_metadata(struct safetensors *file, const json_t *object, const char *path)
{
    const char *key;
    json_t *value;
    struct metadata **end = &file->metadata;
    while (*end)
        end = &(*end)->next;
    if (!json_is_object(object))
        return fail(ERR_FORMAT, "%s: \"__metadata__\" must be an object", path);
    json_object_foreach((json_t *)object, key, value)
    {
        const char *text = plain_text(value);
        if (!text)
            return fail(ERR_FORMAT, "%s: metadata \"%s\" must be plain text", path, key);
        struct metadata *m = arena_alloc(&file->arena, (int64_t)sizeof *m);
        if (!m)
            return ERR_MEMORY;
        *m = (struct metadata){arena_text(&file->arena, key, (int64_t)strlen(key)),
                               arena_text(&file->arena, text, (int64_t)strlen(text)), NULL};
        if (!m->key || !m->value)
            return ERR_MEMORY;
        *end = m;
        end = &m->next;
    }
    return OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Reads the tensors of a parsed header; the data begin at `data` in the mapping. */
static enum status read_tensors(struct safetensors *file, const json_t *header, const struct file_map *map, int64_t data,
                                const char *path)
{
    int64_t first = file->count, need = first + (int64_t)json_object_size(header);
    TRY(memory_grow(&file->tensors, &file->capacity, need, (int64_t)sizeof *file->tensors));
    const char *key;
    json_t *info;
    json_object_foreach((json_t *)header, key, info)
    {
        if (strcmp(key, "__metadata__") == 0) {
            TRY(read_metadata(file, info, path));
            continue;
        }
        struct safetensors_tensor t = {.name = arena_text(&file->arena, key, (int64_t)strlen(key)), .map = map};
        if (!t.name)
            return ERR_MEMORY;
        TRY(read_dtype(&t, info, path));
        TRY(read_shape(&t, info, path));
        TRY(read_range(&t, info, data, path));
        file->tensors[file->count++] = t;
    }
    if (file->count > first)
        qsort(file->tensors + first, (size_t)(file->count - first), sizeof *file->tensors, by_offset);
    int64_t end = data;
    for (int64_t i = first; i < file->count; i++) {
        const struct safetensors_tensor *t = &file->tensors[i];
        if (t->offset != end)
            return fail(ERR_FORMAT, "%s: tensor %s %s", path, t->name,
                        t->offset < end ? "overlaps another" : "leaves a hole before it");
        end += t->bytes;
        int64_t old;
        TRY(map_put(&file->names, t->name, (int64_t)strlen(t->name), i, &old));
        if (old >= 0)
            return fail(ERR_FORMAT, "%s: tensor %s is in another shard too", path, t->name);
    }
    if (end != map->size)
        return fail(ERR_FORMAT, "%s: %lld bytes at the end belong to no tensor", path, (long long)(map->size - end));
    return OK;
}

static enum status read_file(struct safetensors *file, struct file_map *map, const char *path)
{
    TRY(file_map(map, path));
    if (map->size < 8)
        return fail(ERR_FORMAT, "%s: %lld bytes are too few for a safetensors file", path, (long long)map->size);
    uint64_t length = 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)map->data[i] << 8 * i;
    if (length > HEADER_MAX)
        return fail(ERR_FORMAT, "%s: a header of %llu bytes: not a safetensors file", path, (unsigned long long)length);
    if ((int64_t)length > map->size - 8)
        return fail(ERR_FORMAT, "%s: the header ends beyond the file, which may be incomplete: download it again", path);
    if (length == 0 || map->data[8] != '{')
        return fail(ERR_FORMAT, "%s: the header does not start with '{': not a safetensors file", path);
    json_t *header;
    TRY(json_parse(&header, (const char *)map->data + 8, (int64_t)length, path));
    enum status status = read_tensors(file, header, map, 8 + (int64_t)length, path);
    json_decref(header);
    return status;
}

static enum status alloc_maps(struct safetensors *file, int64_t count)
{
    file->maps = arena_array(&file->arena, count, (int64_t)sizeof *file->maps);
    if (!file->maps)
        return ERR_MEMORY;
    file->map_count = count;
    return OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct shards of a weight map, sorted; the tree owns the strings. */
static enum status list_shards(struct arena *scratch, const json_t *weights, const char ***names, int64_t *count,
                               const char *path)
{
    const char *key;
    json_t *value;
    int64_t n = 0;
    if (!json_object_size(weights))
        return fail(ERR_FORMAT, "%s: \"weight_map\" is missing or empty", path);
    *names = arena_array(scratch, (int64_t)json_object_size(weights), (int64_t)sizeof **names);
    if (!*names)
        return ERR_MEMORY;
    json_object_foreach((json_t *)weights, key, value)
    {
        const char *name = plain_text(value);
        if (!name || !*name || *name == '.' || strpbrk(name, "/\\"))
            return fail(ERR_FORMAT, "%s: the shard of tensor %s must be a plain file name", path, key);
        (*names)[n++] = name;
    }
    qsort(*names, (size_t)n, sizeof **names, by_text);
    *count = 0;
    for (int64_t i = 0; i < n; i++)
        if (*count == 0 || strcmp((*names)[*count - 1], (*names)[i]) != 0)
            (*names)[(*count)++] = (*names)[i];
    return OK;
}

static enum status read_shards(struct safetensors *file, struct arena *scratch, const json_t *weights, const char *dir,
                               const char *path)
{
    const char **shards = NULL, *key;
    int64_t count = 0;
    TRY(list_shards(scratch, weights, &shards, &count, path));
    TRY(alloc_maps(file, count));
    for (int64_t i = 0; i < count; i++) {
        const char *shard = file_join(scratch, dir, shards[i]);
        if (!shard)
            return ERR_MEMORY;
        TRY(read_file(file, &file->maps[i], shard));
    }
    json_t *value;
    json_object_foreach((json_t *)weights, key, value)
    {
        const char *name = json_string_value(value);
        const char **shard = bsearch(&name, shards, (size_t)count, sizeof *shards, by_text);
        const struct safetensors_tensor *t = safetensors_find(file, key);
        if (!t || t->map != &file->maps[shard - shards])
            return fail(ERR_FORMAT, "%s: tensor %s is not in %s", path, key, name);
    }
    return OK;
}

static enum status read_index(struct safetensors *file, const char *dir, const char *path)
{
    json_t *tree;
    TRY(json_parse_file(&tree, path, HEADER_MAX));
    struct arena scratch = {0};
    enum status status = read_shards(file, &scratch, json_object_get(tree, "weight_map"), dir, path);
    arena_free(&scratch);
    json_decref(tree);
    return status;
}

static enum status read_path(struct safetensors *file, const char *path)
{
    TRY(map_init(&file->names, 0));
    const char *one = path;
    if (file_is_directory(path)) {
        one = file_join(&file->arena, path, "model.safetensors");
        const char *index = file_join(&file->arena, path, "model.safetensors.index.json");
        if (!one || !index)
            return ERR_MEMORY;
        if (!file_exists(one)) {
            if (file_exists(index))
                return read_index(file, path, index);
            return fail(ERR_IO, "%s: neither model.safetensors nor model.safetensors.index.json is there", path);
        }
    }
    TRY(alloc_maps(file, 1));
    return read_file(file, file->maps, one);
}

enum status safetensors_open(struct safetensors **out, const char *path)
{
    *out = NULL;
    struct safetensors *file = memory_alloc((int64_t)sizeof *file);
    if (!file)
        return ERR_MEMORY;
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
