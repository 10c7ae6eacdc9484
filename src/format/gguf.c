/* Reading GGUF: one cursor reads the file once, and checks that each item is inside the file before reading it. */
#include "format/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/name.h"
#include "base/number.h"
#include "base/path_hint.h"

enum {
    ALIGNMENT = 32,
    ALIGNMENT_MAX = 1 << 20,
    NAME_BYTES_MAX = 65535,
    PAIRS_MAX = 1 << 16,
    TENSORS_MAX = 1 << 19,
    HEAD_MAX = 128 << 20
};

struct gguf {
    struct file_map map;
    struct gguf_value *values;
    struct gguf_tensor *tensors;
    int64_t value_count, tensor_count, head_bytes;
    struct map keys, names;
    struct arena arena; /* the path, for messages */
    const char *path;
};

static const struct {
    uint32_t number;
    const char *name;
    int64_t elements, bytes;
} BLOCKS[] = {
#define BLOCK(number, name, elements, bytes) {number, name, elements, bytes},
#include "format/gguf.def"
#undef BLOCK
};

/* Bytes of a value of each type; 0: not of a fixed size. */
static const int64_t SIZES[GGUF_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

struct cursor {
    const uint8_t *data;
    int64_t at, size; /* size: of the file */
    int64_t end;      /* of what may come before the tensors' data */
    const char *path;
};

static enum status too_short(const struct cursor *c)
{
    if (c->end < c->size)
        return fail(ERR_LIMIT, "%s: more than %d bytes before the data of its tensors, which no model has: download it again",
                    c->path, HEAD_MAX);
    return fail(ERR_FORMAT, "%s: ends too early, at byte %lld; it is cut off or broken: download it again", c->path,
                (long long)c->at);
}

static enum status gguf_read_bytes(struct cursor *c, void *out, int64_t bytes)
{
    if (c->end - c->at < bytes)
        return too_short(c);
    memcpy(out, c->data + c->at, (size_t)bytes);
    c->at += bytes;
    return OK;
}

/* A count of things that take at least `min_bytes` each. */
static enum status gguf_read_count(struct cursor *c, int64_t min_bytes, int64_t *count)
{
    uint64_t n = 0;
    TRY(gguf_read_bytes(c, &n, 8));
    if (n > (uint64_t)(c->end - c->at) / (uint64_t)min_bytes)
        return too_short(c);
    *count = (int64_t)n;
    return OK;
}

static enum status gguf_read_text(struct cursor *c, struct gguf_text *text)
{
    int64_t length = 0;
    TRY(gguf_read_count(c, 1, &length));
    *text = (struct gguf_text){(const char *)c->data + c->at, length};
    c->at += length;
    return OK;
}

static enum status gguf_read_name(struct cursor *c, struct gguf_text *name, const char *what)
{
    TRY(gguf_read_text(c, name));
    bool plain = true; /* no zero byte, which would cut it short, and nothing that controls a terminal */
    for (int64_t i = 0; i < min(name->length, NAME_BYTES_MAX); i++)
        plain = plain && (uint8_t)name->text[i] >= ' ' && name->text[i] != 0x7f;
    if (!name->length || name->length > NAME_BYTES_MAX || !plain)
        return fail(ERR_FORMAT, "%s: a %s of %lld bytes at byte %lld is not a name", c->path, what, (long long)name->length,
                    (long long)c->at);
    return OK;
}

static enum status gguf_read_items(struct cursor *c, struct gguf_value *value)
{
    value->data = c->data + c->at;
    if (value->type == GGUF_TEXT) {
        struct gguf_text text;
        for (int64_t i = 0; i < value->count; i++)
            TRY(gguf_read_text(c, &text));
        return OK;
    }
    if (value->count > (c->end - c->at) / SIZES[value->type])
        return too_short(c);
    c->at += value->count * SIZES[value->type];
    for (int64_t i = 0; value->type == GGUF_BOOL && i < value->count; i++)
        if (value->data[i] > 1)
            return fail(ERR_FORMAT, "%s: \"%.*s\" is %d, which is neither true nor false", c->path, (int)value->key.length,
                        value->key.text, value->data[i]);
    return OK;
}

static enum status gguf_read_value(struct cursor *c, struct gguf_value *value)
{
    uint32_t type = 0, item;
    TRY(gguf_read_name(c, &value->key, "key"));
    TRY(gguf_read_bytes(c, &type, 4));
    item = type;
    value->array = type == GGUF_ARRAY;
    value->count = 1;
    if (value->array)
        TRY(gguf_read_bytes(c, &item, 4));
    if (value->array && item == GGUF_ARRAY)
        return fail(ERR_UNSUPPORTED, "%s: \"%.*s\" is an array of arrays, which is not supported", c->path,
                    (int)value->key.length, value->key.text);
    if (item >= GGUF_TYPES)
        return fail(ERR_FORMAT, "%s: \"%.*s\" has the unknown type %u", c->path, (int)value->key.length, value->key.text, item);
    value->type = (enum gguf_type)item;
    if (value->array)
        TRY(gguf_read_count(c, item == GGUF_TEXT ? 8 : SIZES[item], &value->count));
    return gguf_read_items(c, value);
}

static enum status gguf_put_name(struct map *map, struct gguf_text name, int64_t number, const char *path)
{
    int64_t old;
    TRY(map_put(map, name.text, name.length, number, &old));
    return old < 0 ? OK : fail(ERR_FORMAT, "%s: \"%.*s\" is there twice", path, (int)name.length, name.text);
}

/* The bytes of a tensor by its type and shape. */
static enum status gguf_tensor_bytes(struct gguf_tensor *t, const char *path)
{
    for (size_t i = 0; i < sizeof BLOCKS / sizeof *BLOCKS; i++) {
        if (BLOCKS[i].number != t->type)
            continue;
        int64_t blocks = t->shape[0] / BLOCKS[i].elements;
        bool good = t->shape[0] % BLOCKS[i].elements == 0;
        for (int d = 1; d < GGUF_RANK_MAX; d++)
            good = good && !__builtin_mul_overflow(blocks, t->shape[d], &blocks);
        if (good && !__builtin_mul_overflow(blocks, BLOCKS[i].bytes, &t->bytes))
            return OK;
        return fail(ERR_FORMAT, "%s: tensor %.*s has rows of %lld elements, which is not possible for %s, or is too large", path,
                    (int)t->name.length, t->name.text, (long long)t->shape[0], BLOCKS[i].name);
    }
    return fail(ERR_UNSUPPORTED, "%s: tensor %.*s is of ggml's type %u, which is not supported", path, (int)t->name.length,
                t->name.text, t->type);
}

/* `begin` is where the tensor has to begin in the data; it is moved to the tensor's end. */
static enum status gguf_read_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *offset)
{
    uint32_t rank = 0;
    TRY(gguf_read_name(c, &t->name, "tensor's name"));
    TRY(gguf_read_bytes(c, &rank, 4));
    if (rank > GGUF_RANK_MAX)
        return fail(ERR_FORMAT, "%s: tensor %.*s has %u dimensions; %d are possible", c->path, (int)t->name.length, t->name.text,
                    rank, GGUF_RANK_MAX);
    t->rank = (int)rank;
    for (int d = 0; d < GGUF_RANK_MAX; d++) {
        t->shape[d] = 1;
        if (d < t->rank)
            TRY(gguf_read_bytes(c, &t->shape[d], 8));
        if (t->shape[d] < 1)
            return fail(ERR_FORMAT, "%s: tensor %.*s has a dimension of %lld", c->path, (int)t->name.length, t->name.text,
                        (long long)t->shape[d]);
    }
    TRY(gguf_read_bytes(c, &t->type, 4));
    TRY(gguf_read_bytes(c, offset, 8));
    return gguf_tensor_bytes(t, c->path);
}

