/* JSON from front to back. Strings without escapes are handed out where they stand. */
#include "base/json_reader.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

/* The same max depth as Jansson; the longest number, and the longest that fits into 64 bits whatever its digits are. */
enum { NESTING_MAX = 2048, NUMBER_MAX = 512, INTEGER_MAX = 18, EXPONENT_MAX = 10000 };

void json_reader_init(struct json_reader *r, const char *text, int64_t length, const char *where)
{
    *r = (struct json_reader){.start = text, .at = text, .end = text + length, .where = where};
}

void json_reader_free(struct json_reader *r)
{
    buffer_free(&r->text);
}

enum status json_reader_fail(const struct json_reader *r, const char *what)
{
    int64_t line = 1, column = 1;
    for (const char *p = r->start; p < r->at && p < r->end; p++) {
        line += *p == '\n';
        column = *p == '\n' ? 1 : column + 1;
    }
    return fail(ERR_FORMAT, "%s: line %lld, column %lld: %s", r->where, (long long)line, (long long)column, what);
}

static void json_reader_skip_space(struct json_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

char json_reader_peek(struct json_reader *r)
{
    json_reader_skip_space(r);
    return r->at < r->end ? *r->at : 0;
}

enum status json_reader_enter(struct json_reader *r, char bracket)
{
    if (json_reader_peek(r) != bracket)
        return json_reader_fail(r, bracket == '{' ? "an object is expected" : "a list is expected");
    r->at++;
    r->fresh = true;
    return OK;
}

enum status json_reader_next(struct json_reader *r, char close, bool *more)
{
    char c = json_reader_peek(r);
    bool fresh = r->fresh;
    r->fresh = false;
    *more = c != close;
    if (!*more || (!fresh && c == ',')) {
        r->at++;
        return OK;
    }
    return fresh && c ? OK : json_reader_fail(r, c ? "a comma or the end of the list is expected" : "the file ends too early");
}

/* The escape after a backslash; the reader stands on its letter. */
static enum status read_escape(struct json_reader *r)
{
    char bytes[4];
    int32_t code = json_escape(&r->at, r->end);
    if (code < 0)
        return json_reader_fail(r, code == JSON_HALF_PAIR ? "half a surrogate pair" : "an escape that JSON does not have");
    return buffer_append(&r->text, bytes, utf8_encode((uint32_t)code, bytes));
}

/* The end of the run of characters at p that stand for themselves. Strings are most of a row, so eight bytes are looked at at
 * once: a byte that ends the run has its highest bit set, and for the first such byte that is certain. */
static const char *json_reader_plain_end(const char *p, const char *end)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = UINT64_C(0x8080808080808080);
    for (uint64_t x; end - p >= 8; p += 8) {
        memcpy(&x, p, 8);
        uint64_t quote = x ^ ones * '"', slash = x ^ ones * '\\';
        uint64_t stops = (((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((x - ones * ' ') & ~x)) & high;
        if (stops)
            return p + __builtin_ctzll(stops) / 8;
    }
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= ' ')
        p++;
    return p;
}

enum status json_reader_string(struct json_reader *r, struct json_span *text)
{
    if (json_reader_peek(r) != '"')
        return json_reader_fail(r, "a string is expected");
    const char *from = ++r->at;
    bool escaped = false;
    r->text.size = 0;
    while ((r->at = json_reader_plain_end(r->at, r->end)) < r->end && *r->at != '"') {
        if (*r->at != '\\')
            return json_reader_fail(r, "a control character in a string");
        escaped = true;
        TRY(buffer_append(&r->text, from, r->at++ - from));
        TRY(read_escape(r));
        from = r->at;
    }
    if (r->at == r->end)
        return json_reader_fail(r, "the file ends inside a string");
    *text = (struct json_span){from, r->at++ - from};
    if (escaped) {
        TRY(buffer_append(&r->text, text->text, text->length));
        *text = (struct json_span){r->text.data, r->text.size};
    }
    return OK;
}

enum status json_reader_key(struct json_reader *r, struct json_span *key)
{
    TRY(json_reader_string(r, key));
    if (json_reader_peek(r) != ':')
        return json_reader_fail(r, "a colon is expected");
    r->at++;
    return OK;
}

enum status json_reader_keep(const struct json_reader *r, struct arena *arena, struct json_span *text)
{
    if (text->text == r->text.data)
        text->text = arena_text(arena, text->text, text->length);
    return text->text ? OK : ERR_MEMORY;
}

static bool is_number(const char *p)
{
    p += *p == '-';
    if (*p == '0')
        p++;
    else if (*p >= '1' && *p <= '9')
        p += strspn(p, "0123456789");
    else
        return false;
    if (*p == '.') {
        size_t digits = strspn(++p, "0123456789");
        if (!digits)
            return false;
        p += digits;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        size_t digits = strspn(p, "0123456789");
        if (!digits)
            return false;
        p += digits;
    }
    return !*p;
}

static double power_of_ten(int exponent)
{
    static const double SMALL[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char text[16];
    if (exponent < (int)(sizeof SMALL / sizeof *SMALL))
        return SMALL[exponent];
    snprintf(text, sizeof text, "1e%d", exponent);
    return strtod(text, NULL);
}

/* Digits into 64 bits, then one division or multiplication: the last bit may not be the nearest, but it is the same as
 * in the library that published tokenizers are used with, and ties between scores depend on it. */
static bool to_double(const char *p, double *number)
{
    bool negative = *p == '-', after = false, full = false;
    uint64_t digits = 0;
    int exponent = 0;
    for (p += negative; (*p >= '0' && *p <= '9') || *p == '.'; p++) {
        if (*p == '.') {
            after = true;
            continue;
        }
        full = full || digits > (UINT64_MAX - (uint64_t)(*p - '0')) / 10;
        digits = full ? digits : digits * 10 + (uint64_t)(*p - '0');
        exponent += full ? !after : -after;
    }
    if (*p) {
        long written = strtol(p + 1, NULL, 10);
        exponent += (int)max(min(written, EXPONENT_MAX), -EXPONENT_MAX);
    }
    double f = (double)digits;
    for (; exponent < -308 && f > 0; exponent += 308)
        f /= 1e308;
    if (exponent > 308 && f > 0)
        return false;
    if (f > 0)
        f = exponent < 0 ? f / power_of_ten(-exponent) : f * power_of_ten(exponent);
    *number = negative ? -f : f;
    return isfinite(f);
}

/* Copies the number at the reader as a C string and moves past it. */
static enum status take_number(struct json_reader *r, char digits[static NUMBER_MAX])
{
    int64_t n = 0;
    json_reader_skip_space(r);
    for (; r->at + n < r->end && n < NUMBER_MAX - 1 && r->at[n] && strchr("+-.0123456789eE", r->at[n]); n++)
        digits[n] = r->at[n];
    digits[n] = 0;
    if (!is_number(digits))
        return json_reader_fail(r, "a number is expected");
    r->at += n;
    return OK;
}

enum status json_reader_number(struct json_reader *r, double *number)
{
    char digits[NUMBER_MAX];
    TRY(take_number(r, digits));
    return to_double(digits, number) ? OK : json_reader_fail(r, "a number that is too large");
}

static enum status take_word(struct json_reader *r, const char *word, json_type type, struct json_scalar *scalar)
{
    int64_t n = (int64_t)strlen(word);
    if (r->end - r->at < n || memcmp(r->at, word, (size_t)n) != 0)
        return json_reader_fail(r, "a value is expected");
    r->at += n;
    scalar->type = type;
    return OK;
}

static enum status json_reader_read_scalar(struct json_reader *r, bool any_length, struct json_scalar *scalar)
{
    char digits[NUMBER_MAX];
    scalar->rounded = false;
    switch (json_reader_peek(r)) {
    case 'n': return take_word(r, "null", JSON_NULL, scalar);
    case 't': return take_word(r, "true", JSON_TRUE, scalar);
    case 'f': return take_word(r, "false", JSON_FALSE, scalar);
    default: TRY(take_number(r, digits));
    }
    bool whole = !strpbrk(digits, ".eE");
    errno = 0;
    if (whole)
        scalar->integer = strtoll(digits, NULL, 10);
    scalar->rounded = whole && any_length && errno == ERANGE;
    scalar->type = whole && !scalar->rounded ? JSON_INTEGER : JSON_REAL;
    if (scalar->type == JSON_REAL)
        scalar->real = strtod(digits, NULL);
    bool fits = scalar->type == JSON_REAL ? isfinite(scalar->real) : any_length || strlen(digits) <= INTEGER_MAX;
    return fits ? OK : json_reader_fail(r, "a number that is too large");
}

enum status json_reader_scalar(struct json_reader *r, struct json_scalar *scalar)
{
    return json_reader_read_scalar(r, false, scalar);
}

enum status json_reader_long_scalar(struct json_reader *r, struct json_scalar *scalar)
{
    return json_reader_read_scalar(r, true, scalar);
}

enum status json_reader_end(struct json_reader *r)
{
    json_reader_skip_space(r);
    return r->at == r->end ? OK : json_reader_fail(r, "more than one value");
}

/* The end of a string that starts at `start`, or NULL: a quote after an even number of backslashes. */
static const char *string_end(const char *start, const char *end)
{
    for (const char *p = start + 1; (p = memchr(p, '"', (size_t)(end - p))); p++) {
        const char *slash = p;
        while (slash[-1] == '\\')
            slash--;
        if ((p - slash) % 2 == 0)
            return p + 1;
    }
    return NULL;
}

enum status json_reader_value(struct json_reader *r, struct json_span *value)
{
    char open[NESTING_MAX];
    int depth = 0;
    const char *p;
    if (!json_reader_peek(r))
        return json_reader_fail(r, "the file ends too early");
    for (p = r->at; p < r->end; p++) {
        char c = *p;
        if (c == '"') {
            const char *after = string_end(p, r->end);
            if (!after)
                return json_reader_fail(r, "a string without an end");
            p = after - 1;
        } else if (c == '{' || c == '[') {
            if (depth == NESTING_MAX)
                return json_reader_fail(r, "nested too deep");
            open[depth++] = c;
        } else if (c == '}' || c == ']') {
            if (!depth)
                break;
            if (open[--depth] != (c == '}' ? '{' : '['))
                return json_reader_fail(r, "brackets that do not match");
        } else if (c == ',' && !depth) {
            break;
        } else {
            continue;
        }
        if (!depth) {
            p++;
            break;
        }
    }
    if (depth || p == r->at)
        return json_reader_fail(r, depth ? "a bracket without an end" : "a value is expected");
    *value = (struct json_span){r->at, p - r->at};
    r->at = p;
    return OK;
}
