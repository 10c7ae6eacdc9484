/* A format is taken apart: its own text goes out as it is, numbers by printf, and texts character by character. Nothing is
 * allocated for standard output and error, so that a message can leave when memory has run out. */
#include "cli/view/out.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/view/escape.h"
#include "cli/view/terminal.h"

enum { HELD = 4096, SPEC_SIZE = 48, NUMBER_SIZE = 512 };

/* Where a text goes: to a buffer, or to a stream in pieces of up to HELD bytes. */
struct sink {
    struct buffer *buffer;
    out_escape *escape; /* of a buffer: how texts get there; NULL: made harmless for a terminal */
    FILE *file;
    size_t count;
    enum status status;
    char held[HELD];
};

static void out_flush(struct sink *sink)
{
    if (sink->count)
        fwrite(sink->held, 1, sink->count, sink->file);
    sink->count = 0;
}

static void out_put(struct sink *sink, const char *text, size_t length)
{
    if (sink->buffer && sink->status == OK)
        sink->status = buffer_append(sink->buffer, text, (int64_t)length);
    while (!sink->buffer && length) {
        size_t some = length < HELD - sink->count ? length : HELD - sink->count;
        memcpy(sink->held + sink->count, text, some);
        sink->count += some;
        text += some;
        length -= some;
        if (sink->count == HELD)
            out_flush(sink);
    }
}

static void out_pad(struct sink *sink, int columns)
{
    for (; columns > 0; columns--)
        out_put(sink, " ", 1);
}

/* --- one value ------------------------------------------------------------------------------------------------------------ */

struct spec {
    char flags[8], size[3], kind; /* "-", "ll", 'd' */
    int width, precision;         /* as printf has them: of a width below 0 the text stands left */
};

/* The number at the text, or the next value for a star. */
static int out_read_count(const char **at, va_list *values)
{
    if (**at == '*') {
        ++*at;
        return va_arg(*values, int);
    }
    return (int)strtol(*at, (char **)at, 10);
}

/* After the percent sign. */
static const char *read_spec(struct spec *s, const char *at, va_list *values)
{
    *s = (struct spec){.precision = -1};
    for (size_t n = 0; *at && strchr("-+ #0", *at) && n + 1 < sizeof s->flags; at++)
        s->flags[n++] = *at;
    if (*at == '*' || (*at >= '0' && *at <= '9'))
        s->width = out_read_count(&at, values);
    if (*at == '.') {
        at++;
        s->precision = out_read_count(&at, values);
    }
    for (size_t n = 0; *at && strchr("hlzjt", *at) && n + 1 < sizeof s->size; at++)
        s->size[n++] = *at;
    s->kind = *at;
    return *at ? at + 1 : at;
}

/* The bytes of a text up to the precision, whose last character is whole. */
static size_t text_length(const char *text, int precision)
{
    if (precision < 0)
        return strlen(text);
    size_t length = strnlen(text, (size_t)precision), at = length;
    for (size_t back = 1; back < 4 && back <= length; back++)
        if (utf8_sequence(text + length - back, (int64_t)back) == 0)
            at = length - back;
    return at;
}

static void out_put_text(struct sink *sink, const struct spec *s, const char *text)
{
    size_t length = text_length(text, s->precision), columns = 0;
    if (sink->buffer && sink->escape) {
        sink->status = sink->status == OK ? sink->escape(sink->buffer, text, (int64_t)length) : sink->status;
        return;
    }
    bool left = strchr(s->flags, '-') || s->width < 0, shown;
    for (size_t i = 0; i < length; i += (size_t)utf8_next(text + i, (int64_t)(length - i), &shown))
        columns++;
    int room = abs(s->width) - (int)columns;
    out_pad(sink, left ? 0 : room);
    for (size_t i = 0; i < length;) {
        size_t n = (size_t)utf8_next(text + i, (int64_t)(length - i), &shown);
        if (shown || text[i] == '\t')
            out_put(sink, text + i, n);
        else
            out_put(sink, text[i] == '\n' ? " " : "?", 1);
        i += n;
    }
    out_pad(sink, left ? room : 0);
}

