/* Reading a safetensors file. Headers are walked from front to back and no tree of them is made: they may have a million tensors.
 * A header's tensors are sorted by offset; then "no hole, no overlap, all covered" is one comparison a tensor: each
 * begins where the previous one ended. */
#include "format/safetensors_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/map.h"
#include "base/number.h"
#include "base/path_hint.h"
#include "base/utf8.h"

/* Of a tensor in a header: {"":{"dtype":"","shape":[],"data_offsets":[0,0]}} without its braces. */
enum { TENSOR_BYTES_MIN = 47 };
/* Of a model: the largest that there are have a quarter of it. A million empty ones in 60 MB would take 600. */
enum { TENSORS_MAX = 1 << 19, METADATA_MAX = 1 << 16 };

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

/* --- a header ------------------------------------------------------------------------------------------------------------ */

/* A header in the reading. Messages name the file and the tensor. */
struct header {
    struct json_reader json;
    const struct file_map *map;
    int64_t data; /* where the file's data begin: everything after it belongs to tensors */
    const char *path;
};

/* The members of a tensor, in whatever order they come. */
enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_RANGE = 4 };

struct info {
    unsigned has;
    int64_t begin, end;
};

/* The next value; *whole is false if it is not a whole number of 64 bits. */
static enum status safetensors_header_read_int(struct json_reader *json, int64_t *number, bool *whole)
{
    struct json_span other;
    bool negative = json_reader_peek(json) == '-', fits = true;
    const char *first = json->at + negative, *at = first;
    int64_t n = 0;
    for (; at < json->end && *at >= '0' && *at <= '9'; at++)
        fits = fits && !__builtin_mul_overflow(n, 10, &n) && !__builtin_add_overflow(n, *at - '0', &n);
    *whole = fits && at > first && (*first != '0' || at == first + 1) && at < json->end && strchr(",] \t\r\n", *at);
    if (!*whole)
        return json_reader_value(json, &other);
    json->at = at;
    *number = negative ? -n : n;
    return OK;
}

static enum status read_dtype(struct header *h, struct safetensors_tensor *t)
{
    struct json_span text;
    if (json_reader_peek(&h->json) != '"')
        return fail(ERR_FORMAT, "%s: tensor %s has no \"dtype\"", h->path, t->name);
    TRY(json_reader_string(&h->json, &text));
    for (int i = 0; i < SAFETENSORS_DTYPES; i++)
        if (is_text(&text, DTYPES[i].name)) {
            t->dtype = (enum safetensors_dtype)i;
            return OK;
        }
    return fail(ERR_FORMAT, "%s: tensor %s has the unknown dtype \"%.*s\"", h->path, t->name, (int)min(text.length, 100),
                text.text);
}

static enum status safetensors_header_read_shape(struct header *h, struct safetensors_tensor *t)
{
    int64_t rank = 0, size;
    bool whole;
    if (json_reader_peek(&h->json) != '[')
        return fail(ERR_FORMAT, "%s: tensor %s has no \"shape\"", h->path, t->name);
    TRY(json_reader_enter(&h->json, '['));
    for (bool more;; rank++) {
        TRY(json_reader_next(&h->json, ']', &more));
        if (!more)
            break;
        TRY(safetensors_header_read_int(&h->json, &size, &whole));
        if (!whole || size < 0)
            return fail(ERR_FORMAT, "%s: tensor %s: dimension %lld is not a size", h->path, t->name, (long long)rank);
        if (rank < SAFETENSORS_RANK_MAX)
            t->shape[rank] = size;
    }
    if (rank > SAFETENSORS_RANK_MAX)
        return fail(ERR_UNSUPPORTED, "%s: tensor %s has %lld dimensions, at most %d are supported", h->path, t->name,
                    (long long)rank, SAFETENSORS_RANK_MAX);
    t->rank = (int)rank;
    return OK;
}

