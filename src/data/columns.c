/* Pairs of keys and columns. */
#include "data/columns.h"

#include <string.h>

#include "base/json_quote.h"
#include "base/json_reader.h"
#include "data/kind.h"
#include "data/parse.h"

enum { PAIRS_MAX = 32, COLUMNS_SHOWN = 12 };

struct columns {
    struct arena arena;
    int count;
    struct {
        const char *key, *column;
    } pair[PAIRS_MAX];
};

/* --- the option --------------------------------------------------------------------------------------------------------- */

static enum status columns_list_keys(struct buffer *out)
{
    for (int i = 0; row_key_name(i); i++)
        TRY(buffer_format(out, "%s%s", i ? ", " : "", row_key_name(i)));
    return OK;
}

static enum status unknown_key(const char *key, const char *column)
{
    struct buffer keys = {0};
    enum status status = columns_list_keys(&keys);
    bool turned = row_key_known(column, (int64_t)strlen(column));
    if (status == OK)
        status = turned
                     ? fail(ERR_ARGUMENT, "--column-mapping %s=%s: the key of a row comes first, the file's column second: %s=%s",
                            key, column, column, key)
                     : fail(ERR_ARGUMENT, "--column-mapping %s=%s: rows have no key \"%s\"; their keys are %s", key, column, key,
                            keys.data);
    buffer_free(&keys);
    return status;
}

/* A text without the spaces around it. */
static char *trim(char *text)
{
    text += strspn(text, " ");
    for (size_t n = strlen(text); n && text[n - 1] == ' '; n--)
        text[n - 1] = 0;
    return text;
}

static enum status add_pair(struct columns *c, char *item)
{
    char *equals = strchr(item, '=');
    if (equals)
        *equals = 0;
    item = trim(item);
    const char *column = equals ? trim(equals + 1) : item;
    bool known = row_key_known(item, (int64_t)strlen(item));
    if (!*item || !*column || (!equals && !known))
        return fail(ERR_ARGUMENT,
                    "--column-mapping %s: write pairs of a key and the file's column, as in prompt=question,completion=answer",
                    item);
    if (!known)
        return unknown_key(item, column);
    for (int i = 0; i < c->count; i++) {
        bool key = strcmp(c->pair[i].key, item) == 0;
        if (key || strcmp(c->pair[i].column, column) == 0)
            return fail(ERR_ARGUMENT, "--column-mapping: the %s \"%s\" is there twice", key ? "key" : "column",
                        key ? item : column);
    }
    c->pair[c->count].key = item; /* keys are all different and known: there is room for them */
    c->pair[c->count++].column = column;
    return OK;
}

static enum status columns_add_pairs(struct columns *c, const char *text)
{
    char *item = arena_text(&c->arena, text, (int64_t)strlen(text));
    if (!item)
        return ERR_MEMORY;
    for (char *comma; item; item = comma) {
        comma = strchr(item, ',');
        if (comma)
            *comma++ = 0;
        TRY(add_pair(c, item));
    }
    return OK;
}

static bool is_mapped(const struct columns *c, const char *key)
{
    bool found = false;
    for (int i = 0; i < c->count; i++)
        found |= strcmp(c->pair[i].key, key) == 0;
    return found;
}

/* Whether the pairs give all keys of a kind; the files may have rows of several. */
static bool gives(const struct columns *c, enum row_kind kind)
{
    for (int i = 0; i < KIND_KEYS && row_kinds[kind].key[i]; i++)
        if (!is_mapped(c, row_kinds[kind].key[i]))
            return false;
    return true;
}

/* A column that was asked for is not left out without a word. */
static enum status check_uses(const struct columns *c)
{
    for (int i = 0; i < c->count; i++) {
        const char *of = NULL;
        bool used = false;
        for (int k = 0; k < ROW_KINDS; k++)
            if (gives(c, (enum row_kind)k)) {
                of = row_kinds[k].name;
                used |= row_kind_reads((enum row_kind)k, c->pair[i].key);
            }
        if (of && !used)
            return fail(ERR_ARGUMENT,
                        "--column-mapping %s=%s: rows of %s have no \"%s\", and it would not be read: leave it out%s",
                        c->pair[i].key, c->pair[i].column, of, c->pair[i].key,
                        strcmp(c->pair[i].key, "system") == 0 ? ", or take instruction and output as the other keys" : "");
    }
    return OK;
}

enum status columns_open(struct columns **out, const char *text)
{
    *out = NULL;
    if (!text)
        return OK;
    struct columns *c = memory_alloc((int64_t)sizeof *c);
    if (!c)
        return ERR_MEMORY;
    enum status status = columns_add_pairs(c, text);
    if (status == OK)
        status = check_uses(c);
    if (status == OK)
        *out = c;
    else
        columns_close(c);
    return status;
}

void columns_close(struct columns *c)
{
    if (!c)
        return;
    arena_free(&c->arena);
    memory_free(c);
}

