/* Filters and tests by name: the tables of both, and those that take a name themselves and look it up there. */
#include "text/jinja/registry.h"

#include <string.h>

/* The name of a filter or test as a zero-ended string. */
static enum status registry_name_of(struct render *render, struct value value, char *name, int64_t size)
{
    if (value.kind != VALUE_TEXT || value.text->size >= size)
        return render_fail(render, ERR_DATA, "the name of a filter or test is expected");
    memcpy(name, value.text->data, (size_t)value.text->size);
    name[value.text->size] = 0;
    return OK;
}

static struct args after(const struct args *args, int64_t skip)
{
    struct args rest = *args;
    rest.item += skip;
    rest.count -= skip;
    return rest;
}

/* These filters take anything false, even none, as an empty list. */
static enum status items_if_true(struct render *render, struct value self, struct list *out)
{
    *out = (struct list){0};
    return value_true(self) ? value_items(render, self, out) : OK;
}

/* Filters of a list that use a filter or a test, given by name, on every item. They give generators. */
static enum status filter_map(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct list list;
    struct value v[2] = {{0}};
    char name[64] = "";
    if (args->count)
        TRY(registry_name_of(render, args->item[0], name, (int64_t)sizeof name));
    else
        TRY(args_bind(render, args, "map", "attribute default", 1, v));
    const struct function *filter = filter_find(name);
    TRY(items_if_true(render, self, &list));
    TRY(value_list(render, VALUE_GENERATOR, list.count, out));
    for (int64_t i = 0; i < list.count; i++) {
        struct args rest = args->count ? after(args, 1) : *args;
        struct value *item = &out->list->item[i];
        TRY(render_step(render, 1));
        if (args->count)
            TRY(filter_call(render, filter, name, list.item[i], &rest, item));
        else
            TRY(value_path(render, list.item[i], v[0], item));
        if (item->kind == VALUE_UNDEFINED && v[1].kind != VALUE_ABSENT && v[1].kind != VALUE_NONE)
            *item = v[1];
    }
    return OK;
}

static enum status pick(struct render *render, struct value self, const struct args *args, bool keep, bool attribute,
                        struct value *out)
{
    struct list list;
    char name[64] = "";
    if (args->count < attribute)
        return render_fail(render, ERR_DATA, "the name of an attribute is missing");
    bool tested = args->count > attribute;
    if (tested)
        TRY(registry_name_of(render, args->item[attribute], name, (int64_t)sizeof name));
    const struct function *test = test_find(name);
    TRY(items_if_true(render, self, &list));
    TRY(value_list(render, VALUE_GENERATOR, list.count, out));
    out->list->count = 0;
    for (int64_t i = 0; i < list.count; i++) {
        struct value item = list.item[i];
        TRY(render_step(render, 1));
        if (attribute)
            TRY(value_path(render, item, args->item[0], &item));
        bool holds = value_true(item);
        if (tested) {
            struct args rest = after(args, attribute + 1);
            TRY(test_call(render, test, name, item, &rest, &holds));
        }
        if (holds == keep)
            out->list->item[out->list->count++] = list.item[i];
    }
    return OK;
}

static enum status filter_select(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return pick(render, self, args, true, false, out);
}

static enum status filter_reject(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return pick(render, self, args, false, false, out);
}

static enum status filter_selectattr(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return pick(render, self, args, true, true, out);
}

static enum status filter_rejectattr(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return pick(render, self, args, false, true, out);
}

static enum status filter_attr(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value value = {0};
    char *name;
    TRY(args_bind(render, args, "attr", "name", 1, &value));
    TRY(render_alloc(render, 64, 1, &name)); /* an undefined value keeps it */
    TRY(registry_name_of(render, value, name, 64));
    if (self.kind == VALUE_DICT && !method_find(self, name)) {
        *out = value_undefined("attr"); /* items of a dict are not attributes */
        return OK;
    }
    return value_attribute(render, self, name, out);
}

