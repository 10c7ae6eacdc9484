/* Reading an index of shards: it may name a million tensors, and is walked without making a tree of it. */
#include "format/safetensors_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/utf8.h"

/* An index in the reading. Its map from tensors to shards is walked twice: for the shards, then for the tensors in them. */
struct index {
    struct arena arena;
    struct buffer text;
    struct json_span weights;
    struct map known; /* the shards */
    const char **shards;
    int64_t count, capacity;
    uint8_t *seen; /* a bit for each tensor */
    const char *dir, *path;
};

typedef enum status take_weight(struct safetensors *file, struct index *index, const struct json_span *tensor,
                                const struct json_span *shard);

static bool is_file_name(const struct json_span *text)
{
    bool good = text->length && *text->text != '.' && !has_controls(text);
    for (int64_t i = 0; good && i < text->length; i++)
        good = text->text[i] != '/' && text->text[i] != '\\';
    return good;
}

static enum status walk_pairs(struct safetensors *file, struct index *index, struct json_reader *json, take_weight *take)
{
    TRY(json_reader_enter(json, '{'));
    for (bool more;;) {
        struct json_span tensor, shard = {0};
        TRY(json_reader_next(json, '}', &more));
        if (!more)
            return OK;
        TRY(json_reader_key(json, &tensor));
        TRY(json_reader_keep(json, &index->arena, &tensor));
        if (json_reader_peek(json) == '"')
            TRY(json_reader_string(json, &shard));
        if (!is_file_name(&shard))
            return fail(ERR_FORMAT, "%s: the shard of tensor %.*s must be a plain file name", index->path, (int)tensor.length,
                        tensor.text);
        TRY(take(file, index, &tensor, &shard));
    }
}

static enum status walk_weights(struct safetensors *file, struct index *index, take_weight *take)
{
    struct json_reader json;
    json_reader_init(&json, index->weights.text, index->weights.length, index->path);
    enum status status = walk_pairs(file, index, &json, take);
    json_reader_free(&json);
    return status;
}

static enum status add_shard(struct safetensors *file, struct index *index, const struct json_span *tensor,
                             const struct json_span *shard)
{
    (void)file, (void)tensor;
    if (map_get(&index->known, shard->text, shard->length) >= 0)
        return OK;
    const char *name = arena_text(&index->arena, shard->text, shard->length);
    if (!name)
        return ERR_MEMORY;
    TRY(memory_grow(&index->shards, &index->capacity, index->count + 1, (int64_t)sizeof *index->shards));
    TRY(map_put(&index->known, name, shard->length, index->count, NULL));
    index->shards[index->count++] = name;
    return OK;
}

static enum status check_weight(struct safetensors *file, struct index *index, const struct json_span *tensor,
                                const struct json_span *shard)
{
    int64_t i = map_get(&file->names, tensor->text, tensor->length);
    if (i < 0 || file->tensors[i].map != &file->maps[map_get(&index->known, shard->text, shard->length)])
        return fail(ERR_FORMAT, "%s: tensor %.*s is not in %.*s", index->path, (int)tensor->length, tensor->text,
                    (int)shard->length, shard->text);
    if (index->seen[i / 8] >> i % 8 & 1)
        return fail(ERR_FORMAT, "%s: duplicate tensor %.*s", index->path, (int)tensor->length, tensor->text);
    index->seen[i / 8] |= (uint8_t)(1 << i % 8);
    return OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* In the order of their names, whatever the order of the index. */
static enum status read_shards(struct safetensors *file, struct index *index)
{
    TRY(walk_weights(file, index, add_shard));
    if (!index->count)
        return fail(ERR_FORMAT, "%s: \"weight_map\" is missing or empty", index->path);
    qsort(index->shards, (size_t)index->count, sizeof *index->shards, by_text);
    TRY(safetensors_alloc_maps(file, index->count));
    for (int64_t i = 0; i < index->count; i++) {
        const char *name = index->shards[i], *path = file_join(&index->arena, index->dir, name);
        if (!path)
            return ERR_MEMORY;
        TRY(map_put(&index->known, name, (int64_t)strlen(name), i, NULL));
        TRY(safetensors_read_file(file, &file->maps[i], path));
    }
    if (!(index->seen = arena_alloc(&index->arena, file->count / 8 + 1)))
        return ERR_MEMORY;
    return walk_weights(file, index, check_weight);
}

static enum status find_weights(struct index *index, struct json_reader *json)
{
    struct json_span key, value;
    bool more = json_reader_peek(json) == '{';
    if (more)
        TRY(json_reader_enter(json, '{'));
    while (more) {
        TRY(json_reader_next(json, '}', &more));
        if (!more)
            TRY(json_reader_end(json));
        else
            TRY(json_reader_key(json, &key));
        bool found = more && is_text(&key, "weight_map");
        if (found && index->weights.text)
            return fail(ERR_FORMAT, "%s: duplicate \"weight_map\"", index->path);
        if (more)
            TRY(json_reader_value(json, &value));
        if (found)
            index->weights = value;
    }
    return index->weights.text && *index->weights.text == '{'
               ? OK
               : fail(ERR_FORMAT, "%s: \"weight_map\" is missing or empty", index->path);
}

static enum status safetensors_index_read_text(struct index *index)
{
    struct json_reader json;
    TRY(map_init(&index->known, 0));
    TRY(file_read(&index->text, index->path, SAFETENSORS_HEADER_MAX));
    int64_t wrong = utf8_invalid(index->text.data, index->text.size);
    if (wrong >= 0)
        return fail(ERR_FORMAT, "%s: not UTF-8 at byte %lld", index->path, (long long)wrong);
    json_reader_init(&json, index->text.data, index->text.size, index->path);
    enum status status = find_weights(index, &json);
    json_reader_free(&json);
    return status;
}

enum status safetensors_read_index(struct safetensors *file, const char *dir, const char *path)
{
    struct index index = {.dir = dir, .path = path};
    enum status status = safetensors_index_read_text(&index);
    if (status == OK)
        status = read_shards(file, &index);
    map_free(&index.known);
    memory_free(index.shards);
    buffer_free(&index.text);
    arena_free(&index.arena);
    return status;
}
