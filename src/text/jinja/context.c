/* A template's variables from JSON. Everything inside a message carries the message's number, except the role and the keys
 * that the format names; lists and objects of other variables, such as tools, are marked as data.
 *
 * Templates see messages as transformers shows them, with reasoning under the names that templates look for. The key "train" is
 * hone's own and is not shown. */
#include <ctype.h>
#include <string.h>

#include "text/jinja/ast.h"

static enum status context_convert(struct render *render, const json_t *json, int32_t origin, struct value *out);

static enum status convert_list(struct render *render, const json_t *json, int32_t origin, struct value *out)
{
    size_t i;
    const json_t *item;
    TRY(value_list(render, VALUE_LIST, (int64_t)json_array_size(json), out));
    json_array_foreach(json, i, item) TRY(context_convert(render, item, origin, &out->list->item[i]));
    return OK;
}

/* An object with room for `more` members. */
static enum status new_dict(struct render *render, const json_t *json, int64_t more, struct value *out)
{
    TRY(value_dict(render, VALUE_DICT, out));
    out->dict->capacity = (int64_t)json_object_size(json) + more;
    return render_alloc(render, out->dict->capacity, (int64_t)sizeof *out->dict->entry, &out->dict->entry);
}

static enum status add_member(struct render *render, struct dict *dict, const char *name, int32_t key_origin, const json_t *json,
                              int32_t origin)
{
    struct entry *entry = &dict->entry[dict->count++];
    TRY(value_text(render, name, (int64_t)strlen(name), key_origin, &entry->key));
    return context_convert(render, json, origin, &entry->value);
}

static enum status convert_object(struct render *render, const json_t *json, int32_t origin, struct value *out)
{
    const char *name;
    json_t *item;
    TRY(new_dict(render, json, 0, out));
    json_object_foreach((json_t *)(uintptr_t)json, name, item) TRY(add_member(render, out->dict, name, origin, item, origin));
    return OK;
}

static enum status context_convert(struct render *render, const json_t *json, int32_t origin, struct value *out)
{
    TRY(render_enter(render));
    switch (json_typeof(json)) {
    case JSON_NULL: *out = value_none(); break;
    case JSON_TRUE:
    case JSON_FALSE: *out = value_bool(json_is_true(json)); break;
    case JSON_INTEGER: *out = value_int(json_integer_value(json)); break;
    case JSON_REAL: *out = value_float(json_real_value(json)); break;
    case JSON_STRING: TRY(value_given(render, json_string_value(json), (int64_t)json_string_length(json), origin, out)); break;
    case JSON_ARRAY: TRY(convert_list(render, json, origin, out)); break;
    case JSON_OBJECT: TRY(convert_object(render, json, origin, out)); break;
    }
    out->origin = origin;
    render_leave(render);
    return OK;
}

static bool context_same(const char *a, const char *b)
{
    return a[0] == b[0] && a[1] == b[1] && strcmp(a, b) == 0; /* the names here have at least two letters */
}

int32_t context_key_origin(const char *key, int64_t size, int32_t message)
{
    static const char *const names[] = {"role",      "content",           "name",         "tool_calls", "thinking",
                                        "reasoning", "reasoning_content", "tool_call_id", "refusal"};
    for (size_t i = 0; size && i < sizeof names / sizeof *names; i++)
        if (names[i][0] == key[0] && (int64_t)strlen(names[i]) == size && memcmp(names[i], key, (size_t)size) == 0)
            return NO_MESSAGE;
    return message;
}

int32_t context_role_origin(const char *role, int64_t size, int32_t message)
{
    for (int64_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)role[i]) && !strchr("_- ", role[i]))
            return message;
    return NO_MESSAGE;
}

/* A message's reasoning has three names; templates get it under the first two, the older one first. */
static const json_t *reasoning_of(const json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const json_t *found[3] = {NULL, NULL, NULL};
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)message, name,
                        item) for (int i = 0; i < 3; i++) if (context_same(name, names[i]) && !json_is_null(item)) found[i] =
        item;
    return found[0] ? found[0] : found[1] ? found[1] : found[2];
}

static enum status convert_message(struct render *render, const json_t *json, int32_t origin, struct value *out)
{
    if (!json_is_object(json))
        return context_convert(render, json, origin, out);
    const char *name;
    json_t *item;
    const json_t *reasoning = reasoning_of(json), *older = reasoning ? json_object_get(json, "thinking") : NULL;
    bool newer = false;
    TRY(render_step(render, 1));
    TRY(new_dict(render, json, 2, out));
    if (reasoning)
        TRY(add_member(render, out->dict, "thinking", NO_MESSAGE, older ? older : reasoning, origin));
    json_object_foreach((json_t *)(uintptr_t)json, name, item)
    {
        if (context_same(name, "train") || context_same(name, "weight") || (reasoning && context_same(name, "thinking")))
            continue;
        bool thought = reasoning && context_same(name, "reasoning_content");
        newer |= thought;
        int32_t key = context_key_origin(name, (int64_t)strlen(name), origin), value = origin;
        if (context_same(name, "role") && json_is_string(item))
            value = context_role_origin(json_string_value(item), (int64_t)json_string_length(item), origin);
        TRY(add_member(render, out->dict, name, key, thought ? reasoning : item, value));
    }
    if (reasoning && !newer)
        TRY(add_member(render, out->dict, "reasoning_content", NO_MESSAGE, reasoning, origin));
    out->dict->message = true;
    out->origin = origin;
    return OK;
}

enum status context_set(struct render *render, int64_t number, const json_t *json)
{
    if (number < 0)
        return OK; /* the template never asks for it */
    struct value *value = &render->global[number];
    if (number != render->jinja->messages || !json_is_array(json))
        return context_convert(render, json, json_is_array(json) || json_is_object(json) ? OTHER_DATA : NO_MESSAGE, value);
    TRY(value_list(render, VALUE_LIST, (int64_t)json_array_size(json), value));
    for (int64_t i = 0; i < value->list->count; i++)
        TRY(convert_message(render, json_array_get(json, (size_t)i), (int32_t)i, &value->list->item[i]));
    return OK;
}
