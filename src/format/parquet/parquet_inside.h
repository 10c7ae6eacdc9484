/* What the parts of the reader share: the tree of the schema, and the cursors in the columns. */
#ifndef FORMAT_PARQUET_PARQUET_INSIDE_H
#define FORMAT_PARQUET_PARQUET_INSIDE_H

#include "base/codec.h"
#include "base/reader.h"
#include "format/parquet/parquet.h"
#include "format/parquet/thrift.h"

/* How values are stored; the numbers are Parquet's. */
enum physical { P_BOOLEAN, P_INT32, P_INT64, P_INT96, P_FLOAT, P_DOUBLE, P_BYTE_ARRAY, P_FIXED, P_TYPES };

enum node_kind { NODE_VALUE, NODE_STRUCT, NODE_LIST };

/* A value, a struct or a list. In Parquet a list is one or two groups around its elements; here it is one node. */
struct node {
    enum node_kind kind;
    const char *name; /* zero-terminated */
    int def;          /* the definition level from which on it is not null */
    int rep, item;    /* of a list: the repetition level of its second element, the definition level of its first */
    int first, next;  /* nodes: its first child and its next sibling; -1: none */
    int leaf;         /* its first leaf */
    int leaves;       /* how many it has */
};

/* Runs of one value, and groups of values of a few bits each: how levels and indices of dictionaries are stored. */
struct hybrid {
    const uint8_t *at, *end;
    int width;    /* bits of a value */
    int64_t left; /* values of this run */
    bool packed;
    uint32_t value;      /* of a run of one value */
    const uint8_t *bits; /* of a group: its bytes, and the next bit */
    int64_t bit;
};

/* Memory that is given back and taken again as pages come. */
struct block {
    uint8_t *data;
    int64_t size, capacity;
};

/* A column of plain values, and a cursor in it. An entry is a pair of levels, with a value where the definition level says so. */
struct leaf {
    enum physical type;
    bool is_unsigned;
    int def, rep;        /* the highest levels */
    const char *refused; /* the name of a type that is not read; NULL: it is */
    const char *column;  /* the name of the column that it belongs to, for messages */
    bool chosen;

    enum codec codec;
    int64_t position, end; /* the next page in the file, and the end of this row group's chunk */
    int64_t entries;       /* of the chunk, not yet in a page */

    struct block dictionary, offsets; /* offsets: of strings, an int32 each */
    int64_t dictionary_count;

    struct block page;
    int64_t left; /* entries of the page that were not peeked at */
    struct hybrid reps, defs;
    int64_t encoding;         /* of the page's values */
    struct hybrid indices;    /* in the dictionary, or booleans */
    const uint8_t *at, *stop; /* plain values */
    int64_t bit;              /* of plain booleans */

    bool peeked; /* the entry after those that were taken: */
    int peek_rep, peek_def;
};

struct parquet {
    struct reader reader;
    char *path;
    struct arena arena;
    struct block footer, packed; /* packed: what was read last of the file, */
    int64_t packed_at;           /* from here on */
    struct node *nodes;          /* 0 is the row */
    int64_t node_count, node_capacity;
    struct leaf *leaves;
    int64_t leaf_count, leaf_capacity;
    const char **keys; /* by column: under which the row has it; NULL: not chosen */
    int columns;
    struct thrift groups; /* the row groups still to come */
    int64_t groups_left, group;
    int64_t rows, row, rows_left; /* the footer's number; how many were given; of this row group */
    int64_t row_begin;            /* in the text that it is written to */
    int64_t held, spent;          /* bytes of pages in memory; bytes that were read, decompressed and written */
};

/* The encodings that messages and the reader know; the numbers are Parquet's. */
enum encoding { E_PLAIN = 0, E_PLAIN_DICTIONARY = 2, E_RLE = 3, E_RLE_DICTIONARY = 8 };

/* schema.c: the tree from the footer's list of elements. */
enum status parquet_read_schema(struct parquet *p, struct thrift *t, int64_t count);

/* column.c */
enum status parquet_broken(const struct parquet *p, const struct leaf *leaf, const char *what);
enum status parquet_refuse(const struct parquet *p, const struct leaf *leaf, const char *what, const char *name);
enum { PARQUET_FACTOR = 1000 }; /* of rows, and of bytes that are read, decompressed and written, for a byte of the file */
enum status parquet_too_much(const struct parquet *p);
enum status parquet_spend(struct parquet *p, int64_t bytes);
enum status parquet_hold(struct parquet *p, struct block *block, int64_t size); /* what it held is lost */
void parquet_release(struct parquet *p, struct block *block);

/* The levels of the next entry, which stays; at the end of the chunk an error. */
enum status column_peek(struct parquet *p, struct leaf *leaf);

/* The value of the entry that was peeked at last: a number's bytes (a boolean's is one), or a string's. */
enum status column_value(struct parquet *p, struct leaf *leaf, const uint8_t **bytes, int64_t *count);

/* parquet_rows.c: appends the next row of this row group. */
enum status parquet_write_row(struct parquet *p, struct buffer *out);

/* hybrid.c */
void hybrid_open(struct hybrid *h, const uint8_t *at, const uint8_t *end, int width);
bool hybrid_next(struct hybrid *h, uint32_t *value); /* false: it is broken, or at its end */

#endif
