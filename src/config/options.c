/* The table of options.def: its rows, and how they are found. */
#include <stdlib.h>
#include <string.h>

#include "config/option_table.h"

/* The words of each choice. */
#define WORD(option, word) #word,
#define SPELT(option, name, word) word,
#define CHOICES(option, words) static const char *const words_of_##option[] = {words NULL};
#include "config/options.def"
#undef WORD
#undef SPELT
static const char *const words_of_optim[] = {
#define OPTIMIZER(name, ...) #name,
#include "config/optimizers.def"
#undef OPTIMIZER
    NULL};
static const char *const words_of_lr_scheduler_type[] = {
#define SCHEDULE(name, options) #name,
#include "config/schedules.def"
#undef SCHEDULE
    NULL};

#define CHOICES(option, words) _Static_assert(sizeof(enum choice_##option) == sizeof(int), "a choice is stored as an int");
#include "config/options.def"

/* The words of the table's columns `numbers` and `allowed`. */
enum { FREE, TOGETHER, DECIDES };
#define ANY .min = 0
#define AT_LEAST(n) .min = (n), .bounded_below = true
#define AUTO_OR_AT_LEAST(n) .min = (n), .bounded_below = true, .or_auto = true
#define ABOVE(n) .min = (n), .bounded_below = true, .above = true
#define BETWEEN(a, b) .min = (a), .bounded_below = true, .max = (b), .bounded_above = true
#define ABOVE_TO(a, b) .min = (a), .bounded_below = true, .above = true, .max = (b), .bounded_above = true
#define BELOW(a, b) .min = (a), .bounded_below = true, .max = (b), .bounded_above = true, .below = true
#define ONE_OF(option) .words = words_of_##option
#define LIKE(option) .words = words_of_##option
#define FLAG_ONLY .flag_only = true
#define FLAG_ONLY_OF(option) .flag_only = true, .words = words_of_##option

const struct option_row option_table[OPTIONS] = {
#define OPTION(kind_, name_, alias_, otherwise, commands_, numbers, allowed, placeholder_, help_)                                \
    {.kind = KIND_##kind_,                                                                                                       \
     .name = #name_,                                                                                                             \
     .alias = alias_,                                                                                                            \
     .commands = (commands_),                                                                                                    \
     .decides = numbers == DECIDES,                                                                                              \
     .together = numbers != FREE,                                                                                                \
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

#define DEFAULT_TEXT(name, value) value
#define DEFAULT_PATH(name, value) value
#define DEFAULT_CHOICE(name, word) CHOICE_##name##_##word
#define DEFAULT_INT(name, value) value
#define DEFAULT_REAL(name, value) value
#define DEFAULT_BOOL(name, value) value

void options_init(struct options *options, struct arena *arena)
{
    *options = (struct options){
#define OPTION(kind, name, alias, otherwise, ...) .name = DEFAULT_##kind(name, otherwise),
#include "config/options.def"
        .arena = arena,
    };
}

bool table_same_key(const char *name, const char *key, int64_t length)
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
        if (table_same_key(row->name, key, length) || table_same_key(row->alias, key, length))
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

int options_choice(enum option option, const char *word)
{
    const char *const *words = option_table[option].words;
    for (int i = 0; words && words[i]; i++)
        if (strcasecmp(words[i], word) == 0)
            return i;
    return -1;
}

const char *options_word(enum option option, int choice)
{
    return option_table[option].words[choice];
}

bool options_has(enum user_command command, enum option option)
{
    return table_has(&option_table[option], command);
}

bool options_decides(enum option option)
{
    return option_table[option].decides;
}

bool options_together(enum option option)
{
    return option_table[option].together;
}

bool options_same(enum option option, const char *a, const char *b)
{
    char *end_a, *end_b;
    if (!strcmp(a, b) || option_table[option].kind != KIND_REAL)
        return !strcmp(a, b);
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return x == y && end_a != a && end_b != b && !*end_a && !*end_b;
}

enum status options_need(const struct options *options, enum user_command command, enum option option)
{
    const struct option_row *row = &option_table[option];
    if (row->kind != KIND_TEXT && row->kind != KIND_PATH)
        return OK;
    const char *text;
    memcpy(&text, (const char *)options + row->offset, sizeof text);
    if (text)
        return OK;
    const char *name = row->alias ? row->alias : row->name;
    return fail(ERR_ARGUMENT, "hone %s needs --%s %s: %.*s. All that it needs: hone %s %s", options_command_name(command), name,
                row->placeholder, table_sentence(row->help), row->help, options_command_name(command),
                command_table[command].usage);
}

int table_sentence(const char *help)
{
    const char *end = strstr(help, ". ");
    return (int)(end ? (size_t)(end - help) : strlen(help));
}

const char *options_command_name(enum user_command command)
{
    return command_table[command].name;
}

const char *options_name(enum option option)
{
    return option_table[option].name;
}

const char *options_model(const struct options *options)
{
    return options->model_id ? options->model_id : options->model_name_or_path;
}

enum status options_find(const char *key, enum option *option)
{
    const struct option_row *row = table_find(key, (int64_t)strlen(key));
    if (!row)
        return fail(ERR_ARGUMENT, "there is no option '%.60s'", key);
    *option = table_option(row);
    return OK;
}
