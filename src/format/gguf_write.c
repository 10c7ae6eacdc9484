/* Writing GGUF: version 3, data aligned to 32 bytes, which is the default and needs no key. */
#include "format/gguf_write.h"

#include <string.h>

#include "base/number.h"

enum { ALIGN = 32, VERSION = 3 };

void gguf_head_free(struct gguf_head *head)
{
    buffer_free(&head->pairs);
    *head = (struct gguf_head){0};
}

static enum status gguf_write_put_number(struct buffer *out, uint64_t value, int bytes)
{
    uint8_t little[8];
    for (int i = 0; i < bytes; i++)
        little[i] = (uint8_t)(value >> 8 * i);
    return buffer_append(out, little, bytes);
}

static enum status gguf_write_put_name(struct buffer *out, const char *text, int64_t length)
{
    TRY(gguf_write_put_number(out, (uint64_t)length, 8));
    return buffer_append(out, text, length);
}

static enum status put_float(struct buffer *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return gguf_write_put_number(out, bits, 4);
}

static enum status gguf_write_put_key(struct gguf_head *head, const char *key, enum gguf_type type)
{
    head->count++;
    TRY(gguf_write_put_name(&head->pairs, key, (int64_t)strlen(key)));
    return gguf_write_put_number(&head->pairs, (uint64_t)type, 4);
}

static enum status put_array(struct gguf_head *head, const char *key, enum gguf_type type, int64_t count)
{
    TRY(gguf_write_put_key(head, key, GGUF_ARRAY));
    TRY(gguf_write_put_number(&head->pairs, (uint64_t)type, 4));
    return gguf_write_put_number(&head->pairs, (uint64_t)count, 8);
}

enum status gguf_put_text(struct gguf_head *head, const char *key, const char *text)
{
    TRY(gguf_write_put_key(head, key, GGUF_TEXT));
    return gguf_write_put_name(&head->pairs, text, (int64_t)strlen(text));
}

enum status gguf_put_size(struct gguf_head *head, const char *key, int64_t value)
{
    if (value < 0 || value > UINT32_MAX)
        return fail(ERR_ARGUMENT, "%s cannot be %lld in a GGUF file", key, (long long)value);
    TRY(gguf_write_put_key(head, key, GGUF_U32));
    return gguf_write_put_number(&head->pairs, (uint64_t)value, 4);
}

enum status gguf_put_real(struct gguf_head *head, const char *key, double value)
{
    TRY(gguf_write_put_key(head, key, GGUF_F32));
    return put_float(&head->pairs, (float)value);
}

enum status gguf_put_bool(struct gguf_head *head, const char *key, bool value)
{
    TRY(gguf_write_put_key(head, key, GGUF_BOOL));
    return gguf_write_put_number(&head->pairs, value, 1);
}

enum status gguf_put_texts(struct gguf_head *head, const char *key, const struct gguf_text *texts, int64_t count)
{
    TRY(put_array(head, key, GGUF_TEXT, count));
    for (int64_t i = 0; i < count; i++)
        TRY(gguf_write_put_name(&head->pairs, texts[i].text, texts[i].length));
    return OK;
}

enum status gguf_put_ints(struct gguf_head *head, const char *key, const int32_t *values, int64_t count)
{
    TRY(put_array(head, key, GGUF_I32, count));
    for (int64_t i = 0; i < count; i++)
        TRY(gguf_write_put_number(&head->pairs, (uint32_t)values[i], 4));
    return OK;
}

enum status gguf_put_reals(struct gguf_head *head, const char *key, const float *values, int64_t count)
{
    TRY(put_array(head, key, GGUF_F32, count));
    for (int64_t i = 0; i < count; i++)
        TRY(put_float(&head->pairs, values[i]));
    return OK;
}

enum status gguf_put_bools(struct gguf_head *head, const char *key, const bool *values, int64_t count)
{
    TRY(put_array(head, key, GGUF_BOOL, count));
    for (int64_t i = 0; i < count; i++)
        TRY(gguf_write_put_number(&head->pairs, values[i], 1));
    return OK;
}

