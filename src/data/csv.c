/* From records to lines of JSON. The file is read in pieces that grow until a whole record is in them. */
#include "data/csv.h"

#include <stdbool.h>
#include <string.h>

#include "base/json_quote.h"
#include "base/number.h"

enum { PIECE = 256 * 1024, RECORD_BYTES_MAX = 16 << 20, COLUMNS_MAX = 10000, BLANK_MAX = 1000000 };

/* Of a record, as it stands in the file. */
struct field {
    int64_t begin, end;   /* without the quotes around it */
    bool quoted, doubled; /* doubled: quotes in it are */
};

struct csv {
    struct arena arena;
    struct decompress *file;
    const char *path;
    char separator;
    struct buffer raw; /* [begin, raw.size) was read and not used */
    int64_t begin;
    bool last;    /* nothing follows */
    int64_t line; /* of raw[begin], from 1 */
    bool begun;   /* the newlines of the header were written */
    struct field *fields;
    int64_t field_count, field_capacity;
    const char **names;
    const char *const *keys;
    int64_t columns;
    struct buffer value; /* a field without its doubled quotes */
};

static enum status csv_wrong(const struct csv *c, int64_t line, const char *what)
{
    return fail(ERR_DATA, "%s:%lld: %s", c->path, (long long)line, what);
}

static enum status csv_too_long(const struct csv *c)
{
    return csv_wrong(c, c->line, "the record that begins here is longer than 16 MB: is a quote never closed?");
}

/* --- records ------------------------------------------------------------------------------------------------------------ */

static enum status add_field(struct csv *c, struct field field)
{
    if (c->field_count == COLUMNS_MAX)
        return csv_wrong(c, c->line, "a record has more than 10000 fields");
    TRY(memory_grow(&c->fields, &c->field_capacity, c->field_count + 1, (int64_t)sizeof *c->fields));
    c->fields[c->field_count++] = field;
    return OK;
}

/* The end of a field that begins with a quote, at `at`; -1: more text is needed. */
static int64_t quoted_end(const struct csv *c, int64_t at, struct field *field)
{
    for (int64_t i = at + 1; i < c->raw.size;) {
        const char *quote = memchr(c->raw.data + i, '"', (size_t)(c->raw.size - i));
        if (!quote)
            return -1;
        i = quote - c->raw.data;
        if (i + 1 == c->raw.size && !c->last)
            return -1;
        if (i + 1 == c->raw.size || c->raw.data[i + 1] != '"') {
            field->begin = at + 1;
            field->end = i;
            return i + 1;
        }
        field->doubled = true;
        i += 2;
    }
    return -1;
}

static int64_t count_lines(const struct csv *c, int64_t begin, int64_t end)
{
    int64_t lines = 0;
    for (const char *p = c->raw.data + begin, *stop = c->raw.data + end; (p = memchr(p, '\n', (size_t)(stop - p))); p++)
        lines++;
    return lines;
}

/* A field that has no quotes around it: up to a separator or the end of the line. */
static int64_t csv_plain_end(const struct csv *c, int64_t at, struct field *field)
{
    int64_t i = at;
    while (i < c->raw.size && c->raw.data[i] != c->separator && c->raw.data[i] != '\n')
        i++;
    if (i == c->raw.size && !c->last)
        return -1;
    field->begin = at;
    field->end = i > at && (i == c->raw.size || c->raw.data[i] == '\n') && c->raw.data[i - 1] == '\r' ? i - 1 : i;
    return i;
}

/* The fields of the record at raw[begin]; *end is after it, or -1: more text is needed. */
static enum status find_fields(struct csv *c, int64_t *end)
{
    int64_t at = c->begin;
    c->field_count = 0;
    *end = -1;
    for (;;) {
        struct field field = {.quoted = at < c->raw.size && c->raw.data[at] == '"'};
        int64_t after = field.quoted ? quoted_end(c, at, &field) : csv_plain_end(c, at, &field);
        if (after < 0 && field.quoted && c->last)
            return csv_wrong(c, c->line + count_lines(c, c->begin, at), "the quote that opens this field is never closed");
        if (after < 0)
            return OK;
        if (field.quoted && after < c->raw.size && c->raw.data[after] == '\r') {
            if (after + 1 == c->raw.size && !c->last)
                return OK;
            after++;
        }
        TRY(add_field(c, field));
        bool over = after == c->raw.size;
        if (over && !c->last)
            return OK;
        if (over || c->raw.data[after] == '\n') {
            *end = after + !over;
            return OK;
        }
        if (c->raw.data[after] != c->separator)
            return csv_wrong(c, c->line + count_lines(c, c->begin, after),
                             "text after the quote that closes a field; quotes inside of a field are doubled");
        at = after + 1;
    }
}

