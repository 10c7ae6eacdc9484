/* Methods of strings, dicts and lists. The tables hold all of Python's, so that `x.name is defined` gives the same answer;
 * those without a function are refused when called. The sandbox in transformers also refuses methods that change a value in
 * place. */
#include <string.h>

#include "text/jinja/value.h"

static enum status starts_at(struct render *render, struct value self, const struct args *args, bool end, struct value *out)
{
    struct value part = {0};
    TRY(args_bind(render, args, end ? "endswith" : "startswith", "prefix", 1, &part));
    struct list one = {.item = &part, .count = 1};
    if (part.kind == VALUE_TUPLE)
        one = *part.list;
    *out = value_bool(false);
    for (int64_t i = 0; i < one.count; i++) {
        if (one.item[i].kind != VALUE_TEXT)
            return render_fail(render, ERR_DATA, "%s needs a string or a tuple of strings, not %s",
                               end ? "endswith" : "startswith", value_type(one.item[i]));
        const struct text *text = self.text, *other = one.item[i].text;
        TRY(render_step(render, 1 + other->size / 256));
        int64_t at = end ? text->size - other->size : 0;
        if (other->size <= text->size && (other->size == 0 || memcmp(text->data + at, other->data, (size_t)other->size) == 0))
            out->boolean = true;
    }
    return OK;
}

static enum status str_startswith(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return starts_at(render, self, args, false, out);
}

static enum status str_endswith(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return starts_at(render, self, args, true, out);
}

static enum status bind_text(struct render *render, const struct args *args, const char *what, struct value *part)
{
    TRY(args_bind(render, args, what, "sub", 1, part));
    if (part->kind != VALUE_TEXT)
        return render_fail(render, ERR_DATA, "%s needs a string, not %s", what, value_type(*part));
    return OK;
}

static enum status find_from_end(struct render *render, const struct text *text, const struct text *part, int64_t *at)
{
    TRY(render_step(render, text->size / 64 * (part->size / 64 + 1)));
    for (*at = text->size - part->size; *at >= 0; --*at)
        if (part->size == 0 || memcmp(text->data + *at, part->data, (size_t)part->size) == 0)
            return OK;
    *at = -1;
    return OK;
}

static enum status find_index(struct render *render, struct value self, const struct args *args, const char *what, bool last,
                              bool must, struct value *out)
{
    struct value part = {0};
    int64_t at;
    TRY(bind_text(render, args, what, &part));
    if (last)
        TRY(find_from_end(render, self.text, part.text, &at));
    else
        TRY(text_find(render, self.text, part.text, 0, &at));
    if (at < 0 && must)
        return render_fail(render, ERR_DATA, "%s: substring not found", what);
    *out = value_int(at < 0 ? -1 : char_count(self.text->data, at));
    return render_step(render, at / CHARS_A_STEP);
}

static enum status str_find(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return find_index(render, self, args, "find", false, false, out);
}

static enum status str_rfind(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return find_index(render, self, args, "rfind", true, false, out);
}

static enum status str_index(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return find_index(render, self, args, "index", false, true, out);
}

static enum status str_count(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value part = {0};
    TRY(bind_text(render, args, "count", &part));
    int64_t count = 0;
    if (part.text->size == 0) {
        TRY(render_step(render, self.text->size / CHARS_A_STEP));
        *out = value_int(char_count(self.text->data, self.text->size) + 1);
        return OK;
    }
    for (int64_t at, from = 0;; from = at + part.text->size, count++) {
        TRY(render_step(render, 1));
        TRY(text_find(render, self.text, part.text, from, &at));
        if (at < 0)
            break;
    }
    *out = value_int(count);
    return OK;
}

static enum status str_partition(struct render *render, struct value self, const struct args *args, bool last, struct value *out)
{
    struct value part = {0};
    int64_t at;
    TRY(bind_text(render, args, "partition", &part));
    const struct text *text = self.text, *sep = part.text;
    if (last)
        TRY(find_from_end(render, text, sep, &at));
    else
        TRY(text_find(render, text, sep, 0, &at));
    TRY(value_list(render, VALUE_TUPLE, 3, out));
    int64_t cut[4] = {0, at, at + sep->size, text->size};
    if (at < 0) {
        cut[1] = last ? 0 : text->size;
        cut[2] = cut[1];
    }
    for (int i = 0; i < 3; i++)
        TRY(text_slice(render, text, cut[i], cut[i + 1], &out->list->item[i]));
    return OK;
}

