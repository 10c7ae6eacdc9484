/* The words of synonyms.def, found in order. Rows are few and read once for each key, so they are searched from the first on. */
#include "config/foreign/foreign.h"

#include <stdio.h>
#include <string.h>

static const struct {
    enum option option;
    const char *words;
} same[] = {
#define SAME(option, words) {OPTION_##option, words},
#include "config/foreign/synonyms.def"
};

static const struct taken {
    enum option option;
    const char *value, *given, *words;
} taken[] = {
#define TAKES(option, value, given, words) {OPTION_##option, value, given, words},
#include "config/foreign/synonyms.def"
};

static const struct {
    enum option option;
    const char *value, *words, *said;
} values[] = {
#define VALUE(option, value, words) {OPTION_##option, value, words, NULL},
#define VALUE_WARN(option, value, words, text) {OPTION_##option, value, words, text},
#include "config/foreign/synonyms.def"
};

static const struct {
    unsigned commands;
    const char *words, *text;
} answers[] = {
#define ANSWER(commands, words, text) {commands, words, text},
#include "config/foreign/synonyms.def"
};

static const struct {
    enum option option;
    const char *words, *text;
} value_answers[] = {
#define VALUE_ANSWER(option, words, text) {OPTION_##option, words, text},
#include "config/foreign/synonyms.def"
};