static enum status gguf_place_tensors(struct gguf *file, struct cursor *c, const uint64_t *offsets)
{
    int64_t alignment = ALIGNMENT, end = 0;
    TRY(gguf_get_int(file, "general.alignment", &alignment));
    if (alignment < 1 || alignment > ALIGNMENT_MAX || (alignment & (alignment - 1)))
        return fail(ERR_FORMAT, "%s: general.alignment is %lld, which is not a power of two, or too large", c->path,
                    (long long)alignment);
    int64_t base = round_up(c->at, alignment);
    file->head_bytes = c->at;
    for (int64_t i = 0; i < file->tensor_count; i++) {
        struct gguf_tensor *t = &file->tensors[i];
        end = round_up(end, alignment);
        if (offsets[i] != (uint64_t)end)
            return fail(ERR_FORMAT, "%s: tensor %.*s does not begin where the one before ended", c->path, (int)t->name.length,
                        t->name.text);
        if (base > c->size || t->bytes > c->size - base - end)
            return fail(ERR_FORMAT, "%s: tensor %.*s ends beyond the file; it is cut off or broken: download it again", c->path,
                        (int)t->name.length, t->name.text);
        t->data = c->data + base + end;
        end += t->bytes;
    }
    return OK;
}

static enum status gguf_read_all(struct gguf *file, struct cursor *c, struct arena *scratch)
{
    uint32_t magic = 0, version = 0;
    uint64_t tensors = 0;
    int64_t pairs = 0;
    TRY(gguf_read_bytes(c, &magic, 4));
    TRY(gguf_read_bytes(c, &version, 4));
    if (magic != 0x46554747) /* "GGUF" */
        TRY(path_hint_content(c->path, c->data, c->size, "a GGUF file"));
    if (magic != 0x46554747)
        return fail(ERR_FORMAT, "%s: is not a GGUF file, though its name says so: download it again, or give a model's directory",
                    c->path);
    if (version != 2 && version != 3)
        return fail(ERR_UNSUPPORTED, "%s: version %u of GGUF, or one written in the other byte order, is not supported", c->path,
                    version);
    TRY(gguf_read_bytes(c, &tensors, 8));
    TRY(gguf_read_count(c, 13, &pairs));
    if (tensors > (uint64_t)(c->end - c->at) / 24)
        return too_short(c);
    if (pairs > PAIRS_MAX || tensors > TENSORS_MAX)
        return fail(ERR_LIMIT, "%s: more than %d %s", c->path, pairs > PAIRS_MAX ? PAIRS_MAX : TENSORS_MAX,
                    pairs > PAIRS_MAX ? "pairs of metadata" : "tensors");
    file->values = arena_array(&file->arena, pairs + 1, sizeof *file->values);
    file->tensors = arena_array(&file->arena, (int64_t)tensors + 1, sizeof *file->tensors);
    uint64_t *offsets = arena_array(scratch, (int64_t)tensors + 1, sizeof *offsets);
    if (!file->values || !file->tensors || !offsets)
        return ERR_MEMORY;
    TRY(map_init(&file->keys, pairs));
    TRY(map_init(&file->names, (int64_t)tensors));
    for (; file->value_count < pairs; file->value_count++) {
        TRY(gguf_read_value(c, &file->values[file->value_count]));
        TRY(gguf_put_name(&file->keys, file->values[file->value_count].key, file->value_count, c->path));
    }
    for (; file->tensor_count < (int64_t)tensors; file->tensor_count++) {
        TRY(gguf_read_tensor(c, &file->tensors[file->tensor_count], &offsets[file->tensor_count]));
        TRY(gguf_put_name(&file->names, file->tensors[file->tensor_count].name, file->tensor_count, c->path));
    }
    return gguf_place_tensors(file, c, offsets);
}

