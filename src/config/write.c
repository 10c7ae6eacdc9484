/* Options as a YAML file, which hone reads as the same options; and as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "config/option_table.h"

enum { COLUMN = 48 }; /* where comments begin */

/* Whether a value may stand without quotes, in any reader of YAML. */
static bool write_is_plain(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,=+-";
    bool null = !*text || strcasecmp(text, "null") == 0;
    return !null && !text[strspn(text, letters)] && *text != ',' && *text != '=' && *text != '-';
}

static enum status append_value(struct buffer *out, const struct option_row *row, const char *text)
{
    bool words = row->kind == KIND_TEXT || row->kind == KIND_PATH;
    if (!words || write_is_plain(text))
        return buffer_format(out, "%s", text);
    if (utf8_invalid(text, (int64_t)strlen(text)) >= 0)
        return fail(ERR_ARGUMENT, "%s is not UTF-8, and cannot stand in a YAML file", row->name);
    TRY(buffer_append(out, "\"", 1));
    for (int n; *text; text += n) {
        uint32_t code;
        n = utf8_decode(text, &code);
        if (code == '"' || code == '\\')
            TRY(buffer_format(out, "\\%c", (char)code));
        else if (utf8_is_hidden(code))
            TRY(buffer_format(out, "\\U%08x", (unsigned)code));
        else
            TRY(buffer_append(out, text, n));
    }
    return buffer_append(out, "\"", 1);
}

enum status options_write_value(struct buffer *out, enum option option, const char *text)
{
    return append_value(out, &option_table[option], text);
}

/* A comment of one line, whatever a path has in it. */
static enum status append_comment(struct buffer *out, const char *before, const char *text)
{
    int64_t begin = out->size;
    TRY(buffer_format(out, "# %s%s", before, text));
    utf8_clean_line(out->data + begin);
    return buffer_append(out, "\n", 1);
}

/* Of the file itself only the place: it is named at the top. */
static enum status append_source(struct buffer *out, const struct options *options, const char *source)
{
    size_t n = options->config ? strlen(options->config) : 0;
    if (!n || strncmp(source, options->config, n) != 0 || source[n] != ':')
        return append_comment(out, "", source);
    return source[n + 1] == ' ' ? append_comment(out, "", source + n + 2) : append_comment(out, "line ", source + n + 1);
}

static enum status write_option(struct buffer *out, const struct options *options, enum option option)
{
    struct buffer value = {0};
    int64_t begin = out->size;
    enum status status = options_get(options, option, &value);
    if (status == OK)
        status = buffer_format(out, "%s: ", option_table[option].name);
    if (status == OK)
        status = append_value(out, &option_table[option], value.data ? value.data : "");
    buffer_free(&value);
    int used = (int)(out->size - begin);
    if (status == OK)
        status = buffer_format(out, "%*s", used < COLUMN ? COLUMN - used : 1, "");
    return status == OK ? append_source(out, options, options->source[option]) : status;
}

enum status options_write(const struct options *options, struct buffer *text)
{
    TRY(options->config ? append_comment(text, "from ", options->config) : buffer_append(text, "", 0));
    for (const char *line = options->notes ? options->notes : ""; *line; line += strcspn(line, "\n") + 1) {
        struct buffer one = {0};
        enum status status = buffer_append(&one, line, (int64_t)strcspn(line, "\n"));
        if (status == OK)
            status = append_comment(text, "", one.data);
        buffer_free(&one);
        TRY(status);
    }
    for (int o = 0; o < OPTIONS; o++)
        if (options->source[o] && !option_table[o].flag_only)
            TRY(write_option(text, options, (enum option)o));
    return OK;
}

/* --- JSON ------------------------------------------------------------------------------------------------------------------- */

static json_t *write_value_json(const struct option_row *row, const char *text)
{
    char *end;
    switch (row->kind) {
    case KIND_INT: return json_integer((json_int_t)strtoll(text, NULL, 10));
    case KIND_BOOL: return json_boolean(!strcmp(text, "true"));
    case KIND_REAL: {
        double value = strtod(text, &end);
        return end != text && !*end ? json_real(value) : json_lossy(text); /* auto */
    }
    default: return json_lossy(text);
    }
}

static json_t *notes_json(const char *notes)
{
    json_t *list = json_array();
    for (const char *line = notes ? notes : ""; *line; line += strcspn(line, "\n"), line += *line == '\n')
        json_array_append_new(list, json_stringn_nocheck(line, strcspn(line, "\n")));
    return list;
}

json_t *options_json(const struct options *options)
{
    json_t *values = json_object(), *sources = json_object();
    for (int o = 0; o < OPTIONS; o++) {
        struct buffer text = {0};
        if (!options->source[o] || option_table[o].flag_only || o == OPTION_json ||
            options_get(options, (enum option)o, &text) != OK)
            continue;
        json_object_set_new(values, option_table[o].name, write_value_json(&option_table[o], text.data ? text.data : ""));
        json_object_set_new(sources, option_table[o].name, json_lossy(options->source[o]));
        buffer_free(&text);
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "config", options->config ? json_lossy(options->config) : json_null(), "options",
                     values, "sources", sources, "notes", notes_json(options->notes));
}
