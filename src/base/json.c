/* JSON through Jansson.
 *
 * Jansson does not say when its memory ran out: it calls the text wrong, reads less of it, or writes less. So its allocations are
 * watched. */
#include "base/json.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/path_hint.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

/* Nor does it stop: a number that it could not store whole ends in a failed assertion. So while it parses, what is refused comes
 * out of a spare block, and the text ends soon after. */
enum { FED_BYTES = 64, SPARE_BYTES = 1 << 14 }; /* the second is more than the values in the first can take */

static json_malloc_t allocate; /* as they were before they were watched */
static json_free_t release;
static _Thread_local bool refused;
static _Thread_local char *spare, *spare_next; /* NULL: nothing is being parsed */

static void *watched(size_t bytes)
{
    void *memory = allocate(bytes);
    if (memory)
        return memory;
    refused = true;
    size_t step = (bytes + 15) / 16 * 16;
    if (!spare || step > (size_t)(spare + SPARE_BYTES - spare_next))
        return NULL;
    memory = spare_next;
    spare_next += step;
    return memory;
}

static void let_go(void *memory)
{
    char *at = memory;
    if (!spare || at < spare || at >= spare + SPARE_BYTES)
        release(memory);
}

/* At the start, before there are threads; the functions that a program may have set are kept. */
__attribute__((constructor)) void json_watch_memory(void)
{
    json_malloc_t now;
    json_free_t then;
    json_get_alloc_funcs(&now, &then);
    if (now == watched)
        return;
    allocate = now;
    release = then;
    json_set_alloc_funcs(watched, let_go);
}

/* The library may be unloaded before Jansson. */
__attribute__((destructor)) static void unwatch(void)
{
    json_malloc_t now;
    json_free_t then;
    json_get_alloc_funcs(&now, &then);
    if (now == watched)
        json_set_alloc_funcs(allocate, release);
}

/* What a tree takes, in units of about 40 bytes: a list or an object takes some of them even if it is empty, and so does a
 * member's name. */
enum { LIST_UNITS = 3, OBJECT_UNITS = 6, NAME_UNITS = 2, UNITS_ALWAYS = 1 << 20, BYTES_PER_UNIT = 10 };

bool json_affordable(const char *text, int64_t length)
{
    int64_t units = 0, allowed = UNITS_ALWAYS + length / BYTES_PER_UNIT;
    if (length <= UNITS_ALWAYS / OBJECT_UNITS)
        return true;
    for (const char *at = text, *end = text + length; at < end && units <= allowed; at++) {
        if (*at == '"')
            for (at++; at < end && *at != '"'; at++)
                at += *at == '\\';
        else
            units += *at == '{' ? OBJECT_UNITS : *at == '[' ? LIST_UNITS : *at == ':' ? NAME_UNITS : *at == ',';
    }
    return units <= allowed;
}

struct feed {
    const char *at, *end;
};

static size_t json_feed(void *to, size_t room, void *context)
{
    struct feed *f = context;
    size_t left = (size_t)(f->end - f->at), n = refused ? 0 : left < FED_BYTES ? left : FED_BYTES;
    n = n < room ? n : room;
    memcpy(to, f->at, n);
    f->at += n;
    return n;
}

enum status json_load(json_t **tree, const char *text, int64_t length, size_t flags, json_error_t *error)
{
    struct feed f = {text, text + length};
    bool before = refused; /* a tree may be in the making */
    *tree = NULL;
    spare = spare_next = memory_alloc(SPARE_BYTES);
    if (!spare)
        return ERR_MEMORY;
    refused = false;
    *tree = json_load_callback(json_feed, &f, JSON_ALLOW_NUL | flags, error);
    bool lacking = refused || (!*tree && json_error_code(error) == json_error_out_of_memory);
    if (lacking) {
        json_decref(*tree);
        *tree = NULL;
    }
    memory_free(spare);
    spare = NULL;
    refused = before;
    return lacking ? fail(ERR_MEMORY, "out of memory while parsing JSON") : *tree ? OK : ERR_FORMAT;
}

/* `after` ends the message of a text that is not JSON. */
static enum status parse(json_t **tree, const char *text, int64_t length, size_t flags, const char *where, const char *after)
{
    json_error_t error;
    *tree = NULL;
    if (!json_affordable(text, length))
        return fail(ERR_LIMIT, "%s: too many values for %lld bytes of JSON", where, (long long)length);
    enum status status = json_load(tree, text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &error);
    return status == ERR_MEMORY ? fail_at(ERR_MEMORY, "%s: ", where)
           : status == ERR_FORMAT
               ? fail(ERR_FORMAT, "%s: line %d, column %d: %s%s", where, error.line, error.column, error.text, after)
               : OK;
}

enum status json_parse(json_t **tree, const char *text, int64_t length, const char *where)
{
    return parse(tree, text, length, 0, where, "");
}

static enum status parse_file(json_t **tree, const char *path, int64_t max_bytes, size_t flags)
{
    struct buffer text = {0};
    enum status status = file_read(&text, path, max_bytes);
    if (status == OK)
        status = path_hint_content(path, text.data, text.size, "JSON");
    if (status == OK)
        status = parse(tree, text.data, text.size, flags, path, "; if the file was downloaded, download it again");
    buffer_free(&text);
    return status;
}

