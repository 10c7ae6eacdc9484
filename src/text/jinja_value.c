/* Making, comparing and iterating values. Everything that could run long or grow large is charged to the budget here. */
#include "text/jinja_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum status render_fail(struct render *render, enum status code, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(code, "%s:%d: %s", render->where, render->line, text);
}

enum status render_step(struct render *render, int64_t steps)
{
    if (steps > render->left.steps)
        return render_fail(render, ERR_LIMIT, "the template runs too long; its budget of steps is used up");
    render->left.steps -= steps;
    return OK;
}

enum status render_enter(struct render *render)
{
    if (render->left.depth <= 0)
        return render_fail(render, ERR_LIMIT, "the template nests too deeply (does a macro call itself without end?)");
    TRY(render_step(render, 1));
    render->left.depth--;
    return OK;
}

void render_leave(struct render *render)
{
    render->left.depth++;
}

enum status render_alloc(struct render *render, int64_t count, int64_t size, void *out)
{
    int64_t bytes;
    memset(out, 0, sizeof(void *));
    if (count < 0 || __builtin_mul_overflow(count, size, &bytes) || bytes > render->left.memory - 16)
        return render_fail(render, ERR_LIMIT, "the template makes values that are too large; its budget of memory is used up");
    render->left.memory -= (bytes + 15) / 16 * 16;
    void *p = arena_alloc(&render->arena, bytes);
    if (!p)
        return ERR_MEMORY;
    memcpy(out, &p, sizeof p);
    return OK;
}

struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE, .origin = NO_MESSAGE};
}

struct value value_bool(bool boolean)
{
    return (struct value){.kind = VALUE_BOOL, .origin = NO_MESSAGE, .boolean = boolean};
}

struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .origin = NO_MESSAGE, .integer = integer};
}

struct value value_float(double real)
{
    return (struct value){.kind = VALUE_FLOAT, .origin = NO_MESSAGE, .real = real};
}

struct value value_undefined(const char *name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .origin = NO_MESSAGE, .name = name};
}

enum status value_text(struct render *render, const char *data, int64_t size, int32_t origin, struct value *out)
{
    struct text *text;
    TRY(render_alloc(render, 1, (int64_t)sizeof *text, &text));
    text->data = data;
    text->size = size;
    text->origin = origin;
    *out = (struct value){.kind = VALUE_TEXT, .origin = NO_MESSAGE, .text = text};
    return OK;
}

enum status value_list(struct render *render, enum value_kind kind, int64_t count, struct value *out)
{
    struct list *list;
    TRY(render_alloc(render, 1, (int64_t)sizeof *list, &list));
    TRY(render_alloc(render, count, (int64_t)sizeof *list->item, &list->item));
    list->count = count;
    list->type = "generator";
    *out = (struct value){.kind = kind, .origin = NO_MESSAGE, .list = list};
    return OK;
}

enum status value_dict(struct render *render, enum value_kind kind, struct value *out)
{
    struct dict *dict;
    TRY(render_alloc(render, 1, (int64_t)sizeof *dict, &dict));
    *out = (struct value){.kind = kind, .origin = NO_MESSAGE, .dict = dict};
    return OK;
}

static enum status dict_add(struct render *render, struct dict *dict, struct value key, struct value value)
{
    if (dict->count == dict->capacity) {
        int64_t capacity = dict->capacity * 2 + 4;
        struct entry *entry;
        TRY(render_alloc(render, capacity, (int64_t)sizeof *entry, &entry));
        if (dict->count)
            memcpy(entry, dict->entry, (size_t)dict->count * sizeof *entry);
        dict->entry = entry;
        dict->capacity = capacity;
    }
    dict->entry[dict->count++] = (struct entry){key, value};
    return OK;
}

static enum status dict_index(struct render *render, const struct dict *dict, struct value key, int64_t *out)
{
    *out = -1;
    switch (key.kind) {
    case VALUE_LIST: case VALUE_DICT:
        return render_fail(render, ERR_DATA, "a %s cannot be the key of a dict", value_type(key));
    default:
        break;
    }
    TRY(render_step(render, dict->count / 16));
    for (int64_t i = 0; i < dict->count; i++) {
        bool equal;
        TRY(value_equal(render, dict->entry[i].key, key, &equal));
        if (equal) {
            *out = i;
            break;
        }
    }
    return OK;
}

enum status dict_set(struct render *render, struct dict *dict, struct value key, struct value value)
{
    int64_t i;
    TRY(dict_index(render, dict, key, &i));
    if (i < 0)
        return dict_add(render, dict, key, value);
    dict->entry[i].value = value;
    return OK;
}

