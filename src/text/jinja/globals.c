/* The functions that every template knows. */
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "text/jinja/ast.h"

enum { RANGE_MAX = 100000 }; /* jinja2's sandbox has the same */

static enum status global_range(struct render *render, struct value self, const struct args *args, struct value *out)
{
    (void)self;
    struct value v[3] = {{0}};
    int64_t number[3] = {0, 0, 1}, count = 0;
    TRY(args_bind(render, args, "range", "start stop step", 1, v));
    for (int i = 0; i < 3; i++) {
        if (v[i].kind != VALUE_ABSENT && v[i].kind != VALUE_INT && v[i].kind != VALUE_BOOL)
            return render_fail(render, ERR_DATA, "range: '%s' object cannot be interpreted as an integer", value_type(v[i]));
        if (v[i].kind != VALUE_ABSENT)
            number[i] = v[i].kind == VALUE_INT ? v[i].integer : v[i].boolean;
    }
    if (v[1].kind == VALUE_ABSENT) {
        number[1] = number[0];
        number[0] = 0;
    }
    if (number[2] == 0)
        return render_fail(render, ERR_DATA, "range: the step must not be zero");
    if (number[2] > 0 ? number[0] < number[1] : number[0] > number[1]) {
        uint64_t first = (uint64_t)number[0], last = (uint64_t)number[1], step = (uint64_t)number[2];
        uint64_t between = number[2] > 0 ? (last - first - 1) / step : (first - last - 1) / (0 - step);
        if (between >= RANGE_MAX)
            return render_fail(render, ERR_LIMIT, "range: more than %d numbers", RANGE_MAX);
        count = (int64_t)between + 1;
    }
    TRY(value_list(render, VALUE_RANGE, count, out));
    out->list->start = number[0];
    out->list->stop = number[1];
    out->list->step = number[2];
    for (int64_t i = 0; i < count; i++)
        out->list->item[i] = value_int((int64_t)((uint64_t)number[0] + (uint64_t)i * (uint64_t)number[2]));
    return OK;
}

static enum status make_dict(struct render *render, const struct args *args, enum value_kind kind, struct value *out)
{
    TRY(value_dict(render, kind, out));
    if (args->count > 1)
        return render_fail(render, ERR_DATA, "dict and namespace take at most one argument without a name");
    if (args->count && args->item[0].kind == VALUE_DICT) {
        const struct dict *from = args->item[0].dict;
        for (int64_t i = 0; i < from->count; i++)
            TRY(dict_set(render, out->dict, from->entry[i].key, from->entry[i].value));
    } else if (args->count) {
        struct list items, pair;
        TRY(value_items(render, args->item[0], &items));
        for (int64_t i = 0; i < items.count; i++) {
            TRY(value_items(render, items.item[i], &pair));
            if (pair.count != 2)
                return render_fail(render, ERR_DATA, "dict: item %lld is not a pair", (long long)i);
            TRY(dict_set(render, out->dict, pair.item[0], pair.item[1]));
        }
    }
    for (int64_t i = 0; i < args->keyword_count; i++) {
        const struct keyword *keyword = &args->keyword[i];
        struct value key = {.kind = VALUE_TEXT, .origin = NO_MESSAGE, .text = keyword->key};
        if (!keyword->key)
            TRY(value_text(render, keyword->name, (int64_t)strlen(keyword->name), NO_MESSAGE, &key));
        TRY(dict_set(render, out->dict, key, keyword->value));
    }
    return OK;
}

static enum status global_dict(struct render *render, struct value self, const struct args *args, struct value *out)
{
    (void)self;
    return make_dict(render, args, VALUE_DICT, out);
}

static enum status global_namespace(struct render *render, struct value self, const struct args *args, struct value *out)
{
    (void)self;
    TRY(make_dict(render, args, VALUE_NAMESPACE, out));
    for (int64_t i = 0; i < out->dict->count; i++) {
        struct value key = out->dict->entry[i].key;
        if (key.kind == VALUE_TEXT && key.text->size && key.text->data[0] == '_')
            return render_fail(render, ERR_DATA, "a namespace cannot store names that begin with an underscore");
    }
    return OK;
}

static enum status global_raise(struct render *render, struct value self, const struct args *args, struct value *out)
{
    (void)self;
    (void)out;
    struct value message = {0};
    TRY(args_bind(render, args, "raise_exception", "message", 1, &message));
    TRY(value_string(render, message, &message));
    return render_fail(render, ERR_DATA, "the template refuses: %.*s", (int)min(message.text->size, 400), message.text->data);
}

static enum status global_strftime(struct render *render, struct value self, const struct args *args, struct value *out)
{
    (void)self;
    struct value format = {0};
    TRY(args_bind(render, args, "strftime_now", "format", 1, &format));
    char pattern[256], text[512];
    if (format.kind != VALUE_TEXT || format.text->size >= (int64_t)sizeof pattern)
        return render_fail(render, ERR_DATA, "strftime_now needs a short string");
    TRY(render_step(render, 16 + 8 * format.text->size)); /* a field may take a microsecond */
    memcpy(pattern, format.text->data, (size_t)format.text->size);
    pattern[format.text->size] = 0;
    int64_t n = clock_text(render->jinja->moment, text, sizeof text, pattern);
    char *copy;
    TRY(render_alloc(render, n + 1, 1, &copy));
    memcpy(copy, text, (size_t)n);
    return value_text(render, copy, n, NO_MESSAGE, out);
}

const struct function *global_find(const char *name)
{
    static const struct function functions[] = {
        {"range", global_range},
        {"dict", global_dict},
        {"namespace", global_namespace},
        {"raise_exception", global_raise},
        {"strftime_now", global_strftime},
        {"cycler", NULL},
        {"joiner", NULL},
        {"lipsum", NULL},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}
