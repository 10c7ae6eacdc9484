/* Strings that remember where their bytes came from: builders, slices, and the UTF-8 they need.
 *
 * Runs are kept in a builder and shared by the texts made from it. A text never writes; an owner that has not grown
 * since may be appended to in place, which an earlier text does not notice, because it stops at its own size.
 */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/value.h"

enum status builder_new(struct render *render, struct builder **out)
{
    TRY(render_alloc(render, 1, (int64_t)sizeof **out, out));
    (*out)->render = render;
    return OK;
}

static enum status builder_room(struct builder *builder, int64_t more)
{
    struct render *render = builder->render;
    int64_t need;
    if (__builtin_add_overflow(builder->size, more, &need))
        need = INT64_MAX / 4;
    if (builder->limit && need > builder->limit)
        return render_fail(render, ERR_LIMIT, "the rendered text exceeds its budget of %lld bytes", (long long)builder->limit);
    if (need <= builder->capacity)
        return OK;
    if (builder->output) {
        builder->output->size = builder->size;
        TRY(buffer_reserve(builder->output, more));
        builder->data = builder->output->data;
        builder->capacity = builder->output->capacity - 1;
        return OK;
    }
    int64_t capacity = need > INT64_MAX / 4 ? need : builder->size ? need * 2 : need;
    char *data;
    TRY(render_alloc(render, capacity, 1, &data));
    if (builder->size)
        memcpy(data, builder->data, (size_t)builder->size);
    builder->data = data;
    builder->capacity = capacity;
    return OK;
}

static enum status more_runs(struct builder *builder)
{
    int64_t capacity = builder->run_capacity ? builder->run_capacity * 2 : builder->output ? 32 : 2;
    struct run *run;
    TRY(render_alloc(builder->render, capacity, (int64_t)sizeof *run, &run));
    if (builder->run_count)
        memcpy(run, builder->run, (size_t)builder->run_count * sizeof *run);
    builder->run = run;
    builder->run_capacity = capacity;
    return OK;
}

static enum status text_put(struct builder *builder, const char *data, int64_t size, int32_t origin, int32_t place)
{
    if (size == 0)
        return OK;
    TRY(render_step(builder->render, size / 256));
    TRY(builder_room(builder, size));
    memcpy(builder->data + builder->size, data, (size_t)size);
    builder->size += size;
    struct run *last = builder->run_count ? &builder->run[builder->run_count - 1] : NULL;
    if (last && last->origin == origin && last->place == place) {
        last->end = builder->size;
        return OK;
    }
    if (builder->run_count == builder->run_capacity)
        TRY(more_runs(builder));
    builder->run[builder->run_count++] = (struct run){builder->size, origin, place};
    return OK;
}

enum status builder_bytes(struct builder *builder, const char *data, int64_t size, int32_t origin)
{
    return text_put(builder, data, size, origin, builder->render->place);
}

static const struct run *find_run(const struct text *text, int64_t at)
{
    int64_t low = 0, high = text->run_count - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (text->run[middle].end > at + text->base)
            high = middle;
        else
            low = middle + 1;
    }
    return &text->run[low];
}

int32_t text_run(const struct text *text, int64_t at, int64_t *end)
{
    *end = text->size;
    if (!text->run)
        return text->origin;
    const struct run *run = find_run(text, at);
    if (run->end - text->base < *end)
        *end = run->end - text->base;
    return run->origin;
}

/* What is written in a message's turn belongs to that turn, wherever its bytes were made. */
enum status builder_slice(struct builder *builder, const struct text *text, int64_t begin, int64_t end)
{
    int32_t place = builder->render->place;
    if (!text->run)
        return text_put(builder, text->data + begin, end - begin, text->origin, place ? place : text->place);
    const struct run *run = begin < end ? find_run(text, begin) : NULL;
    for (int64_t at = begin, stop; at < end; at = stop, run++) {
        stop = run->end - text->base;
        if (stop > end || run == text->run + text->run_count - 1)
            stop = end;
        TRY(text_put(builder, text->data + at, stop - at, run->origin, place ? place : run->place));
    }
    return OK;
}

enum status builder_text(struct builder *builder, const struct text *text)
{
    return builder_slice(builder, text, 0, text->size);
}

