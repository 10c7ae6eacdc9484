/* Values as Python prints them: str(), repr() and json.dumps(). A value's punctuation carries the value's own origin, so
 * that the JSON of a tool call belongs to the message that made the call. */
#include "text/unicode.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/value.h"

static enum status print_put(struct builder *builder, const char *text, int32_t origin)
{
    return builder_bytes(builder, text, (int64_t)strlen(text), origin);
}

/* The shortest digits that read back as the same number, laid out as repr() does. */
enum status print_float(struct builder *builder, double real, int32_t origin)
{
    if (isnan(real))
        return print_put(builder, "nan", origin);
    if (isinf(real))
        return print_put(builder, real < 0 ? "-inf" : "inf", origin);
    char text[40];
    TRY(render_step(builder->render, 64)); /* written and read up to 17 times */
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, real);
        if (strtod(text, NULL) == real)
            break;
    }
    char *mark = strchr(text, 'e');
    int exponent = atoi(mark + 1);
    *mark = 0;
    char digits[24] = "0", out[64], *o = out;
    int n = 0;
    for (const char *p = text; *p; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    if (text[0] == '-')
        *o++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *o++ = digits[0];
        if (n > 1)
            *o++ = '.';
        for (int i = 1; i < n; i++)
            *o++ = digits[i];
        snprintf(o, 16, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return print_put(builder, out, origin);
    }
    if (exponent < 0) {
        *o++ = '0';
        *o++ = '.';
        for (int i = -1; i > exponent; i--)
            *o++ = '0';
    }
    for (int i = 0; i < n || i <= exponent; i++) {
        *o++ = i < n ? digits[i] : '0';
        if (exponent >= 0 && i == exponent)
            *o++ = '.';
    }
    if (o[-1] == '.')
        *o++ = '0';
    *o = 0;
    return print_put(builder, out, origin);
}

static bool printable(int32_t code)
{
    if (code < 0x7f)
        return code >= 0x20;
    return unicode_printable(code);
}

/* Copies characters until one needs an escape: `escape` writes it and returns true. */
static enum status put_escaped(struct builder *builder, const struct text *text,
                               bool (*escape)(int32_t code, char quote, char out[24]), char quote)
{
    int64_t begin = 0;
    TRY(render_step(builder->render, text->size / CHARS_A_STEP));
    for (int64_t at = 0, next, end; at < text->size; at = next) {
        int32_t code;
        char out[24];
        next = char_next(text->data, text->size, at, &code);
        if (!escape(code, quote, out))
            continue;
        TRY(render_step(builder->render, 1));
        TRY(builder_slice(builder, text, begin, at));
        TRY(print_put(builder, out, text_run(text, at, &end)));
        begin = next;
    }
    return builder_slice(builder, text, begin, text->size);
}

static void escape_short(char letter, char out[24])
{
    out[0] = '\\';
    out[1] = letter;
    out[2] = 0;
}

static bool escape_repr(int32_t code, char quote, char out[24])
{
    if (code == quote || code == '\\')
        escape_short((char)code, out);
    else if (code == '\n' || code == '\r' || code == '\t')
        escape_short(code == '\n' ? 'n' : code == '\r' ? 'r' : 't', out);
    else if (printable(code))
        return false;
    else
        snprintf(out, 24, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
    return true;
}

static bool escape_json(int32_t code, char ascii, char out[24])
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *found = code > 0 && code < 0x80 ? strchr(from, code) : NULL;
    if (found)
        escape_short(to[found - from], out);
    else if (code < 0x20 || (ascii && code >= 0x7f && code < 0x10000))
        snprintf(out, 24, "\\u%04x", (unsigned)code);
    else if (ascii && code >= 0x10000)
        snprintf(out, 24, "\\u%04x\\u%04x", 0xd800u + ((unsigned)(code - 0x10000) >> 10),
                 0xdc00u + ((unsigned)(code - 0x10000) & 0x3ff));
    else
        return false;
    return true;
}

/* The origin of a text's quotes: that of its bytes when they have one, and the template's otherwise. */
static int32_t quote_origin(const struct text *text)
{
    int64_t end;
    int32_t origin = text_run(text, 0, &end);
    return end >= text->size ? origin : NO_MESSAGE;
}

