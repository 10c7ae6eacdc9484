/* Filters on single values and whole lists. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "text/jinja/registry.h"

enum status filter_length(struct render *render, struct value self, const struct args *args, struct value *out)
{
    int64_t count;
    TRY(args_bind(render, args, "length", "", 0, NULL));
    TRY(value_length(render, self, &count));
    *out = value_int(count);
    return OK;
}

enum status filter_default(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[2] = {{0}};
    TRY(args_bind(render, args, "default", "default_value boolean", 0, v));
    bool use = self.kind == VALUE_UNDEFINED || (value_true(v[1]) && !value_true(self));
    *out = self;
    if (use && v[0].kind != VALUE_ABSENT)
        *out = v[0];
    else if (use)
        return value_text(render, "", 0, NO_MESSAGE, out);
    return OK;
}

enum status filter_string(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "string", "", 0, NULL));
    return value_string(render, self, out);
}

enum status filter_safe(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "safe", "", 0, NULL));
    TRY(value_string(render, self, &self));
    TRY(text_slice(render, self.text, 0, self.text->size, out));
    struct text *text;
    TRY(render_alloc(render, 1, (int64_t)sizeof *text, &text));
    *text = *out->text;
    text->markup = true;
    out->text = text;
    return OK;
}

enum status filter_escape(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct builder *builder;
    TRY(args_bind(render, args, "escape", "", 0, NULL));
    TRY(value_string(render, self, &self));
    TRY(builder_new(render, &builder));
    builder->markup = true;
    TRY(builder_escaped(builder, self.text));
    return builder_value(builder, out);
}

enum status filter_tojson(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[4] = {{0}};
    struct json_style style = {0};
    struct builder *builder;
    TRY(args_bind(render, args, "tojson", "ensure_ascii indent separators sort_keys", 0, v));
    style.ascii = value_true(v[0]);
    style.sort = value_true(v[3]);
    if (v[1].kind == VALUE_TEXT) {
        style.indent = v[1].text;
    } else if (v[1].kind == VALUE_INT || v[1].kind == VALUE_BOOL) {
        static const char spaces[] = "                                                                ";
        int64_t width = v[1].kind == VALUE_INT ? v[1].integer : v[1].boolean;
        if (width >= (int64_t)sizeof spaces)
            return render_fail(render, ERR_UNSUPPORTED, "tojson with an indent of %lld", (long long)width);
        struct value indent;
        TRY(value_text(render, spaces, max(width, 0), NO_MESSAGE, &indent));
        style.indent = indent.text;
    }
    if (v[2].kind == VALUE_TUPLE || v[2].kind == VALUE_LIST) {
        if (v[2].list->count != 2 || v[2].list->item[0].kind != VALUE_TEXT || v[2].list->item[1].kind != VALUE_TEXT)
            return render_fail(render, ERR_DATA, "tojson: the separators must be two strings");
        style.comma = v[2].list->item[0].text;
        style.colon = v[2].list->item[1].text;
    }
    TRY(builder_new(render, &builder));
    TRY(print_json(builder, self, &style, 0));
    return builder_value(builder, out);
}

enum status filter_join(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[2] = {{0}};
    struct list list;
    struct builder *builder;
    TRY(args_bind(render, args, "join", "d attribute", 0, v));
    TRY(value_items(render, self, &list));
    TRY(builder_new(render, &builder));
    for (int64_t i = 0; i < list.count; i++) {
        struct value item = list.item[i];
        TRY(render_step(render, 1));
        if (v[1].kind != VALUE_ABSENT && v[1].kind != VALUE_NONE)
            TRY(value_path(render, item, v[1], &item));
        if (i && v[0].kind != VALUE_ABSENT)
            TRY(print_value(builder, v[0]));
        TRY(print_value(builder, item));
    }
    return builder_value(builder, out);
}

enum status filter_first(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct list list;
    TRY(args_bind(render, args, "first", "", 0, NULL));
    *out = value_undefined("No first item, sequence was empty.");
    if (self.kind == VALUE_GENERATOR) {
        if (self.list->next < self.list->count)
            *out = self.list->item[self.list->next++];
        return OK;
    }
    TRY(value_items(render, self, &list));
    if (list.count)
        *out = list.item[0];
    return OK;
}

enum status filter_last(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct list list;
    TRY(args_bind(render, args, "last", "", 0, NULL));
    if (self.kind == VALUE_GENERATOR)
        return render_fail(render, ERR_DATA, "last: 'generator' object is not reversible");
    TRY(value_items(render, self, &list));
    *out = list.count ? list.item[list.count - 1] : value_undefined("No last item, sequence was empty.");
    return OK;
}

enum status filter_list(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct list list;
    TRY(args_bind(render, args, "list", "", 0, NULL));
    TRY(value_items(render, self, &list));
    TRY(value_list(render, VALUE_LIST, list.count, out));
    if (list.count)
        memcpy(out->list->item, list.item, (size_t)list.count * sizeof *list.item);
    out->origin = self.origin;
    return render_step(render, list.count / 64);
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

enum status filter_reverse(struct render *render, struct value self, const struct args *args, struct value *out)
{
    if (self.kind == VALUE_TEXT) {
        const struct value back[3] = {[2] = value_int(-1)};
        return value_slice(render, self, back, out);
    }
    TRY(filter_list(render, self, args, out));
    for (int64_t i = 0, j = out->list->count - 1; i < j; i++, j--) {
        struct value swap = out->list->item[i];
        out->list->item[i] = out->list->item[j];
        out->list->item[j] = swap;
    }
    out->kind = VALUE_GENERATOR;
    out->list->type = "list_reverseiterator";
    return OK;
}

enum status filter_items(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "items", "", 0, NULL));
    if (self.kind == VALUE_UNDEFINED)
        return value_list(render, VALUE_GENERATOR, 0, out);
    if (self.kind != VALUE_DICT)
        return render_fail(render, ERR_DATA, "Can only get item pairs from a mapping.");
    TRY(method_find(self, "items")->call(render, self, args, out));
    out->kind = VALUE_GENERATOR;
    return OK;
}

/* The text as a number if Python's float() would take it. None is longer than TEXT_MAX. */
static bool filters_read_real(const struct text *text, double *out)
{
    enum { TEXT_MAX = 256 };
    char copy[64], *end;
    int64_t n = 0;
    if (text->size > TEXT_MAX)
        return false;
    for (int64_t at = 0; at < text->size && n < (int64_t)sizeof copy - 1; at++)
        if (text->data[at] != '_')
            copy[n++] = text->data[at];
    copy[n] = 0;
    if (n == (int64_t)sizeof copy - 1 || strpbrk(copy, "xX(pP"))
        return false;
    *out = strtod(copy, &end);
    end += strspn(end, " \t\n\r\f\v");
    return end > copy && end == copy + n && n > (int64_t)strspn(copy, " \t\n\r\f\v");
}