enum status builder_escaped(struct builder *builder, const struct text *text)
{
    if (text->markup)
        return builder_text(builder, text);
    for (int64_t at = 0, next; at < text->size; at = next) {
        const char *entity = NULL;
        switch (text->data[at]) {
        case '&': entity = "&amp;"; break;
        case '<': entity = "&lt;"; break;
        case '>': entity = "&gt;"; break;
        case '\'': entity = "&#39;"; break;
        case '"': entity = "&#34;"; break;
        }
        int64_t end;
        next = at + 1;
        if (entity) {
            TRY(builder_bytes(builder, entity, (int64_t)strlen(entity), text_run(text, at, &end)));
            continue;
        }
        while (next < text->size && !strchr("&<>'\"", text->data[next]))
            next++;
        TRY(builder_slice(builder, text, at, next));
    }
    return OK;
}

enum status builder_value(struct builder *builder, struct value *out)
{
    struct text *text;
    TRY(render_alloc(builder->render, 1, (int64_t)sizeof *text, &text));
    text->data = builder->data ? builder->data : "";
    text->size = builder->size;
    text->owner = builder;
    text->markup = builder->markup;
    text->origin = builder->run_count ? builder->run[0].origin : NO_MESSAGE;
    text->place = builder->run_count ? builder->run[0].place : 0;
    if (builder->run_count > 1) {
        text->run = builder->run;
        text->run_count = builder->run_count;
    }
    *out = (struct value){.kind = VALUE_TEXT, .origin = NO_MESSAGE, .text = text};
    return OK;
}

enum status text_slice(struct render *render, const struct text *text, int64_t begin, int64_t end, struct value *out)
{
    struct text *slice;
    TRY(render_alloc(render, 1, (int64_t)sizeof *slice, &slice));
    *slice = *text;
    slice->data += begin;
    slice->size = end - begin;
    slice->base += begin;
    slice->owner = NULL;
    *out = (struct value){.kind = VALUE_TEXT, .origin = NO_MESSAGE, .text = slice};
    return OK;
}

enum status text_concat(struct render *render, const struct text *a, const struct text *b, struct value *out)
{
    struct builder *builder = a->owner;
    if (!builder || builder->limit || builder->data != a->data || builder->size != a->size ||
        builder->markup != (a->markup || b->markup)) {
        TRY(builder_new(render, &builder));
        builder->markup = a->markup || b->markup;
        if (builder->markup)
            TRY(builder_escaped(builder, a));
        else
            TRY(builder_text(builder, a));
    }
    if (builder->markup)
        TRY(builder_escaped(builder, b));
    else
        TRY(builder_text(builder, b));
    return builder_value(builder, out);
}

enum status text_find(struct render *render, const struct text *text, const struct text *part, int64_t from, int64_t *at)
{
    *at = -1;
    if (from > text->size)
        return OK;
    if (part->size == 0) {
        *at = from;
        return OK;
    }
    const char *found = memmem(text->data + from, (size_t)(text->size - from), part->data, (size_t)part->size);
    if (found)
        *at = found - text->data;
    return render_step(render, ((found ? *at : text->size) - from + part->size) / 32); /* the part is looked at first */
}

/* Bytes that are not UTF-8 count as one character each, so that nothing here can run out of bounds. */
int64_t char_next(const char *data, int64_t size, int64_t at, int32_t *code)
{
    uint32_t c = 0xfffd;
    int n = utf8_sequence(data + at, size - at);
    if (n > 0)
        utf8_decode(data + at, &c);
    if (code)
        *code = (int32_t)c;
    return at + (n > 0 ? n : 1);
}

int64_t char_back(const char *data, int64_t at, int32_t *code)
{
    int64_t start = at - 1;
    while (start > 0 && at - start < 4 && ((unsigned char)data[start] & 0xc0) == 0x80)
        start--;
    if (char_next(data, at, start, code) != at) {
        start = at - 1;
        char_next(data, at, start, code);
    }
    return start;
}

int64_t char_count(const char *data, int64_t size)
{
    int64_t count = 0;
    for (int64_t at = 0; at < size; at = char_next(data, size, at, NULL))
        count++;
    return count;
}

int64_t char_offset(const char *data, int64_t size, int64_t index)
{
    int64_t at = 0;
    while (index-- > 0 && at < size)
        at = char_next(data, size, at, NULL);
    return at;
}

bool unicode_space(int32_t code)
{
    return utf8_is_space((uint32_t)code) || (code >= 0x1c && code <= 0x1f);
}