enum status dict_get(struct render *render, const struct dict *dict, struct value key, const struct value **out)
{
    int64_t i;
    TRY(dict_index(render, dict, key, &i));
    *out = i < 0 ? NULL : &dict->entry[i].value;
    return OK;
}

const struct value *dict_find(const struct dict *dict, const char *name)
{
    for (int64_t i = 0; i < dict->count; i++)
        if (value_is(dict->entry[i].key, name))
            return &dict->entry[i].value;
    return NULL;
}

enum { MESSAGE_LEVEL = 1 };

/* `level` 1: a message itself, whose role and whose own keys belong to the template's side. */
static enum status convert(struct render *render, const json_t *json, int32_t origin, int level, struct value *out)
{
    TRY(render_enter(render));
    switch (json_typeof(json)) {
    case JSON_NULL:
        *out = value_none();
        break;
    case JSON_TRUE: case JSON_FALSE:
        *out = value_bool(json_is_true(json));
        break;
    case JSON_INTEGER:
        *out = value_int(json_integer_value(json));
        break;
    case JSON_REAL:
        *out = value_float(json_real_value(json));
        break;
    case JSON_STRING:
        TRY(value_text(render, json_string_value(json), (int64_t)json_string_length(json), origin, out));
        break;
    case JSON_ARRAY: {
        TRY(value_list(render, VALUE_LIST, (int64_t)json_array_size(json), out));
        size_t i;
        const json_t *item;
        json_array_foreach(json, i, item)
            TRY(convert(render, item, origin, level + 1, &out->list->item[i]));
        break;
    }
    case JSON_OBJECT: {
        TRY(value_dict(render, VALUE_DICT, out));
        const char *name;
        json_t *item;
        json_object_foreach((json_t *)(uintptr_t)json, name, item) {
            struct value key, value;
            bool role = level == MESSAGE_LEVEL && strcmp(name, "role") == 0;
            TRY(value_text(render, name, (int64_t)strlen(name), level == MESSAGE_LEVEL ? NO_MESSAGE : origin, &key));
            TRY(convert(render, item, role ? NO_MESSAGE : origin, level + 1, &value));
            TRY(dict_add(render, out->dict, key, value));
        }
        break;
    }
    }
    out->origin = origin;
    render_leave(render);
    return OK;
}

enum status value_from_json(struct render *render, const json_t *json, int32_t origin, struct value *out)
{
    return convert(render, json, origin, MESSAGE_LEVEL + 1, out);
}

enum status value_from_context(struct render *render, const json_t *context, struct dict *out)
{
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)context, name, item) {
        struct value key, value;
        TRY(value_text(render, name, (int64_t)strlen(name), NO_MESSAGE, &key));
        if (strcmp(name, "messages") == 0 && json_is_array(item)) {
            TRY(value_list(render, VALUE_LIST, (int64_t)json_array_size(item), &value));
            for (int64_t i = 0; i < value.list->count; i++)
                TRY(convert(render, json_array_get(item, (size_t)i), (int32_t)i, MESSAGE_LEVEL, &value.list->item[i]));
        } else {
            TRY(value_from_json(render, item, NO_MESSAGE, &value));
        }
        TRY(dict_add(render, out, key, value));
    }
    return OK;
}

bool value_true(struct value value)
{
    switch (value.kind) {
    case VALUE_ABSENT: case VALUE_UNDEFINED: case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value.boolean;
    case VALUE_INT:
        return value.integer != 0;
    case VALUE_FLOAT:
        return value.real != 0;
    case VALUE_TEXT:
        return value.text->size > 0;
    case VALUE_LIST: case VALUE_TUPLE: case VALUE_RANGE: case VALUE_VIEW:
        return value.list->count > 0;
    case VALUE_DICT:
        return value.dict->count > 0;
    case VALUE_GENERATOR: case VALUE_NAMESPACE: case VALUE_LOOP: case VALUE_MACRO: case VALUE_FUNCTION: case VALUE_METHOD:
        break;
    }
    return true;
}

bool value_is_number(struct value value)
{
    return value.kind == VALUE_BOOL || value.kind == VALUE_INT || value.kind == VALUE_FLOAT;
}

bool value_is(struct value value, const char *name)
{
    size_t n = strlen(name);
    return value.kind == VALUE_TEXT && value.text->size == (int64_t)n && memcmp(value.text->data, name, n) == 0;
}

