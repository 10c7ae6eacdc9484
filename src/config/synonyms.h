/* synonyms.def: what words of other tools mean, for the files of config alone. */
#ifndef CONFIG_SYNONYMS_H
#define CONFIG_SYNONYMS_H

#include "config/table.h"

/* What a key means to a command: an option by its name, or by a word of another tool. */
struct word {
    const char *key; /* the caller's, unless takes, with its length */
    int64_t length;
    const struct option_row *row; /* NULL: there is none; else the command's own, or one that only other commands have */
    bool takes;                   /* only the values of its rows TAKES are known */
    bool alone;                   /* it may stand without a value */
    bool negated;                 /* --no-word: it takes no value */
    const char *answer;           /* what to do instead; NULL: there is nothing to say, or the command takes the word */
};

void synonym_find(struct word *word, const char *key, int64_t length, enum user_command command);

/* Whether a word that stands before it in a command line is followed by its value. */
bool synonym_follows(const struct word *word, const char *next);

/* Stores the option that the word means, as table_store does. `value` is NULL if it stands alone. */
enum status synonym_store(struct options *options, const struct word *word, const char *value, const char *source,
                          bool check_only);

/* Whether the word with this value asks for anything: fp16 false does not. */
bool synonym_asks(const struct word *word, const char *value);

/* hone's own name of a value, or the value itself. *answer says what to do if hone has no such value, *said what differs from
 * what was asked for; both are NULL before, and stay so where there is nothing to say. */
const char *synonym_value(const struct option_row *row, const char *value, const char **answer, const char **said);

/* Calls `each` for every word that the command takes besides names and aliases. */
void synonym_each(enum user_command command, void (*each)(void *context, const char *word, int64_t length), void *context);

/* What to do instead of this command, or NULL. */
const char *synonym_command(const char *name);

/* Appends what docs/options.md says of them. */
enum status synonym_markdown(struct buffer *text);

#endif