enum status filter_float(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value fallback = {0};
    double real;
    TRY(args_bind(render, args, "float", "default", 0, &fallback));
    *out = fallback.kind == VALUE_ABSENT ? value_float(0) : fallback;
    if (self.kind == VALUE_FLOAT)
        *out = self;
    else if (value_is_number(self))
        *out = value_float(value_real(self));
    else if (self.kind == VALUE_TEXT && filters_read_real(self.text, &real))
        *out = value_float(real);
    return OK;
}

enum status filter_int(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[2] = {{0}};
    double real = 0;
    bool has_real = self.kind == VALUE_FLOAT;
    TRY(args_bind(render, args, "int", "default base", 0, v));
    *out = v[0].kind == VALUE_ABSENT ? value_int(0) : v[0];
    if (has_real)
        real = self.real;
    if (self.kind == VALUE_INT || self.kind == VALUE_BOOL)
        *out = value_int(self.kind == VALUE_INT ? self.integer : self.boolean);
    if (self.kind == VALUE_TEXT) {
        char copy[64], *end = copy;
        int64_t n = self.text->size < 63 ? self.text->size : 0;
        memcpy(copy, self.text->data, (size_t)n);
        copy[n] = 0;
        errno = 0;
        long long number =
            strtoll(copy, &end, v[1].kind == VALUE_INT && v[1].integer >= 2 && v[1].integer <= 36 ? (int)v[1].integer : 10);
        bool read = end > copy;
        end += strspn(end, " \t\n\r\f\v");
        if (errno)
            return render_fail(render, ERR_UNSUPPORTED, "whole numbers of more than 64 bits");
        if (read && end == copy + n)
            *out = value_int(number);
        else
            has_real = filters_read_real(self.text, &real);
    }
    if (!has_real || !isfinite(real))
        return OK;
    if (!(real > -9.2e18 && real < 9.2e18))
        return render_fail(render, ERR_UNSUPPORTED, "whole numbers of more than 64 bits");
    *out = value_int((int64_t)real);
    return OK;
}