static enum status str_lpartition(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return str_partition(render, self, args, false, out);
}

static enum status str_rpartition(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return str_partition(render, self, args, true, out);
}

static enum status remove_end(struct render *render, struct value self, const struct args *args, bool end, struct value *out)
{
    struct value part = {0}, has;
    TRY(bind_text(render, args, end ? "removesuffix" : "removeprefix", &part));
    TRY(starts_at(render, self, args, end, &has));
    int64_t cut = has.boolean ? part.text->size : 0, size = self.text->size;
    return text_slice(render, self.text, end ? 0 : cut, end ? size - cut : size, out);
}

static enum status str_removeprefix(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return remove_end(render, self, args, false, out);
}

static enum status str_removesuffix(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return remove_end(render, self, args, true, out);
}

static enum status str_join(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value items = {0};
    struct list list;
    TRY(args_bind(render, args, "join", "iterable", 1, &items));
    TRY(value_items(render, items, &list));
    struct builder *builder;
    TRY(builder_new(render, &builder));
    for (int64_t i = 0; i < list.count; i++) {
        TRY(render_step(render, 1));
        if (list.item[i].kind != VALUE_TEXT)
            return render_fail(render, ERR_DATA, "join: item %lld is a %s, not a string", (long long)i, value_type(list.item[i]));
        if (i)
            TRY(builder_text(builder, self.text));
        TRY(builder_text(builder, list.item[i].text));
    }
    return builder_value(builder, out);
}

static enum status all_of(struct render *render, struct value self, const struct args *args, bool (*is)(int32_t),
                          struct value *out)
{
    TRY(args_bind(render, args, "a test of characters", "", 0, NULL));
    bool all = self.text->size > 0;
    TRY(render_step(render, self.text->size / CHARS_A_STEP));
    for (int64_t at = 0; all && at < self.text->size;) {
        int32_t code;
        at = char_next(self.text->data, self.text->size, at, &code);
        if (code >= 0x80 && is != unicode_space)
            return render_fail(render, ERR_UNSUPPORTED, "tests of characters beyond ASCII");
        all = is(code);
    }
    *out = value_bool(all);
    return OK;
}

static bool ascii_digit(int32_t c)
{
    return c >= '0' && c <= '9';
}
static bool ascii_alpha(int32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static bool ascii_alnum(int32_t c)
{
    return ascii_digit(c) || ascii_alpha(c);
}

static enum status str_isdigit(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return all_of(render, self, args, ascii_digit, out);
}

static enum status str_isalpha(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return all_of(render, self, args, ascii_alpha, out);
}

static enum status str_isalnum(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return all_of(render, self, args, ascii_alnum, out);
}

static enum status str_isspace(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return all_of(render, self, args, unicode_space, out);
}

static enum status dict_get_method(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[2] = {{0}};
    const struct value *found;
    TRY(args_bind(render, args, "get", "key default", 1, v));
    TRY(dict_get(render, self.dict, v[0], &found));
    *out = found ? *found : v[1].kind == VALUE_ABSENT ? value_none() : v[1];
    return OK;
}

enum part { KEYS, VALUES, ITEMS };

static enum status dict_view(struct render *render, struct value self, const struct args *args, enum part part, struct value *out)
{
    static const char *const types[] = {"dict_keys", "dict_values", "dict_items"};
    TRY(args_bind(render, args, types[part], "", 0, NULL));
    const struct dict *dict = self.dict;
    TRY(render_step(render, dict->count / 16));
    TRY(value_list(render, VALUE_VIEW, dict->count, out));
    out->list->type = types[part];
    out->origin = self.origin;
    for (int64_t i = 0; i < dict->count; i++) {
        struct value *item = &out->list->item[i];
        if (part != ITEMS) {
            *item = part == KEYS ? dict->entry[i].key : dict->entry[i].value;
            continue;
        }
        TRY(value_list(render, VALUE_TUPLE, 2, item));
        item->origin = self.origin;
        item->list->item[0] = dict->entry[i].key;
        item->list->item[1] = dict->entry[i].value;
    }
    return OK;
}

static enum status dict_keys(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return dict_view(render, self, args, KEYS, out);
}

static enum status dict_values(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return dict_view(render, self, args, VALUES, out);
}

static enum status dict_items(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return dict_view(render, self, args, ITEMS, out);
}

static enum status copy(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "copy", "", 0, NULL)); /* nothing can be changed, so a copy is the value itself */
    *out = self;
    return OK;
}

