/* Protocol buffers' wire format, as far as events need it, and the frame of a record. */
#include "format/tfevents.h"

#include <string.h>

/* A field's key is its number and how it is written. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { FRAME = 12, CRC = 4 }; /* before and after the message */

/* Bit by bit: events are short and few. */
static uint32_t crc32c(const char *bytes, int64_t count)
{
    uint32_t crc = ~UINT32_C(0);
    for (int64_t i = 0; i < count; i++) {
        crc ^= (uint8_t)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (UINT32_C(0x82f63b78) & (0 - (crc & 1)));
    }
    return ~crc;
}

/* TensorFlow's mask, for files that contain checksums of themselves. */
static uint32_t masked(const char *bytes, int64_t count)
{
    uint32_t crc = crc32c(bytes, count);
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

static void tfevents_store(char *to, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (char)(x >> (8 * i));
}

/* --- fields ----------------------------------------------------------------------------------------------------------------- */

static int64_t varint_size(uint64_t x)
{
    int64_t size = 1;
    while (x >>= 7)
        size++;
    return size;
}

static enum status put_varint(struct buffer *b, uint64_t x)
{
    char bytes[10];
    int n = 0;
    for (; x >= 0x80; x >>= 7)
        bytes[n++] = (char)(x | 0x80);
    bytes[n++] = (char)x;
    return buffer_append(b, bytes, n);
}

static enum status tfevents_put_key(struct buffer *b, int field, int kind)
{
    return put_varint(b, (uint64_t)(field << 3 | kind));
}

static enum status put_fixed(struct buffer *b, int field, int kind, const void *number)
{
    uint64_t bits = 0;
    int bytes = kind == FIXED64 ? 8 : 4;
    char text[8];
    if (kind == FIXED64) {
        memcpy(&bits, number, 8);
    } else {
        uint32_t narrow;
        memcpy(&narrow, number, 4);
        bits = narrow;
    }
    tfevents_store(text, bits, bytes);
    TRY(tfevents_put_key(b, field, kind));
    return buffer_append(b, text, bytes);
}

/* The beginning of a text or of a message inside, whose bytes follow. */
static enum status put_length(struct buffer *b, int field, int64_t length)
{
    TRY(tfevents_put_key(b, field, BYTES));
    return put_varint(b, (uint64_t)length);
}

static enum status tfevents_put_text(struct buffer *b, int field, const char *text, int64_t length)
{
    TRY(put_length(b, field, length));
    return buffer_append(b, text, length);
}

/* What a field of that many bytes takes; its number is below 16. */
static int64_t tfevents_field_size(int64_t length)
{
    return 1 + varint_size((uint64_t)length) + length;
}

/* --- records ---------------------------------------------------------------------------------------------------------------- */

static enum status tfevents_begin(struct buffer *b, struct tfevents_place place, int64_t *start)
{
    static const char frame[FRAME] = {0};
    *start = b->size;
    TRY(buffer_append(b, frame, FRAME));
    TRY(put_fixed(b, 1, FIXED64, &place.wall_time));
    if (!place.step) /* what is missing is 0 */
        return OK;
    TRY(tfevents_put_key(b, 2, VARINT));
    return put_varint(b, (uint64_t)place.step);
}

static enum status tfevents_end(struct buffer *b, int64_t start)
{
    char crc[CRC];
    int64_t length = b->size - start - FRAME;
    tfevents_store(b->data + start, (uint64_t)length, 8);
    tfevents_store(b->data + start + 8, masked(b->data + start, 8), CRC);
    tfevents_store(crc, masked(b->data + start + FRAME, length), CRC);
    return buffer_append(b, crc, CRC);
}

enum status tfevents_version(struct buffer *file, double wall_time)
{
    static const char version[] = "brain.Event:2";
    int64_t start;
    TRY(tfevents_begin(file, (struct tfevents_place){wall_time, 0}, &start));
    TRY(tfevents_put_text(file, 3, version, sizeof version - 1));
    return tfevents_end(file, start);
}

enum status tfevents_start(struct buffer *file, struct tfevents_place place)
{
    static const char status[] = {1 << 3 | VARINT, 1};
    int64_t start;
    TRY(tfevents_begin(file, place, &start));
    TRY(tfevents_put_text(file, 7, status, sizeof status));
    return tfevents_end(file, start);
}

enum status tfevents_scalars(struct buffer *file, struct tfevents_place place, const struct tfevents_scalar *list, int count)
{
    int64_t start, all = 0, number = 5; /* of a float's field */
    for (int i = 0; i < count; i++)
        all += tfevents_field_size(tfevents_field_size((int64_t)strlen(list[i].tag)) + number);
    TRY(tfevents_begin(file, place, &start));
    TRY(put_length(file, 5, all));
    for (int i = 0; i < count; i++) {
        int64_t tag = (int64_t)strlen(list[i].tag);
        TRY(put_length(file, 1, tfevents_field_size(tag) + number));
        TRY(tfevents_put_text(file, 1, list[i].tag, tag));
        TRY(put_fixed(file, 2, FIXED32, &list[i].value));
    }
    return tfevents_end(file, start);
}

enum status tfevents_text(struct buffer *file, struct tfevents_place place, const char *tag, const char *text, int64_t length)
{
    /* SummaryMetadata: plugin_data = 1 with plugin_name = 1. TensorProto: dtype = 1 is DT_STRING, tensor_shape = 2 is empty,
     * string_val = 8. */
    static const char metadata[] = "\x0a\x06\x0a\x04text", tensor[] = {1 << 3 | VARINT, 7, 2 << 3 | BYTES, 0};
    int64_t start, name = (int64_t)strlen(tag), whole = (int64_t)sizeof tensor + tfevents_field_size(length);
    int64_t value = tfevents_field_size(name) + tfevents_field_size(whole) + tfevents_field_size(sizeof metadata - 1);
    TRY(tfevents_begin(file, place, &start));
    TRY(put_length(file, 5, tfevents_field_size(value)));
    TRY(put_length(file, 1, value));
    TRY(tfevents_put_text(file, 1, tag, name));
    TRY(put_length(file, 8, whole));
    TRY(buffer_append(file, tensor, sizeof tensor));
    TRY(tfevents_put_text(file, 8, text, length));
    TRY(tfevents_put_text(file, 9, metadata, sizeof metadata - 1));
    return tfevents_end(file, start);
}
