/* Making, comparing and iterating values. Everything that could take long or grow large is charged to the budget. */
#include "text/jinja/value.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/number.h"

/* A template may write a text indented, escaped or twice, and keep some copies of it on the way. */
enum { OUTPUT_A_BYTE = 8, MEMORY_A_BYTE = 4 };

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

enum status value_given(struct render *render, const char *data, int64_t size, int32_t origin, struct value *out)
{
    if (render->granted) {
        render->left.output += OUTPUT_A_BYTE * size;
        render->left.memory += MEMORY_A_BYTE * size;
    }
    return value_text(render, data, size, origin, out);
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

enum status method_bind(struct render *render, struct value self, const struct function *function, struct value *out)
{
    struct method *method;
    TRY(render_alloc(render, 1, (int64_t)sizeof *method, &method));
    method->function = function;
    method->self = self;
    *out = (struct value){.kind = VALUE_METHOD, .origin = NO_MESSAGE, .method = method};
    return OK;
}

enum status dict_add(struct render *render, struct dict *dict, struct value key, struct value value)
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
    case VALUE_LIST:
    case VALUE_DICT: return render_fail(render, ERR_DATA, "a %s cannot be the key of a dict", value_type(key));
    default: break;
    }
    if (key.kind == VALUE_TEXT) {
        const struct value *found;
        TRY(dict_find(render, dict, key.text->data, key.text->size, &found));
        if (found)
            *out = (const struct entry *)((const char *)found - offsetof(struct entry, value)) - dict->entry;
        return OK;
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

enum status dict_find(struct render *render, const struct dict *dict, const char *name, int64_t size, const struct value **out)
{
    *out = NULL;
    for (int64_t i = 0; i < dict->count; i++) {
        const struct value *key = &dict->entry[i].key;
        if (key->kind != VALUE_TEXT || key->text->size != size)
            continue;
        TRY(render_step(render, size / 256));
        if (memcmp(key->text->data, name, (size_t)size) == 0) {
            *out = &dict->entry[i].value;
            return render_step(render, (i * 4 + size) / 64);
        }
    }
    return render_step(render, (dict->count * 4 + size) / 64);
}

bool value_true(struct value value)
{
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return value.boolean;
    case VALUE_INT: return value.integer != 0;
    case VALUE_FLOAT: return value.real != 0;
    case VALUE_TEXT: return value.text->size > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW: return value.list->count > 0;
    case VALUE_DICT: return value.dict->count > 0;
    case VALUE_GENERATOR:
    case VALUE_NAMESPACE:
    case VALUE_LOOP:
    case VALUE_MACRO:
    case VALUE_FUNCTION:
    case VALUE_METHOD: break;
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
    case VALUE_ABSENT:
    case VALUE_UNDEFINED: return "Undefined";
    case VALUE_NONE: return "NoneType";
    case VALUE_BOOL: return "bool";
    case VALUE_INT: return "int";
    case VALUE_FLOAT: return "float";
    case VALUE_TEXT: return value.text->markup ? "Markup" : "str";
    case VALUE_LIST: return "list";
    case VALUE_TUPLE: return "tuple";
    case VALUE_RANGE: return "range";
    case VALUE_VIEW:
    case VALUE_GENERATOR: return value.list->type;
    case VALUE_DICT: return "dict";
    case VALUE_NAMESPACE: return "Namespace";
    case VALUE_LOOP: return "LoopContext";
    case VALUE_MACRO: return "Macro";
    case VALUE_FUNCTION: return "function";
    case VALUE_METHOD: return "builtin_function_or_method";
    }
    return "object";
}

double value_real(struct value v)
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
    double x = value_real(a), y = value_real(b);
    return (x > y) - (x < y);
}

static enum status text_order(struct render *render, const struct text *a, const struct text *b, int *out)
{
    int64_t n = min(a->size, b->size);
    *out = n ? memcmp(a->data, b->data, (size_t)n) : 0; /* UTF-8 sorts as its code points do */
    if (*out == 0)
        *out = (a->size > b->size) - (a->size < b->size);
    return render_step(render, n / 256);
}