enum status gguf_open(struct gguf **out, const char *path)
{
    struct gguf *file = memory_alloc(sizeof *file);
    struct arena scratch = {0};
    if (!file)
        return ERR_MEMORY;
    enum status status = (file->path = arena_format(&file->arena, "%s", path)) ? file_check_holes(path) : ERR_MEMORY;
    if (status == OK)
        status = file_map(&file->map, path);
    if (status == OK) {
        struct cursor cursor = {
            .data = file->map.data, .size = file->map.size, .end = min(file->map.size, HEAD_MAX), .path = file->path};
        status = gguf_read_all(file, &cursor, &scratch);
    }
    arena_free(&scratch);
    if (status != OK) {
        gguf_close(file);
        return status;
    }
    *out = file;
    return OK;
}

void gguf_close(struct gguf *file)
{
    if (!file)
        return;
    map_free(&file->keys);
    map_free(&file->names);
    arena_free(&file->arena);
    file_unmap(&file->map);
    memory_free(file);
}

bool gguf_is_path(const char *path)
{
    return name_ends_with(path, ".gguf") && !file_is_directory(path);
}

const struct file_map *gguf_map(const struct gguf *file)
{
    return &file->map;
}

int64_t gguf_head_bytes(const struct gguf *file)
{
    return file->head_bytes;
}