const char *value_type(struct value value)
{
    switch (value.kind) {
    case VALUE_ABSENT: case VALUE_UNDEFINED: return "Undefined";
    case VALUE_NONE: return "NoneType";
    case VALUE_BOOL: return "bool";
    case VALUE_INT: return "int";
    case VALUE_FLOAT: return "float";
    case VALUE_TEXT: return value.text->markup ? "Markup" : "str";
    case VALUE_LIST: return "list";
    case VALUE_TUPLE: return "tuple";
    case VALUE_RANGE: return "range";
    case VALUE_VIEW: case VALUE_GENERATOR: return value.list->type;
    case VALUE_DICT: return "dict";
    case VALUE_NAMESPACE: return "Namespace";
    case VALUE_LOOP: return "LoopContext";
    case VALUE_MACRO: return "Macro";
    case VALUE_FUNCTION: return "function";
    case VALUE_METHOD: return "builtin_function_or_method";
    }
    return "object";
}

static double number(struct value v)
{
    return v.kind == VALUE_FLOAT ? v.real : v.kind == VALUE_BOOL ? (double)v.boolean : (double)v.integer;
}

static int number_order(struct value a, struct value b)
{
    if (a.kind != VALUE_FLOAT && b.kind != VALUE_FLOAT) {
        int64_t x = a.kind == VALUE_BOOL ? a.boolean : a.integer;
        int64_t y = b.kind == VALUE_BOOL ? b.boolean : b.integer;
        return (x > y) - (x < y);
    }
    double x = number(a), y = number(b);
    return (x > y) - (x < y);
}

