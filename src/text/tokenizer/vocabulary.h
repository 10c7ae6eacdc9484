/* The tokens of a model: contents by id, and ids by content. */
#ifndef TEXT_TOKENIZER_VOCABULARY_H
#define TEXT_TOKENIZER_VOCABULARY_H

#include <string.h>

#include "base/json_reader.h"
#include "base/map.h"

/* A token's content; text == NULL: no token has this id. */
struct vocabulary_token {
    const char *text;
    int64_t length;
};

struct vocabulary {
    struct arena arena;              /* the contents */
    struct map ids;                  /* content to id */
    struct vocabulary_token *tokens; /* by id */
    int64_t limit, count;            /* limit: one more than the largest id */
};

/* A token as in the file, before its id is checked. */
struct vocabulary_item {
    const char *text;
    int64_t length, id;
};

/* Items may come in any order, but no two may have the same id or content. Contents are copied. On failure vocabulary_free still
 * has to be called. */
enum status vocabulary_init(struct vocabulary *vocabulary, const struct vocabulary_item *items, int64_t count, const char *where);
void vocabulary_free(struct vocabulary *vocabulary);

/* Reads {"token": id, ...}. */
enum status vocabulary_read(struct vocabulary *vocabulary, struct json_span json, const char *where);

/* The id of a content, or -1. */
int32_t vocabulary_id(const struct vocabulary *vocabulary, const char *text, int64_t length);

/* The ids of "<0x00>" to "<0xFF>"; -1: not there. Returns whether all are. */
bool vocabulary_bytes(const struct vocabulary *vocabulary, int32_t ids[256]);

/* How many bytes of two texts are the same at their beginning, of at most `count`; SHARED_PIECE of them take the time of one step
 * elsewhere. */
enum { SHARED_PIECE = 64 };

static inline int64_t shared_bytes(const char *a, const char *b, int64_t count)
{
    int64_t n = 0;
    while (count - n >= SHARED_PIECE && memcmp(a + n, b + n, SHARED_PIECE) == 0)
        n += SHARED_PIECE;
    while (n < count && a[n] == b[n])
        n++;
    return n;
}

#endif