static enum status repr_text(struct builder *builder, const struct text *text)
{
    bool single = text->size && memchr(text->data, '\'', (size_t)text->size);
    bool twice = text->size && memchr(text->data, '"', (size_t)text->size);
    char quote[2] = {single && !twice ? '"' : '\'', 0};
    int32_t origin = quote_origin(text);
    if (text->markup)
        TRY(print_put(builder, "Markup(", origin));
    TRY(print_put(builder, quote, origin));
    TRY(put_escaped(builder, text, escape_repr, quote[0]));
    TRY(print_put(builder, quote, origin));
    return text->markup ? print_put(builder, ")", origin) : OK;
}

static enum status repr_list(struct builder *builder, struct value value)
{
    const struct list *list = value.list;
    bool tuple = value.kind == VALUE_TUPLE;
    if (value.kind == VALUE_VIEW) {
        TRY(print_put(builder, list->type, value.origin));
        TRY(print_put(builder, "(", value.origin));
    }
    TRY(print_put(builder, tuple ? "(" : "[", value.origin));
    for (int64_t i = 0; i < list->count; i++) {
        if (i)
            TRY(print_put(builder, ", ", value.origin));
        TRY(print_repr(builder, list->item[i]));
    }
    TRY(print_put(builder, tuple ? list->count == 1 ? ",)" : ")" : "]", value.origin));
    return value.kind == VALUE_VIEW ? print_put(builder, ")", value.origin) : OK;
}

static enum status repr_dict(struct builder *builder, struct value value)
{
    bool space = value.kind == VALUE_NAMESPACE;
    TRY(print_put(builder, space ? "<Namespace {" : "{", value.origin));
    for (int64_t i = 0; i < value.dict->count; i++) {
        if (i)
            TRY(print_put(builder, ", ", value.origin));
        TRY(print_repr(builder, value.dict->entry[i].key));
        TRY(print_put(builder, ": ", value.origin));
        TRY(print_repr(builder, value.dict->entry[i].value));
    }
    return print_put(builder, space ? "}>" : "}", value.origin);
}

enum status print_repr(struct builder *builder, struct value value)
{
    struct render *render = builder->render;
    enum status status = OK;
    char text[96];
    TRY(render_enter(render));
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED: status = print_put(builder, "Undefined", value.origin); break;
    case VALUE_NONE: status = print_put(builder, "None", value.origin); break;
    case VALUE_BOOL: status = print_put(builder, value.boolean ? "True" : "False", value.origin); break;
    case VALUE_INT:
        snprintf(text, sizeof text, "%lld", (long long)value.integer);
        status = print_put(builder, text, value.origin);
        break;
    case VALUE_FLOAT: status = print_float(builder, value.real, value.origin); break;
    case VALUE_TEXT: status = repr_text(builder, value.text); break;
    case VALUE_RANGE: {
        const struct list *range = value.list;
        snprintf(text, sizeof text, range->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)", (long long)range->start,
                 (long long)range->stop, (long long)range->step);
        status = print_put(builder, text, value.origin);
        break;
    }
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_VIEW: status = repr_list(builder, value); break;
    case VALUE_DICT:
    case VALUE_NAMESPACE: status = repr_dict(builder, value); break;
    default: status = render_fail(render, ERR_UNSUPPORTED, "a %s cannot be printed", value_type(value));
    }
    render_leave(render);
    return status;
}

enum status print_value(struct builder *builder, struct value value)
{
    if (value.kind == VALUE_TEXT)
        return builder_text(builder, value.text);
    return value.kind == VALUE_UNDEFINED ? OK : print_repr(builder, value);
}

enum status value_string(struct render *render, struct value value, struct value *out)
{
    *out = value;
    if (value.kind == VALUE_TEXT)
        return OK;
    struct builder *builder;
    TRY(builder_new(render, &builder));
    TRY(print_value(builder, value));
    return builder_value(builder, out);
}

static enum status json_text(struct builder *builder, const struct text *text, bool ascii)
{
    int32_t origin = quote_origin(text);
    TRY(print_put(builder, "\"", origin));
    TRY(put_escaped(builder, text, escape_json, ascii));
    return print_put(builder, "\"", origin);
}

