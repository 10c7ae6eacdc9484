/* The text of a row straight to a template's values, in one walk and without a tree of its own.
 *
 * It is the fast way for ordinary rows, not a second opinion: whatever is not JSON, or rare in it (a name twice, a number of more
 * than 18 digits, a lone surrogate, deep nesting, a message with "train"), is left to Jansson, which also has the messages. The
 * rules are those of context.c. Strings without escapes are not copied.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/run.h"

enum { MOST_DEEP = 48, MOST_MEMBERS = 64, NUMBER = 40, SOME = 8 };

struct reader {
    struct render *render;
    const char *at, *end;
    int depth;
};

static char peek(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
    return r->at < r->end ? *r->at : 0;
}

static bool skip(struct reader *r, char c)
{
    if (peek(r) != c)
        return false;
    r->at++;
    return true;
}

/* A string with escapes, from its first byte on; what it becomes is never longer than what is left of the text. */
static bool unescape(struct reader *r, const char *begin, const char **data, int64_t *size)
{
    const char *close = r->at;
    while (close < r->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    char *copy, *o;
    if (close >= r->end || render_alloc(r->render, close - begin, 1, &copy) != OK)
        return false;
    memcpy(copy, begin, (size_t)(r->at - begin));
    for (o = copy + (r->at - begin); r->at < close;) {
        char c = *r->at++;
        if ((unsigned char)c < 0x20)
            return false;
        if (c != '\\') {
            *o++ = c;
            continue;
        }
        int32_t code = json_escape(&r->at, r->end);
        if (code <= 0)
            return false;
        o += utf8_encode((uint32_t)code, o);
    }
    *data = copy;
    *size = o - copy;
    r->at = close + 1;
    return true;
}

/* Behind the opening quote. */
static bool read_string(struct reader *r, const char **data, int64_t *size)
{
    const char *begin = r->at;
    for (; r->at < r->end; r->at++) {
        char c = *r->at;
        if (c == '"') {
            *data = begin;
            *size = r->at++ - begin;
            return true;
        }
        if (c == '\\')
            return unescape(r, begin, data, size);
        if ((unsigned char)c < 0x20)
            return false;
    }
    return false;
}

static bool read_text(struct reader *r, int32_t origin, struct value *out)
{
    const char *data;
    int64_t size;
    return read_string(r, &data, &size) && value_text(r->render, data, size, origin, out) == OK;
}

static bool read_number(struct reader *r, struct value *out)
{
    char copy[NUMBER], *end;
    int n = 0;
    bool real = false, digits = false;
    for (; r->at < r->end && n < NUMBER - 1 && strchr("+-.eE0123456789", *r->at) && *r->at; r->at++) {
        real |= strchr(".eE", *r->at) != NULL;
        copy[n++] = *r->at;
    }
    copy[n] = 0;
    const char *first = copy + (copy[0] == '-');
    digits = *first >= '0' && *first <= '9' && !(first[0] == '0' && first[1] >= '0' && first[1] <= '9');
    if (!digits || n > 18)
        return false;
    const char *point = strpbrk(copy, ".");
    if (point && !(point[1] >= '0' && point[1] <= '9'))
        return false;
    *out = real ? value_float(strtod(copy, &end)) : value_int(strtoll(copy, &end, 10));
    return *end == 0;
}

static bool read_word(struct reader *r, const char *word, struct value value, struct value *out)
{
    int64_t n = (int64_t)strlen(word);
    if (r->end - r->at < n || memcmp(r->at, word, (size_t)n) != 0)
        return false;
    r->at += n;
    *out = value;
    return true;
}

/* Items are gathered in `few` of the caller's stack and, beyond that, in the render's memory. */
static bool room(struct reader *r, void *items, int64_t count, int64_t *capacity, int64_t size)
{
    void *old, *more;
    if (count < *capacity)
        return true;
    memcpy(&old, items, sizeof old);
    if (render_alloc(r->render, *capacity * 2, size, &more) != OK)
        return false;
    memcpy(more, old, (size_t)(count * size));
    memcpy(items, &more, sizeof more);
    *capacity *= 2;
    return true;
}

static bool settle(struct reader *r, void *items, const void *few, int64_t count, int64_t size)
{
    void *old, *kept;
    memcpy(&old, items, sizeof old);
    if (old != few)
        return true;
    if (render_alloc(r->render, count, size, &kept) != OK)
        return false;
    if (count)
        memcpy(kept, few, (size_t)(count * size));
    memcpy(items, &kept, sizeof kept);
    return true;
}

static int64_t find(const struct entry *entries, int64_t count, const char *name)
{
    while (--count >= 0 && !value_is(entries[count].key, name))
        ;
    return count;
}

/* What a message thought, under the names that templates look for: as convert_message of context.c has it. */
static bool alias_thoughts(struct reader *r, struct entry **entries, int64_t *count)
{
    int64_t newer = find(*entries, *count, "reasoning_content"), older = find(*entries, *count, "thinking"), n = 0;
    const int64_t order[] = {newer, older, find(*entries, *count, "reasoning")};
    const struct value *thought = NULL;
    for (int i = 0; i < 3 && !thought; i++)
        if (order[i] >= 0 && (*entries)[order[i]].value.kind != VALUE_NONE)
            thought = &(*entries)[order[i]].value;
    struct entry *made;
    if (!thought)
        return true;
    if (render_alloc(r->render, *count + 2, (int64_t)sizeof *made, &made) != OK ||
        value_text(r->render, "thinking", 8, NO_MESSAGE, &made[0].key) != OK)
        return false;
    made[n++].value = older >= 0 ? (*entries)[older].value : *thought;
    for (int64_t i = 0; i < *count; i++)
        if (i != older)
            made[n++] = (struct entry){(*entries)[i].key, i == newer ? *thought : (*entries)[i].value};
    if (newer < 0) {
        if (value_text(r->render, "reasoning_content", 17, NO_MESSAGE, &made[n].key) != OK)
            return false;
        made[n++].value = *thought;
    }
    *entries = made;
    *count = n;
    return true;
}

static bool is_new(const struct entry *entries, int64_t count, const struct text *name)
{
    for (int64_t i = 0; i < count; i++) {
        const struct text *other = entries[i].key.text;
        if (other->size == name->size && memcmp(other->data, name->data, (size_t)name->size) == 0)
            return false;
    }
    return true;
}

static bool read_value(struct reader *r, int32_t origin, struct value *out);

static bool read_object(struct reader *r, int32_t origin, bool message, struct value *out)
{
    struct entry few[SOME], *entries = few;
    int64_t count = 0, capacity = SOME;
    for (; !skip(r, '}'); count++) {
        if ((count && !skip(r, ',')) || count == MOST_MEMBERS || !room(r, &entries, count, &capacity, (int64_t)sizeof *entries))
            return false;
        struct entry *entry = &entries[count];
        if (!skip(r, '"') || !read_text(r, message ? NO_MESSAGE : origin, &entry->key) || !skip(r, ':') ||
            !is_new(entries, count, entry->key.text) || (message && value_is(entry->key, "train")))
            return false;
        if (!read_value(r, message && value_is(entry->key, "role") ? NO_MESSAGE : origin, &entry->value))
            return false;
    }
    if ((message && !alias_thoughts(r, &entries, &count)) || value_dict(r->render, VALUE_DICT, out) != OK ||
        !settle(r, &entries, few, count, (int64_t)sizeof *entries))
        return false;
    *out->dict = (struct dict){entries, count, count, message};
    return true;
}

static bool read_list(struct reader *r, int32_t origin, bool messages, struct value *out)
{
    struct value few[SOME], *items = few;
    int64_t count = 0, capacity = SOME;
    for (; !skip(r, ']'); count++) {
        if ((count && !skip(r, ',')) || count == INT32_MAX || !room(r, &items, count, &capacity, (int64_t)sizeof *items))
            return false;
        if (messages && (!skip(r, '{') || !read_object(r, (int32_t)count, true, &items[count])))
            return false;
        if (!messages && !read_value(r, origin, &items[count]))
            return false;
        if (messages)
            items[count].origin = (int32_t)count;
    }
    if (value_list(r->render, VALUE_LIST, 0, out) != OK || !settle(r, &items, few, count, (int64_t)sizeof *items))
        return false;
    out->list->item = items;
    out->list->count = count;
    return true;
}

static bool read_value(struct reader *r, int32_t origin, struct value *out)
{
    bool good;
    if (r->depth == MOST_DEEP)
        return false;
    r->depth++;
    switch (peek(r)) {
    case '"':
        r->at++;
        good = read_text(r, origin, out);
        break;
    case '{':
        r->at++;
        good = read_object(r, origin, false, out);
        break;
    case '[':
        r->at++;
        good = read_list(r, origin, false, out);
        break;
    case 't': good = read_word(r, "true", value_bool(true), out); break;
    case 'f': good = read_word(r, "false", value_bool(false), out); break;
    case 'n': good = read_word(r, "null", value_none(), out); break;
    default: good = read_number(r, out);
    }
    r->depth--;
    if (good)
        out->origin = origin;
    return good;
}

bool json_row(struct render *render, const char *text, int64_t length, struct value *messages, struct value *tools)
{
    struct reader r = {.render = render, .at = text, .end = text + length};
    *messages = *tools = (struct value){0};
    if (utf8_invalid(text, length) >= 0 || !skip(&r, '{'))
        return false;
    for (bool first = true; !skip(&r, '}'); first = false) {
        const char *name;
        int64_t size;
        if ((!first && !skip(&r, ',')) || !skip(&r, '"') || !read_string(&r, &name, &size) || !skip(&r, ':'))
            return false;
        bool are_messages = size == 8 && memcmp(name, "messages", 8) == 0, are_tools = size == 5 && memcmp(name, "tools", 5) == 0;
        if (are_messages && messages->kind == VALUE_ABSENT) {
            if (!skip(&r, '[') || !read_list(&r, NO_MESSAGE, true, messages))
                return false;
        } else if (!are_tools || tools->kind != VALUE_ABSENT || !read_value(&r, OTHER_DATA, tools)) {
            return false;
        }
    }
    return messages->kind == VALUE_LIST && peek(&r) == 0 && r.at == r.end;
}
