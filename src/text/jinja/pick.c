/* map, select, reject and similar filters: a filter or a test, given by name, on every item of a list. They give generators. */
#include "text/jinja/pick.h"

#include <string.h>

/* The name of a filter or test as a zero-ended string. */
static enum status name_of(struct render *render, struct value value, char *name, int64_t size)
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

enum status filter_map(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct list list;
    struct value v[2] = {{0}};
    char name[64] = "";
    if (args->count)
        TRY(name_of(render, args->item[0], name, (int64_t)sizeof name));
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
        TRY(name_of(render, args->item[attribute], name, (int64_t)sizeof name));
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

enum status filter_select(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return pick(render, self, args, true, false, out);
}

enum status filter_reject(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return pick(render, self, args, false, false, out);
}

enum status filter_selectattr(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return pick(render, self, args, true, true, out);
}

enum status filter_rejectattr(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return pick(render, self, args, false, true, out);
}

enum status filter_attr(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value value = {0};
    char *name;
    TRY(args_bind(render, args, "attr", "name", 1, &value));
    TRY(render_alloc(render, 64, 1, &name)); /* an undefined value keeps it */
    TRY(name_of(render, value, name, 64));
    if (self.kind == VALUE_DICT && !method_find(self, name)) {
        *out = value_undefined("attr"); /* items of a dict are not attributes */
        return OK;
    }
    return value_attribute(render, self, name, out);
}

enum status filter_sum(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct list list;
    struct value v[2] = {{0}};
    TRY(args_bind(render, args, "sum", "attribute start", 0, v));
    TRY(value_items(render, self, &list));
    *out = v[1].kind == VALUE_ABSENT ? value_int(0) : v[1];
    for (int64_t i = 0; i < list.count; i++) {
        struct value item = list.item[i];
        TRY(render_step(render, 1));
        if (v[0].kind != VALUE_ABSENT && v[0].kind != VALUE_NONE)
            TRY(value_path(render, item, v[0], &item));
        TRY(value_add(render, *out, item, out));
    }
    return OK;
}