static enum status read_range(struct header *h, const struct safetensors_tensor *t, struct info *info)
{
    int64_t ends[2], count = 0;
    bool good = json_reader_peek(&h->json) == '[', more = good;
    if (good)
        TRY(json_reader_enter(&h->json, '['));
    while (more) {
        TRY(json_reader_next(&h->json, ']', &more));
        if (!more)
            break;
        bool whole;
        int64_t number;
        TRY(safetensors_header_read_int(&h->json, &number, &whole));
        good = good && whole && count < 2;
        if (good)
            ends[count++] = number;
    }
    if (!good || count != 2)
        return fail(ERR_FORMAT, "%s: tensor %s: \"data_offsets\" must be two whole numbers", h->path, t->name);
    info->begin = ends[0];
    info->end = ends[1];
    return OK;
}

static enum status safetensors_header_read_member(struct header *h, struct safetensors_tensor *t, struct info *info)
{
    struct json_span key, other;
    TRY(json_reader_key(&h->json, &key));
    unsigned has = is_text(&key, "dtype")          ? HAS_DTYPE
                   : is_text(&key, "shape")        ? HAS_SHAPE
                   : is_text(&key, "data_offsets") ? HAS_RANGE
                                                   : 0;
    if (info->has & has)
        return fail(ERR_FORMAT, "%s: tensor %s: duplicate key \"%.*s\"", h->path, t->name, (int)key.length, key.text);
    info->has |= has;
    switch (has) {
    case HAS_DTYPE: return read_dtype(h, t);
    case HAS_SHAPE: return safetensors_header_read_shape(h, t);
    case HAS_RANGE: return read_range(h, t, info);
    default: return json_reader_value(&h->json, &other); /* what other writers add */
    }
}

/* Sets the bytes that the shape needs. */
static enum status count_bytes(struct safetensors_tensor *t, const char *path)
{
    int64_t bits = 1;
    bool large = false;
    for (int d = 0; d < t->rank && !large; d++)
        large = __builtin_mul_overflow(bits, t->shape[d], &bits);
    if (large || __builtin_mul_overflow(bits, (int64_t)DTYPES[t->dtype].bits, &bits))
        return fail(ERR_FORMAT, "%s: tensor %s: the shape's product is too large", path, t->name);
    if (bits % 8)
        return fail(ERR_FORMAT, "%s: tensor %s does not fill whole bytes", path, t->name);
    t->bytes = bits / 8;
    return OK;
}

static enum status safetensors_header_place(const struct header *h, struct safetensors_tensor *t, const struct info *info)
{
    if (info->begin < 0 || info->end < info->begin)
        return fail(ERR_FORMAT, "%s: tensor %s: data_offsets %lld to %lld are not a range", h->path, t->name,
                    (long long)info->begin, (long long)info->end);
    if (info->end > h->map->size - h->data)
        return fail(ERR_FORMAT, "%s: tensor %s ends beyond the file, which may be incomplete: download it again", h->path,
                    t->name);
    if (info->end - info->begin != t->bytes)
        return fail(ERR_FORMAT, "%s: tensor %s has %lld bytes, its shape and dtype need %lld", h->path, t->name,
                    (long long)(info->end - info->begin), (long long)t->bytes);
    t->map = h->map;
    t->offset = h->data + info->begin;
    t->data = h->map->data + t->offset;
    return OK;
}

static enum status safetensors_header_read_tensor(struct header *h, struct safetensors_tensor *t)
{
    struct info info = {0};
    bool more = json_reader_peek(&h->json) == '{';
    if (more)
        TRY(json_reader_enter(&h->json, '{'));
    while (more) {
        TRY(json_reader_next(&h->json, '}', &more));
        if (more)
            TRY(safetensors_header_read_member(h, t, &info));
    }
    if (!(info.has & HAS_DTYPE) || !(info.has & HAS_SHAPE))
        return fail(ERR_FORMAT, "%s: tensor %s has no \"%s\"", h->path, t->name, info.has & HAS_DTYPE ? "shape" : "dtype");
    if (!(info.has & HAS_RANGE))
        return fail(ERR_FORMAT, "%s: tensor %s: \"data_offsets\" must be two whole numbers", h->path, t->name);
    TRY(count_bytes(t, h->path));
    return safetensors_header_place(h, t, &info);
}

