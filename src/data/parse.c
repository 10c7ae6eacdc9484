/* The reader's values become Jansson's as they are read. */
#include "data/parse.h"

#include <stdio.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/utf8.h"
#include "data/keys.h"

enum { NESTING_MAX = 64, JANSSON_BYTES_MAX = 1 << 20 };

struct quick {
    struct json_reader reader;
    bool used; /* inside of a member of the row that is encoded, not of one that is passed over */
    enum status status;
};

static json_t *parse_value(struct quick *q, int depth);

static bool parse_done(struct quick *q, enum status status)
{
    q->status = status;
    return status == OK;
}

static json_t *parse_quick_string(struct quick *q)
{
    struct json_span text;
    return parse_done(q, json_reader_string(&q->reader, &text)) ? json_stringn_nocheck(text.text, (size_t)text.length) : NULL;
}

/* An id may be an unsigned hash: what nobody sees may lose its last digits, what a template may print may not. */
static json_t *parse_scalar(struct quick *q)
{
    struct json_scalar scalar;
    if (!parse_done(q, json_reader_long_scalar(&q->reader, &scalar)))
        return NULL;
    if (scalar.rounded && q->used && !parse_done(q, json_reader_fail(&q->reader, "an integer beyond 64 bits")))
        return NULL;
    switch (scalar.type) {
    case JSON_INTEGER: return json_integer(scalar.integer);
    case JSON_REAL: return json_real(scalar.real);
    default: return scalar.type == JSON_NULL ? json_null() : json_boolean(scalar.type == JSON_TRUE);
    }
}

static bool set_member(struct quick *q, int depth, json_t *object, const char *key, int64_t length)
{
    size_t before = json_object_size(object);
    if (memchr(key, 0, (size_t)length))
        return parse_done(q, json_reader_fail(&q->reader, "a NUL in a key"));
    if (depth == 1)
        q->used = row_key_known(key, length);
    json_t *value = parse_value(q, depth);
    return value && json_object_setn_new_nocheck(object, key, (size_t)length, value) == 0 &&
           (json_object_size(object) > before || parse_done(q, json_reader_fail(&q->reader, "a repeated key")));
}

static bool parse_take_member(struct quick *q, int depth, json_t *object)
{
    struct json_span key;
    if (!parse_done(q, json_reader_key(&q->reader, &key)))
        return false;
    if (key.text != q->reader.text.data)
        return set_member(q, depth, object, key.text, key.length);
    struct buffer copy = q->reader.text; /* the value's strings would overwrite this place */
    q->reader.text = (struct buffer){0};
    bool set = set_member(q, depth, object, key.text, key.length);
    buffer_free(&copy);
    return set;
}

static bool parse_fill(struct quick *q, int depth, char close, json_t *value)
{
    bool more;
    while (parse_done(q, json_reader_next(&q->reader, close, &more))) {
        if (!more)
            return true;
        if (close == '}' ? !parse_take_member(q, depth, value) : json_array_append_new(value, parse_value(q, depth)) != 0)
            return false;
    }
    return false;
}

static json_t *parse_value(struct quick *q, int depth)
{
    char c = json_reader_peek(&q->reader);
    if (c == '"')
        return parse_quick_string(q);
    if (c != '{' && c != '[')
        return parse_scalar(q);
    if (!parse_done(q, depth == NESTING_MAX ? json_reader_fail(&q->reader, "nested too deep") : json_reader_enter(&q->reader, c)))
        return NULL;
    json_t *value = c == '{' ? json_object() : json_array();
    if (value && parse_fill(q, depth + 1, c == '{' ? '}' : ']', value))
        return value;
    json_decref(value);
    return NULL;
}

/* ERR_FORMAT: not known, with a message. */
static enum status parse_read_tree(json_t **tree, const char *text, int64_t length)
{
    struct quick q = {0};
    int64_t invalid = utf8_invalid(text, length);
    json_reader_init(&q.reader, text, length, "broken JSON");
    *tree = NULL;
    if (invalid >= 0) {
        q.reader.at += invalid;
        return json_reader_fail(&q.reader, "bytes that are not UTF-8");
    }
    *tree = parse_value(&q, 0);
    if (!*tree && q.status == OK)
        q.status = fail(ERR_MEMORY, "out of memory: a JSON value");
    if (*tree && !parse_done(&q, json_reader_end(&q.reader))) {
        json_decref(*tree);
        *tree = NULL;
    }
    json_reader_free(&q.reader);
    return q.status;
}

json_t *parse_quickly(const char *text, int64_t length)
{
    json_t *tree;
    return parse_read_tree(&tree, text, length) == OK ? tree : NULL;
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

static const char *find_remedy(const char *text, int64_t length)
{
    bool torn = length && strchr("{[,", text[length - 1]) && text[length - 1]; /* as tools that indent leave a line */
    if (utf8_invalid(text, length) >= 0)
        return "; the text is not UTF-8: convert it, as in iconv -f LATIN1 -t UTF-8";
    if (torn)
        return "; a row must stand on one line, or in an array";
    if (length && text[0] != '{')
        return "; a row is a JSON object, as in {\"messages\": [...]}, and plain text is one as in {\"text\": \"...\"}";
    return length > 1 && text[1] == '\'' ? "; JSON has double quotes: Python writes it with json.dumps" : "";
}

enum status parse_row(json_t **tree, const char *text, int64_t length)
{
    json_error_t error;
    char near[PARSE_SHOWN] = "", line[48] = "", own[128];
    *tree = NULL;
    if (!json_affordable(text, length))
        return fail(ERR_DATA, "too many values for a row of %lld bytes", (long long)length);
    enum status status = parse_read_tree(tree, text, length);
    if (status == ERR_FORMAT && length > JANSSON_BYTES_MAX) {
        snprintf(own, sizeof own, "%s", status_message());
        return fail(ERR_DATA, "%s%s", own, find_remedy(text, length));
    }
    if (status == ERR_FORMAT)
        status = json_load(tree, text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (status != ERR_FORMAT)
        return status;
    char *place = strstr(error.text, " near "); /* the row's own text, as it is */
    if (place) {
        *place = 0;
        parse_shown(near, place + 6);
    }
    if (error.line > 1)
        snprintf(line, sizeof line, "line %d of the row, ", error.line);
    return fail(ERR_DATA, "%scolumn %d: broken JSON: %s%s%s%s", line, error.column, error.text, place ? " near " : "", near,
                find_remedy(text, length));
}
