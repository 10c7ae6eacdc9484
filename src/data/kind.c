/* Kinds by keys. The text is scanned from key to key; only if that gives no kind is the row parsed, to say what is wrong.
 */
#include "data/kind.h"

#include <string.h>

#include "base/json_reader.h"
#include "data/parse.h"

enum { KEYS_SHOWN = 8 };

const char *row_kind_name(enum row_kind kind)
{
    return row_kinds[kind].name;
}

json_t *row_kinds_json(const int64_t rows[ROW_KINDS])
{
    json_t *kinds = json_object();
    for (int k = 0; k < ROW_KINDS; k++)
        if (rows[k])
            json_object_set_new(kinds, row_kinds[k].name, json_integer((json_int_t)rows[k]));
    return kinds;
}

/* Which of the keys of kinds are present. */
struct keys {
    bool has[ROW_KINDS][KIND_KEYS];
    bool others;
};

/* A name may have zero bytes in it, so its length counts. */
static void add_key(struct keys *keys, const char *name, int64_t length)
{
    bool known = false;
    for (int k = 0; k < ROW_KINDS; k++)
        for (int i = 0; i < KIND_KEYS && row_kinds[k].key[i]; i++)
            if ((int64_t)strlen(row_kinds[k].key[i]) == length && memcmp(row_kinds[k].key[i], name, (size_t)length) == 0)
                keys->has[k][i] = known = true;
    keys->others |= !known;
}

/* The keys of an object's text that are not null. False: it is broken, or not an object. */
static bool keys_of_text(struct keys *keys, const char *text, int64_t length)
{
    struct json_reader r;
    struct json_span key, value;
    bool more = true;
    json_reader_init(&r, text, length, "row");
    enum status status = json_reader_enter(&r, '{');
    while (status == OK && (status = json_reader_next(&r, '}', &more)) == OK && more) {
        status = json_reader_key(&r, &key);
        if (status == OK && json_reader_peek(&r) != 'n')
            add_key(keys, key.text, key.length);
        if (status == OK)
            status = json_reader_value(&r, &value);
    }
    json_reader_free(&r);
    return status == OK;
}

static void keys_of_tree(struct keys *keys, const json_t *tree)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)tree, key, value)
    {
        if (!json_is_null(value))
            add_key(keys, key, (int64_t)strlen(key));
    }
}

/* --- rows that are of no kind ------------------------------------------------------------------------------------------- */

static enum status kind_list_keys(struct buffer *text, const json_t *tree)
{
    const char *key;
    json_t *value;
    char name[PARSE_SHOWN];
    int count = 0;
    json_object_foreach((json_t *)tree, key, value)
    {
        if (++count > KEYS_SHOWN)
            return buffer_format(text, ", ...");
        TRY(buffer_format(text, "%s\"%s\"%s", count > 1 ? ", " : "", parse_shown(name, key),
                          json_is_null(value) ? " (null)" : ""));
    }
    return count ? OK : buffer_format(text, "none");
}

/* "\"prompt\" but no \"completion\"" for a kind of which only one key is present. */
static enum status name_half(struct buffer *text, const struct keys *keys)
{
    for (int k = 0; k < ROW_KINDS; k++) {
        const char *a = row_kinds[k].key[0], *b = row_kinds[k].key[1];
        bool first = keys->has[k][0];
        if (b && first != keys->has[k][1])
            return buffer_format(text, "it has \"%s\" but no \"%s\"; ", first ? a : b, first ? b : a);
    }
    return buffer_format(text, "%s", "");
}

static enum status list_kinds(struct buffer *text)
{
    for (int k = 0; k < ROW_KINDS; k++) {
        const char *a = row_kinds[k].key[0], *b = row_kinds[k].key[1];
        TRY(buffer_format(text, b ? "%s\"%s\" and \"%s\"" : "%s\"%s\"", k ? " | " : "", a, b));
    }
    return OK;
}

#define MAPPING "--column-mapping takes other names, as in prompt=question,completion=answer"

static struct keys keys_of_names(const char *const *names, int64_t count)
{
    struct keys keys = {0};
    for (int64_t i = 0; i < count; i++)
        if (names[i])
            add_key(&keys, names[i], (int64_t)strlen(names[i]));
    return keys;
}

enum status row_no_kind(const char *path, const char *columns, const char *const *names, int64_t count)
{
    struct buffer half = {0}, known = {0};
    struct keys keys = keys_of_names(names, count);
    enum status status = name_half(&half, &keys);
    if (status == OK)
        status = list_kinds(&known);
    if (status == OK)
        status = fail(ERR_DATA, "%s: the file's columns are of no known kind of row: %sthey are %s; known are %s; " MAPPING, path,
                      half.data, columns, known.data);
    buffer_free(&half);
    buffer_free(&known);
    return status;
}

static enum status no_kind(const json_t *tree, const struct keys *keys)
{
    struct buffer found = {0}, half = {0}, known = {0};
    enum status status = kind_list_keys(&found, tree);
    if (status == OK)
        status = name_half(&half, keys);
    if (status == OK)
        status = list_kinds(&known);
    if (status == OK)
        status = fail(ERR_DATA, "the row is of no known kind: %sits keys are %s; known are %s; " MAPPING, half.data, found.data,
                      known.data);
    buffer_free(&found);
    buffer_free(&half);
    buffer_free(&known);
    return status;
}

static enum status two_kinds(int a, int b)
{
    const char *const *first = row_kinds[a].key, *const *second = row_kinds[b].key;
    return fail(ERR_DATA, "the row could be two kinds: %s by \"%s\", and %s by \"%s\"; keep the keys of one", row_kinds[a].name,
                first[first[1] != NULL], row_kinds[b].name, second[second[1] != NULL]);
}

/* --- recognising -------------------------------------------------------------------------------------------------------- */

/* How many kinds the keys fit, and the first two of them. */
static int find_kinds(const struct keys *keys, int found[static 2])
{
    int count = 0;
    for (int k = 0; k < ROW_KINDS; k++)
        if (keys->has[k][0] && (keys->has[k][1] || !row_kinds[k].key[1])) {
            if (count < 2)
                found[count] = k;
            count++;
        }
    return count;
}

bool row_kind_possible(const char *const *names, int64_t count)
{
    struct keys keys = keys_of_names(names, count);
    int found[2];
    return find_kinds(&keys, found) > 0;
}

enum status row_recognise(struct row_outline *out, const char *text, int64_t length)
{
    struct keys keys = {0};
    int found[2] = {0};
    *out = (struct row_outline){0};
    if (!keys_of_text(&keys, text, length) || find_kinds(&keys, found) != 1) {
        TRY(parse_row(&out->tree, text, length));
        if (!json_is_object(out->tree))
            return fail(ERR_DATA, "the row is %s, not a JSON object as in {\"messages\": [...]}", json_kind(out->tree));
        keys = (struct keys){0};
        keys_of_tree(&keys, out->tree);
        int count = find_kinds(&keys, found);
        if (count != 1)
            return count ? two_kinds(found[0], found[1]) : no_kind(out->tree, &keys);
    }
    out->kind = (enum row_kind)found[0];
    for (int k = 0; k < ROW_KINDS; k++)
        keys.others |= k != found[0] && (keys.has[k][0] || keys.has[k][1]);
    out->pure = !keys.others;
    return OK;
}