/* One pair, before those that are there. */
static enum status safetensors_header_read_pair(struct safetensors *file, struct header *h, struct map *keys)
{
    struct json_span key, text;
    struct metadata *m = arena_alloc(&file->arena, (int64_t)sizeof *m);
    int64_t old;
    if (!m)
        return ERR_MEMORY;
    TRY(json_reader_key(&h->json, &key));
    m->key = arena_text(&file->arena, key.text, key.length);
    if (!m->key)
        return ERR_MEMORY;
    bool good = json_reader_peek(&h->json) == '"';
    if (good)
        TRY(json_reader_string(&h->json, &text));
    if (!good || memchr(text.text, 0, (size_t)text.length) || strlen(m->key) != (size_t)key.length)
        return fail(ERR_FORMAT, "%s: metadata \"%s\" must be plain text", h->path, m->key);
    m->value = arena_text(&file->arena, text.text, text.length);
    if (!m->value)
        return ERR_MEMORY;
    TRY(map_put(keys, m->key, key.length, 0, &old));
    if (old >= 0)
        return fail(ERR_FORMAT, "%s: duplicate metadata \"%s\"", h->path, m->key);
    *file->metadata_end = m;
    file->metadata_end = &m->next;
    return OK;
}

static enum status safetensors_header_read_pairs(struct safetensors *file, struct header *h, struct map *keys)
{
    if (json_reader_peek(&h->json) != '{')
        return fail(ERR_FORMAT, "%s: \"__metadata__\" must be an object", h->path);
    TRY(json_reader_enter(&h->json, '{'));
    for (bool more;;) {
        TRY(json_reader_next(&h->json, '}', &more));
        if (!more)
            return OK;
        if (keys->count == METADATA_MAX)
            return fail(ERR_LIMIT, "%s: \"__metadata__\" has more than %d pairs", h->path, METADATA_MAX);
        TRY(safetensors_header_read_pair(file, h, keys));
    }
}