enum status filter_abs(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "abs", "", 0, NULL));
    if (self.kind == VALUE_FLOAT)
        *out = value_float(fabs(self.real));
    else if (!value_is_number(self) || (self.kind == VALUE_INT && self.integer == INT64_MIN))
        return render_fail(render, ERR_DATA, "abs: bad operand of type %s", value_type(self));
    else
        *out = value_int(self.kind == VALUE_BOOL ? self.boolean : self.integer < 0 ? -self.integer : self.integer);
    return OK;
}

enum status filter_round(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[2] = {{0}};
    TRY(args_bind(render, args, "round", "precision method", 0, v));
    int64_t digits = v[0].kind == VALUE_INT ? v[0].integer : 0;
    bool up = v[1].kind == VALUE_TEXT && value_is(v[1], "ceil"), down = v[1].kind == VALUE_TEXT && value_is(v[1], "floor");
    if (!value_is_number(self) || digits < 0 || digits > 15)
        return render_fail(render, ERR_UNSUPPORTED, "round of a %s to %lld digits", value_type(self), (long long)digits);
    if (self.kind != VALUE_FLOAT && !up && !down) {
        *out = value_int(self.kind == VALUE_BOOL ? self.boolean : self.integer);
        return OK;
    }
    double real = value_real(self), scale = pow(10, (double)digits);
    if (up || down) {
        *out = value_float((up ? ceil(real * scale) : floor(real * scale)) / scale);
        return OK;
    }
    if (!(fabs(real) < 0x1p53)) { /* whole, or no number: nothing to round */
        *out = value_float(real);
        return OK;
    }
    char text[40];
    TRY(render_step(render, 8));
    snprintf(text, sizeof text, "%.*f", (int)digits, real); /* rounds the exact value, ties to even, as Python does */
    *out = value_float(strtod(text, NULL));
    return OK;
}

enum status filter_indent(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[3] = {{0}}, lines;
    static const struct args none = {0};
    static const char spaces[] = "                                                                ";
    struct builder *builder;
    TRY(args_bind(render, args, "indent", "width first blank", 0, v));
    if (self.kind != VALUE_TEXT)
        return render_fail(render, ERR_DATA, "indent needs a string, not %s", value_type(self));
    int64_t width = v[0].kind == VALUE_INT ? v[0].integer : 4;
    TRY(text_splitlines(render, self, &none, &lines));
    TRY(builder_new(render, &builder));
    builder->markup = self.text->markup;
    int64_t size = self.text->size;
    bool open = size == 0 || self.text->data[size - 1] == '\n'; /* the newline that is added makes one more, empty line */
    int64_t count = lines.list->count + open;
    for (int64_t i = 0; i < count; i++) {
        const struct text *line = i < lines.list->count ? lines.list->item[i].text : NULL;
        bool blank = !line || line->size == 0;
        TRY(render_step(render, 1));
        if (i)
            TRY(builder_bytes(builder, "\n", 1, NO_MESSAGE));
        if (i == 0 ? value_true(v[1]) : !blank || value_true(v[2])) {
            if (v[0].kind == VALUE_TEXT)
                TRY(builder_text(builder, v[0].text));
            for (int64_t k = 0, n; v[0].kind != VALUE_TEXT && k < width; k += n) {
                n = min(width - k, (int64_t)sizeof spaces - 1);
                TRY(render_step(render, 1));
                TRY(builder_bytes(builder, spaces, n, NO_MESSAGE));
            }
        }
        if (line)
            TRY(builder_text(builder, line));
    }
    return builder_value(builder, out);
}

enum status filter_format(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value tuple;
    if (args->keyword_count)
        return render_fail(render, ERR_UNSUPPORTED, "the filter 'format' with named arguments");
    TRY(value_string(render, self, &self));
    TRY(value_list(render, VALUE_TUPLE, args->count, &tuple));
    for (int64_t i = 0; i < args->count; i++)
        tuple.list->item[i] = args->item[i];
    return format_percent(render, self.text, tuple, out);
}

enum status filter_wordcount(struct render *render, struct value self, const struct args *args, struct value *out)
{
    static const struct args none = {0};
    TRY(args_bind(render, args, "wordcount", "", 0, NULL));
    TRY(value_string(render, self, &self));
    TRY(text_split(render, self, &none, out));
    *out = value_int(out->list->count);
    return OK;
}
