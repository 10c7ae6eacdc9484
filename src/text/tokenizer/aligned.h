/* Text that remembers where in the original text each of its bytes came from. */
#ifndef TEXT_TOKENIZER_ALIGNED_H
#define TEXT_TOKENIZER_ALIGNED_H

#include "base/memory.h"

/* Bytes of a text: [begin, end). */
struct text_range {
    int64_t begin, end;
};

/* Bytes of the original at most, so that its places fit the arrays of this header and struct tokens. */
#define TEXT_BYTES_MAX ((int64_t)INT32_MAX)

/* A piece of text that is owned elsewhere. Byte i came from [begin[i], end[i]) of the original; begin == NULL: the text is
 * the original's own bytes from `base` on. */
struct view {
    const char *text;
    int64_t length;
    const int32_t *begin, *end;
    int64_t base;
};

struct view view_slice(struct view view, int64_t from, int64_t to);

/* The bytes of the original that [from, to) came from; from < to. */
void view_origin(const struct view *view, int64_t from, int64_t to, int64_t *begin, int64_t *end);

/* Text being rewritten. Starts as {0} with `max_length` set: longer than that is ERR_LIMIT, because rules from a file could
 * double a text again and again. */
struct aligned {
    char *text;
    int32_t *begin, *end;
    int64_t length, capacity, max_length;
};

/* Appends bytes that all came from [begin, end) of the original. */
enum status aligned_append(struct aligned *aligned, const char *bytes, int64_t count, int64_t begin, int64_t end);

/* Appends [from, to) of a view as it is. */
enum status aligned_copy(struct aligned *aligned, const struct view *view, int64_t from, int64_t to);

struct view aligned_view(const struct aligned *aligned);
void aligned_free(struct aligned *aligned);

#endif
