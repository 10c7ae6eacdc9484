/* The table of options.def, and how one value gets from its text into struct options. */
#include "config/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/nearest.h"
#include "config/table.h"

/* The words of the table's columns `commands` and `allowed`. */
enum {
#define COMMAND(id, ...) id = 1 << COMMAND_##id,
#include "config/options.def"
    ALL = (1 << COMMANDS) - 1
};
#define ANY .least = 0
#define AT_LEAST(n) .least = (n), .bounded_below = true
#define ABOVE(n) .least = (n), .bounded_below = true, .above = true
#define BETWEEN(a, b) .least = (a), .bounded_below = true, .most = (b), .bounded_above = true
#define ABOVE_TO(a, b) .least = (a), .bounded_below = true, .above = true, .most = (b), .bounded_above = true
#define BELOW(a, b) .least = (a), .bounded_below = true, .most = (b), .bounded_above = true, .below = true
#define ONE_OF(list) .choices = (list)
#define FLAG_ONLY .flag_only = true

/* The choices of --optim, each after a bar. */
static const char optimizer_names[] =
#define OPTIMIZER(name, ...) "|" #name
#include "config/optimizers.def"
#undef OPTIMIZER
    ;

const struct option_row option_table[OPTIONS] = {
#define OPTION(kind_, name_, alias_, otherwise, commands_, allowed, placeholder_, help_)                                         \
    {.kind = KIND_##kind_,                                                                                                       \
     .name = #name_,                                                                                                             \
     .alias = alias_,                                                                                                            \
     .commands = (commands_),                                                                                                    \
     .placeholder = placeholder_,                                                                                                \
     .help = help_,                                                                                                              \
     .offset = offsetof(struct options, name_),                                                                                  \
     allowed},
#include "config/options.def"
};

const struct command_row command_table[COMMANDS] = {
#define COMMAND(id, name, usage, summary) {#name, usage, summary},
#include "config/options.def"
};

void options_init(struct options *options, struct arena *arena)
{
    *options = (struct options){
#define OPTION(kind, name, alias, otherwise, ...) .name = otherwise,
#include "config/options.def"
        .arena = arena,
    };
}

static bool same_key(const char *name, const char *key, int64_t length)
{
    if (!name || (int64_t)strlen(name) != length)
        return false;
    for (int64_t i = 0; i < length; i++)
        if (name[i] != (key[i] == '-' ? '_' : key[i]))
            return false;
    return true;
}

const struct option_row *table_find(const char *key, int64_t length)
{
    for (const struct option_row *row = option_table; row < option_table + OPTIONS; row++)
        if (same_key(row->name, key, length) || same_key(row->alias, key, length))
            return row;
    return NULL;
}

enum option table_option(const struct option_row *row)
{
    return (enum option)(row - option_table);
}

bool table_has(const struct option_row *row, enum user_command command)
{
    return row->commands >> command & 1;
}

void table_suggest(const char *key, int64_t length, enum user_command command, bool as_flag, char words[static WORDS_SIZE])
{
    const char *best = NULL;
    int distance = 0;
    for (const struct option_row *row = option_table; row < option_table + OPTIONS; row++) {
        const char *names[] = {row->name, row->alias};
        for (int i = 0; i < 2 && names[i]; i++) {
            /* At the same distance the command's own options come first. */
            int d = 2 * nearest_distance(key, length, names[i], (int64_t)strlen(names[i])) + !table_has(row, command);
            if (strlen(names[i]) > 1 && (!best || d < distance)) {
                best = names[i];
                distance = d;
            }
        }
    }
    bool near = distance / 2 <= (length < 6 ? 2 : length / 3);
    snprintf(words, WORDS_SIZE, near ? "did you mean '%s%s'?" : "the nearest is '%s%s'", as_flag ? "--" : "", best);
    for (char *c = words; as_flag && *c; c++)
        if (*c == '_')
            *c = '-';
}

void table_takes(const struct option_row *row, char words[static WORDS_SIZE])
{
    switch (row->kind) {
    case KIND_TEXT: snprintf(words, WORDS_SIZE, "any text"); break;
    case KIND_PATH: snprintf(words, WORDS_SIZE, "a path"); break;
    case KIND_BOOL: snprintf(words, WORDS_SIZE, "true or false"); break;
    case KIND_CHOICE:
        words[0] = 0;
        for (const char *c = row->choices, *end; c; c = *end ? end + 1 : NULL) {
            end = c + strcspn(c, "|");
            const char *between = c == row->choices ? "" : *end ? ", " : " or ";
            size_t used = strlen(words);
            snprintf(words + used, WORDS_SIZE - used, "%s%.*s", between, (int)(end - c), c);
        }
        break;
    case KIND_INT:
    case KIND_REAL: {
        int n = snprintf(words, WORDS_SIZE, row->kind == KIND_INT ? "a whole number" : "a number");
        char *to = words + n;
        size_t room = WORDS_SIZE - (size_t)n;
        if (row->bounded_above && row->below)
            snprintf(to, room, " from %.15g to below %.15g", row->least, row->most);
        else if (row->bounded_above)
            snprintf(to, room, row->above ? " above %.15g, up to %.15g" : " from %.15g to %.15g", row->least, row->most);
        else if (row->bounded_below)
            snprintf(to, room, row->above ? " above %.15g" : " of at least %.15g", row->least);
        break;
    }
    }
}

static bool in_bounds(const struct option_row *row, double x)
{
    if (row->bounded_below && (row->above ? x <= row->least : x < row->least))
        return false;
    return !row->bounded_above || (row->below ? x < row->most : x <= row->most);
}

