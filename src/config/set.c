/* One option by its name: set, and at its default again. */
#include <string.h>

#include "config/foreign/foreign.h"

enum status options_set(struct options *options, enum user_command command, const char *key, const char *value,
                        const char *source)
{
    struct word word;
    synonym_find(&word, key, (int64_t)strlen(key), command);
    if (word.answer && !word.takes)
        return fail(ERR_ARGUMENT, "%s: %.60s is not an option of hone %s: %s", source, key, options_command_name(command),
                    word.answer);
    if (!word.row || word.negated) {
        char words[WORDS_SIZE];
        table_suggest(key, (int64_t)strlen(key), command, false, words);
        return fail(ERR_ARGUMENT, "%s: unknown option '%.60s'%s", source, key, words);
    }
    if (!table_has(word.row, command))
        return fail(ERR_ARGUMENT, "%s: %s is not an option of hone %s", source, word.row->name, options_command_name(command));
    if (word.row->flag_only)
        return fail(ERR_ARGUMENT, "%s: %s is only for the command line", source, word.row->name);
    return synonym_store(options, &word, value, source, false);
}

static size_t set_field_size(const struct option_row *row)
{
    static const size_t sizes[] = {
        [KIND_TEXT] = sizeof(char *), [KIND_PATH] = sizeof(char *), [KIND_INT] = sizeof(int64_t),
        [KIND_REAL] = sizeof(double), [KIND_BOOL] = sizeof(bool),   [KIND_CHOICE] = sizeof(int),
    };
    return sizes[row->kind];
}

void options_clear(struct options *options, enum option option)
{
    const struct option_row *row = &option_table[option];
    struct options fresh;
    options_init(&fresh, options->arena);
    memcpy((char *)options + row->offset, (const char *)&fresh + row->offset, set_field_size(row));
    options->source[option] = NULL;
}
