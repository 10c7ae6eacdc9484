/* A recursive descent over the text. Strings are most of a row, so their bytes are looked at eight at a time. */
#include "data/parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

enum { DEPTH = 64, NUMBER = 48 };

struct parser {
    const char *at, *end;
    int depth;
    struct buffer scratch; /* of strings with escapes */
};

static json_t *parse_value(struct parser *p);

static void skip_white(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

static bool take(struct parser *p, char c)
{
    skip_white(p);
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

/* Bytes that end a run of plain characters, each as its highest bit: '"', '\\', control characters, and all that are not ASCII.
 * A bit above the first that is set may be wrong. */
static uint64_t stops(uint64_t x)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = UINT64_C(0x8080808080808080);
    uint64_t quote = x ^ ones * '"', slash = x ^ ones * '\\';
    return ((quote - ones) | (slash - ones) | (x - ones * ' ') | x) & high;
}

/* The end of the run of plain characters at p->at. */
static const char *plain_end(const struct parser *p)
{
    const char *at = p->at;
    for (uint64_t x; p->end - at >= 8; at += 8) {
        memcpy(&x, at, 8);
        if (stops(x))
            break;
    }
    while (at < p->end && *at != '"' && *at != '\\' && (unsigned char)*at >= ' ' && (unsigned char)*at < 0x80)
        at++;
    return at;
}

/* Moves over characters that need nothing done, whole ones beyond ASCII included. */
static bool skip_plain(struct parser *p)
{
    for (;;) {
        p->at = plain_end(p);
        if (p->at == p->end || (unsigned char)*p->at < 0x80)
            return p->at < p->end;
        int size = utf8_sequence(p->at, p->end - p->at);
        if (size <= 0)
            return false;
        p->at += size;
    }
}

static bool take_escape(struct parser *p)
{
    char bytes[4];
    p->at++;
    int32_t code = json_escape(&p->at, p->end);
    return code >= 0 && buffer_append(&p->scratch, bytes, utf8_encode((uint32_t)code, bytes)) == OK;
}

/* Behind the quote. */
static json_t *parse_string(struct parser *p)
{
    const char *begin = p->at;
    if (!skip_plain(p))
        return NULL;
    if (*p->at == '"')
        return json_stringn_nocheck(begin, (size_t)(p->at++ - begin));
    p->scratch.size = 0;
    while (*p->at == '\\') {
        if (buffer_append(&p->scratch, begin, p->at - begin) != OK || !take_escape(p))
            return NULL;
        begin = p->at;
        if (!skip_plain(p))
            return NULL;
    }
    if (*p->at != '"' || buffer_append(&p->scratch, begin, p->at - begin) != OK)
        return NULL;
    p->at++;
    return json_stringn_nocheck(p->scratch.data, (size_t)p->scratch.size);
}

static bool digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

static json_t *parse_number(struct parser *p)
{
    char text[NUMBER];
    const char *begin = p->at, *at = begin + (*begin == '-');
    bool real = false;
    if (!digit(at, p->end) || (*at == '0' && digit(at + 1, p->end)))
        return NULL;
    while (digit(at, p->end))
        at++;
    if (at - begin > 18) /* it may not fit into 64 bits */
        return NULL;
    if (at < p->end && *at == '.') {
        real = true;
        for (at++; digit(at, p->end); at++)
            ;
        if (at[-1] == '.')
            return NULL;
    }
    if (at < p->end && (*at == 'e' || *at == 'E'))
        return NULL;
    if (at - begin >= NUMBER)
        return NULL;
    memcpy(text, begin, (size_t)(at - begin));
    text[at - begin] = 0;
    p->at = at;
    char *stop;
    if (!real)
        return json_integer(strtoll(text, NULL, 10));
    double value = strtod(text, &stop);
    return *stop == 0 && isfinite(value) ? json_real(value) : NULL;
}

static json_t *parse_word(struct parser *p)
{
    static const struct {
        const char *text;
        size_t length;
        json_t *(*make)(void);
    } words[] = {{"true", 4, json_true}, {"false", 5, json_false}, {"null", 4, json_null}};
    for (int i = 0; i < 3; i++)
        if ((size_t)(p->end - p->at) >= words[i].length && memcmp(p->at, words[i].text, words[i].length) == 0) {
            p->at += words[i].length;
            return words[i].make();
        }
    return NULL;
}

/* Behind the bracket. */
static bool fill_list(struct parser *p, json_t *list)
{
    if (take(p, ']'))
        return true;
    do
        if (json_array_append_new(list, parse_value(p)) != 0)
            return false;
    while (take(p, ','));
    return take(p, ']');
}

/* One key and its value. Keys with anything but plain characters are not known here. */
static bool take_member(struct parser *p, json_t *object)
{
    if (!take(p, '"'))
        return false;
    const char *key = p->at;
    p->at = plain_end(p);
    size_t length = (size_t)(p->at - key), before = json_object_size(object);
    if (p->at == p->end || *p->at++ != '"' || !take(p, ':'))
        return false;
    return json_object_setn_new_nocheck(object, key, length, parse_value(p)) == 0 && json_object_size(object) > before;
}

static bool fill_object(struct parser *p, json_t *object)
{
    if (take(p, '}'))
        return true;
    do
        if (!take_member(p, object))
            return false;
    while (take(p, ','));
    return take(p, '}');
}

static json_t *parse_value(struct parser *p)
{
    skip_white(p);
    if (p->at == p->end)
        return NULL;
    char c = *p->at;
    if (c == '"') {
        p->at++;
        return parse_string(p);
    }
    if (c != '{' && c != '[')
        return c == '-' || (c >= '0' && c <= '9') ? parse_number(p) : parse_word(p);
    if (p->depth == DEPTH)
        return NULL;
    p->at++;
    p->depth++;
    json_t *value = c == '{' ? json_object() : json_array();
    bool right = value && (c == '{' ? fill_object(p, value) : fill_list(p, value));
    p->depth--;
    if (right)
        return value;
    json_decref(value);
    return NULL;
}

json_t *parse_quickly(const char *text, int64_t length)
{
    struct parser p = {.at = text, .end = text + length};
    json_t *tree = parse_value(&p);
    skip_white(&p);
    if (p.at < p.end) {
        json_decref(tree);
        tree = NULL;
    }
    buffer_free(&p.scratch);
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
    *tree = parse_quickly(text, length);
    if (!*tree)
        *tree = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (*tree)
        return OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return fail(ERR_MEMORY, "out of memory while parsing JSON");
    char *place = strstr(error.text, " near "); /* the row's own text, as it is */
    if (place) {
        *place = 0;
        parse_shown(near, place + 6);
    }
    if (error.line > 1)
        snprintf(line, sizeof line, "line %d of the row, ", error.line);
    bool torn = length && strchr("{[,", text[length - 1]) && text[length - 1]; /* as tools that indent leave a line */
    return fail(ERR_DATA, "%scolumn %d: broken JSON: %s%s%s%s", line, error.column, error.text, place ? " near " : "", near,
                torn ? "; a row must stand on one line, or in an array" : "");
}