static bool read_int(const struct option_row *row, const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!*digits || digits[strspn(digits, "0123456789")])
        return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0 && in_bounds(row, (double)*out);
}

static bool read_real(const struct option_row *row, const char *text, double *out)
{
    /* strtod alone would also take blanks, hexadecimal digits, "inf" and "nan". */
    if (!*text || text[strspn(text, "0123456789+-.eE")])
        return false;
    char *end;
    *out = strtod(text, &end);
    return !*end && isfinite(*out) && in_bounds(row, *out);
}

static bool read_bool(const char *text, bool *out)
{
    *out = strcasecmp(text, "true") == 0;
    return *out || strcasecmp(text, "false") == 0;
}

static bool read_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (const char *c = choices, *end; c; c = *end ? end + 1 : NULL) {
        end = c + strcspn(c, "|");
        if ((size_t)(end - c) == length && memcmp(c, text, length) == 0)
            return true;
    }
    return false;
}

enum status table_store(struct options *options, const struct option_row *row, const char *value, const char *source,
                        bool check_only)
{
    int64_t integer = 0;
    double real = 0;
    bool boolean = false, good = true;
    switch (row->kind) {
    case KIND_TEXT: break;
    case KIND_PATH: good = *value; break;
    case KIND_INT: good = read_int(row, value, &integer); break;
    case KIND_REAL: good = read_real(row, value, &real); break;
    case KIND_BOOL: good = read_bool(value, &boolean); break;
    case KIND_CHOICE: good = read_choice(row->choices, value); break;
    }
    if (!good) {
        char takes[WORDS_SIZE];
        table_takes(row, takes);
        if (source[0] == '-')
            return fail(ERR_ARGUMENT, "%s cannot be '%.100s': it takes %s", source, value, takes);
        return fail(ERR_ARGUMENT, "%s: %s cannot be '%.100s': it takes %s", source, row->name, value, takes);
    }
    if (check_only)
        return OK;
    const char *who = arena_text(options->arena, source, (int64_t)strlen(source));
    const char *text = arena_text(options->arena, value, (int64_t)strlen(value));
    if (!who || !text)
        return ERR_MEMORY;
    char *field = (char *)options + row->offset;
    switch (row->kind) {
    case KIND_TEXT:
    case KIND_PATH:
    case KIND_CHOICE: memcpy(field, &text, sizeof text); break;
    case KIND_INT: memcpy(field, &integer, sizeof integer); break;
    case KIND_REAL: memcpy(field, &real, sizeof real); break;
    case KIND_BOOL: memcpy(field, &boolean, sizeof boolean); break;
    }
    options->source[table_option(row)] = who;
    return OK;
}

enum status options_set(struct options *options, enum user_command command, const char *key, const char *value,
                        const char *source)
{
    const struct option_row *row = table_find(key, (int64_t)strlen(key));
    if (!row) {
        char words[WORDS_SIZE];
        table_suggest(key, (int64_t)strlen(key), command, false, words);
        return fail(ERR_ARGUMENT, "%s: unknown option '%.60s': %s", source, key, words);
    }
    if (!table_has(row, command))
        return fail(ERR_ARGUMENT, "%s: %s is not an option of hone %s", source, row->name, options_command_name(command));
    if (row->flag_only)
        return fail(ERR_ARGUMENT, "%s: %s is for the command line alone", source, row->name);
    return table_store(options, row, value, source, false);
}

enum status options_need(const struct options *options, enum user_command command, enum option option)
{
    const struct option_row *row = &option_table[option];
    if (row->kind != KIND_TEXT && row->kind != KIND_PATH && row->kind != KIND_CHOICE)
        return OK;
    const char *text;
    memcpy(&text, (const char *)options + row->offset, sizeof text);
    if (text)
        return OK;
    const char *name = row->alias ? row->alias : row->name;
    return fail(ERR_ARGUMENT, "hone %s needs --%s %s: %s", options_command_name(command), name, row->placeholder, row->help);
}

enum status options_command(enum user_command *command, const char *name)
{
    int best = 0, distance = INT32_MAX;
    for (int c = 0; c < COMMANDS; c++) {
        const char *known = command_table[c].name;
        int d = nearest_distance(name, (int64_t)strlen(name), known, (int64_t)strlen(known));
        if (d < distance) {
            distance = d;
            best = c;
        }
    }
    if (distance != 0 || strcmp(name, command_table[best].name) != 0)
        return fail(ERR_ARGUMENT, "unknown command '%.60s': the nearest is '%s'; hone --help lists all", name,
                    command_table[best].name);
    *command = (enum user_command)best;
    return OK;
}

const char *options_command_name(enum user_command command)
{
    return command_table[command].name;
}

const char *options_name(enum option option)
{
    return option_table[option].name;
}

enum status options_find(const char *key, enum option *option)
{
    const struct option_row *row = table_find(key, (int64_t)strlen(key));
    if (!row)
        return fail(ERR_ARGUMENT, "there is no option '%.60s'", key);
    *option = table_option(row);
    return OK;
}

enum status options_get(const struct options *options, enum option option, struct buffer *text)
{
    const struct option_row *row = &option_table[option];
    const char *field = (const char *)options + row->offset;
    if (row->kind == KIND_INT)
        return buffer_format(text, "%lld", (long long)*(const int64_t *)field);
    if (row->kind == KIND_REAL)
        return buffer_format(text, "%.17g", *(const double *)field);
    if (row->kind == KIND_BOOL)
        return buffer_format(text, "%s", *(const bool *)field ? "true" : "false");
    const char *value = *(const char *const *)field;
    return value ? buffer_format(text, "%s", value) : OK;
}
