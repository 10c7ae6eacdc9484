/* "%s" % values and "{}".format(values): the parts of Python's two formats that templates use. The rest is refused. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "text/jinja/value.h"

static enum status format_unknown(struct render *render, const struct text *text, int64_t at)
{
    int64_t end = min(text->size, at + 12);
    return render_fail(render, ERR_UNSUPPORTED, "the format '%.*s'", (int)(end - at), text->data + at);
}

struct layout {
    bool left, zero;
    int width, precision; /* precision -1: not given */
};

static enum status format_pad(struct builder *builder, int64_t count, const char *with)
{
    for (; count > 0; count--)
        TRY(builder_bytes(builder, with, 1, NO_MESSAGE));
    return OK;
}

static enum status put_padded(struct builder *builder, const struct layout *layout, const struct text *text, bool number)
{
    int64_t size = text->size;
    if (!number && layout->precision >= 0)
        size = char_offset(text->data, text->size, layout->precision);
    int64_t space = layout->width - char_count(text->data, size), sign = 0;
    if (number && layout->zero && !layout->left) {
        sign = size > 0 && text->data[0] == '-';
        TRY(builder_slice(builder, text, 0, sign));
        TRY(format_pad(builder, space, "0"));
    } else if (!layout->left) {
        TRY(format_pad(builder, space, " "));
    }
    TRY(builder_slice(builder, text, sign, size));
    return layout->left ? format_pad(builder, space, " ") : OK;
}

static enum status format_convert(struct builder *builder, const struct layout *layout, char type, struct value value)
{
    struct render *render = builder->render;
    struct builder *own;
    struct value made;
    char text[512]; /* a real number has up to 309 digits before its point, and 98 after it */
    TRY(builder_new(render, &own));
    if (type == 's') {
        TRY(print_value(own, value));
    } else if (type == 'r') {
        TRY(print_repr(own, value));
    } else {
        if (!value_is_number(value))
            return render_fail(render, ERR_DATA, "%%%c format: a real number is required, not %s", type, value_type(value));
        double real = value_real(value);
        int64_t whole = value.kind == VALUE_FLOAT ? 0 : value.kind == VALUE_BOOL ? value.boolean : value.integer;
        if (value.kind == VALUE_FLOAT && type != 'f') {
            if (!(real > -9e18 && real < 9e18))
                return render_fail(render, ERR_DATA, "%%%c format: the number is too large", type);
            whole = (int64_t)real;
        }
        if (type == 'f')
            snprintf(text, sizeof text, "%.*f", layout->precision < 0 ? 6 : layout->precision, real);
        else if (type == 'd')
            snprintf(text, sizeof text, "%lld", (long long)whole);
        else
            snprintf(text, sizeof text, type == 'x' ? "%s%llx" : "%s%llX", whole < 0 ? "-" : "",
                     (unsigned long long)(whole < 0 ? -(uint64_t)whole : (uint64_t)whole));
        TRY(builder_bytes(own, text, (int64_t)strlen(text), value.origin));
    }
    TRY(builder_value(own, &made));
    return put_padded(builder, layout, made.text, type != 's' && type != 'r');
}

static int number_at(const struct text *text, int64_t *at)
{
    int number = 0;
    for (; *at < text->size && text->data[*at] >= '0' && text->data[*at] <= '9'; ++*at)
        number = number > 90 ? 99 : number * 10 + (text->data[*at] - '0');
    return number;
}