const char *gguf_type_name(uint32_t type)
{
    for (size_t i = 0; i < sizeof BLOCKS / sizeof *BLOCKS; i++)
        if (BLOCKS[i].number == type)
            return BLOCKS[i].name;
    return "unknown";
}

int64_t gguf_tensor_count(const struct gguf *file)
{
    return file->tensor_count;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *file, int64_t i)
{
    return &file->tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *file, const char *name)
{
    int64_t i = map_get(&file->names, name, (int64_t)strlen(name));
    return i < 0 ? NULL : &file->tensors[i];
}

int64_t gguf_value_count(const struct gguf *file)
{
    return file->value_count;
}

const struct gguf_value *gguf_value_at(const struct gguf *file, int64_t i)
{
    return &file->values[i];
}

const struct gguf_value *gguf_value_find(const struct gguf *file, const char *key)
{
    int64_t i = map_get(&file->keys, key, (int64_t)strlen(key));
    return i < 0 ? NULL : &file->values[i];
}

/* Item i of an integer type; false: another type, or too large for an int64_t. */
static bool int_at(const struct gguf_value *value, int64_t i, int64_t *out)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
    } x;
    memcpy(&x, value->data + i * SIZES[value->type], (size_t)SIZES[value->type]);
    switch (value->type) {
    case GGUF_U8: *out = x.u8; return true;
    case GGUF_I8: *out = x.i8; return true;
    case GGUF_U16: *out = x.u16; return true;
    case GGUF_I16: *out = x.i16; return true;
    case GGUF_U32: *out = x.u32; return true;
    case GGUF_I32: *out = x.i32; return true;
    case GGUF_I64: *out = x.i64; return true;
    case GGUF_U64: *out = x.i64; return x.i64 >= 0;
    default: return false;
    }
}

static enum status gguf_wrong_type(const struct gguf *file, const char *key, const char *want)
{
    return fail(ERR_FORMAT, "%s: \"%s\" must be %s", file->path, key, want);
}

enum status gguf_get_int(const struct gguf *file, const char *key, int64_t *out)
{
    const struct gguf_value *value = gguf_value_find(file, key);
    bool good = !value || (!value->array && value->type != GGUF_TEXT && int_at(value, 0, out));
    return good ? OK : gguf_wrong_type(file, key, "a whole number");
}

/* Files have float32 of numbers that were decimal: 1e-05, not 9.99999975e-06. */
static double decimal(float number)
{
    char text[32];
    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)number);
        if (strtof(text, NULL) == number)
            return strtod(text, NULL);
    }
    return (double)number;
}

