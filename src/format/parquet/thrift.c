/* Bytes to fields. */
#include "format/parquet/thrift.h"

#include <stddef.h>

enum { NESTING_MAX = 32 };

/* The first reason holds: a caller that still reads after it finds no more bytes, whatever that reason was. */
static uint64_t thrift_give_up(struct thrift *t, bool ended)
{
    if (!t->broken)
        t->ended = ended;
    t->broken = true;
    t->at = t->end;
    return 0;
}

static uint8_t take_byte(struct thrift *t)
{
    return t->at < t->end ? *t->at++ : (uint8_t)thrift_give_up(t, true);
}

static uint64_t take_varint(struct thrift *t)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = take_byte(t);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    return thrift_give_up(t, false);
}

static int64_t take_zigzag(struct thrift *t)
{
    uint64_t value = take_varint(t);
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

static const uint8_t *thrift_take_bytes(struct thrift *t, uint64_t count)
{
    const uint8_t *bytes = t->at;
    if (count > (uint64_t)(t->end - t->at)) {
        thrift_give_up(t, true);
        return bytes;
    }
    t->at += count;
    return bytes;
}

bool thrift_next(struct thrift *t, struct thrift_field *field)
{
    uint8_t byte = take_byte(t);
    field->type = byte & 15;
    if (t->broken || field->type == THRIFT_STOP)
        return false;
    if (field->type > THRIFT_UUID)
        return thrift_give_up(t, false);
    int64_t id = byte >> 4 ? field->id + (byte >> 4) : take_zigzag(t);
    if (id < INT16_MIN || id > INT16_MAX)
        return thrift_give_up(t, false);
    field->id = (int32_t)id;
    return !t->broken;
}

int64_t thrift_int(struct thrift *t, const struct thrift_field *field)
{
    if (field->type == THRIFT_BYTE)
        return (int8_t)take_byte(t);
    bool right = field->type == THRIFT_I16 || field->type == THRIFT_I32 || field->type == THRIFT_I64;
    return right ? take_zigzag(t) : (int64_t)thrift_give_up(t, false);
}

bool thrift_bool(struct thrift *t, const struct thrift_field *field)
{
    if (field->type != THRIFT_TRUE && field->type != THRIFT_FALSE)
        thrift_give_up(t, false);
    return field->type == THRIFT_TRUE;
}

struct thrift_bytes thrift_binary(struct thrift *t, const struct thrift_field *field)
{
    uint64_t size = field->type == THRIFT_BINARY ? take_varint(t) : thrift_give_up(t, false);
    const uint8_t *data = thrift_take_bytes(t, size);
    return (struct thrift_bytes){data, t->broken ? 0 : (int64_t)size};
}

static int64_t take_list(struct thrift *t, enum thrift_type *of)
{
    uint8_t byte = take_byte(t);
    uint64_t count = byte >> 4 == 15 ? take_varint(t) : byte >> 4;
    *of = byte & 15;
    if (count > (uint64_t)(t->end - t->at))
        return (int64_t)thrift_give_up(t, true);
    return (int64_t)count;
}

int64_t thrift_list(struct thrift *t, const struct thrift_field *field, enum thrift_type of)
{
    enum thrift_type type = THRIFT_STOP;
    int64_t count = field->type == THRIFT_LIST ? take_list(t, &type) : (int64_t)thrift_give_up(t, false);
    if (count && type != of)
        return (int64_t)thrift_give_up(t, false);
    return count;
}

void thrift_enter(struct thrift *t, const struct thrift_field *field)
{
    if (field->type != THRIFT_STRUCT)
        thrift_give_up(t, false);
}

static void skip(struct thrift *t, enum thrift_type type, bool element, int depth);

static void skip_elements(struct thrift *t, int64_t count, enum thrift_type type, int depth)
{
    for (int64_t i = 0; i < count && !t->broken; i++)
        skip(t, type, true, depth);
}

static void skip_map(struct thrift *t, int depth)
{
    uint64_t count = take_varint(t);
    uint8_t types = count ? take_byte(t) : 0;
    if (count > (uint64_t)(t->end - t->at))
        thrift_give_up(t, true);
    for (uint64_t i = 0; i < count && !t->broken; i++) {
        skip(t, types >> 4, true, depth);
        skip(t, types & 15, true, depth);
    }
}

static void skip(struct thrift *t, enum thrift_type type, bool element, int depth)
{
    struct thrift_field f = {0};
    enum thrift_type of;
    if (depth == NESTING_MAX) {
        thrift_give_up(t, false);
        return;
    }
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE: /* of a field, the type is the value */
        if (element)
            take_byte(t);
        break;
    case THRIFT_BYTE: take_byte(t); break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: take_varint(t); break;
    case THRIFT_DOUBLE: thrift_take_bytes(t, 8); break;
    case THRIFT_UUID: thrift_take_bytes(t, 16); break;
    case THRIFT_BINARY: thrift_take_bytes(t, take_varint(t)); break;
    case THRIFT_LIST:
    case THRIFT_SET: {
        int64_t count = take_list(t, &of);
        skip_elements(t, count, of, depth + 1);
        break;
    }
    case THRIFT_MAP: skip_map(t, depth + 1); break;
    case THRIFT_STRUCT:
        while (thrift_next(t, &f))
            skip(t, f.type, false, depth + 1);
        break;
    default: thrift_give_up(t, false);
    }
}

void thrift_skip(struct thrift *t, const struct thrift_field *field)
{
    skip(t, field->type, false, 0);
}