static enum status list_index(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value item = {0};
    TRY(args_bind(render, args, "index", "value", 1, &item));
    for (int64_t i = 0; i < self.list->count; i++) {
        bool equal;
        TRY(render_step(render, 1));
        TRY(value_equal(render, self.list->item[i], item, &equal));
        if (equal) {
            *out = value_int(i);
            return OK;
        }
    }
    return render_fail(render, ERR_DATA, "index: the value is not in the list");
}

static enum status list_count(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value item = {0};
    TRY(args_bind(render, args, "count", "value", 1, &item));
    *out = value_int(0);
    for (int64_t i = 0; i < self.list->count; i++) {
        bool equal;
        TRY(render_step(render, 1));
        TRY(value_equal(render, self.list->item[i], item, &equal));
        out->integer += equal;
    }
    return OK;
}

static const struct function text_methods[] = {
    {"capitalize", text_capitalize},
    {"casefold", NULL},
    {"center", NULL},
    {"count", str_count},
    {"encode", NULL},
    {"endswith", str_endswith},
    {"expandtabs", NULL},
    {"find", str_find},
    {"format", format_braces},
    {"format_map", NULL},
    {"index", str_index},
    {"isalnum", str_isalnum},
    {"isalpha", str_isalpha},
    {"isascii", NULL},
    {"isdecimal", str_isdigit},
    {"isdigit", str_isdigit},
    {"isidentifier", NULL},
    {"islower", NULL},
    {"isnumeric", str_isdigit},
    {"isprintable", NULL},
    {"isspace", str_isspace},
    {"istitle", NULL},
    {"isupper", NULL},
    {"join", str_join},
    {"ljust", NULL},
    {"lower", text_lower},
    {"lstrip", text_strip_left},
    {"maketrans", NULL},
    {"partition", str_lpartition},
    {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix},
    {"replace", text_replace},
    {"rfind", str_rfind},
    {"rindex", NULL},
    {"rjust", NULL},
    {"rpartition", str_rpartition},
    {"rsplit", text_rsplit},
    {"rstrip", text_strip_right},
    {"split", text_split},
    {"splitlines", text_splitlines},
    {"startswith", str_startswith},
    {"strip", text_strip_both},
    {"swapcase", NULL},
    {"title", text_title},
    {"translate", NULL},
    {"upper", text_upper},
    {"zfill", NULL},
    {NULL, NULL},
};

static const struct function dict_methods[] = {
    {"clear", NULL},       {"copy", copy},      {"fromkeys", NULL},      {"get", dict_get_method},
    {"items", dict_items}, {"keys", dict_keys}, {"pop", NULL},           {"popitem", NULL},
    {"setdefault", NULL},  {"update", NULL},    {"values", dict_values}, {NULL, NULL},
};

static const struct function list_methods[] = {
    {"append", NULL}, {"clear", NULL}, {"copy", copy},   {"count", list_count}, {"extend", NULL}, {"index", list_index},
    {"insert", NULL}, {"pop", NULL},   {"remove", NULL}, {"reverse", NULL},     {"sort", NULL},   {NULL, NULL},
};

static const struct function tuple_methods[] = {{"count", list_count}, {"index", list_index}, {NULL, NULL}};

static const struct function *find(const struct function *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

void methods_find(const char *name, struct methods *out)
{
    *out = (struct methods){find(text_methods, name), find(dict_methods, name), find(list_methods, name),
                            find(tuple_methods, name), loop_field(name)};
}

const struct function *method_find(struct value self, const char *name)
{
    struct methods methods;
    methods_find(name, &methods);
    return method_of(&methods, self.kind);
}