static enum status test_filter(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "filter", "", 0, NULL));
    char name[64];
    *out = value_bool(false);
    if (self.kind == VALUE_TEXT && self.text->size < (int64_t)sizeof name) {
        memcpy(name, self.text->data, (size_t)self.text->size);
        name[self.text->size] = 0;
        out->boolean = filter_find(name) != NULL;
    }
    return OK;
}

const struct function *filter_find(const char *name)
{
    static const struct function filters[] = {
        {"abs", filter_abs},
        {"attr", filter_attr},
        {"batch", NULL},
        {"capitalize", text_capitalize},
        {"center", NULL},
        {"count", filter_length},
        {"d", filter_default},
        {"default", filter_default},
        {"dictsort", filter_dictsort},
        {"e", filter_escape},
        {"escape", filter_escape},
        {"first", filter_first},
        {"float", filter_float},
        {"format", filter_format},
        {"groupby", NULL},
        {"indent", filter_indent},
        {"int", filter_int},
        {"items", filter_items},
        {"join", filter_join},
        {"last", filter_last},
        {"length", filter_length},
        {"list", filter_list},
        {"lower", text_lower},
        {"map", filter_map},
        {"max", filter_max},
        {"min", filter_min},
        {"reject", filter_reject},
        {"rejectattr", filter_rejectattr},
        {"replace", text_replace},
        {"reverse", filter_reverse},
        {"round", filter_round},
        {"safe", filter_safe},
        {"select", filter_select},
        {"selectattr", filter_selectattr},
        {"sort", filter_sort},
        {"string", filter_string},
        {"sum", filter_sum},
        {"title", text_title_words},
        {"tojson", filter_tojson},
        {"trim", text_strip_both},
        {"truncate", NULL},
        {"unique", filter_unique},
        {"upper", text_upper},
        {"wordcount", filter_wordcount},
    };
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strcmp(filters[i].name, name) == 0)
            return &filters[i];
    return NULL;
}

enum status filter_call(struct render *render, const struct function *filter, const char *name, struct value self,
                        const struct args *args, struct value *out)
{
    if (!filter || !filter->call)
        return render_fail(render, ERR_UNSUPPORTED, "the filter '%.100s' is not supported", name);
    return filter->call(render, self, args, out);
}

const struct function *test_find(const char *name)
{
    static const struct function tests[] = {
        {"defined", test_defined},
        {"undefined", test_undefined},
        {"none", test_none},
        {"boolean", test_boolean},
        {"true", test_is_true},
        {"false", test_is_false},
        {"integer", test_integer},
        {"float", test_is_float},
        {"number", test_number},
        {"string", test_string},
        {"mapping", test_mapping},
        {"sequence", test_sequence},
        {"iterable", test_iterable},
        {"callable", test_is_callable},
        {"escaped", test_escaped},
        {"odd", test_odd},
        {"even", test_even},
        {"divisibleby", test_divisibleby},
        {"lower", test_lower},
        {"upper", test_upper},
        {"in", test_in},
        {"sameas", test_sameas},
        {"filter", test_filter},
        {"test", NULL},
        {"eq", test_equal},
        {"==", test_equal},
        {"equalto", test_equal},
        {"ne", test_not_equal},
        {"!=", test_not_equal},
        {"lt", test_less},
        {"<", test_less},
        {"lessthan", test_less},
        {"le", test_less_equal},
        {"<=", test_less_equal},
        {"gt", test_greater},
        {">", test_greater},
        {"greaterthan", test_greater},
        {"ge", test_greater_equal},
        {">=", test_greater_equal},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, name) == 0)
            return &tests[i];
    return NULL;
}

enum status test_call(struct render *render, const struct function *test, const char *name, struct value self,
                      const struct args *args, bool *out)
{
    struct value result;
    if (!test || !test->call)
        return render_fail(render, ERR_UNSUPPORTED, "the test '%.100s' is not supported", name);
    TRY(test->call(render, self, args, &result));
    *out = value_true(result);
    return OK;
}
