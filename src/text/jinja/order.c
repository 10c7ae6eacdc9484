/* Filters that order: sort, dictsort, unique, min and max. */
#include "text/jinja/value.h"

/* Text keys are compared in lower case unless exact, as all of jinja2's filters do. */
static enum status fold(struct render *render, struct value *key, bool exact)
{
    static const struct args none = {0};
    return exact || key->kind != VALUE_TEXT ? OK : text_lower(render, *key, &none, key);
}

static enum status sort_folded(struct render *render, struct list *values, struct list *keys, bool exact, bool reverse)
{
    for (int64_t i = 0; i < keys->count; i++)
        TRY(fold(render, &keys->item[i], exact));
    return sort_values(render, values->item, keys->item, keys->count, reverse);
}

/* The items of a value and, for each, what it is ordered by. */
static enum status order_keys_of(struct render *render, struct value self, struct value attribute, struct value *items,
                                 struct value *keys)
{
    struct list list;
    TRY(value_items(render, self, &list));
    TRY(value_list(render, VALUE_LIST, list.count, items));
    TRY(value_list(render, VALUE_LIST, list.count, keys));
    for (int64_t i = 0; i < list.count; i++) {
        items->list->item[i] = keys->list->item[i] = list.item[i];
        if (attribute.kind != VALUE_ABSENT && attribute.kind != VALUE_NONE)
            TRY(value_path(render, list.item[i], attribute, &keys->list->item[i]));
    }
    items->origin = self.origin;
    return OK;
}

enum status filter_sort(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[3] = {{0}}, keys;
    TRY(args_bind(render, args, "sort", "reverse case_sensitive attribute", 0, v));
    TRY(order_keys_of(render, self, v[2], out, &keys));
    return sort_folded(render, out->list, keys.list, value_true(v[1]), value_true(v[0]));
}

enum status filter_dictsort(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[3] = {{0}}, keys;
    TRY(args_bind(render, args, "dictsort", "case_sensitive by reverse", 0, v));
    if (self.kind != VALUE_DICT)
        return render_fail(render, ERR_DATA, "dictsort needs a dict, not %s", value_type(self));
    bool by_value = v[1].kind != VALUE_ABSENT && value_is(v[1], "value");
    TRY(value_list(render, VALUE_LIST, self.dict->count, out));
    TRY(value_list(render, VALUE_LIST, self.dict->count, &keys));
    out->origin = self.origin;
    for (int64_t i = 0; i < self.dict->count; i++) {
        struct value *pair = &out->list->item[i];
        TRY(value_list(render, VALUE_TUPLE, 2, pair));
        pair->origin = self.origin;
        pair->list->item[0] = self.dict->entry[i].key;
        pair->list->item[1] = self.dict->entry[i].value;
        keys.list->item[i] = pair->list->item[by_value];
    }
    return sort_folded(render, out->list, keys.list, value_true(v[0]), value_true(v[2]));
}

enum status filter_unique(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[2] = {{0}}, keys;
    TRY(args_bind(render, args, "unique", "case_sensitive attribute", 0, v));
    TRY(order_keys_of(render, self, v[1], out, &keys));
    int64_t count = 0;
    struct list *list = out->list;
    for (int64_t i = 0; i < list->count; i++) {
        bool seen = false;
        struct value key = keys.list->item[i];
        TRY(fold(render, &key, value_true(v[0])));
        for (int64_t j = 0; j < count && !seen; j++) {
            TRY(render_step(render, 1));
            TRY(value_equal(render, keys.list->item[j], key, &seen));
        }
        if (seen)
            continue;
        keys.list->item[count] = key;
        list->item[count++] = list->item[i];
    }
    list->count = count;
    out->kind = VALUE_GENERATOR;
    return OK;
}

static enum status order_extreme(struct render *render, struct value self, const struct args *args, int sign, struct value *out)
{
    struct value v[2] = {{0}}, items, keys;
    TRY(args_bind(render, args, sign < 0 ? "min" : "max", "case_sensitive attribute", 0, v));
    TRY(order_keys_of(render, self, v[1], &items, &keys));
    *out = value_undefined("No aggregated item, sequence was empty.");
    int64_t best = -1;
    for (int64_t i = 0; i < keys.list->count; i++) {
        int order = sign;
        TRY(fold(render, &keys.list->item[i], value_true(v[0])));
        if (best >= 0)
            TRY(value_compare(render, keys.list->item[i], keys.list->item[best], &order));
        if (order * sign > 0)
            best = i;
    }
    if (best >= 0)
        *out = items.list->item[best];
    return OK;
}

enum status filter_min(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return order_extreme(render, self, args, -1, out);
}

enum status filter_max(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return order_extreme(render, self, args, 1, out);
}