enum status gguf_get_real(const struct gguf *file, const char *key, double *out)
{
    const struct gguf_value *value = gguf_value_find(file, key);
    int64_t whole;
    float single;
    if (!value)
        return OK;
    if (value->array || value->type == GGUF_TEXT || value->type == GGUF_BOOL)
        return gguf_wrong_type(file, key, "a number");
    if (value->type == GGUF_F64) {
        memcpy(out, value->data, sizeof *out);
    } else if (value->type == GGUF_F32) {
        memcpy(&single, value->data, sizeof single);
        *out = decimal(single);
    } else if (int_at(value, 0, &whole)) {
        *out = (double)whole;
    } else {
        return gguf_wrong_type(file, key, "a number");
    }
    return isfinite(*out) ? OK : gguf_wrong_type(file, key, "a finite number");
}

enum status gguf_get_bool(const struct gguf *file, const char *key, bool *out)
{
    const struct gguf_value *value = gguf_value_find(file, key);
    if (!value)
        return OK;
    if (value->array || value->type != GGUF_BOOL)
        return gguf_wrong_type(file, key, "true or false");
    *out = *value->data;
    return OK;
}

enum status gguf_get_text(const struct gguf *file, const char *key, struct gguf_text *out)
{
    const struct gguf_value *value = gguf_value_find(file, key);
    if (!value)
        return OK;
    if (value->array || value->type != GGUF_TEXT)
        return gguf_wrong_type(file, key, "a text");
    uint64_t length;
    memcpy(&length, value->data, 8);
    *out = (struct gguf_text){(const char *)value->data + 8, (int64_t)length};
    return OK;
}

enum status gguf_get_texts(const struct gguf *file, const char *key, struct arena *arena, struct gguf_text **out, int64_t *count)
{
    const struct gguf_value *value = gguf_value_find(file, key);
    *out = NULL;
    *count = 0;
    if (!value)
        return OK;
    if (!value->array || value->type != GGUF_TEXT)
        return gguf_wrong_type(file, key, "an array of texts");
    if (!(*out = arena_array(arena, value->count + 1, sizeof **out)))
        return ERR_MEMORY;
    const uint8_t *at = value->data;
    for (*count = 0; *count < value->count; ++*count) {
        uint64_t length;
        memcpy(&length, at, 8);
        (*out)[*count] = (struct gguf_text){(const char *)at + 8, (int64_t)length};
        at += 8 + length;
    }
    return OK;
}

enum status gguf_get_reals(const struct gguf *file, const char *key, struct arena *arena, float **out, int64_t *count)
{
    const struct gguf_value *value = gguf_value_find(file, key);
    *out = NULL;
    *count = 0;
    if (!value)
        return OK;
    if (!value->array || value->type != GGUF_F32)
        return gguf_wrong_type(file, key, "an array of numbers");
    if (!(*out = arena_array(arena, value->count + 1, sizeof **out)))
        return ERR_MEMORY;
    memcpy(*out, value->data, (size_t)value->count * sizeof **out);
    *count = value->count;
    return OK;
}

enum status gguf_get_ints(const struct gguf *file, const char *key, struct arena *arena, int32_t **out, int64_t *count)
{
    const struct gguf_value *value = gguf_value_find(file, key);
    *out = NULL;
    *count = 0;
    if (!value)
        return OK;
    if (!value->array || value->type == GGUF_TEXT)
        return gguf_wrong_type(file, key, "an array of whole numbers");
    if (!(*out = arena_array(arena, value->count + 1, sizeof **out)))
        return ERR_MEMORY;
    for (; *count < value->count; ++*count) {
        int64_t number;
        if (!int_at(value, *count, &number) || number < INT32_MIN || number > INT32_MAX)
            return gguf_wrong_type(file, key, "an array of whole numbers of 32 bits");
        (*out)[*count] = (int32_t)number;
    }
    return OK;
}