enum status json_parse_file(json_t **tree, const char *path, int64_t max_bytes)
{
    return parse_file(tree, path, max_bytes, 0);
}

enum status json_parse_file_reals(json_t **tree, const char *path, int64_t max_bytes)
{
    return parse_file(tree, path, max_bytes, JSON_DECODE_INT_AS_REAL);
}

/* Four hexadecimal digits, or JSON_NO_ESCAPE. */
static int32_t read_unit(const char *at, const char *end)
{
    int32_t unit = 0;
    if (end - at < 4)
        return JSON_NO_ESCAPE;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return JSON_NO_ESCAPE;
        unit = unit * 16 + digit;
    }
    return unit;
}

int32_t json_escape(const char **at, const char *end)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *p = *at, *letter = p < end && *p ? strchr(letters, *p) : NULL;
    if (letter) {
        *at = p + 1;
        return values[letter - letters];
    }
    int32_t unit = p < end && *p == 'u' ? read_unit(p + 1, end) : JSON_NO_ESCAPE;
    if (unit < 0)
        return JSON_NO_ESCAPE;
    *at = p += 5;
    if (unit < 0xd800 || unit > 0xdfff)
        return unit;
    int32_t low = unit < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? read_unit(p + 2, end) : JSON_NO_ESCAPE;
    if (low < 0xdc00 || low > 0xdfff)
        return JSON_HALF_PAIR;
    *at = p + 6;
    return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
}

json_t *json_member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

const char *json_kind(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list", [JSON_STRING] = "a string", [JSON_INTEGER] = "a number",
        [JSON_REAL] = "a number",    [JSON_TRUE] = "true",    [JSON_FALSE] = "false",     [JSON_NULL] = "null"};
    return value ? names[json_typeof(value)] : "missing";
}

static enum status json_wrong_type(const char *where, const char *key, const char *want)
{
    return fail(ERR_FORMAT, "%s: \"%s\" must be %s", where, key, want);
}

enum status json_get_int(const json_t *object, const char *key, int64_t *out, const char *where)
{
    const json_t *value = json_member(object, key);
    if (!value)
        return OK;
    if (!json_is_integer(value))
        return json_wrong_type(where, key, "a whole number");
    *out = json_integer_value(value);
    return OK;
}

enum status json_get_real(const json_t *object, const char *key, double *out, const char *where)
{
    const json_t *value = json_member(object, key);
    if (!value)
        return OK;
    if (!json_is_number(value))
        return json_wrong_type(where, key, "a number");
    *out = json_number_value(value);
    return OK;
}

enum status json_get_bool(const json_t *object, const char *key, bool *out, const char *where)
{
    const json_t *value = json_member(object, key);
    if (!value)
        return OK;
    if (!json_is_boolean(value))
        return json_wrong_type(where, key, "true or false");
    *out = json_is_true(value);
    return OK;
}

enum status json_get_text(const json_t *object, const char *key, const char **out, const char *where)
{
    const json_t *value = json_member(object, key);
    if (!value)
        return OK;
    if (!json_is_string(value))
        return json_wrong_type(where, key, "a string");
    *out = json_string_value(value);
    return OK;
}

enum status json_need_int(const json_t *object, const char *key, int64_t *out, const char *where)
{
    if (!json_member(object, key))
        return fail(ERR_FORMAT, "%s: \"%s\" is missing", where, key);
    return json_get_int(object, key, out, where);
}

enum status json_copy_text(const json_t *object, const char *key, char **text, int64_t *length, const char *where)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return fail(ERR_FORMAT, "%s: \"%s\" must be a string", where, key);
    *length = (int64_t)json_string_length(value);
    if (!(*text = memory_alloc(*length)))
        return ERR_MEMORY;
    memcpy(*text, json_string_value(value), (size_t)*length);
    return OK;
}

json_t *json_lossy(const char *text)
{
    json_t *value = json_string(text);
    if (value || utf8_invalid(text, (int64_t)strlen(text)) < 0)
        return value;
    char *copy = memory_alloc((int64_t)strlen(text) + 1);
    if (!copy)
        return NULL;
    utf8_clean(strcpy(copy, text));
    value = json_string(copy);
    memory_free(copy);
    return value;
}

json_t *json_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

bool json_refused(void)
{
    bool was = refused;
    refused = false;
    return was;
}

void json_text_free(char *text)
{
    json_malloc_t make;
    json_free_t end;
    json_get_alloc_funcs(&make, &end);
    if (text)
        end(text);
}

char *json_write(const json_t *tree, size_t flags)
{
    char *text = tree ? json_dumps(tree, flags) : NULL;
    if (!json_refused() && text)
        return text;
    json_text_free(text);
    fail(ERR_MEMORY, "out of memory while writing JSON");
    return NULL;
}

char *json_file_text(const json_t *tree)
{
    return json_write(tree, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}

enum status json_replace_file(const char *path, const json_t *tree)
{
    char *text = json_file_text(tree);
    enum status status = text ? file_replace(path, text, (int64_t)strlen(text)) : fail_at(ERR_MEMORY, "%s: ", path);
    json_text_free(text);
    return status;
}
