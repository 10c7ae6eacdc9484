/* What an unknown word may have meant: of the command's own options, those whose letters are nearly the same, else those in whose
 * names all of its parts stand. Where nothing is like it, nothing is said: a wrong suggestion costs more than none. */
#include <stdio.h>
#include <string.h>

#include "base/edit_distance.h"
#include "base/file.h"
#include "base/name.h"
#include "config/foreign/foreign.h"

struct search {
    const char *key;
    int64_t length;
    const char *best; /* the nearest so far, with its length */
    int64_t best_length;
    int distance;
};

static void consider(void *context, const char *word, int64_t length)
{
    struct search *s = context;
    if (length < 2)
        return;
    int slips = edit_distance_max(s->length < length ? s->length : length);
    int d = edit_distance(s->key, s->length, word, length, slips);
    if (d <= slips && d < s->length && (!s->best || d < s->distance)) {
        s->best = word;
        s->best_length = length;
        s->distance = d;
    }
}

static int64_t part(const char *key, int64_t length)
{
    int64_t n = 0;
    while (n < length && key[n] != '-' && key[n] != '_')
        n++;
    return n;
}

/* Whether every part of the key is a part of the name: batch_size of per_device_train_batch_size. */
static bool parts_among(const char *key, int64_t length, const char *name)
{
    for (int64_t n; length > 0; key += n + 1, length -= n + 1) {
        n = part(key, length);
        bool found = false;
        for (const char *p = name; !found && *p; p += strcspn(p, "_"), p += *p == '_')
            found = n > 1 && (int64_t)strcspn(p, "_") == n && strncmp(p, key, (size_t)n) == 0;
        if (!found)
            return false;
    }
    return true;
}

static void append_name(char words[static WORDS_SIZE], const char *between, bool as_flag, const char *name, int64_t length)
{
    size_t used = strlen(words);
    snprintf(words + used, WORDS_SIZE - used, "%s'%s%.*s'", between, as_flag ? "--" : "", (int)length, name);
    for (char *c = words + used; as_flag && *c; c++)
        if (*c == '_')
            *c = '-';
}

void table_suggest(const char *key, int64_t length, enum user_command command, bool as_flag, char words[static WORDS_SIZE])
{
    struct search s = {.key = key, .length = length};
    const struct option_row *found[3];
    int count = 0;
    for (const struct option_row *row = option_table; row < option_table + OPTIONS; row++)
        if (table_has(row, command)) {
            consider(&s, row->name, (int64_t)strlen(row->name));
            if (row->alias)
                consider(&s, row->alias, (int64_t)strlen(row->alias));
            if (length > 1 && parts_among(key, length, row->name) && count < 3)
                found[count++] = row;
        }
    synonym_each(command, consider, &s);
    struct word word;
    synonym_find(&word, key, length, command);
    words[0] = 0;
    if (word.negated) {
        snprintf(words, WORDS_SIZE, ": did you mean '%.*s: false'?", (int)word.length, word.key);
        return;
    }
    if (!s.best && !count)
        return;
    bool by_letters = s.best && (s.distance < 2 || !count);
    snprintf(words, WORDS_SIZE, ": did you mean ");
    if (by_letters)
        append_name(words, "", as_flag, s.best, s.best_length);
    for (int i = 0; !by_letters && i < count; i++)
        append_name(words, !i ? "" : i + 1 == count ? " or " : ", ", as_flag, found[i]->name, (int64_t)strlen(found[i]->name));
    size_t used = strlen(words);
    snprintf(words + used, WORDS_SIZE - used, "?");
}

enum status options_command(enum user_command *command, const char *name)
{
    struct search s = {.key = name, .length = (int64_t)strlen(name)};
    for (int c = 0; c < COMMANDS; c++) {
        if (strcmp(name, command_table[c].name) == 0) {
            *command = (enum user_command)c;
            return OK;
        }
        consider(&s, command_table[c].name, (int64_t)strlen(command_table[c].name));
    }
    const char *answer = synonym_command(name);
    if (answer)
        return fail(ERR_ARGUMENT, "there is no command '%.60s': %s", name, answer);
    if (name[0] == '-')
        return fail(ERR_ARGUMENT,
                    "'%.60s' is not a command, and a command comes first, as in hone train --model DIR; hone --help "
                    "lists all",
                    name);
    if (s.best)
        return fail(ERR_ARGUMENT, "unknown command '%.60s': the nearest is '%.*s'; hone --help lists all", name,
                    (int)s.best_length, s.best);
    return fail(ERR_ARGUMENT, "unknown command '%.60s': hone --help lists all", name);
}

enum status options_stray(enum user_command command, const char *argument)
{
    const char *name = options_command_name(command), *equals = strchr(argument, '='), *key = argument;
    for (const char *c = argument; equals && c < equals; c++) /* model.lora_rank=8 */
        key = *c == '.' ? c + 1 : key;
    struct word word;
    synonym_find(&word, key, (int64_t)strcspn(key, "="), command);
    bool known = word.row && table_has(word.row, command);
    if (strncmp(argument, "\u2014", 3) == 0 || strncmp(argument, "\u2013", 3) == 0)
        return fail(ERR_ARGUMENT, "unexpected argument '%.100s': it begins with a long dash: write two plain ones, --%.100s",
                    argument, argument + 3 + strspn(argument + 3, "-"));
    if (known && equals)
        return fail(ERR_ARGUMENT, "unexpected argument '%.100s': write --%.100s", argument, key);
    bool model = file_is_directory(argument) || name_ends_with(argument, ".gguf"), there = file_exists(argument);
    if (there && options_has(command, model ? OPTION_model_name_or_path : OPTION_dataset_path))
        return fail(ERR_ARGUMENT, "unexpected argument '%.100s': write --%s %.100s", argument, model ? "model" : "data",
                    argument);
    if (known)
        return fail(ERR_ARGUMENT, "unexpected argument '%.100s': if that is the option, write --%.100s; hone %s --help lists all",
                    argument, argument, name);
    return fail(
        ERR_ARGUMENT,
        "unexpected argument '%.100s': options start with --, several values are separated by commas without blanks, and a "
        "value with blanks needs quotes; hone %s --help lists all",
        argument, name);
}