/* Reads until a whole record is there. *end is 0 at the file's end. */
static enum status next_record(struct csv *c, int64_t *end)
{
    for (int64_t more = PIECE;; more *= 2) {
        int64_t got;
        *end = 0;
        if (c->begin == c->raw.size && c->last)
            return OK;
        if (c->begin < c->raw.size) {
            TRY(find_fields(c, end));
            if (*end >= 0)
                return OK;
        }
        if (c->raw.size - c->begin >= RECORD_BYTES_MAX)
            return csv_too_long(c);
        memmove(c->raw.data, c->raw.data + c->begin, (size_t)(c->raw.size -= c->begin));
        c->begin = 0;
        more = min(more, RECORD_BYTES_MAX + 1 - c->raw.size);
        TRY(buffer_reserve(&c->raw, more));
        TRY(decompress_read(c->file, c->raw.data + c->raw.size, more, &got));
        c->raw.size += got;
        c->last = got < more;
    }
}

/* The bytes of a field. */
static enum status field_value(struct csv *c, const struct field *field, const char **text, int64_t *count)
{
    *text = c->raw.data + field->begin;
    *count = field->end - field->begin;
    if (!field->doubled)
        return OK;
    c->value.size = 0;
    for (int64_t i = field->begin; i < field->end;) {
        const char *quote = memchr(c->raw.data + i, '"', (size_t)(field->end - i));
        int64_t stop = quote ? quote - c->raw.data + 1 : field->end;
        TRY(buffer_append(&c->value, c->raw.data + i, stop - i));
        i = stop + (quote != NULL);
    }
    *text = c->value.data;
    *count = c->value.size;
    return OK;
}

static bool is_blank(const struct csv *c)
{
    const struct field *field = &c->fields[0];
    for (int64_t i = field->begin; i < field->end; i++)
        if (c->raw.data[i] != ' ' && c->raw.data[i] != '\t')
            return false;
    return c->field_count == 1 && !field->quoted;
}

/* Up to there it was used. */
static void csv_pass(struct csv *c, int64_t end)
{
    c->line += count_lines(c, c->begin, end);
    c->begin = end;
}

static enum status add_newlines(struct buffer *text, int64_t count)
{
    TRY(buffer_reserve(text, count));
    memset(text->data + text->size, '\n', (size_t)count);
    text->size += count;
    text->data[text->size] = 0;
    return OK;
}

/* As many as are in memory at once: there may be millions. `text`, if it is not NULL, gets a newline for each. */
static enum status csv_skip_blank_lines(struct csv *c, struct buffer *text)
{
    int64_t end = c->begin, before = c->line;
    while (end < c->raw.size && (c->raw.data[end] == '\n' || c->raw.data[end] == '\r'))
        end++;
    csv_pass(c, end);
    return text ? add_newlines(text, c->line - before) : OK;
}

/* --- the header --------------------------------------------------------------------------------------------------------- */

/* The first of the usual separators that stands outside of quotes; a header of one column has none. */
static char find_separator(const struct csv *c)
{
    bool inside = false;
    int64_t i = c->begin;
    while (i < c->raw.size && (c->raw.data[i] == '\r' || c->raw.data[i] == '\n'))
        i++; /* lines before the header may be empty */
    for (; i < c->raw.size && (inside || c->raw.data[i] != '\n'); i++) {
        char at = c->raw.data[i];
        if (at == '"')
            inside = !inside;
        else if (!inside && (at == ',' || at == ';' || at == '\t'))
            return at;
    }
    return ',';
}

