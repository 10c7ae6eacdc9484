/* Writing safetensors: the header only from the shapes, then each tensor's bytes straight to the file. */
#include "base/number.h"
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static int by_dtype_and_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = *(const struct safetensors_tensor *const *)a;
    const struct safetensors_tensor *y = *(const struct safetensors_tensor *const *)b;
    if (x->dtype != y->dtype)
        return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

static enum status safetensors_write_check(const struct safetensors_tensor *t, const char *path)
{
    int64_t bits = safetensors_dtype_bits(t->dtype);
    if (t->rank < 0 || t->rank > SAFETENSORS_RANK_MAX)
        return fail(ERR_ARGUMENT, "%s: tensor %s has %d dimensions", path, t->name, t->rank);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow(bits, t->shape[i], &bits))
            return fail(ERR_ARGUMENT, "%s: tensor %s: dimension %d does not fit", path, t->name, i);
    if (bits % 8 || bits / 8 != t->bytes)
        return fail(ERR_ARGUMENT, "%s: tensor %s has %lld bytes, its shape and dtype need %lld", path, t->name,
                    (long long)t->bytes, (long long)(bits / 8));
    return OK;
}

/* Takes ownership of `value`, which may be NULL (out of memory, or text that is not UTF-8). */
static enum status safetensors_write_put(json_t *object, const char *key, json_t *value, const char *path)
{
    if (json_object_get(object, key)) {
        json_decref(value);
        return fail(ERR_ARGUMENT, "%s: \"%s\" would be in the file twice", path, key);
    }
    if (json_object_set_new(object, key, value) == 0)
        return OK;
    return json_refused() ? fail(ERR_MEMORY, "%s: out of memory for the header", path)
                          : fail(ERR_ARGUMENT, "%s: \"%s\" cannot be written: it is not UTF-8", path, key);
}

static enum status safetensors_write_describe(json_t *header, const struct safetensors_tensor *const *order, int64_t count,
                                              const char *const *metadata, const char *path)
{
    if (metadata) {
        TRY(safetensors_write_put(header, "__metadata__", json_object(), path));
        for (; *metadata; metadata += 2)
            TRY(safetensors_write_put(json_object_get(header, "__metadata__"), metadata[0], json_string(metadata[1]), path));
    }
    int64_t begin = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct safetensors_tensor *t = order[i];
        TRY(safetensors_write_check(t, path));
        json_t *shape = json_array();
        for (int d = 0; d < t->rank; d++)
            json_array_append_new(shape, json_integer(t->shape[d]));
        int64_t end;
        if (__builtin_add_overflow(begin, t->bytes, &end)) {
            json_decref(shape);
            return fail(ERR_ARGUMENT, "%s: tensor %s does not fit into one file", path, t->name);
        }
        TRY(safetensors_write_put(header, t->name,
                                  json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_dtype_name(t->dtype), "shape", shape,
                                            "data_offsets", (json_int_t)begin, (json_int_t)end),
                                  path));
        begin = end;
    }
    return OK;
}

/* What is written before the data: the order of the tensors, and the header, padded so that the data begin at a multiple of 8. */
struct front {
    struct arena arena;
    const struct safetensors_tensor **order;
    char *text; /* of the header */
    int64_t length, padded;
};

static void free_front(struct front *f)
{
    json_text_free(f->text);
    arena_free(&f->arena);
}

static enum status fill_front(struct front *f, json_t *header, const struct safetensors_tensor *tensors, int64_t count,
                              const char *const *metadata, const char *path)
{
    f->order = arena_array(&f->arena, count ? count : 1, (int64_t)sizeof *f->order);
    if (!header || !f->order)
        return fail(ERR_MEMORY, "%s: out of memory for the header", path);
    for (int64_t i = 0; i < count; i++)
        f->order[i] = &tensors[i];
    qsort(f->order, (size_t)count, sizeof *f->order, by_dtype_and_name);
    TRY(safetensors_write_describe(header, f->order, count, metadata, path));
    f->text = json_write(header, JSON_COMPACT);
    if (!f->text)
        return fail_at(ERR_MEMORY, "%s: ", path);
    f->length = (int64_t)strlen(f->text);
    f->padded = round_up(f->length, 8);
    return OK;
}

static enum status make_front(struct front *f, const struct safetensors_tensor *tensors, int64_t count,
                              const char *const *metadata, const char *path)
{
    json_t *header = json_object();
    *f = (struct front){0};
    enum status status = fill_front(f, header, tensors, count, metadata, path);
    json_decref(header);
    if (status != OK)
        free_front(f);
    return status;
}

static enum status safetensors_write_header(struct file_writer *writer, const struct front *f)
{
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)f->padded >> 8 * i);
    TRY(file_writer_append(writer, prefix, 8));
    TRY(file_writer_append(writer, f->text, f->length));
    return file_writer_append(writer, "       ", f->padded - f->length);
}

enum { PIECE_BYTES = 256 << 10 };

struct source { /* where the bytes come from: the tensors' own data, or a reader */
    const struct safetensors_tensor *tensors;
    safetensors_read *read;
    void *context;
    char *piece;
};

static enum status write_tensor(struct file_writer *writer, const struct safetensors_tensor *t, const struct source *source)
{
    if (!source->read)
        return file_writer_append(writer, t->data, t->bytes);
    for (int64_t done = 0; done < t->bytes; done += PIECE_BYTES) {
        int64_t bytes = min(t->bytes - done, PIECE_BYTES);
        TRY(source->read(source->context, t - source->tensors, done, source->piece, bytes));
        TRY(file_writer_append(writer, source->piece, bytes));
    }
    return OK;
}

static enum status safetensors_write_file(const char *path, const struct front *f, int64_t count, const struct source *source)
{
    struct file_writer writer;
    TRY(file_writer_open(&writer, path));
    enum status status = safetensors_write_header(&writer, f);
    for (int64_t i = 0; status == OK && i < count; i++)
        status = write_tensor(&writer, f->order[i], source);
    if (status == OK)
        return file_writer_commit(&writer);
    file_writer_abort(&writer);
    return status;
}

enum status safetensors_write(const char *path, const struct safetensors_tensor *tensors, int64_t count,
                              const char *const *metadata)
{
    return safetensors_write_from(path, tensors, count, metadata, NULL, NULL);
}

enum status safetensors_write_bytes(const char *path, const struct safetensors_tensor *tensors, int64_t count,
                                    const char *const *metadata, int64_t *bytes)
{
    struct front f;
    TRY(make_front(&f, tensors, count, metadata, path));
    *bytes = 8 + f.padded;
    for (int64_t i = 0; i < count; i++)
        *bytes += tensors[i].bytes;
    free_front(&f);
    return OK;
}

enum status safetensors_write_from(const char *path, const struct safetensors_tensor *tensors, int64_t count,
                                   const char *const *metadata, safetensors_read *read, void *context)
{
    struct front f;
    TRY(make_front(&f, tensors, count, metadata, path));
    struct source source = {tensors, read, context, arena_alloc(&f.arena, read ? PIECE_BYTES : 1)};
    enum status status = source.piece ? safetensors_write_file(path, &f, count, &source) : ERR_MEMORY;
    free_front(&f);
    return status;
}
