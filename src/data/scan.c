/* Rows in text. Lines are found only by their newlines; in an array only strings and brackets are followed: whether an element is
 * valid is for the parser of rows to say. */
#include "data/scan.h"

#include <ctype.h>
#include <string.h>

enum { NESTING_MAX = 2048 }; /* of nested brackets, the parser's max */

static bool scan_white(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool blank(const char *text, int64_t length)
{
    while (length && scan_white(text[length - 1]))
        length--;
    return length == 0;
}

/* A row begins where its line does, so that columns are those of the file. */
static void scan_next_line(struct scan *s, struct source_row *row, bool *found)
{
    while (!*found && s->begin < s->end) {
        const char *start = s->text + s->begin, *stop = memchr(start, '\n', (size_t)(s->end - s->begin));
        if (!stop && !s->last)
            return;
        int64_t length = (stop ? stop : s->text + s->end) - start;
        s->begin += length + (stop != NULL);
        int64_t line = s->line++;
        if (blank(start, length))
            continue;
        while (scan_white(start[length - 1]))
            length--;
        *row = (struct source_row){start, length, line};
        *found = true;
    }
}

static enum status scan_wrong(const struct scan *s, const char *what)
{
    char near[32];
    int n = 0;
    for (int64_t i = s->begin; i < s->end && n < 24 && s->text[i] != '\n'; i++)
        near[n++] = isprint((unsigned char)s->text[i]) ? s->text[i] : '?';
    near[n] = 0;
    return fail(ERR_FORMAT, "%lld: %s, but here is %s%s%s; check the file with a JSON tool", (long long)s->line, what,
                n ? "\"" : "", n ? near : "its end", n ? "\"" : "");
}

static void skip_white(struct scan *s)
{
    for (; s->begin < s->end && scan_white(s->text[s->begin]); s->begin++)
        s->line += s->text[s->begin] == '\n';
}

/* After the string that begins at `at`, or -1 if the text ends inside it. */
static int64_t after_string(const struct scan *s, int64_t at)
{
    for (at++; at < s->end; at++) {
        if (s->text[at] == '\\')
            at++;
        else if (s->text[at] == '"')
            return at + 1;
    }
    return -1;
}

/* After a number or word: everything up to a separator. */
static int64_t after_word(const struct scan *s, int64_t at)
{
    while (at < s->end && !scan_white(s->text[at]) && !strchr(",:[]{}\"", s->text[at]))
        at++;
    return at < s->end ? at : -1;
}

/* After the object or list that begins at `at`, -1 if the text ends inside it, and -2 with *at where brackets do not fit. */
static int64_t after_brackets(const struct scan *s, int64_t *at)
{
    char open[NESTING_MAX];
    int depth = 0;
    for (int64_t i = *at; i < s->end; i++) {
        char c = s->text[i];
        if (c == '"') {
            i = after_string(s, i) - 1;
            if (i < 0)
                return -1;
        } else if (c == '{' || c == '[') {
            if (depth == NESTING_MAX) {
                *at = i;
                return -2;
            }
            open[depth++] = (char)(c == '{' ? '}' : ']');
        } else if (c == '}' || c == ']') {
            if (open[--depth] != c) {
                *at = i;
                return -2;
            }
            if (depth == 0)
                return i + 1;
        }
    }
    return -1;
}

static enum status next_element(struct scan *s, struct source_row *row, bool *found)
{
    int64_t at = s->begin;
    char c = s->text[at];
    int64_t after = c == '"' ? after_string(s, at) : c == '{' || c == '[' ? after_brackets(s, &at) : after_word(s, at);
    if (after == -1 && s->last)
        return scan_wrong(s, "the row that begins here does not end before the file does");
    if (after == -1)
        return OK;
    if (after == -2 || after == s->begin) {
        for (int64_t i = s->begin; i < at; i++)
            s->line += s->text[i] == '\n';
        s->begin = at;
        return scan_wrong(s, after == -2 ? "brackets do not match or are nested too deeply" : "a row was expected");
    }
    *row = (struct source_row){s->text + s->begin, after - s->begin, s->line};
    for (const char *p = row->text; (p = memchr(p, '\n', (size_t)(row->text + row->length - p))); p++)
        s->line++;
    s->begin = after;
    s->place = SCAN_AFTER;
    *found = true;
    return OK;
}

static enum status next_in_array(struct scan *s, struct source_row *row, bool *found)
{
    while (!*found) {
        skip_white(s);
        if (s->begin == s->end)
            return s->last && s->place != SCAN_ENDED ? scan_wrong(s, "the array of rows does not end") : OK;
        char c = s->text[s->begin];
        if (s->place == SCAN_ENDED)
            return scan_wrong(s, "nothing may follow the array of rows");
        if (c == ']' && (s->place == SCAN_FIRST || s->place == SCAN_AFTER)) {
            s->place = SCAN_ENDED;
            s->begin++;
        } else if (s->place == SCAN_START) {
            s->place = SCAN_FIRST;
            s->begin++; /* the bracket that begins an array */
        } else if (s->place == SCAN_AFTER) {
            if (c != ',')
                return scan_wrong(s, "between two rows there must be a comma");
            s->place = SCAN_COMMA;
            s->begin++;
        } else {
            int64_t before = s->begin;
            TRY(next_element(s, row, found));
            if (s->begin == before)
                return OK;
        }
    }
    return OK;
}

enum status scan_row(struct scan *s, struct source_row *row, bool *found)
{
    *found = false;
    if (s->array)
        return next_in_array(s, row, found);
    scan_next_line(s, row, found);
    return OK;
}
