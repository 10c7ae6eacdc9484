/* The command line. Every option takes one value, only a boolean may stand without one; so reading an argument needs its row and
 * at most the argument after it. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/name.h"
#include "config/foreign/foreign.h"

static enum status fail_unknown(const char *argument, const char *key, int64_t length, enum user_command command)
{
    char words[WORDS_SIZE];
    if (length == 1 && argument[1] == '-' && table_find(key, length))
        return fail(ERR_ARGUMENT, "unknown option '--%c': a single letter has one dash, as in -%c", key[0], key[0]);
    table_suggest(key, length, command, true, words);
    int shown = (int)strcspn(argument, "=");
    return fail(ERR_ARGUMENT, "unknown option '%.*s'%s (hone %s --help lists all)", shown > 60 ? 60 : shown, argument, words,
                options_command_name(command));
}

static enum status fail_elsewhere(const struct option_row *row, const char *flag, enum user_command command)
{
    char where[256] = "";
    for (int c = 0, seen = 0; c < COMMANDS; c++)
        if (table_has(row, (enum user_command)c)) {
            size_t used = strlen(where);
            snprintf(where + used, sizeof where - used, "%shone %s", seen++ ? ", " : "",
                     options_command_name((enum user_command)c));
        }
    return fail(ERR_ARGUMENT, "%s is not an option of hone %s: it belongs to %s", flag, options_command_name(command), where);
}

/* What was given before under any of its names, and counts no longer. */
static enum status warn_twice(const struct options *options, const struct option_row *row, const char *before, const char *was)
{
    struct buffer now = {0};
    enum option option = table_option(row);
    TRY(options_get(options, option, &now));
    bool words = row->kind == KIND_TEXT || row->kind == KIND_PATH;
    if (!options_same(option, was, now.data ? now.data : ""))
        log_message(LOG_WARNING, "%s '%.100s' counts, not %s '%.100s', which was given before%s", options->source[option],
                    now.data ? now.data : "", before, was,
                    words && strstr(row->help, "separated by commas") ? ": several values are separated by commas" : "");
    buffer_free(&now);
    return OK;
}

/* Stores a value. One that was given before is overridden, and that is said. */
static enum status flags_store(struct options *options, const struct word *word, const char *value, const char *flag)
{
    enum option option = table_option(word->row);
    const char *before = options->source[option];
    struct buffer was = {0};
    enum status status = before ? options_get(options, option, &was) : OK;
    if (status == OK)
        status = synonym_store(options, word, value, flag, false);
    if (status == OK && before)
        status = warn_twice(options, word->row, before, was.data ? was.data : "");
    buffer_free(&was);
    return status;
}

/* Reads the option at argv[*i] and leaves *i at the last word that it took. */
static enum status read_option(struct options *options, enum user_command command, int argc, char **argv, int *i)
{
    const char *argument = argv[*i];
    const char *key = argument + (argument[1] == '-' ? 2 : 1);
    int64_t length = (int64_t)strcspn(key, "=");
    bool short_form = argument[1] != '-';
    struct word word;
    synonym_find(&word, key, length, command);
    const char *flag = arena_text(options->arena, argument, key - argument + length);
    if (!flag)
        return ERR_MEMORY;
    if (!word.row && word.answer)
        return fail(ERR_ARGUMENT, "%s is not an option of hone %s: %s", flag, options_command_name(command), word.answer);
    if (!word.row || short_form != (length == 1))
        return fail_unknown(argument, key, length, command);
    if (!table_has(word.row, command))
        return fail_elsewhere(word.row, flag, command);

    const char *value = key[length] ? key + length + 1 : NULL;
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (value && word.negated)
        return fail(ERR_ARGUMENT, "%s takes no value: leave out '=%.60s'", flag, value);
    if (!value && (word.alone || word.negated)) {
        if (next && synonym_follows(&word, next))
            value = argv[++*i];
    } else if (!value && word.answer && (!next || next[0] == '-')) { /* it takes some values, and none was given */
        return fail(ERR_ARGUMENT, "%s is not an option of hone %s: %s", flag, options_command_name(command), word.answer);
    } else if (!value) {
        const char *what = word.row->placeholder && !word.takes ? word.row->placeholder : "VALUE";
        if (!next)
            return fail(ERR_ARGUMENT, "%s needs a value: %s %s, %.*s", flag, flag, what, table_sentence(word.row->help),
                        word.row->help);
        /* More likely a forgotten value than one that begins with dashes. */
        if (strncmp(next, "--", 2) == 0)
            return fail(ERR_ARGUMENT, "%s needs a value before '%.60s'; if that is the value, write %s=%.60s", flag, next, flag,
                        next);
        value = argv[++*i];
    }
    return flags_store(options, &word, value, flag);
}

/* A file of options that stands without a flag. */
static bool is_config(enum user_command command, const char *argument)
{
    return command == COMMAND_CONFIG || name_ends_with(argument, ".yaml") || name_ends_with(argument, ".yml");
}

/* *file is the one that stood without a flag so far. */
static enum status take_argument(struct options *options, enum user_command command, const char *argument,
                                 struct arguments *arguments, const char **file)
{
    const char *text = arena_text(options->arena, argument, (int64_t)strlen(argument));
    if (!text)
        return ERR_MEMORY;
    if (!is_config(command, text)) {
        arguments->text[arguments->count++] = text;
        return OK;
    }
    if (*file)
        return fail(ERR_ARGUMENT, "two files of options, '%.100s' and '%.100s': a run has one", *file, text);
    *file = text;
    return OK;
}

enum status options_parse(struct options *options, enum user_command command, int argc, char **argv, struct arguments *arguments)
{
    *arguments = (struct arguments){arena_array(options->arena, argc + 1, (int64_t)sizeof *arguments->text), 0};
    if (!arguments->text)
        return ERR_MEMORY;
    bool options_end = false;
    const char *file = NULL;
    for (int i = 0; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1]) {
            TRY(read_option(options, command, argc, argv, &i));
        } else {
            TRY(take_argument(options, command, argv[i], arguments, &file));
        }
    }
    if (file && options->config)
        return fail(ERR_ARGUMENT, "two files of options, '%.100s' and '%.100s': a run has one", options->config, file);
    if (file)
        TRY(table_store(options, &option_table[OPTION_config], file, "the file", false));
    if (options->config && !options->help)
        return options_load_yaml(options, command, options->config);
    return OK;
}