static int text_order(const struct text *a, const struct text *b)
{
    int64_t n = a->size < b->size ? a->size : b->size;
    int order = n ? memcmp(a->data, b->data, (size_t)n) : 0;        /* UTF-8 sorts as its code points do */
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static enum status list_equal(struct render *render, const struct list *a, const struct list *b, bool *out)
{
    *out = a->count == b->count;
    for (int64_t i = 0; *out && i < a->count; i++)
        TRY(value_equal(render, a->item[i], b->item[i], out));
    return OK;
}

static enum status dict_equal(struct render *render, const struct dict *a, const struct dict *b, bool *out)
{
    *out = a->count == b->count;
    for (int64_t i = 0; *out && i < a->count; i++) {
        const struct value *other;
        TRY(dict_get(render, b, a->entry[i].key, &other));
        *out = other != NULL;
        if (other)
            TRY(value_equal(render, a->entry[i].value, *other, out));
    }
    return OK;
}

enum status value_equal(struct render *render, struct value a, struct value b, bool *out)
{
    if (value_is_number(a) && value_is_number(b)) {
        *out = number_order(a, b) == 0 && !(a.kind == VALUE_FLOAT && isnan(a.real)) && !(b.kind == VALUE_FLOAT && isnan(b.real));
        return OK;
    }
    *out = false;
    if (a.kind != b.kind)
        return OK;
    enum status status = OK;
    switch (a.kind) {
    case VALUE_ABSENT: case VALUE_UNDEFINED: case VALUE_NONE:
        *out = true;
        break;
    case VALUE_TEXT:
        *out = a.text->size == b.text->size && text_order(a.text, b.text) == 0;
        break;
    case VALUE_LIST: case VALUE_TUPLE: case VALUE_RANGE:
        TRY(render_enter(render));
        status = list_equal(render, a.list, b.list, out);
        render_leave(render);
        break;
    case VALUE_DICT:
        TRY(render_enter(render));
        status = dict_equal(render, a.dict, b.dict, out);
        render_leave(render);
        break;
    default:
        *out = a.list == b.list;        /* identity: any member of the union is the same pointer */
    }
    return status;
}

enum status value_compare(struct render *render, struct value a, struct value b, int *out)
{
    if (value_is_number(a) && value_is_number(b)) {
        *out = number_order(a, b);
        return OK;
    }
    if (a.kind == VALUE_TEXT && b.kind == VALUE_TEXT) {
        *out = text_order(a.text, b.text);
        return OK;
    }
    if ((a.kind == VALUE_LIST || a.kind == VALUE_TUPLE) && a.kind == b.kind) {
        TRY(render_enter(render));
        int64_t i = 0, n = a.list->count < b.list->count ? a.list->count : b.list->count;
        bool equal = true;
        for (; i < n; i++) {
            TRY(value_equal(render, a.list->item[i], b.list->item[i], &equal));
            if (!equal)
                break;
        }
        if (i < n)
            TRY(value_compare(render, a.list->item[i], b.list->item[i], out));
        else
            *out = (a.list->count > n) - (b.list->count > n);
        render_leave(render);
        return OK;
    }
    return render_fail(render, ERR_DATA, "'%s' and '%s' have no order to compare by", value_type(a), value_type(b));
}

enum status value_contains(struct render *render, struct value container, struct value item, bool *out)
{
    *out = false;
    if (container.kind == VALUE_TEXT) {
        if (item.kind != VALUE_TEXT)
            return render_fail(render, ERR_DATA, "'in <string>' requires string as left operand, not %s", value_type(item));
        int64_t at;
        TRY(text_find(render, container.text, item.text, 0, &at));
        *out = at >= 0;
        return OK;
    }
    if (container.kind == VALUE_DICT) {
        const struct value *found;
        TRY(dict_get(render, container.dict, item, &found));
        *out = found != NULL;
        return OK;
    }
    struct list items;
    TRY(value_items(render, container, &items));
    for (int64_t i = 0; i < items.count && !*out; i++) {
        TRY(render_step(render, 1));
        TRY(value_equal(render, items.item[i], item, out));
    }
    return OK;
}

enum status value_items(struct render *render, struct value value, struct list *out)
{
    *out = (struct list){0};
    struct value made;
    switch (value.kind) {
    case VALUE_UNDEFINED:
        return OK;
    case VALUE_LIST: case VALUE_TUPLE: case VALUE_RANGE: case VALUE_VIEW:
        *out = *value.list;
        return OK;
    case VALUE_GENERATOR:
        out->item = value.list->item + value.list->next;
        out->count = value.list->count - value.list->next;
        value.list->next = value.list->count;
        return OK;
    case VALUE_DICT:
        TRY(value_list(render, VALUE_LIST, value.dict->count, &made));
        for (int64_t i = 0; i < value.dict->count; i++)
            made.list->item[i] = value.dict->entry[i].key;
        break;
    case VALUE_TEXT: {
        const struct text *text = value.text;
        TRY(value_list(render, VALUE_LIST, char_count(text->data, text->size), &made));
        for (int64_t i = 0, at = 0; at < text->size; i++) {
            int64_t next = char_next(text->data, text->size, at, NULL);
            TRY(text_slice(render, text, at, next, &made.list->item[i]));
            at = next;
        }
        break;
    }
    default:
        return render_fail(render, ERR_DATA, "'%s' object is not iterable", value_type(value));
    }
    *out = *made.list;
    return OK;
}

enum status value_length(struct render *render, struct value value, int64_t *out)
{
    switch (value.kind) {
    case VALUE_UNDEFINED:
        *out = 0;
        return OK;
    case VALUE_TEXT:
        *out = char_count(value.text->data, value.text->size);
        return render_step(render, value.text->size / 256);
    case VALUE_LIST: case VALUE_TUPLE: case VALUE_RANGE: case VALUE_VIEW:
        *out = value.list->count;
        return OK;
    case VALUE_DICT:
        *out = value.dict->count;
        return OK;
    default:
        return render_fail(render, ERR_DATA, "object of type '%s' has no len()", value_type(value));
    }
}

enum status args_bind(struct render *render, const struct args *args, const char *what, const char *names, int need,
                      struct value *out)
{
    const char *start[16];
    size_t length[16];
    int count = 0;
    for (const char *p = names; *p && count < 16; count++) {
        start[count] = p;
        length[count] = strcspn(p, " ");
        p += length[count];
        p += *p == ' ';
    }
    if (args->count > count)
        return render_fail(render, ERR_DATA, "%s takes at most %d arguments, not %lld", what, count, (long long)args->count);
    for (int64_t i = 0; i < args->count; i++)
        out[i] = args->item[i];
    for (int64_t k = 0; k < args->keyword_count; k++) {
        const char *name = args->keyword[k].name;
        int i = 0;
        while (i < count && (strlen(name) != length[i] || memcmp(name, start[i], length[i]) != 0))
            i++;
        if (i == count || out[i].kind != VALUE_ABSENT)
            return render_fail(render, ERR_DATA, "%s has no use for the argument %s", what, name);
        out[i] = args->keyword[k].value;
    }
    for (int i = 0; i < need; i++)
        if (out[i].kind == VALUE_ABSENT)
            return render_fail(render, ERR_DATA, "%s misses its argument %.*s", what, (int)length[i], start[i]);
    return OK;
}