static void out_put_number(struct sink *sink, const struct spec *s, va_list *values)
{
    char format[SPEC_SIZE], text[NUMBER_SIZE];
    int n = snprintf(format, sizeof format, "%%%s*.*%s%c", s->flags, s->size, s->kind), w = s->width, p = s->precision;
    if (strchr("aAeEfFgG", s->kind))
        n = snprintf(text, sizeof text, format, w, p, va_arg(*values, double));
    else if (!strcmp(s->size, "ll"))
        n = snprintf(text, sizeof text, format, w, p, va_arg(*values, long long));
    else if (s->size[0] == 'l' || s->size[0] == 'z' || s->size[0] == 'j' || s->size[0] == 't')
        n = snprintf(text, sizeof text, format, w, p, va_arg(*values, long));
    else
        n = snprintf(text, sizeof text, format, w, p, va_arg(*values, int));
    out_put(sink, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void put_value(struct sink *sink, const struct spec *s, va_list *values)
{
    if (s->kind == '%') {
        out_put(sink, "%", 1);
    } else if (s->kind == 's') {
        const char *text = va_arg(*values, const char *);
        out_put_text(sink, s, text ? text : "");
    } else if (s->kind == 'c') {
        char one[2] = {(char)va_arg(*values, int), 0};
        out_put_text(sink, s, one);
    } else {
        out_put_number(sink, s, values);
    }
}

static void out_put_format(struct sink *sink, const char *format, va_list values)
{
    struct spec spec;
    va_list rest;
    va_copy(rest, values);
    while (*format) {
        size_t plain = strcspn(format, "%");
        out_put(sink, format, plain);
        format += plain;
        if (*format) {
            format = read_spec(&spec, format + 1, &rest);
            put_value(sink, &spec, &rest);
        }
    }
    va_end(rest);
}

/* --- the ways out --------------------------------------------------------------------------------------------------------- */

static void print(FILE *to, const char *format, va_list values)
{
    struct sink sink;
    sink.buffer = NULL;
    sink.file = to;
    sink.count = 0;
    flockfile(to);
    out_put_format(&sink, format, values);
    out_flush(&sink);
    funlockfile(to);
}

void out_print(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    print(stdout, format, values);
    va_end(values);
}

void out_line(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    print(stdout, format, values);
    va_end(values);
    fputc('\n', stdout);
}

void out_error(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    print(stderr, format, values);
    va_end(values);
}

enum status out_format(struct buffer *text, out_escape *escape, const char *format, va_list values)
{
    struct sink sink;
    sink.buffer = text;
    sink.escape = escape;
    sink.status = OK;
    out_put_format(&sink, format, values);
    return sink.status;
}

void out_raw(FILE *to, const char *text, size_t length)
{
    fwrite(text, 1, length, to);
}

void out_paint(FILE *to, const char *codes)
{
    fputs(codes, to);
}

static enum status to_file(void *file, const char *text, int64_t length)
{
    out_raw(file, text, (size_t)length);
    return OK;
}

void out_answer(FILE *to, const char *text, size_t length)
{
    if (cli_is_terminal(to))
        (void)escape_text(text, (int64_t)length, to_file, to);
    else
        out_raw(to, text, length);
}

/* The length of the text that can go out as it is, from the beginning on. */
static size_t out_plain_length(const char *text, size_t length)
{
    bool shown;
    size_t at = 0;
    while (at < length) {
        int n = utf8_next(text + at, (int64_t)(length - at), &shown);
        if (!shown && text[at] != '\n' && text[at] != '\t')
            break;
        at += (size_t)n;
    }
    return at;
}

/* As UTF-16, which is how JSON escapes. */
static void escape(FILE *to, const char *text, size_t left)
{
    uint32_t code;
    if (utf8_sequence(text, (int64_t)left) <= 0) {
        fputc('?', to);
        return;
    }
    utf8_decode(text, &code);
    if (code >= 0x10000)
        fprintf(to, "\\u%04x", (unsigned)(0xd7c0 + (code >> 10)));
    fprintf(to, "\\u%04x", (unsigned)(code >= 0x10000 ? 0xdc00 + (code & 0x3ff) : code));
}

static void out_replace(FILE *to, const char *text, size_t left)
{
    (void)text, (void)left;
    fputc('?', to);
}

static void clean(FILE *to, const char *text, void (*instead)(FILE *to, const char *text, size_t left))
{
    size_t left = strlen(text);
    while (left) {
        bool shown;
        size_t n = out_plain_length(text, left);
        fwrite(text, 1, n, to);
        if (n < left) {
            instead(to, text + n, left - n);
            n += (size_t)utf8_next(text + n, (int64_t)(left - n), &shown);
        }
        text += n;
        left -= n;
    }
}

void out_text(FILE *to, const char *text)
{
    clean(to, text, out_replace);
}

void out_json(const char *json)
{
    clean(stdout, json, escape);
    fputc('\n', stdout);
}
