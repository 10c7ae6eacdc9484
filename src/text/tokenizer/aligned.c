/* Text with the origin of each byte, as three arrays of the same length. */
#include "text/tokenizer/aligned.h"

#include <string.h>

struct view view_slice(struct view view, int64_t from, int64_t to)
{
    view.text += from;
    view.length = to - from;
    if (view.begin) {
        view.begin += from;
        view.end += from;
    } else {
        view.base += from;
    }
    return view;
}

void view_origin(const struct view *view, int64_t from, int64_t to, int64_t *begin, int64_t *end)
{
    *begin = view->begin ? view->begin[from] : view->base + from;
    *end = view->begin ? view->end[to - 1] : view->base + to;
}

static enum status aligned_reserve(struct aligned *a, int64_t more)
{
    int64_t need = a->length + more;
    if (need > a->max_length)
        return fail(ERR_LIMIT, "the tokenizer's rules make the text longer than %lld bytes; its normalizer is broken",
                    (long long)a->max_length);
    int64_t text = a->capacity, begin = a->capacity, end = a->capacity; /* they grow together */
    TRY(memory_grow(&a->text, &text, need, 1));
    TRY(memory_grow(&a->begin, &begin, need, (int64_t)sizeof *a->begin));
    TRY(memory_grow(&a->end, &end, need, (int64_t)sizeof *a->end));
    a->capacity = end;
    return OK;
}

enum status aligned_append(struct aligned *a, const char *bytes, int64_t count, int64_t begin, int64_t end)
{
    TRY(aligned_reserve(a, count));
    for (int64_t i = 0; i < count; i++) {
        a->text[a->length] = bytes[i];
        a->begin[a->length] = (int32_t)begin;
        a->end[a->length++] = (int32_t)end;
    }
    return OK;
}

enum status aligned_copy(struct aligned *a, const struct view *view, int64_t from, int64_t to)
{
    int64_t count = to - from;
    TRY(aligned_reserve(a, count));
    if (!count)
        return OK;
    memcpy(a->text + a->length, view->text + from, (size_t)count);
    if (view->begin) {
        memcpy(a->begin + a->length, view->begin + from, (size_t)count * sizeof *a->begin);
        memcpy(a->end + a->length, view->end + from, (size_t)count * sizeof *a->end);
    } else {
        for (int64_t i = 0; i < count; i++) {
            a->begin[a->length + i] = (int32_t)(view->base + from + i);
            a->end[a->length + i] = (int32_t)(view->base + from + i + 1);
        }
    }
    a->length += count;
    return OK;
}

struct view aligned_view(const struct aligned *a)
{
    return (struct view){.text = a->length ? a->text : "", .length = a->length, .begin = a->begin, .end = a->end};
}

void aligned_free(struct aligned *a)
{
    memory_free(a->text);
    memory_free(a->begin);
    memory_free(a->end);
    *a = (struct aligned){0};
}
