/* The table of foreign.def: its rows, and how they are found. */
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"
#include "config/foreign/foreign.h"
#include "config/foreign/state.h"

const struct foreign_row foreign_rows[] = {
#define COPY(tools, key, option) {RULE_COPY, tools, key, OPTION_##option, NULL, "", NULL},
#define CONVERT(tools, key, option, how, what) {RULE_CONVERT, tools, key, OPTION_##option, NULL, what, value_##how},
#define READ(tools, key, option, what) {RULE_READ, tools, key, OPTION_##option, NULL, what, NULL},
#define ONLY(tools, key, words, otherwise) {RULE_ONLY, tools, key, OPTIONS, words, otherwise, NULL},
#define OFF(tools, key, otherwise) {RULE_OFF, tools, key, OPTIONS, NULL, otherwise, NULL},
#define METHOD(tools, key, words, otherwise) {RULE_METHOD, tools, key, OPTIONS, words, otherwise, NULL},
#define METHOD_OF(tools, key, method) {RULE_METHOD_OF, tools, key, OPTIONS, NULL, method, NULL},
#define WARN(tools, key, what) {RULE_WARN, tools, key, OPTIONS, NULL, what, NULL},
#define UNDONE(tools, key, helps) {RULE_UNDONE, tools, key, OPTIONS, NULL, helps, NULL},
#define IDLE(tools, key, why) {RULE_IDLE, tools, key, OPTIONS, NULL, why, NULL},
#include "config/foreign/foreign.def"
};
const int foreign_row_count = sizeof foreign_rows / sizeof *foreign_rows;

const struct foreign_default foreign_defaults[] = {
#define OTHERWISE(tools, option, value, why) {tools, OPTION_##option, value, why},
#include "config/foreign/foreign.def"
};
const int foreign_default_count = sizeof foreign_defaults / sizeof *foreign_defaults;

const struct foreign_tool_name foreign_tools[FOREIGN_TOOLS] = {
    {AXOLOTL, CHOICE_config_format_axolotl, "Axolotl", "an", finish_axolotl},
    {FACTORY, CHOICE_config_format_llamafactory, "LLaMA-Factory", "a", finish_factory},
    {TRL, CHOICE_config_format_trl, "TRL", "a", finish_trl},
    {MLX, CHOICE_config_format_mlx, "MLX-LM", "an", finish_mlx},
};

static bool foreign_table_starts(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool star_matches(const char *pattern, const char *key)
{
    size_t n = strlen(pattern);
    return n && pattern[n - 1] == '*' && strncmp(pattern, key, n - 1) == 0;
}

const struct foreign_row *foreign_find_row(unsigned tools, const char *key, bool wildcards)
{
    for (int i = 0; i < foreign_row_count; i++)
        if (foreign_rows[i].tools & tools && strcmp(foreign_rows[i].key, key) == 0)
            return &foreign_rows[i];
    for (int i = 0; wildcards && i < foreign_row_count; i++)
        if (foreign_rows[i].tools & tools && star_matches(foreign_rows[i].key, key))
            return &foreign_rows[i];
    return NULL;
}

bool foreign_has_inner(unsigned tools, const char *key)
{
    size_t n = strlen(key);
    for (int i = 0; i < foreign_row_count; i++) {
        const char *name = foreign_rows[i].key;
        if (foreign_rows[i].tools & tools && foreign_table_starts(name, key) &&
            (foreign_table_starts(name + n, ".") || foreign_table_starts(name + n, "[].")))
            return true;
    }
    return false;
}

const struct option_row *foreign_own(const char *key)
{
    for (const struct option_row *row = option_table; row < option_table + OPTIONS; row++)
        if (table_has(row, COMMAND_TRAIN) && !row->flag_only &&
            (strcmp(row->name, key) == 0 || (row->alias && strlen(row->alias) > 1 && strcmp(row->alias, key) == 0)))
            return row;
    return NULL;
}

/* Whether a file has nothing but hone's options, by their names or by words of other tools that hone takes. */
static bool foreign_table_is_own(const struct yaml_node *root)
{
    for (const struct yaml_node *n = root ? root->first : NULL; n; n = n->next) {
        struct word word;
        synonym_find(&word, n->key, (int64_t)strlen(n->key), COMMAND_TRAIN);
        if (!word.row || word.negated || n->kind != YAML_SCALAR)
            return false;
    }
    return true;
}

/* What a run cannot do without: which words a file has for it says whose it is. */
static bool names_files(enum option option)
{
    return option == OPTION_model_name_or_path || option == OPTION_dataset_path || option == OPTION_output_dir;
}

/* How many keys are the tool's and not hone's; 0 if the file is not one of the tool's. */
static int foreign_table_count_keys(enum foreign_tool tool, const struct yaml_node *root)
{
    int count = 0;
    bool model = false, data = false;
    for (const struct yaml_node *n = root ? root->first : NULL; n; n = n->next) {
        const struct foreign_row *row = foreign_find_row(tool, n->key, false);
        const struct option_row *own = foreign_own(n->key);
        bool known = row || foreign_has_inner(tool, n->key);
        if (own && !known && names_files(table_option(own)))
            return 0;
        count += known && !own;
        model |= row && row->option == OPTION_model_name_or_path;
        data |= row && row->option == OPTION_dataset_path;
    }
    return count > 1 || (model && data) ? count : 0;
}

enum choice_config_format foreign_format(const struct yaml_node *root)
{
    enum choice_config_format best = CHOICE_config_format_hone;
    if (foreign_table_is_own(root))
        return best;
    for (int t = 0, most = 0; t < FOREIGN_TOOLS; t++) {
        int count = foreign_table_count_keys(foreign_tools[t].tool, root);
        best = count > most ? foreign_tools[t].format : best;
        most = count > most ? count : most;
    }
    return best;
}

const char *foreign_owner(const char *key, enum choice_config_format *format)
{
    for (int t = 0; t < FOREIGN_TOOLS; t++)
        if (foreign_find_row(foreign_tools[t].tool, key, false) || foreign_has_inner(foreign_tools[t].tool, key)) {
            *format = foreign_tools[t].format;
            return foreign_tools[t].name;
        }
    return NULL;
}

const char *foreign_nearest_key(enum foreign_tool tool, const char *key, size_t *shown)
{
    const struct foreign_row *other = foreign_find_row(~0u, key, false);
    const char *best = NULL;
    int length = (int)strlen(key), distance = length < 4 ? 1 : length < 6 ? 2 : length / 3;
    for (int i = 0; i < foreign_row_count; i++) {
        const struct foreign_row *row = &foreign_rows[i];
        size_t whole = strcspn(row->key, strchr(key, '.') ? "*[" : "*[.");
        if (!(row->tools & tool))
            continue;
        if (other && other->option != OPTIONS && row->option == other->option && !strpbrk(row->key, "*[")) {
            *shown = strlen(row->key);
            return row->key;
        }
        bool begins = length > 4 && foreign_table_starts(row->key, key); /* a name that is not whole */
        int d = begins ? distance : edit_distance(key, length, row->key, (int64_t)whole, distance);
        if (d <= distance && row->key[whole] != '*') {
            best = row->key;
            distance = d - 1;
            *shown = whole;
        }
    }
    return best;
}
