/* Writes small Parquet files, as tests want them: a schema, and one row group whose columns are pages that the test fills. */
#ifndef TESTS_UNIT_PARQUET_RIG_H
#define TESTS_UNIT_PARQUET_RIG_H

#include <stdio.h>

#include "base/codec.h"
#include "base/memory.h"
#include "test.h"

/* An element of a schema; type -1: a group. */
struct element {
    const char *name;
    int type, repetition, children, converted, logical; /* converted -1, logical 0: none */
};

/* A page: its levels, without a length before them, and its values. */
struct page {
    const char *reps, *defs, *values; /* NULL: none */
    int reps_size, defs_size, values_size;
    int count, encoding;
    bool second;     /* a data page of version 2 */
    bool dictionary; /* of the pages after it */
    bool checked;    /* it has a checksum, which is off by `off` */
    int off;
    int largest; /* bytes of the largest value, which its header has too; 0: it does not */
};

struct column {
    int type, codec, count;
    struct page page[4]; /* those with a count */
};

struct recipe {
    struct element element[12];
    int elements;
    struct column column[4];
    int columns;
    int64_t rows, group_rows; /* group_rows 0: rows */
    bool encrypted;
};

static inline void put_byte(struct buffer *b, int byte)
{
    assert_ok(buffer_append(b, &(char){(char)byte}, 1));
}

static inline void put_varint(struct buffer *b, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put_byte(b, (int)(value & 127) | 128);
    put_byte(b, (int)value);
}

static inline void put_zigzag(struct buffer *b, int64_t value)
{
    put_varint(b, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* A field's number, in full, and its type; and one of an integer (5: i32, 6: i64). */
static inline void put_field(struct buffer *b, int id, int type)
{
    put_byte(b, type);
    put_zigzag(b, id);
}

static inline void put_int(struct buffer *b, int id, int type, int64_t value)
{
    put_field(b, id, type);
    put_zigzag(b, value);
}

static inline void put_bytes(struct buffer *b, const char *bytes, int64_t count)
{
    if (count)
        assert_ok(buffer_append(b, bytes, count));
}

static inline void put_little(struct buffer *b, int64_t value)
{
    for (int i = 0; i < 4; i++)
        put_byte(b, (int)(value >> 8 * i & 255));
}

static inline void put_element(struct buffer *b, const struct element *e)
{
    if (e->type >= 0)
        put_int(b, 1, 5, e->type);
    put_int(b, 3, 5, e->repetition);
    put_field(b, 4, 8);
    put_varint(b, strlen(e->name));
    put_bytes(b, e->name, (int64_t)strlen(e->name));
    if (e->type < 0)
        put_int(b, 5, 5, e->children);
    if (e->converted >= 0)
        put_int(b, 6, 5, e->converted);
    if (e->logical) {
        put_field(b, 10, 12);
        put_field(b, e->logical, 12);
        put_byte(b, 0);
        put_byte(b, 0);
    }
    put_byte(b, 0);
}

static inline void put_page(struct buffer *b, const struct page *p)
{
    struct buffer body = {0};
    if (p->reps && !p->second)
        put_little(&body, p->reps_size);
    put_bytes(&body, p->reps, p->reps_size);
    if (p->defs && !p->second)
        put_little(&body, p->defs_size);
    put_bytes(&body, p->defs, p->defs_size);
    put_bytes(&body, p->values, p->values_size);
    put_int(b, 1, 5, p->dictionary ? 2 : p->second ? 3 : 0);
    put_int(b, 2, 5, body.size);
    put_int(b, 3, 5, body.size);
    if (p->checked)
        put_int(b, 4, 5, (int32_t)(codec_crc32(body.data, body.size) + (uint32_t)p->off));
    put_field(b, p->dictionary ? 7 : p->second ? 8 : 5, 12);
    put_int(b, 1, 5, p->count);
    if (p->second) {
        put_int(b, 4, 5, p->encoding);
        put_int(b, 5, 5, p->defs_size);
        put_int(b, 6, 5, p->reps_size);
    } else {
        put_int(b, 2, 5, p->encoding);
        put_int(b, 3, 5, 3);
        put_int(b, 4, 5, 3);
    }
    if (p->largest) {
        put_field(b, p->second ? 8 : 5, 12);
        put_field(b, 1, 8);
        put_varint(b, (uint64_t)p->largest);
        for (int i = 0; i < p->largest; i++)
            put_byte(b, 'z');
        put_byte(b, 0);
    }
    put_byte(b, 0);
    put_byte(b, 0);
    put_bytes(b, body.data, body.size);
    buffer_free(&body);
}

/* The bytes of a file. */
static inline void make_parquet(struct buffer *b, const struct recipe *r)
{
    int64_t start[4], end[4];
    b->size = 0;
    put_bytes(b, "PAR1", 4);
    for (int i = 0; i < r->columns; i++) {
        start[i] = b->size;
        for (int k = 0; k < 4 && r->column[i].page[k].count; k++)
            put_page(b, &r->column[i].page[k]);
        end[i] = b->size;
    }
    int64_t footer = b->size;
    put_int(b, 1, 5, 2);
    put_field(b, 2, 9);
    put_byte(b, r->elements << 4 | 12);
    for (int i = 0; i < r->elements; i++)
        put_element(b, &r->element[i]);
    put_int(b, 3, 6, r->rows);
    put_field(b, 4, 9);
    put_byte(b, 1 << 4 | 12);
    put_field(b, 1, 9);
    put_byte(b, r->columns << 4 | 12);
    for (int i = 0; i < r->columns; i++) {
        put_field(b, 3, 12);
        put_int(b, 1, 5, r->column[i].type);
        put_int(b, 4, 5, r->column[i].codec);
        put_int(b, 5, 6, r->column[i].count);
        put_int(b, 7, 6, end[i] - start[i]);
        put_int(b, 9, 6, start[i]);
        put_byte(b, 0);
        put_byte(b, 0);
    }
    put_int(b, 3, 6, r->group_rows ? r->group_rows : r->rows);
    put_byte(b, 0);
    if (r->encrypted) {
        put_field(b, 8, 12);
        put_byte(b, 0);
    }
    put_byte(b, 0);
    put_little(b, b->size - footer);
    put_bytes(b, "PAR1", 4);
}

#endif
