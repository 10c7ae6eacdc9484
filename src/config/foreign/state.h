/* A configuration of another tool while it is read: only for the files of this folder. */
#ifndef CONFIG_FOREIGN_STATE_H
#define CONFIG_FOREIGN_STATE_H

#include <stddef.h>

#include "config/foreign/foreign.h"

enum foreign_tool { AXOLOTL = 1, FACTORY = 2, TRL = 4, MLX = 8 };
enum foreign_rule {
    RULE_COPY,
    RULE_CONVERT,
    RULE_READ,
    RULE_ONLY,
    RULE_OFF,
    RULE_METHOD,
    RULE_METHOD_OF,
    RULE_WARN,
    RULE_UNDONE,
    RULE_IDLE
};

struct foreign;
struct foreign_row;
struct option_row;
typedef enum status foreign_value(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node,
                                  const char *key);

struct foreign_row {
    enum foreign_rule rule;
    unsigned tools; /* bits of enum foreign_tool */
    const char *key;
    enum option option;     /* of COPY, CONVERT and READ */
    const char *words;      /* of ONLY and METHOD: what is allowed, with commas */
    const char *text;       /* what the table says about it; of METHOD_OF: the method */
    foreign_value *convert; /* of CONVERT */
};

struct foreign_default {
    unsigned tools;
    enum option option;
    const char *value, *why;
};

extern const struct foreign_row foreign_rows[];
extern const struct foreign_default foreign_defaults[];
extern const int foreign_row_count, foreign_default_count;

/* The row of a key of one of these tools: by its whole name, else, if `wildcards`, by one that ends in a star. NULL: none. */
const struct foreign_row *foreign_find_row(unsigned tools, const char *key, bool wildcards);

/* Whether the table has keys inside this one. */
bool foreign_has_inner(unsigned tools, const char *key);

/* The key of a tool that may have been meant, and how much of its name: that of the same option as the key is in another tool, or
 * else the nearest. NULL: none. */
const char *foreign_nearest_key(enum foreign_tool tool, const char *key, size_t *shown);

struct foreign_tool_name {
    enum foreign_tool tool;
    enum choice_config_format format;
    const char *name, *article;
    enum status (*finish)(struct foreign *f); /* what follows from several keys */
};
extern const struct foreign_tool_name foreign_tools[];
enum { FOREIGN_TOOLS = 4, FOREIGN_KEY_SIZE = 256, FOREIGN_REFUSED_MAX = 3100 }; /* bytes of a message, which has 4096 */

/* Texts joined by commas, in the arena, as long as they are FOREIGN_JOINED_MAX bytes at most. Its room is doubled as it grows, so
 * that many texts take a few times their sum. */
struct foreign_list {
    char *text; /* NULL: none yet */
    int64_t size, room;
};
enum { FOREIGN_JOINED_MAX = 1 << 22 };

/* Keys that one sentence helps with, in their order. */
struct foreign_undone {
    const char *helps;
    struct foreign_list keys;
    struct foreign_undone *next;
};

struct foreign {
    const struct foreign_tool_name *tool;
    const char *path;
    struct arena *arena; /* for texts; it outlives the reading */
    const struct yaml_node *root;
    const struct options *given; /* what flags say; it wins over the file */
    struct {
        const char *text, *source; /* NULL: not set */
    } values[OPTIONS];
    struct buffer refused, idle, said, defaults;
    struct foreign_undone *undone;
    const struct foreign_row *method; /* the first row of the table that says that hone has not the file's method; or NULL */
    const struct yaml_node *method_node;
    int refused_count, refused_more; /* more: those that the message has no room for */
};

/* Sets an option; the later one counts. `node` and `key` say where it comes from; NULL: from the tool's defaults, which
 * override nothing. */
enum status foreign_set(struct foreign *f, enum option option, const char *text, const struct yaml_node *node, const char *key);
enum status foreign_set_real(struct foreign *f, enum option option, double x, const struct yaml_node *node, const char *key);

/* The node of a key with dots, or NULL; null counts as absent. Its text, or `otherwise`; its number, or `otherwise`. */
const struct yaml_node *foreign_find(const struct foreign *f, const char *key);
const char *foreign_text(const struct foreign *f, const char *key, const char *otherwise);
double foreign_number(const struct foreign *f, const char *key, double otherwise);

/* Whether a key is there and true; whether a node is off: false, 0, none, null or empty. */
bool foreign_is_true(const struct foreign *f, const char *key);
bool foreign_is_off(const struct yaml_node *node);

/* hone's own option of a training run by its name or its alias, without the words of other tools; NULL: none. */
const struct option_row *foreign_own(const char *key);

/* Whether a word, of any case, is one of those between commas. */
bool foreign_in_words(const char *words, const char *word);

enum status foreign_join(struct foreign *f, struct foreign_list *list, const char *text, int64_t length);
enum status foreign_append(struct foreign *f, struct foreign_list *list, const char *text, int64_t length); /* without a comma */

/* A node's value as one text, lists joined by commas; NULL if it is something else. */
enum status foreign_joined(struct foreign *f, const struct yaml_node *node, const char **text);

/* One more key that is refused, or of which hone does something else. `why` may be "". */
enum status foreign_refuse(struct foreign *f, const struct yaml_node *node, const char *key, const char *why);
enum status foreign_say(struct foreign *f, const char *key, const char *value, const char *what);

/* One more wish that is left undone; `value` may be "". `helps` is not copied. */
enum status foreign_leave(struct foreign *f, const char *key, const char *value, const char *helps);

/* CONVERT's functions (foreign_value.c). */
foreign_value value_inverse, value_mask, value_excess, value_packing, value_method, value_targets, value_optimizer,
    value_scheduler, value_warmup, value_steps, value_truth, value_cpu, value_interval, value_strategy, value_column,
    value_report;

/* What follows from several keys of a tool (tool.c), and its data sets (foreign_data.c). */
enum status finish_axolotl(struct foreign *f);
enum status finish_factory(struct foreign *f);
enum status finish_trl(struct foreign *f);
enum status finish_mlx(struct foreign *f);
enum status foreign_data_list(struct foreign *f, const char *key, enum option option);
enum status foreign_data_info(struct foreign *f, const char *key, enum option option);

/* What the completion of the first file's first row is; none where it cannot be read. */
enum foreign_completion { COMPLETION_NONE, COMPLETION_STRING, COMPLETION_LIST };
enum status foreign_find_completion(struct foreign *f, const char *paths, enum foreign_completion *found);

#endif