enum status format_percent(struct render *render, const struct text *format, struct value values, struct value *out)
{
    struct list list = {.item = &values, .count = 1};
    int64_t used = 0;
    struct builder *builder;
    if (values.kind == VALUE_TUPLE)
        list = *values.list;
    TRY(render_step(render, format->size / CHARS_A_STEP));
    TRY(builder_new(render, &builder));
    for (int64_t at = 0; at < format->size;) {
        int64_t begin = at;
        while (at < format->size && format->data[at] != '%')
            at++;
        TRY(builder_slice(builder, format, begin, at));
        if (at == format->size)
            break;
        begin = at++;
        struct layout layout = {.precision = -1};
        struct value value = values;
        if (at < format->size && format->data[at] == '(' && values.kind == VALUE_DICT) {
            int64_t name = ++at;
            struct value key;
            const struct value *found;
            while (at < format->size && format->data[at] != ')')
                at++;
            TRY(text_slice(render, format, name, at, &key));
            TRY(dict_get(render, values.dict, key, &found));
            if (!found || at++ == format->size)
                return render_fail(render, ERR_DATA, "the format names a missing key");
            value = *found;
            list.count = used = 0;
        }
        for (; at < format->size && (format->data[at] == '-' || format->data[at] == '0'); at++)
            *(format->data[at] == '-' ? &layout.left : &layout.zero) = true;
        layout.width = number_at(format, &at);
        if (at < format->size && format->data[at] == '.') {
            at++;
            layout.precision = number_at(format, &at);
        }
        char type = at < format->size ? format->data[at++] : 0;
        if (type == '%') {
            TRY(builder_bytes(builder, "%", 1, NO_MESSAGE));
            continue;
        }
        if (type == 'i')
            type = 'd';
        if (!type || !strchr("sdrfxX", type) || layout.width >= 99 || layout.precision >= 99)
            return format_unknown(render, format, begin);
        if (format->data[begin + 1] != '(') {
            if (used == list.count)
                return render_fail(render, ERR_DATA, "not enough arguments for format string");
            value = list.item[used++];
        }
        TRY(format_convert(builder, &layout, type, value));
    }
    if (used < list.count && values.kind != VALUE_DICT)
        return render_fail(render, ERR_DATA, "not all arguments converted during string formatting");
    return builder_value(builder, out);
}

static enum status field(struct render *render, const struct text *format, int64_t begin, int64_t end, const struct args *args,
                         int64_t *next, struct value *out)
{
    int64_t at = begin;
    if (begin == end) {
        if (*next >= args->count)
            return render_fail(render, ERR_DATA, "format: a replacement field without an argument");
        *out = args->item[(*next)++];
        return OK;
    }
    int number = number_at(format, &at);
    if (at == end && number < 99) {
        if (number >= args->count)
            return render_fail(render, ERR_DATA, "format: a replacement field without an argument");
        *out = args->item[number];
        return OK;
    }
    size_t size = (size_t)(end - begin);
    TRY(render_step(render, 1 + args->keyword_count * (1 + (end - begin) / 256) / ITEMS_A_STEP));
    for (int64_t k = 0; k < args->keyword_count; k++) {
        const char *name = args->keyword[k].name;
        if (strnlen(name, size + 1) == size && memcmp(name, format->data + begin, size) == 0) {
            *out = args->keyword[k].value;
            return OK;
        }
    }
    return format_unknown(render, format, begin - 1);
}

enum status format_braces(struct render *render, struct value self, const struct args *args, struct value *out)
{
    const struct text *format = self.text;
    struct builder *builder;
    int64_t next = 0;
    TRY(render_step(render, format->size / CHARS_A_STEP));
    TRY(builder_new(render, &builder));
    for (int64_t at = 0; at < format->size;) {
        int64_t begin = at;
        while (at < format->size && format->data[at] != '{' && format->data[at] != '}')
            at++;
        TRY(builder_slice(builder, format, begin, at));
        if (at == format->size)
            break;
        if (at + 1 < format->size && format->data[at + 1] == format->data[at]) {
            TRY(builder_slice(builder, format, at, at + 1));
            at += 2;
            continue;
        }
        if (format->data[at] == '}')
            return render_fail(render, ERR_DATA, "format: a single '}' in the string");
        begin = ++at;
        while (at < format->size && format->data[at] != '}')
            at++;
        if (at == format->size)
            return render_fail(render, ERR_DATA, "format: a '{' without '}'");
        struct value value;
        TRY(field(render, format, begin, at, args, &next, &value));
        TRY(print_value(builder, value));
        at++;
    }
    return builder_value(builder, out);
}
