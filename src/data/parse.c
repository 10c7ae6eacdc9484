/* The reader's values become Jansson's as they are read. */
#include "data/parse.h"

#include <stdio.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/utf8.h"

enum { NESTING_MAX = 64, ESCAPED_KEY_MAX = 64 };

static json_t *parse_value(struct json_reader *r, int depth);

static json_t *parse_string(struct json_reader *r)
{
    struct json_span text;
    return json_reader_string(r, &text) == OK ? json_stringn_nocheck(text.text, (size_t)text.length) : NULL;
}

static json_t *parse_scalar(struct json_reader *r)
{
    struct json_scalar scalar;
    if (json_reader_scalar(r, &scalar) != OK)
        return NULL;
    switch (scalar.type) {
    case JSON_INTEGER: return json_integer(scalar.integer);
    case JSON_REAL: return json_real(scalar.real);
    default: return scalar.type == JSON_NULL ? json_null() : json_boolean(scalar.type == JSON_TRUE);
    }
}

/* One key and its value. Rare keys are left to Jansson: repeated ones, ones with a NUL, and long ones with an escape. */
static bool take_member(struct json_reader *r, int depth, json_t *object)
{
    struct json_span key;
    char copy[ESCAPED_KEY_MAX];
    size_t before = json_object_size(object);
    if (json_reader_key(r, &key) != OK || memchr(key.text, 0, (size_t)key.length))
        return false;
    if (key.text == r->text.data) { /* the value's strings will overwrite this place */
        if (key.length > ESCAPED_KEY_MAX)
            return false;
        key.text = memcpy(copy, key.text, (size_t)key.length);
    }
    return json_object_setn_new_nocheck(object, key.text, (size_t)key.length, parse_value(r, depth)) == 0 &&
           json_object_size(object) > before;
}

static bool fill(struct json_reader *r, int depth, char close, json_t *value)
{
    bool more;
    while (json_reader_next(r, close, &more) == OK) {
        if (!more)
            return true;
        if (close == '}' ? !take_member(r, depth, value) : json_array_append_new(value, parse_value(r, depth)) != 0)
            return false;
    }
    return false;
}

static json_t *parse_value(struct json_reader *r, int depth)
{
    char c = json_reader_peek(r);
    if (c == '"')
        return parse_string(r);
    if (c != '{' && c != '[')
        return parse_scalar(r);
    if (depth == NESTING_MAX || json_reader_enter(r, c) != OK)
        return NULL;
    json_t *value = c == '{' ? json_object() : json_array();
    if (value && fill(r, depth + 1, c == '{' ? '}' : ']', value))
        return value;
    json_decref(value);
    return NULL;
}

json_t *parse_quickly(const char *text, int64_t length)
{
    struct json_reader reader;
    if (utf8_invalid(text, length) >= 0)
        return NULL;
    json_reader_init(&reader, text, length, "row");
    json_t *tree = parse_value(&reader, 0);
    if (tree && json_reader_end(&reader) != OK) {
        json_decref(tree);
        tree = NULL;
    }
    json_reader_free(&reader);
    return tree;
}

const char *parse_shown(char out[static PARSE_SHOWN], const char *text)
{
    int64_t n = 0, length = (int64_t)strlen(text);
    for (int64_t i = 0; i < length && n < PARSE_SHOWN - 4;) {
        int size = utf8_sequence(text + i, length - i);
        bool plain = size > 1 || (size == 1 && (unsigned char)text[i] >= ' ' && text[i] != 0x7f);
        if (plain)
            memcpy(out + n, text + i, (size_t)size);
        else
            out[n] = '?';
        n += plain ? size : 1;
        i += size > 0 ? size : 1;
    }
    out[n] = 0;
    return out;
}

enum status parse_row(json_t **tree, const char *text, int64_t length)
{
    json_error_t error;
    char near[PARSE_SHOWN] = "", line[48] = "";
    *tree = NULL;
    if (!json_affordable(text, length))
        return fail(ERR_DATA, "too many values for a row of %lld bytes", (long long)length);
    *tree = parse_quickly(text, length);
    enum status status = *tree ? OK : json_load(tree, text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (status != ERR_FORMAT)
        return status;
    char *place = strstr(error.text, " near "); /* the row's own text, as it is */
    if (place) {
        *place = 0;
        parse_shown(near, place + 6);
    }
    if (error.line > 1)
        snprintf(line, sizeof line, "line %d of the row, ", error.line);
    bool torn = length && strchr("{[,", text[length - 1]) && text[length - 1]; /* as tools that indent leave a line */
    const char *remedy = "";
    if (utf8_invalid(text, length) >= 0)
        remedy = "; the text is not UTF-8: convert it, as in iconv -f LATIN1 -t UTF-8";
    else if (torn)
        remedy = "; a row must stand on one line, or in an array";
    else if (length && text[0] != '{')
        remedy = "; a row is a JSON object, as in {\"messages\": [...]}, and plain text is one as in {\"text\": \"...\"}";
    else if (length > 1 && text[1] == '\'')
        remedy = "; JSON has double quotes: Python writes it with json.dumps";
    return fail(ERR_DATA, "%scolumn %d: broken JSON: %s%s%s%s", line, error.column, error.text, place ? " near " : "", near,
                remedy);
}