static enum status read_metadata(struct safetensors *file, struct header *h)
{
    struct map keys;
    TRY(map_init(&keys, 0));
    enum status status = safetensors_header_read_pairs(file, h, &keys);
    map_free(&keys);
    return status;
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Enters a name by which a tensor is found; each is there once. */
static enum status safetensors_header_put_name(struct safetensors *file, const struct safetensors_tensor *t, int64_t first,
                                               const char *path)
{
    int64_t old;
    TRY(map_put(&file->names, t->name, (int64_t)strlen(t->name), file->count, &old));
    if (old >= 0)
        return old < first ? fail(ERR_FORMAT, "%s: tensor %s is in another shard too", path, t->name)
                           : fail(ERR_FORMAT, "%s: duplicate tensor %s", path, t->name);
    return OK;
}

static enum status read_members(struct safetensors *file, struct header *h, int64_t first)
{
    bool metadata = false;
    TRY(json_reader_enter(&h->json, '{'));
    for (bool more;;) {
        struct json_span key;
        TRY(json_reader_next(&h->json, '}', &more));
        if (!more)
            return json_reader_end(&h->json);
        TRY(json_reader_key(&h->json, &key));
        if (is_text(&key, "__metadata__")) {
            if (metadata)
                return fail(ERR_FORMAT, "%s: duplicate \"__metadata__\"", h->path);
            metadata = true;
            TRY(read_metadata(file, h));
            continue;
        }
        if (has_controls(&key))
            return json_reader_fail(&h->json, "a tensor's name has control characters");
        if (file->count == TENSORS_MAX)
            return fail(ERR_LIMIT, "%s: more than %d tensors", h->path, TENSORS_MAX);
        struct safetensors_tensor t = {.name = arena_text(&file->arena, key.text, key.length)};
        if (!t.name)
            return ERR_MEMORY;
        TRY(safetensors_header_put_name(file, &t, first, h->path));
        TRY(safetensors_header_read_tensor(h, &t));
        file->tensors[file->count++] = t;
    }
}

static bool in_order(const struct safetensors_tensor *tensors, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        if (by_offset(&tensors[i - 1], &tensors[i]) > 0)
            return false;
    return true;
}

/* Orders the tensors of a header by their offsets and checks that they cover its data. */
static enum status safetensors_header_check_order(struct safetensors *file, const struct header *h, int64_t first)
{
    struct safetensors_tensor *tensors = file->tensors + first;
    int64_t count = file->count - first, end = h->data;
    bool ordered = in_order(tensors, count);
    if (!ordered)
        qsort(tensors, (size_t)count, sizeof *tensors, by_offset);
    for (int64_t i = 0; i < count; i++) {
        const struct safetensors_tensor *t = &tensors[i];
        if (t->offset != end)
            return fail(ERR_FORMAT, "%s: tensor %s %s", h->path, t->name,
                        t->offset < end ? "overlaps another" : "leaves a hole before it");
        end += t->bytes;
        if (!ordered)
            TRY(map_put(&file->names, t->name, (int64_t)strlen(t->name), first + i, NULL));
    }
    if (end != h->map->size)
        return fail(ERR_FORMAT, "%s: %lld bytes at the end belong to no tensor", h->path, (long long)(h->map->size - end));
    return OK;
}

static enum status resize(struct safetensors *file, int64_t count)
{
    struct safetensors_tensor *tensors = memory_resize(file->tensors, count * (int64_t)sizeof *tensors);
    if (!tensors)
        return ERR_MEMORY;
    file->tensors = tensors;
    return OK;
}

/* There may be as many tensors as there is room for in the header; what they do not need is never touched, and given back. */
static enum status safetensors_header_read(struct safetensors *file, struct header *h)
{
    int64_t first = file->count, room = (h->data - 8) / TENSOR_BYTES_MIN + 1;
    TRY(resize(file, first + room));
    if (!file->names.capacity)
        TRY(map_init(&file->names, room));
    TRY(read_members(file, h, first));
    TRY(resize(file, file->count));
    return safetensors_header_check_order(file, h, first);
}

enum status safetensors_read_file(struct safetensors *file, struct file_map *map, const char *path)
{
    TRY(file_check_holes(path));
    TRY(file_map(map, path));
    TRY(path_hint_content(path, map->data, map->size, "a safetensors file"));
    if (map->size < 8)
        return fail(ERR_FORMAT, "%s: %lld bytes are too few for a safetensors file", path, (long long)map->size);
    uint64_t length = 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)map->data[i] << 8 * i;
    if (length > SAFETENSORS_HEADER_MAX)
        return fail(ERR_FORMAT, "%s: a header of %llu bytes: not a safetensors file", path, (unsigned long long)length);
    if ((int64_t)length > map->size - 8)
        return fail(ERR_FORMAT, "%s: the header ends beyond the file, which may be incomplete: download it again", path);
    const char *text = (const char *)map->data + 8;
    if (length == 0 || *text != '{')
        return fail(ERR_FORMAT, "%s: the header does not start with '{': not a safetensors file", path);
    int64_t wrong = utf8_invalid(text, (int64_t)length);
    if (wrong >= 0)
        return fail(ERR_FORMAT, "%s: the header is not UTF-8 at its byte %lld", path, (long long)wrong);
    struct header h = {.map = map, .data = 8 + (int64_t)length, .path = path};
    json_reader_init(&h.json, text, (int64_t)length, path);
    enum status status = safetensors_header_read(file, &h);
    json_reader_free(&h.json);
    return status;
}

enum status safetensors_alloc_maps(struct safetensors *file, int64_t count)
{
    file->maps = arena_array(&file->arena, count, (int64_t)sizeof *file->maps);
    if (!file->maps)
        return ERR_MEMORY;
    file->map_count = count;
    return OK;
}