/* The bytes of one item of a value that was checked when its file was opened. */
static int64_t item_bytes(enum gguf_type type, const uint8_t *at)
{
    static const int64_t sizes[GGUF_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    uint64_t length = 0;
    if (type != GGUF_TEXT)
        return sizes[type];
    memcpy(&length, at, sizeof length);
    return 8 + (int64_t)length;
}

enum status gguf_put_value(struct gguf_head *head, const struct gguf_value *value)
{
    int64_t bytes = 0;
    head->count++;
    TRY(gguf_write_put_name(&head->pairs, value->key.text, value->key.length));
    TRY(gguf_write_put_number(&head->pairs, (uint64_t)(value->array ? GGUF_ARRAY : value->type), 4));
    if (value->array) {
        TRY(gguf_write_put_number(&head->pairs, (uint64_t)value->type, 4));
        TRY(gguf_write_put_number(&head->pairs, (uint64_t)value->count, 8));
    }
    for (int64_t i = 0; i < value->count; i++)
        bytes += item_bytes(value->type, value->data + bytes);
    return buffer_append(&head->pairs, value->data, bytes);
}

static enum status put_tensor(struct buffer *out, const struct gguf_tensor *t, int64_t offset)
{
    TRY(gguf_write_put_name(out, t->name.text, t->name.length));
    TRY(gguf_write_put_number(out, (uint64_t)t->rank, 4));
    for (int d = 0; d < t->rank; d++)
        TRY(gguf_write_put_number(out, (uint64_t)t->shape[d], 8));
    TRY(gguf_write_put_number(out, t->type, 4));
    return gguf_write_put_number(out, (uint64_t)offset, 8);
}

static enum status gguf_write_describe(struct buffer *out, const struct gguf_head *head, const struct gguf_tensor *tensors,
                                       int64_t count)
{
    int64_t offset = 0;
    TRY(buffer_append(out, "GGUF", 4));
    TRY(gguf_write_put_number(out, VERSION, 4));
    TRY(gguf_write_put_number(out, (uint64_t)count, 8));
    TRY(gguf_write_put_number(out, (uint64_t)head->count, 8));
    TRY(buffer_append(out, head->pairs.data, head->pairs.size));
    for (int64_t i = 0; i < count; i++) {
        TRY(put_tensor(out, &tensors[i], offset));
        offset += round_up(tensors[i].bytes, ALIGN);
    }
    while (out->size % ALIGN)
        TRY(buffer_append(out, "", 1));
    return OK;
}

static enum status stream(struct file_writer *writer, const struct buffer *front, const struct gguf_tensor *tensors,
                          int64_t count, gguf_fill *fill, void *context)
{
    static const char zeros[ALIGN];
    TRY(file_writer_append(writer, front->data, front->size));
    for (int64_t i = 0; i < count; i++) {
        TRY(fill(context, i, writer));
        TRY(file_writer_append(writer, zeros, round_up(tensors[i].bytes, ALIGN) - tensors[i].bytes));
    }
    return OK;
}

enum status gguf_write_bytes(const struct gguf_head *head, const struct gguf_tensor *tensors, int64_t count, int64_t *bytes)
{
    struct buffer front = {0};
    enum status status = gguf_write_describe(&front, head, tensors, count);
    *bytes = front.size;
    for (int64_t i = 0; i < count; i++)
        *bytes += round_up(tensors[i].bytes, ALIGN);
    buffer_free(&front);
    return status;
}

enum status gguf_write(const char *path, const struct gguf_head *head, const struct gguf_tensor *tensors, int64_t count,
                       gguf_fill *fill, void *context)
{
    struct buffer front = {0};
    struct file_writer writer;
    enum status status = gguf_write_describe(&front, head, tensors, count);
    if (status == OK)
        status = file_writer_open(&writer, path);
    if (status == OK) {
        status = stream(&writer, &front, tensors, count, fill, context);
        if (status == OK)
            status = file_writer_commit(&writer);
        else
            file_writer_abort(&writer);
    }
    buffer_free(&front);
    return status;
}