/* The key of a column, or NULL. */
static const char *columns_key_of(const struct columns *c, const char *column, int64_t length)
{
    for (int i = 0; i < c->count; i++)
        if ((int64_t)strlen(c->pair[i].column) == length && memcmp(c->pair[i].column, column, (size_t)length) == 0)
            return c->pair[i].key;
    return NULL;
}

/* --- tables ------------------------------------------------------------------------------------------------------------- */

static enum status list_columns(struct buffer *out, const char *const *names, int64_t count)
{
    char name[PARSE_SHOWN];
    for (int64_t i = 0; i < count && i < COLUMNS_SHOWN; i++)
        TRY(buffer_format(out, "%s\"%s\"", i ? ", " : "", parse_shown(name, names[i])));
    return buffer_format(out, "%s", count > COLUMNS_SHOWN ? ", ..." : "");
}

/* The mapping for columns that are called as keys but for their case; empty if there are none. */
static enum status map_case(struct buffer *out, const char *const *names, int64_t count)
{
    bool differ = false;
    for (int64_t i = 0; i < count && i < COLUMNS_SHOWN; i++)
        for (int k = 0; row_key_name(k); k++)
            if (strcasecmp(names[i], row_key_name(k)) == 0) {
                differ |= strcmp(names[i], row_key_name(k)) != 0;
                TRY(buffer_format(out, "%s%s=%s", out->size ? "," : "", row_key_name(k), names[i]));
            }
    out->size = differ ? out->size : 0;
    return OK;
}

static enum status no_column(const char *path, const char *missing, const char *const *names, const char *const *keys,
                             int64_t count)
{
    struct buffer found = {0}, pairs = {0};
    char name[PARSE_SHOWN];
    enum status status = list_columns(&found, names, count);
    if (status == OK && !missing)
        status = map_case(&pairs, names, count);
    if (status == OK && pairs.size)
        status = fail(ERR_DATA,
                      "%s: the file's columns are of no known kind of row: they are %s, and the keys of rows are in lower case: "
                      "--column-mapping %s takes these",
                      path, found.data, pairs.data);
    else if (status == OK)
        status = missing
                     ? fail(ERR_ARGUMENT, "%s: --column-mapping names the column \"%s\", which is not there; its columns are %s",
                            path, parse_shown(name, missing), found.data)
                     : row_no_kind(path, found.data, keys, count);
    buffer_free(&found);
    buffer_free(&pairs);
    return status;
}

static enum status twice(const char *path, const char *column)
{
    char name[PARSE_SHOWN];
    return fail(ERR_DATA, "%s: the column \"%s\" is there twice; rename one of them", path, parse_shown(name, column));
}

static int64_t columns_find(const char *const *names, int64_t count, const char *name)
{
    for (int64_t i = 0; i < count; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return i;
    return -1;
}

enum status columns_choose(const struct columns *c, const char *path, const char *const *names, int64_t count, const char **keys)
{
    for (int i = 0; c && i < c->count; i++)
        if (columns_find(names, count, c->pair[i].column) < 0)
            return no_column(path, c->pair[i].column, names, keys, count);
    for (int64_t i = 0; i < count; i++) {
        int64_t length = (int64_t)strlen(names[i]);
        keys[i] = c ? columns_key_of(c, names[i], length) : row_key_known(names[i], length) ? names[i] : NULL;
        if (keys[i] && columns_find(names, i, names[i]) >= 0)
            return twice(path, names[i]);
    }
    return row_kind_possible(keys, count) ? OK : no_column(path, NULL, names, keys, count);
}

/* --- JSON --------------------------------------------------------------------------------------------------------------- */

/* One key and its value. A key that is not in the mapping stays if rows do not have it, so that messages can name it. */
static enum status rename_member(const struct columns *c, struct json_reader *r, struct buffer *out, bool *some)
{
    struct json_span key, value;
    TRY(json_reader_key(r, &key));
    const char *name = columns_key_of(c, key.text, key.length);
    if (!name && row_key_known(key.text, key.length))
        return json_reader_value(r, &value);
    if (*some)
        TRY(buffer_append(out, ", ", 2));
    TRY(name ? json_quote(out, name, (int64_t)strlen(name)) : json_quote(out, key.text, key.length));
    TRY(buffer_append(out, ": ", 2));
    TRY(json_reader_value(r, &value));
    *some = true;
    return buffer_append(out, value.text, value.length);
}

static enum status rename_members(const struct columns *c, struct json_reader *r, struct buffer *out)
{
    bool more, some = false;
    TRY(json_reader_enter(r, '{'));
    TRY(buffer_append(out, "{", 1));
    for (;;) {
        TRY(json_reader_next(r, '}', &more));
        if (!more)
            break;
        TRY(rename_member(c, r, out, &some));
    }
    TRY(json_reader_end(r));
    return buffer_append(out, "}", 1);
}

enum status columns_rename(const struct columns *c, const char *row, int64_t length, struct buffer *out)
{
    struct json_reader r;
    int64_t before = out->size;
    json_reader_init(&r, row, length, "row");
    enum status status = rename_members(c, &r, out);
    json_reader_free(&r);
    if (status == OK || status == ERR_MEMORY)
        return status;
    out->size = before;
    return buffer_append(out, row, length);
}
