/* Thrift's compact protocol, in which Parquet writes its metadata: structs of numbered fields, read from front to back.
 *
 *     struct thrift_field f = {0};
 *     while (thrift_next(t, &f))
 *         if (f.id == 3)
 *             rows = thrift_int(t, &f);
 *         else
 *             thrift_skip(t, &f);
 *
 * The idea: an error stays. What is wrong makes every later read give zeros and end, so it is looked at once, after the walk.
 * Each element of a list takes a byte at least: no walk takes longer than the bytes are many.
 */
#ifndef FORMAT_PARQUET_THRIFT_H
#define FORMAT_PARQUET_THRIFT_H

#include <stdbool.h>
#include <stdint.h>

struct thrift {
    const uint8_t *at, *end;
    bool broken; /* it is no Thrift, or ended too soon */
    bool ended;  /* the latter: with more bytes it may be right */
};

enum thrift_type {
    THRIFT_STOP,
    THRIFT_TRUE,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT,
    THRIFT_UUID
};

/* A field of a struct. Starts as {0} for each struct. */
struct thrift_field {
    int32_t id;
    enum thrift_type type;
};

struct thrift_bytes {
    const uint8_t *data;
    int64_t size;
};

/* The next field's number and type; its value follows and must be taken or skipped. False: the struct is over. */
bool thrift_next(struct thrift *t, struct thrift_field *field);

/* The value of a field that must be of this type. */
int64_t thrift_int(struct thrift *t, const struct thrift_field *field); /* of any width */
bool thrift_bool(struct thrift *t, const struct thrift_field *field);
struct thrift_bytes thrift_binary(struct thrift *t, const struct thrift_field *field); /* a part of the bytes that are read */
int64_t thrift_list(struct thrift *t, const struct thrift_field *field, enum thrift_type of); /* how many elements follow */
void thrift_enter(struct thrift *t, const struct thrift_field *field);                        /* a struct: its fields follow */

void thrift_skip(struct thrift *t, const struct thrift_field *field);

#endif
