/* Options: options.def's rows as a struct, and the ways to fill it: defaults, a YAML file, the command line.
 *
 *     struct options options;
 *     options_init(&options, &arena);
 *     TRY(options_parse(&options, COMMAND_EVAL, argc - 2, argv + 2, &arguments));
 *     TRY(options_need(&options, COMMAND_EVAL, OPTION_model_name_or_path));
 *     ... options.max_length ...
 *
 * Text in the struct is a copy in the arena, or the default; it is NULL where no value was given and there is no default.
 * A wrong key or value is ERR_ARGUMENT, a file that is not YAML is ERR_FORMAT; the messages say which option, where it was
 * given and what is allowed.
 */
#ifndef CONFIG_OPTIONS_H
#define CONFIG_OPTIONS_H

#include "base/json.h"
#include "base/memory.h"

enum user_command {
#define COMMAND(id, name, usage, summary) COMMAND_##id,
#include "config/options.def"
    COMMANDS
};

enum option {
#define OPTION(kind, name, ...) OPTION_##name,
#include "config/options.def"
    OPTIONS
};

/* The words of a choice as numbers from 0: enum choice_dtype { CHOICE_dtype_float32, ... }. Their texts are for people and files,
 * and known only in config. */
#define WORD(option, word) CHOICE_##option##_##word,
#define SPELT(option, name, word) CHOICE_##option##_##name,
#define CHOICES(option, words) enum choice_##option{words};
#include "config/options.def"
#undef WORD
#undef SPELT
enum choice_optim {
#define OPTIMIZER(name, ...) CHOICE_optim_##name,
#include "config/optimizers.def"
#undef OPTIMIZER
};
enum choice_lr_scheduler_type {
#define SCHEDULE(name, options) CHOICE_lr_scheduler_type_##name,
#include "config/schedules.def"
#undef SCHEDULE
};

#define FIELD_TEXT(name) const char *
#define FIELD_PATH(name) const char *
#define FIELD_CHOICE(name) enum choice_##name
#define FIELD_INT(name) int64_t
#define FIELD_REAL(name) double
#define FIELD_BOOL(name) bool

struct options {
#define OPTION(kind, name, ...) FIELD_##kind(name) name;
#include "config/options.def"
    const char *source[OPTIONS]; /* what set it: "--dtype", "run.yaml:3"; NULL while it is the default */
    const char *notes;           /* lines on what a configuration of another tool was read as; NULL without one */
    const char *model_id; /* the name org/name, where model_name_or_path was found by it in the Hugging Face cache; else NULL */
    const char *hub_name, *hub_commit; /* where model_name_or_path is in that cache, by name or by path; else NULL */
    struct arena *arena;
};

#undef FIELD_TEXT
#undef FIELD_PATH
#undef FIELD_CHOICE
#undef FIELD_INT
#undef FIELD_REAL
#undef FIELD_BOOL

/* What stands on a command line besides options. */
struct arguments {
    const char **text;
    int count;
};

/* Every option at its default. The arena must outlive the options. */
void options_init(struct options *options, struct arena *arena);

/* Sets one option by its name, its alias or a word of foreign/synonyms.def, with dashes or underscores; it must be one of the
 * command's. `source` says in messages where the value comes from. */
enum status options_set(struct options *options, enum user_command command, const char *key, const char *value,
                        const char *source);

/* An option is at its default again. */
void options_clear(struct options *options, enum option option);

/* Reads the arguments after `hone command`: --key value, --key=value, --flag, --flag true|false, --flag=true|false, --no-flag,
 * -h; all else, and everything after "--", is an argument. If an option is given twice, under whichever names, the last one
 * counts, and a warning says so where the values differ. Then loads the file
 * that --config names. An argument that ends in .yaml or .yml, and any of COMMAND_CONFIG, stands for --config. */
enum status options_parse(struct options *options, enum user_command command, int argc, char **argv, struct arguments *arguments);

/* The error of an argument that no option asked for, with what it may have been. */
enum status options_stray(enum user_command command, const char *argument);

/* Loads a YAML file of at most 1 MB: one mapping from names to plain values, null for the default. Options of other commands are
 * checked and then ignored, and what was set before the file stays: flags win. The configuration of another tool is recognised by
 * its keys, or by config_format, and read by config/foreign/foreign.h. */
enum status options_load_yaml(struct options *options, enum user_command command, const char *path);

/* An option's name, as in a YAML file. */
const char *options_name(enum option option);

/* Whether a command has it. */
bool options_has(enum user_command command, enum option option);

/* Whether what a training run computes depends on it: a run that resumes must have the same. */
bool options_decides(enum option option);

/* Whether all ranks of a run must have the same; true for all that decide. */
bool options_together(enum option option);

/* Whether two texts are the same value of an option: numbers may be written in several ways. */
bool options_same(enum option option, const char *a, const char *b);

/* The word of a choice of this option; and which choice a word is, or -1. */
const char *options_word(enum option option, int choice);
int options_choice(enum option option, const char *word);

/* The model as people and other programs know it: its name on the hub, else its path. */
const char *options_model(const struct options *options);

/* Which option a name or alias means; and appends its value as text, nothing if it has none. */
enum status options_find(const char *key, enum option *option);
enum status options_get(const struct options *options, enum option option, struct buffer *text);

/* Appends the options that were set as a YAML file that options_load_yaml reads as the same, with comments on where each came
 * from. */
enum status options_write(const struct options *options, struct buffer *text);

/* Appends a value as such a file has it: in quotes, and escaped, where it must be. */
enum status options_write_value(struct buffer *out, enum option option, const char *text);

/* The same as JSON: {"config": FILE, "options": {name: value}, "sources": {name: where}, "notes": [lines]}. NULL: no memory. */
json_t *options_json(const struct options *options);

/* Fails, and says how to give it, if this text option has no value. */
enum status options_need(const struct options *options, enum user_command command, enum option option);

/* The command of this name; an unknown name is an error that says what may be meant. */
enum status options_command(enum user_command *command, const char *name);
const char *options_command_name(enum user_command command);

/* Append text made from the table. */
enum status options_start(struct buffer *text);                           /* hone without a command: the way to a first adapter */
enum status options_overview(struct buffer *text);                        /* hone --help: all commands */
enum status options_help(enum user_command command, struct buffer *text); /* hone COMMAND --help */
enum status options_markdown(struct buffer *text);                        /* docs/options.md */
enum status options_complete(struct buffer *text);                        /* a completion script for bash */
enum status options_manual(struct buffer *text);                          /* hone.1 */

#endif
