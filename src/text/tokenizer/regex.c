/* PCRE2, in the only file that knows it. Every match has a budget of steps that grows with the text only linearly, and all
 * matches of a search share a deadline that does too, so that a pattern from a file cannot hang the program.
 *
 * PCRE2 grants the budget again at each place where a match may begin, so a search goes over windows of such places. Most matches
 * begin in the first and take few steps; where that is not so, there is a look at the clock before each window. */
#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "text/tokenizer/regex_syntax.h"

enum { PATTERN_BYTES_MAX = 1 << 16, STEPS = 1000000, STEPS_PER_BYTE = 16, HEAP_KIB = 64 * 1024, FINDS_A_LOOK = 64 };
enum { WINDOW = 64, WINDOW_STEPS = 10000, WINDOW_MAX = 1 << 16 };
static const double SECONDS = 2, SECONDS_PER_BYTE = 1e-5; /* a hundred times what published patterns take */
static const double WINDOW_SECONDS = 0.01;                /* it is made larger while it takes less */

struct regex {
    pcre2_code *code;
    const char *where;
    char name[]; /* what `where` points to */
};

struct regex_search {
    double start; /* when it was first asked, and how often: all finds of a text share a deadline */
    int64_t finds;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

static void *regex_take(PCRE2_SIZE bytes, void *context)
{
    (void)context;
    return bytes > INT64_MAX ? NULL : memory_alloc((int64_t)bytes);
}

static void regex_give(void *pointer, void *context)
{
    (void)context;
    memory_free(pointer);
}

static enum status regex_failed(int code, const char *where)
{
    char text[256];
    if (pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text) < 0)
        text[0] = 0;
    switch (code) {
    case PCRE2_ERROR_NOMEMORY: return fail(ERR_MEMORY, "%s: out of memory in a pattern", where);
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
        return fail(ERR_LIMIT, "%s: the pattern backtracks too much on this text (%s); simplify the pattern or shorten the text",
                    where, text);
    default: return fail(ERR_INTERNAL, "%s: the pattern failed: %s", where, text);
    }
}

