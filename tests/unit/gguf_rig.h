/* A GGUF file, byte by byte. */
#ifndef TESTS_UNIT_GGUF_RIG_H
#define TESTS_UNIT_GGUF_RIG_H

#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "format/gguf.h"
#include "test.h"

static inline void put(struct buffer *b, uint64_t number, int bytes)
{
    assert_ok(buffer_append(b, &number, bytes));
}

static inline void put_text(struct buffer *b, const char *text)
{
    put(b, strlen(text), 8);
    assert_ok(buffer_append(b, text, (int64_t)strlen(text)));
}

static inline void put_key(struct buffer *b, const char *key, enum gguf_type type)
{
    put_text(b, key);
    put(b, type, 4);
}

/* "GGUF", version 3, and the counts. */
static inline struct buffer start_gguf(uint64_t tensors, uint64_t pairs)
{
    struct buffer b = {0};
    assert_ok(buffer_append(&b, "GGUF", 4));
    put(&b, 3, 4);
    put(&b, tensors, 8);
    put(&b, pairs, 8);
    return b;
}

#endif