static enum status json_float(struct builder *builder, struct value value)
{
    if (isfinite(value.real))
        return print_float(builder, value.real, value.origin);
    return print_put(builder, isnan(value.real) ? "NaN" : value.real < 0 ? "-Infinity" : "Infinity", value.origin);
}

static enum status json_newline(struct builder *builder, const struct json_style *style, int level, int32_t origin)
{
    if (!style->indent)
        return OK;
    TRY(print_put(builder, "\n", origin));
    TRY(render_step(builder->render, level / ITEMS_A_STEP));
    for (int i = 0; i < level; i++)
        TRY(builder_bytes(builder, style->indent->data, style->indent->size, origin));
    return OK;
}

static enum status json_separator(struct builder *builder, const struct text *own, const char *usual, int32_t origin)
{
    return own ? builder_bytes(builder, own->data, own->size, origin) : print_put(builder, usual, origin);
}

static enum status json_key(struct builder *builder, struct value key, const struct json_style *style)
{
    if (key.kind == VALUE_TEXT)
        return json_text(builder, key.text, style->ascii);
    if (!value_is_number(key) && key.kind != VALUE_NONE)
        return render_fail(builder->render, ERR_DATA, "tojson: the key of a dict is a %s", value_type(key));
    TRY(print_put(builder, "\"", key.origin));
    TRY(print_json(builder, key, style, 0));
    return print_put(builder, "\"", key.origin);
}

static enum status json_list(struct builder *builder, struct value value, const struct json_style *style, int level)
{
    const char *comma = style->indent ? "," : ", ";
    if (value.list->count == 0)
        return print_put(builder, "[]", value.origin);
    TRY(print_put(builder, "[", value.origin));
    for (int64_t i = 0; i < value.list->count; i++) {
        if (i)
            TRY(json_separator(builder, style->comma, comma, value.origin));
        TRY(json_newline(builder, style, level + 1, value.origin));
        TRY(print_json(builder, value.list->item[i], style, level + 1));
    }
    TRY(json_newline(builder, style, level, value.origin));
    return print_put(builder, "]", value.origin);
}

static enum status json_dict(struct builder *builder, struct value value, const struct json_style *style, int level)
{
    const char *comma = style->indent ? "," : ", ";
    int64_t count = value.dict->count;
    if (count == 0)
        return print_put(builder, "{}", value.origin);
    struct value order = {0}, keys = {0};
    if (style->sort) {
        TRY(value_list(builder->render, VALUE_LIST, count, &order));
        TRY(value_list(builder->render, VALUE_LIST, count, &keys));
        for (int64_t i = 0; i < count; i++) {
            order.list->item[i] = value_int(i);
            keys.list->item[i] = value.dict->entry[i].key;
        }
        TRY(sort_values(builder->render, order.list->item, keys.list->item, count, false));
    }
    TRY(print_put(builder, "{", value.origin));
    for (int64_t i = 0; i < count; i++) {
        const struct entry *entry = &value.dict->entry[style->sort ? order.list->item[i].integer : i];
        if (i)
            TRY(json_separator(builder, style->comma, comma, value.origin));
        TRY(json_newline(builder, style, level + 1, value.origin));
        TRY(json_key(builder, entry->key, style));
        TRY(json_separator(builder, style->colon, ": ", value.origin));
        TRY(print_json(builder, entry->value, style, level + 1));
    }
    TRY(json_newline(builder, style, level, value.origin));
    return print_put(builder, "}", value.origin);
}

enum status print_json(struct builder *builder, struct value value, const struct json_style *style, int level)
{
    enum status status = OK;
    TRY(render_enter(builder->render));
    switch (value.kind) {
    case VALUE_NONE: status = print_put(builder, "null", value.origin); break;
    case VALUE_BOOL: status = print_put(builder, value.boolean ? "true" : "false", value.origin); break;
    case VALUE_INT: status = print_repr(builder, value); break;
    case VALUE_FLOAT: status = json_float(builder, value); break;
    case VALUE_TEXT: status = json_text(builder, value.text, style->ascii); break;
    case VALUE_LIST:
    case VALUE_TUPLE: status = json_list(builder, value, style, level); break;
    case VALUE_DICT: status = json_dict(builder, value, style, level); break;
    default:
        status = render_fail(builder->render, ERR_DATA, "tojson: Object of type %s is not JSON serializable", value_type(value));
    }
    render_leave(builder->render);
    return status;
}
