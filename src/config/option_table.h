/* options.def as tables, only for the files of config. */
#ifndef CONFIG_OPTION_TABLE_H
#define CONFIG_OPTION_TABLE_H

#include <stddef.h>

#include "config/options.h"

enum option_kind { KIND_TEXT, KIND_PATH, KIND_INT, KIND_REAL, KIND_BOOL, KIND_CHOICE };

struct option_row {
    enum option_kind kind;
    const char *name, *alias, *placeholder, *help;
    unsigned commands;        /* bit c: command c has it */
    size_t offset;            /* of its field in struct options */
    const char *const *words; /* of a choice, or examples of a text; NULL after the last, and where there are none */
    bool decides;             /* what a training run computes depends on it */
    bool together;            /* all ranks of a run have the same */
    bool bounded_below, bounded_above;
    bool above, below; /* the lower, the upper bound itself is not allowed */
    bool flag_only;
    bool or_auto; /* of a REAL: also the word auto, which is stored as NaN */
    double min, max;
};

/* The words of the column `commands`: a bit for each, and groups of them. */
enum {
#define COMMAND(id, ...) id = 1 << COMMAND_##id,
#include "config/options.def"
    TRAINING = TRAIN | PLAN | BENCH | CONFIG,
    ANSWERING = GENERATE | CHAT,
    ALL = (1 << COMMANDS) - 1
};

struct command_row {
    const char *name, *usage, *summary;
};

extern const struct option_row option_table[OPTIONS];
extern const struct command_row command_table[COMMANDS];

/* The option of this name or alias, or NULL; '-' and '_' are the same. */
const struct option_row *table_find(const char *key, int64_t length);
bool table_same_key(const char *name, const char *key, int64_t length);

/* Which option a row is. */
enum option table_option(const struct option_row *row);
bool table_has(const struct option_row *row, enum user_command command);

/* What values a row takes, in words: "a whole number of at least 1". */
enum { WORDS_SIZE = 256 };
void table_takes(const struct option_row *row, char words[static WORDS_SIZE]);

/* The first sentence of a help text: its length. What follows is for those who read on. */
int table_sentence(const char *help);

/* What an unknown key may have meant of the command's own options: ": did you mean 'seed'?", or as a flag '--top-p'; empty if
 * nothing is like it. */
void table_suggest(const char *key, int64_t length, enum user_command command, bool as_flag, char words[static WORDS_SIZE]);

/* The choice that is set. */
int table_choice(const struct options *options, const struct option_row *row);

/* "true" or "false" for what people write for them (yes, on, 1, in any case); else the text itself. */
const char *table_truth(const char *text);

/* Checks a value and, unless `check_only`, stores it with its source. */
enum status table_store(struct options *options, const struct option_row *row, const char *value, const char *source,
                        bool check_only);

/* Says that a value is wrong: where it was given, by what name, and what is right. */
enum status table_fail_value(const char *source, const char *name, const char *value, const char *right);

#endif
