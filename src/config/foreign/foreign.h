/* What other tools say, in hone's options: single words (--lr), by the table synonyms.def, and whole configurations (Axolotl's,
 * LLaMA-Factory's, TRL's and MLX-LM's YAML), by the table foreign.def. Only for the files of config.
 *
 * The idea of the second: the run is the one that the other tool would have made. So a key means what it means there, the tool's
 * own defaults hold where a key is absent, and what hone cannot do is an error that names every such key at once. What cannot
 * change the trained model is accepted and listed.
 */
#ifndef CONFIG_FOREIGN_FOREIGN_H
#define CONFIG_FOREIGN_FOREIGN_H

#include "config/option_table.h"
#include "config/yaml_tree.h"

/* --- words -------------------------------------------------------------------------------------------------------------- */

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

/* The option's value where the word, which takes few, has the value `given`: "" asks for nothing, NULL is none that it takes.
 * And all that it takes, in words: "it takes true, false or unsloth". */
const char *synonym_taken(const struct word *word, const char *given);
void synonym_takes(const struct word *word, char words[static WORDS_SIZE]);

/* Stores the option that the word means, as table_store does. `value` is NULL if it stands without one. */
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

/* --- configurations ------------------------------------------------------------------------------------------------------ */

/* Whose configuration this is: the tool to which most of the keys belong that are not hone's. There must be two of them, or one
 * besides the tool's words for model and data. hone's is a file that has other words for model, data or output, and NULL. */
enum choice_config_format foreign_format(const struct yaml_node *root);

/* Sets the options that were not set before. options->notes then says what was not needed and what was changed. */
enum status foreign_load(struct options *options, enum user_command command, enum choice_config_format format,
                         const struct yaml_node *root, const char *path);

/* Whose key this is, for messages: "TRL", or NULL. Of several tools, the first. */
const char *foreign_owner(const char *key, enum choice_config_format *format);

/* Appends docs/configs.md. */
enum status foreign_markdown(struct buffer *text);

#endif
