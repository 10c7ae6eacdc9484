/* value.name, value[key] and value[a:b:c], with the sandbox's rules: an attribute is looked for among the methods first
 * and then among the items, a subscript the other way round; what is missing is undefined, not an error. */
#include <string.h>

#include "base/number.h"
#include "text/jinja/value.h"

enum status use_of_undefined(struct render *render, struct value self)
{
    return render_fail(render, ERR_DATA, "'%s' is undefined", self.name ? self.name : "value");
}

enum status value_attribute(struct render *render, struct value self, const char *name, struct value *out)
{
    if (self.kind == VALUE_UNDEFINED)
        return use_of_undefined(render, self);
    if (self.kind == VALUE_LOOP)
        return loop_attribute(render, self, loop_field(name), name, out);
    const struct function *function = method_find(self, name);
    if (function)
        return method_bind(render, self, function, out);
    const struct value *found = NULL;
    if (self.kind == VALUE_DICT || self.kind == VALUE_NAMESPACE)
        TRY(dict_find(render, self.dict, name, (int64_t)strlen(name), &found));
    if (!found && name[0] == '_' && name[1] == '_')
        return render_fail(render, ERR_UNSUPPORTED, "the attribute %s is not available to templates", name);
    *out = found ? *found : value_undefined(name);
    return OK;
}

enum status value_item(struct render *render, struct value self, struct value key, struct value *out)
{
    *out = value_undefined("item");
    const struct value *found = NULL;
    bool indexed = self.kind == VALUE_LIST || self.kind == VALUE_TUPLE || self.kind == VALUE_RANGE || self.kind == VALUE_TEXT;
    if (self.kind == VALUE_UNDEFINED)
        return use_of_undefined(render, self);
    if (self.kind == VALUE_DICT && key.kind != VALUE_LIST && key.kind != VALUE_DICT) {
        TRY(dict_get(render, self.dict, key, &found));
    } else if (indexed && (key.kind == VALUE_INT || key.kind == VALUE_BOOL)) {
        int64_t i = key.kind == VALUE_INT ? key.integer : key.boolean, count;
        TRY(value_length(render, self, &count));
        if (i < 0)
            i += count;
        if (i < 0 || i >= count)
            return OK;
        if (self.kind == VALUE_TEXT) {
            const struct text *text = self.text;
            TRY(render_step(render, i / CHARS_A_STEP));
            int64_t at = char_offset(text->data, text->size, i);
            return text_slice(render, text, at, char_next(text->data, text->size, at, NULL), out);
        }
        found = &self.list->item[i];
    }
    if (found) {
        *out = *found;
        return OK;
    }
    if (key.kind != VALUE_TEXT)
        return OK;
    char *name;
    TRY(render_alloc(render, key.text->size + 1, 1, &name));
    memcpy(name, key.text->data, (size_t)key.text->size);
    if (self.kind == VALUE_DICT) {
        const struct function *function = method_find(self, name);
        *out = value_undefined(name);
        return function ? method_bind(render, self, function, out) : OK;
    }
    return value_attribute(render, self, name, out);
}

enum status value_path(struct render *render, struct value self, struct value path, struct value *out)
{
    *out = self;
    if (path.kind != VALUE_TEXT)
        return value_item(render, self, path, out);
    const struct text *text = path.text;
    for (int64_t begin = 0, end; begin <= text->size; begin = end + 1) {
        struct value part;
        bool number = true;
        for (end = begin; end < text->size && text->data[end] != '.'; end++)
            number = number && text->data[end] >= '0' && text->data[end] <= '9';
        TRY(text_slice(render, text, begin, end, &part));
        if (number && end > begin && end - begin < 10) {
            int64_t i = 0;
            for (int64_t at = begin; at < end; at++)
                i = i * 10 + (text->data[at] - '0');
            part = value_int(i);
        }
        TRY(value_item(render, *out, part, out));
    }
    return OK;
}

/* Python's slice.indices(): start and stop brought into range, and the number of items between. */
static enum status slice_range(struct render *render, const struct value part[3], int64_t length, int64_t *start, int64_t *step,
                               int64_t *count)
{
    int64_t number[3] = {0, 0, 1};
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = part[i].kind != VALUE_ABSENT && part[i].kind != VALUE_NONE;
        if (given[i] && part[i].kind != VALUE_INT && part[i].kind != VALUE_BOOL)
            return render_fail(render, ERR_DATA, "slice indices must be integers or None, not %s", value_type(part[i]));
        if (given[i])
            number[i] = part[i].kind == VALUE_INT ? part[i].integer : part[i].boolean;
    }
    *step = number[2];
    if (*step == 0)
        return render_fail(render, ERR_DATA, "slice step cannot be zero");
    if (*step < -INT64_MAX / 4)
        *step = -INT64_MAX / 4;
    if (*step > INT64_MAX / 4)
        *step = INT64_MAX / 4;
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? length - 1 : length;
    for (int i = 0; i < 2; i++) {
        if (!given[i])
            number[i] = (i == 0) == (*step > 0) ? low : high;
        else if (number[i] < 0)
            number[i] = max(number[i] + length, low);
        else if (number[i] > high)
            number[i] = high;
    }
    *start = number[0];
    int64_t span = *step > 0 ? number[1] - number[0] : number[0] - number[1];
    int64_t size = *step > 0 ? *step : -*step;
    *count = span > 0 ? (span - 1) / size + 1 : 0;
    return OK;
}

static enum status slice_text(struct render *render, const struct text *text, const struct value part[3], struct value *out)
{
    int64_t start, step, count, at;
    TRY(slice_range(render, part, char_count(text->data, text->size), &start, &step, &count));
    at = count ? char_offset(text->data, text->size, start) : 0;
    if (step == 1 || count == 0)
        return text_slice(render, text, at, at + char_offset(text->data + at, text->size - at, count), out);
    struct builder *builder;
    TRY(builder_new(render, &builder));
    builder->markup = text->markup;
    for (int64_t i = 0; i < count; i++) {
        TRY(render_step(render, 1));
        TRY(builder_slice(builder, text, at, char_next(text->data, text->size, at, NULL)));
        if (step > 0)
            at += char_offset(text->data + at, text->size - at, step);
        for (int64_t back = step; back < 0 && at > 0; back++)
            at = char_back(text->data, at, NULL);
    }
    return builder_value(builder, out);
}

enum status value_slice(struct render *render, struct value self, const struct value part[3], struct value *out)
{
    switch (self.kind) {
    case VALUE_TEXT:
        TRY(render_step(render, self.text->size / CHARS_A_STEP * 2));
        return slice_text(render, self.text, part, out);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE: {
        int64_t start, step, count;
        TRY(slice_range(render, part, self.list->count, &start, &step, &count));
        TRY(render_step(render, count / 64));
        TRY(value_list(render, self.kind == VALUE_RANGE ? VALUE_LIST : self.kind, count, out));
        for (int64_t i = 0; i < count; i++)
            out->list->item[i] = self.list->item[start + i * step];
        out->origin = self.origin;
        return OK;
    }
    case VALUE_UNDEFINED: return use_of_undefined(render, self);
    default: return render_fail(render, ERR_DATA, "'%s' object is not subscriptable", value_type(self));
    }
}