static enum status text_equal(struct render *render, const struct text *a, const struct text *b, bool *out)
{
    *out = a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, (size_t)a->size) == 0);
    return a->size == b->size ? render_step(render, a->size / 256) : OK;
}

static enum status list_equal(struct render *render, const struct list *a, const struct list *b, bool *out)
{
    int64_t i = 0;
    *out = a->count == b->count;
    for (; *out && i < a->count; i++)
        TRY(value_equal(render, a->item[i], b->item[i], out));
    return render_step(render, i / ITEMS_A_STEP);
}

static enum status dict_equal(struct render *render, const struct dict *a, const struct dict *b, bool *out)
{
    *out = a->count == b->count;
    for (int64_t i = 0; *out && i < a->count; i++) {
        const struct value *other;
        TRY(render_step(render, 1 + i / 8));
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
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE: *out = true; break;
    case VALUE_TEXT: status = text_equal(render, a.text, b.text, out); break;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
        TRY(render_enter(render));
        status = list_equal(render, a.list, b.list, out);
        render_leave(render);
        break;
    case VALUE_DICT:
        TRY(render_enter(render));
        status = dict_equal(render, a.dict, b.dict, out);
        render_leave(render);
        break;
    default: *out = a.list == b.list; /* identity: any member of the union is the same pointer */
    }
    return status;
}

enum status value_compare(struct render *render, struct value a, struct value b, int *out)
{
    if (value_is_number(a) && value_is_number(b)) {
        *out = number_order(a, b);
        return OK;
    }
    if (a.kind == VALUE_TEXT && b.kind == VALUE_TEXT)
        return text_order(render, a.text, b.text, out);
    if ((a.kind == VALUE_LIST || a.kind == VALUE_TUPLE) && a.kind == b.kind) {
        TRY(render_enter(render));
        int64_t i = 0, n = min(a.list->count, b.list->count);
        bool equal = true;
        for (; i < n; i++) {
            TRY(value_equal(render, a.list->item[i], b.list->item[i], &equal));
            if (!equal)
                break;
        }
        TRY(render_step(render, i / ITEMS_A_STEP));
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
    case VALUE_UNDEFINED: return OK;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW: *out = *value.list; return OK;
    case VALUE_GENERATOR:
        out->item = value.list->item + value.list->next;
        out->count = value.list->count - value.list->next;
        value.list->next = value.list->count;
        return OK;
    case VALUE_DICT:
        TRY(render_step(render, value.dict->count / 64));
        TRY(value_list(render, VALUE_LIST, value.dict->count, &made));
        for (int64_t i = 0; i < value.dict->count; i++)
            made.list->item[i] = value.dict->entry[i].key;
        break;
    case VALUE_TEXT: {
        const struct text *text = value.text;
        TRY(render_step(render, text->size / 16));
        TRY(value_list(render, VALUE_LIST, char_count(text->data, text->size), &made));
        for (int64_t i = 0, at = 0; at < text->size; i++) {
            int64_t next = char_next(text->data, text->size, at, NULL);
            TRY(text_slice(render, text, at, next, &made.list->item[i]));
            at = next;
        }
        break;
    }
    default: return render_fail(render, ERR_DATA, "'%s' object is not iterable", value_type(value));
    }
    *out = *made.list;
    return OK;
}

enum status value_length(struct render *render, struct value value, int64_t *out)
{
    switch (value.kind) {
    case VALUE_UNDEFINED: *out = 0; return OK;
    case VALUE_TEXT:
        TRY(render_step(render, value.text->size / CHARS_A_STEP));
        *out = char_count(value.text->data, value.text->size);
        return OK;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW: *out = value.list->count; return OK;
    case VALUE_DICT: *out = value.dict->count; return OK;
    default: return render_fail(render, ERR_DATA, "object of type '%s' has no len()", value_type(value));
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