static enum status regex_compile(struct regex **out, const char *pattern, int64_t length, uint32_t options, const char *where)
{
    int64_t name = (int64_t)strlen(where) + 1;
    struct regex *regex = memory_alloc((int64_t)sizeof *regex + name);
    if (!regex)
        return ERR_MEMORY;
    memcpy(regex->name, where, (size_t)name);
    regex->where = regex->name;
    pcre2_general_context *general = pcre2_general_context_create(regex_take, regex_give, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    enum status status = OK;
    if (!context) {
        status = regex_failed(PCRE2_ERROR_NOMEMORY, where);
    } else {
        int code;
        PCRE2_SIZE offset;
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_parens_nest_limit(context, 50);
        regex->code = pcre2_compile((PCRE2_SPTR)pattern, (PCRE2_SIZE)length, options, &code, &offset, context);
        if (!regex->code && code == PCRE2_ERROR_HEAP_FAILED) {
            status = regex_failed(PCRE2_ERROR_NOMEMORY, where);
        } else if (!regex->code) {
            char text[256];
            pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
            status = fail(ERR_FORMAT, "%s: the pattern cannot be compiled: %s (at \"%.20s\")", where, text,
                          pattern + (offset < (PCRE2_SIZE)length ? offset : (PCRE2_SIZE)length));
        }
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (status != OK) {
        regex_close(regex);
        return status;
    }
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* without a JIT the interpreter gives the same matches */
    *out = regex;
    return OK;
}

enum status regex_open(struct regex **out, const char *pattern, int64_t length, const char *where)
{
    if (length > PATTERN_BYTES_MAX)
        return fail(ERR_LIMIT, "%s: a pattern of %lld bytes; at most %d are accepted", where, (long long)length,
                    PATTERN_BYTES_MAX);
    struct buffer translated = {0};
    enum status status = regex_translate(pattern, length, &translated, where);
    if (status == OK)
        status = regex_compile(out, translated.data, translated.size,
                               PCRE2_USE_OFFSET_LIMIT | PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, where);
    buffer_free(&translated);
    return status;
}

enum status regex_open_literal(struct regex **out, const char *text, int64_t length, const char *where)
{
    if (length > PATTERN_BYTES_MAX)
        return fail(ERR_LIMIT, "%s: a pattern of %lld bytes; at most %d are accepted", where, (long long)length,
                    PATTERN_BYTES_MAX);
    return regex_compile(out, text, length, PCRE2_USE_OFFSET_LIMIT | PCRE2_UTF | PCRE2_LITERAL, where);
}

enum status regex_open_json(struct regex **out, const json_t *json, const char *where)
{
    const json_t *pattern = json_object_get(json, "Regex"), *literal = json_object_get(json, "String");
    if (json_is_string(pattern))
        return regex_open(out, json_string_value(pattern), (int64_t)json_string_length(pattern), where);
    if (json_is_string(literal))
        return regex_open_literal(out, json_string_value(literal), (int64_t)json_string_length(literal), where);
    return fail(ERR_FORMAT, "%s: \"pattern\" must have a \"Regex\" or a \"String\"", where);
}

void regex_close(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    memory_free(regex);
}

enum status regex_search_init(struct regex_search **out)
{
    struct regex_search *search = memory_alloc(sizeof *search);
    if (!search)
        return ERR_MEMORY;
    pcre2_general_context *general = pcre2_general_context_create(regex_take, regex_give, NULL);
    if (general) {
        search->data = pcre2_match_data_create(1, general);
        search->context = pcre2_match_context_create(general);
    }
    pcre2_general_context_free(general);
    if (!search->data || !search->context) {
        regex_search_free(search);
        return ERR_MEMORY;
    }
    pcre2_set_heap_limit(search->context, HEAP_KIB);
    regex_search_restart(search);
    *out = search;
    return OK;
}

void regex_search_restart(struct regex_search *search)
{
    search->finds = 0;
}

void regex_search_free(struct regex_search *search)
{
    if (!search)
        return;
    pcre2_match_data_free(search->data);
    pcre2_match_context_free(search->context);
    memory_free(search);
}

/* A match that begins in [from, last]. */
static int regex_match(const struct regex *regex, struct regex_search *search, const char *text, int64_t length, int64_t from,
                       int64_t last, int64_t steps)
{
    pcre2_set_match_limit(search->context, (uint32_t)steps);
    pcre2_set_offset_limit(search->context, (PCRE2_SIZE)last);
    int code = pcre2_match(regex->code, (PCRE2_SPTR)text, (PCRE2_SIZE)length, (PCRE2_SIZE)from, PCRE2_NO_UTF_CHECK, search->data,
                           search->context);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) /* the JIT has 32 KiB; the interpreter uses the heap */
        code = pcre2_match(regex->code, (PCRE2_SPTR)text, (PCRE2_SIZE)length, (PCRE2_SIZE)from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                           search->data, search->context);
    return code;
}

static enum status regex_look(const struct regex *regex, const struct regex_search *search, int64_t length, double *now)
{
    *now = clock_seconds();
    return *now - search->start <= SECONDS + SECONDS_PER_BYTE * (double)length
               ? OK
               : fail(ERR_LIMIT, "%s: the pattern takes too long on a text of %lld bytes", regex->where, (long long)length);
}

/* The places from `from` on, window by window. */
static enum status match_on(const struct regex *regex, struct regex_search *search, const char *text, int64_t length,
                            int64_t from, int *code)
{
    int64_t steps = length > (UINT32_MAX - STEPS) / STEPS_PER_BYTE ? UINT32_MAX : STEPS + STEPS_PER_BYTE * length;
    double now, before;
    TRY(regex_look(regex, search, length, &before));
    for (int64_t window = WINDOW;;) {
        int64_t next = min(from + window, length);
        while (next < length && ((uint8_t)text[next] & 0xc0) == 0x80) /* a match begins with a character */
            next++;
        *code = regex_match(regex, search, text, length, from, next, steps);
        if (*code != PCRE2_ERROR_NOMATCH || next == length)
            return OK;
        TRY(regex_look(regex, search, length, &now));
        window = now - before < WINDOW_SECONDS ? min(window * 2, WINDOW_MAX) : max(window / 2, 1);
        before = now;
        from = next;
    }
}

enum status regex_find(const struct regex *regex, struct regex_search *search, const char *text, int64_t length, int64_t from,
                       int64_t *begin, int64_t *end)
{
    double now;
    if (!search->finds)
        search->start = clock_seconds();
    if (++search->finds % FINDS_A_LOOK == 0)
        TRY(regex_look(regex, search, length, &now));
    int64_t last = min(from + WINDOW, length);
    int code = regex_match(regex, search, text, length, from, last, WINDOW_STEPS);
    if (code == PCRE2_ERROR_MATCHLIMIT || (code == PCRE2_ERROR_NOMATCH && last < length))
        TRY(match_on(regex, search, text, length, from, &code));
    if (code == PCRE2_ERROR_NOMATCH) {
        *begin = *end = -1;
        return OK;
    }
    if (code < 0)
        return regex_failed(code, regex->where);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(search->data);
    *begin = (int64_t)range[0];
    *end = (int64_t)range[1];
    return OK;
}

/* PCRE2 gives texts of a few digits and a date; without a buffer it returns their lengths. */
static int library_text(uint32_t what, char *out, int room)
{
    int size = pcre2_config(what, NULL);
    return size > 0 && size <= room ? pcre2_config(what, out) : 0;
}

const char *regex_library(char out[static REGEX_LIBRARY])
{
    int n = library_text(PCRE2_CONFIG_VERSION, out, REGEX_LIBRARY / 2);
    if (n)
        out[n - 1] = ' ';
    out[n] = 0;
    library_text(PCRE2_CONFIG_UNICODE_VERSION, out + n, REGEX_LIBRARY / 2);
    return out;
}