static enum status take_names(struct csv *c)
{
    c->columns = c->field_count;
    c->names = arena_array(&c->arena, c->columns, (int64_t)sizeof *c->names);
    if (!c->names)
        return ERR_MEMORY;
    for (int64_t i = 0; i < c->columns; i++) {
        const char *text;
        int64_t count;
        TRY(field_value(c, &c->fields[i], &text, &count));
        if (count && memchr(text, 0, (size_t)count))
            return csv_wrong(c, c->line, "the header has a zero byte in it; it is no text");
        if (!(c->names[i] = arena_text(&c->arena, text ? text : "", count)))
            return ERR_MEMORY;
    }
    return OK;
}

static enum status csv_read_header(struct csv *c)
{
    int64_t end;
    do {
        TRY(csv_skip_blank_lines(c, NULL));
        TRY(next_record(c, &end));
        if (!end)
            return fail(ERR_DATA, "%s: no rows; its first line should be a header with the names of the columns", c->path);
        if (c->line > BLANK_MAX)
            return csv_wrong(c, c->line, "more than a million blank lines before the header");
        if (!is_blank(c))
            TRY(take_names(c));
        csv_pass(c, end);
    } while (!c->columns);
    return OK;
}

static enum status csv_open_csv(struct csv *c, const struct buffer *opening)
{
    TRY(buffer_append(&c->raw, opening->data, opening->size));
    if (c->raw.size >= 3 && memcmp(c->raw.data, "\xef\xbb\xbf", 3) == 0)
        c->begin = 3;
    if (!c->separator)
        c->separator = find_separator(c);
    return csv_read_header(c);
}

enum status csv_open(struct csv **out, struct decompress *file, const char *path, const struct buffer *opening, char separator)
{
    *out = NULL;
    struct csv *c = memory_alloc((int64_t)sizeof *c);
    if (!c)
        return ERR_MEMORY;
    *c = (struct csv){.file = file, .path = path, .separator = separator, .line = 1};
    enum status status = csv_open_csv(c, opening);
    if (status == OK)
        *out = c;
    else
        csv_close(c);
    return status;
}

void csv_close(struct csv *c)
{
    if (!c)
        return;
    buffer_free(&c->raw);
    buffer_free(&c->value);
    memory_free(c->fields);
    arena_free(&c->arena);
    memory_free(c);
}

int64_t csv_columns(const struct csv *c)
{
    return c->columns;
}

const char *const *csv_names(const struct csv *c)
{
    return c->names;
}

void csv_choose(struct csv *c, const char *const *keys)
{
    c->keys = keys;
}

/* --- rows --------------------------------------------------------------------------------------------------------------- */

static enum status csv_write_record(struct csv *c, struct buffer *text)
{
    int64_t begin = text->size;
    TRY(buffer_append(text, "{", 1));
    for (int64_t i = 0; i < c->columns; i++) {
        const struct field *field = &c->fields[i];
        const char *value;
        int64_t count;
        if (!c->keys[i])
            continue;
        TRY(buffer_append(text, ", ", text->size > begin + 1 ? 2 : 0));
        TRY(json_quote(text, c->keys[i], (int64_t)strlen(c->keys[i])));
        TRY(buffer_append(text, ": ", 2));
        TRY(field_value(c, field, &value, &count));
        if (text->size - begin + json_quoted_size(value, count) > RECORD_BYTES_MAX)
            return csv_too_long(c);
        TRY(count || field->quoted ? json_quote(text, value, count) : buffer_append(text, "null", 4));
    }
    return buffer_append(text, "}", 1);
}

enum status csv_next(struct csv *c, struct buffer *text, bool *more)
{
    int64_t end;
    if (!c->begun)
        TRY(add_newlines(text, c->line - 1));
    c->begun = true;
    TRY(csv_skip_blank_lines(c, text));
    TRY(next_record(c, &end));
    *more = end > 0;
    if (!end)
        return OK;
    if (!is_blank(c)) {
        if (c->field_count != c->columns)
            return fail(ERR_DATA,
                        "%s:%lld: the record that begins here has %lld fields, and the header %lld; a field with \"%s\" or a "
                        "newline in it stands in quotes",
                        c->path, (long long)c->line, (long long)c->field_count, (long long)c->columns,
                        c->separator == '\t' ? "\\t" : (const char[]){c->separator, 0});
        TRY(csv_write_record(c, text));
    }
    int64_t before = c->line;
    csv_pass(c, end);
    return add_newlines(text, max(c->line - before, 1));
}