static const struct {
    const char *words, *text;
} command_answers[] = {
#define COMMAND_ANSWER(words, text) {words, text},
#include "config/foreign/synonyms.def"
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* As it is compared: in values, unlike names, upper and lower case are the same. */
static char synonyms_letter(char c, bool any_case)
{
    return c == '-' ? '_' : any_case && c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Where the word stands among these, or NULL; with `wildcards`, a word that ends in a star is the beginning of many. */
static const char *among_these(const char *words, const char *key, int64_t length, bool any_case, bool wildcards)
{
    for (; *words; words += strcspn(words, " "), words += *words == ' ') {
        int64_t i = 0;
        while (i < length && words[i] && words[i] != ' ' &&
               synonyms_letter(words[i], any_case) == synonyms_letter(key[i], any_case))
            i++;
        if (i > 0 && i == length && (!words[i] || words[i] == ' '))
            return words;
        if (wildcards && i > 0 && words[i] == '*')
            return words;
    }
    return NULL;
}

static const char *among(const char *words, const char *key, int64_t length, bool any_case)
{
    return among_these(words, key, length, any_case, false);
}

static const struct option_row *find_same(const char *key, int64_t length, enum user_command command, bool anywhere)
{
    for (size_t i = 0; i < COUNT(same); i++)
        if ((anywhere || table_has(&option_table[same[i].option], command)) && among(same[i].words, key, length, false))
            return &option_table[same[i].option];
    return NULL;
}

/* The row TAKES of a word, for a value or, if that is NULL, the first. */
static const struct taken *find_taken(const struct word *word, enum user_command command, bool anywhere, const char *given)
{
    for (size_t i = 0; i < COUNT(taken); i++)
        if ((word->row ? word->row == &option_table[taken[i].option]
                       : anywhere || table_has(&option_table[taken[i].option], command)) &&
            among(taken[i].words, word->key, word->length, false) && (!given || strcasecmp(taken[i].given, given) == 0))
            return &taken[i];
    return NULL;
}

static const char *find_answer(const char *key, int64_t length, enum user_command command, bool wildcards)
{
    for (size_t i = 0; i < COUNT(answers); i++)
        if (answers[i].commands >> command & 1 && among_these(answers[i].words, key, length, false, wildcards))
            return answers[i].text;
    return NULL;
}

/* An option that the command has, or with `anywhere` one of any command. */
static bool synonyms_find_row(struct word *word, enum user_command command, bool anywhere)
{
    const struct option_row *own = table_find(word->key, word->length);
    if (own && (anywhere || table_has(own, command)))
        word->row = own;
    else
        word->row = find_same(word->key, word->length, command, anywhere);
    word->alone = word->row && word->row->kind == KIND_BOOL;
    if (word->row)
        return true;
    const struct taken *row = find_taken(word, command, anywhere, NULL);
    if (!row)
        return false;
    word->key = among(row->words, word->key, word->length, false); /* the caller's may not live on */
    word->row = &option_table[row->option];
    word->takes = true;
    word->alone = find_taken(word, command, anywhere, "true") != NULL;
    return true;
}

static bool find_negated(struct word *word, enum user_command command)
{
    struct word positive = {.key = word->key + 3, .length = word->length - 3};
    bool no = word->length > 3 && strncmp(word->key, "no", 2) == 0 && (word->key[2] == '-' || word->key[2] == '_');
    if (!no || !synonyms_find_row(&positive, command, false) || positive.row->flag_only)
        return false;
    if (positive.takes ? !find_taken(&positive, command, false, "false") : positive.row->kind != KIND_BOOL)
        return false;
    *word = positive;
    word->negated = true;
    return true;
}

void synonym_find(struct word *word, const char *key, int64_t length, enum user_command command)
{
    *word = (struct word){.key = key, .length = length};
    const char *answer = find_answer(key, length, command, false);
    const struct option_row *own = table_find(key, length);
    if (synonyms_find_row(word, command, false) && (!answer || word->takes || word->row == own)) {
        word->answer = word->takes ? answer : NULL; /* to a value that it does not take */
        return;
    }
    *word = (struct word){.key = key, .length = length, .answer = answer};
    if (answer || find_negated(word, command))
        return;
    if (!own)
        word->answer = find_answer(key, length, command, true);
    if (!word->answer)
        synonyms_find_row(word, command, true);
}

bool synonym_follows(const struct word *word, const char *next)
{
    static const char *const booleans[] = {"true", "false", "yes", "no", "on", "off", "1", "0"};
    if (word->negated)
        return false;
    if (word->takes && find_taken(word, 0, true, next))
        return true;
    for (size_t i = 0; i < COUNT(booleans); i++)
        if (strcasecmp(next, booleans[i]) == 0)
            return true;
    return false;
}

const char *synonym_taken(const struct word *word, const char *given)
{
    const struct taken *row = find_taken(word, 0, true, given);
    return row ? row->value : NULL;
}

void synonym_takes(const struct word *word, char words[static WORDS_SIZE])
{
    int count = 0, seen = 0;
    for (size_t i = 0; i < COUNT(taken); i++)
        count += word->row == &option_table[taken[i].option] && among(taken[i].words, word->key, word->length, false) != NULL;
    snprintf(words, WORDS_SIZE, "it takes ");
    for (size_t i = 0; i < COUNT(taken); i++)
        if (word->row == &option_table[taken[i].option] && among(taken[i].words, word->key, word->length, false)) {
            size_t used = strlen(words);
            snprintf(words + used, WORDS_SIZE - used, "%s%s", !seen ? "" : seen + 1 == count ? " or " : ", ", taken[i].given);
            seen++;
        }
}

const char *synonym_value(const struct option_row *row, const char *value, const char **answer, const char **said)
{
    int64_t length = (int64_t)strlen(value);
    if (options_choice(table_option(row), value) >= 0) /* hone's own words come first */
        return value;
    for (size_t i = 0; i < COUNT(value_answers); i++)
        if (row == &option_table[value_answers[i].option] && among(value_answers[i].words, value, length, true))
            *answer = value_answers[i].text;
    for (size_t i = 0; i < COUNT(values); i++)
        if (row == &option_table[values[i].option] && among(values[i].words, value, length, true)) {
            *said = values[i].said;
            return values[i].value;
        }
    return value;
}

static void each_of(const char *words, void (*each)(void *context, const char *word, int64_t length), void *context)
{
    for (; *words; words += strcspn(words, " "), words += *words == ' ')
        each(context, words, (int64_t)strcspn(words, " "));
}

void synonym_each(enum user_command command, void (*each)(void *context, const char *word, int64_t length), void *context)
{
    for (size_t i = 0; i < COUNT(same); i++)
        if (table_has(&option_table[same[i].option], command))
            each_of(same[i].words, each, context);
    for (size_t i = 0; i < COUNT(taken); i++)
        if (table_has(&option_table[taken[i].option], command))
            each_of(taken[i].words, each, context);
}

const char *synonym_command(const char *name)
{
    for (size_t i = 0; i < COUNT(command_answers); i++)
        if (among(command_answers[i].words, name, (int64_t)strlen(name), false))
            return command_answers[i].text;
    return NULL;
}

/* --- docs/options.md ---------------------------------------------------------------------------------------------------- */

static enum status append_words(struct buffer *text, const char *words, const char *after)
{
    const char *between = "";
    for (; *words; words += strcspn(words, " "), words += *words == ' ', between = ", ")
        TRY(buffer_format(text, "%s`%.*s%s%s`", between, (int)strcspn(words, " "), words, *after ? " " : "", after));
    return OK;
}

enum status synonym_markdown(struct buffer *text)
{
    TRY(buffer_format(
        text,
        "\n## Words of other tools\n\nThese mean the same and are taken, on the command line and in files. "
        "A boolean may also be\nwritten `--no-NAME`, as in `--no-shuffle`.\n\n| what is typed | what it is |\n|---|---|\n"));
    for (size_t i = 0; i < COUNT(same); i++) {
        TRY(buffer_format(text, "| "));
        TRY(append_words(text, same[i].words, ""));
        TRY(buffer_format(text, " | `%s` |\n", option_table[same[i].option].name));
    }
    for (size_t i = 0; i < COUNT(taken); i++) {
        TRY(buffer_format(text, "| "));
        TRY(append_words(text, taken[i].words, taken[i].given));
        if (*taken[i].value)
            TRY(buffer_format(text, " | `%s %s` |\n", option_table[taken[i].option].name, taken[i].value));
        else
            TRY(buffer_format(text, " | nothing: it asks for no `%s` |\n", option_table[taken[i].option].name));
    }
    for (size_t i = 0; i < COUNT(values); i++) {
        TRY(buffer_format(text, "| `%s` ", option_table[values[i].option].name));
        TRY(append_words(text, values[i].words, ""));
        TRY(buffer_format(text, " | `%s %s`%s%s |\n", option_table[values[i].option].name, values[i].value,
                          values[i].said ? ", and hone says: " : "", values[i].said ? values[i].said : ""));
    }
    TRY(buffer_format(text, "\nThese are not taken, and this is the answer:\n\n| what is typed | what to do |\n|---|---|\n"));
    for (size_t i = 0; i < COUNT(answers); i++) {
        TRY(buffer_format(text, "| "));
        TRY(append_words(text, answers[i].words, ""));
        TRY(buffer_format(text, " | %s |\n", answers[i].text));
    }
    for (size_t i = 0; i < COUNT(value_answers); i++) {
        TRY(buffer_format(text, "| `%s` ", option_table[value_answers[i].option].name));
        TRY(append_words(text, value_answers[i].words, ""));
        TRY(buffer_format(text, " | %s |\n", value_answers[i].text));
    }
    for (size_t i = 0; i < COUNT(command_answers); i++) {
        TRY(buffer_format(text, "| "));
        const char *words = command_answers[i].words, *between = "";
        for (; *words; words += strcspn(words, " "), words += *words == ' ', between = ", ")
            TRY(buffer_format(text, "%s`hone %.*s`", between, (int)strcspn(words, " "), words));
        TRY(buffer_format(text, " | %s |\n", command_answers[i].text));
    }
    return OK;
}
