/* Reading the configuration of another tool: each key is looked up in the table and taken by its rule; then the tool's function
 * joins what stands in several keys, and its defaults fill the rest. What is refused is collected, and told at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "config/foreign_state.h"
#include "base/nearest.h"
#include "config/table.h"

enum { REFUSED_BYTES_MAX = 3400 }; /* of a message, which has 4096 */

const struct foreign_row foreign_rows[] = {
#define TAKE(tools, key, option) {RULE_TAKE, tools, key, OPTION_##option, NULL, "", NULL},
#define TURN(tools, key, option, how, what) {RULE_TURN, tools, key, OPTION_##option, NULL, what, value_##how},
#define READ(tools, key, option, what) {RULE_READ, tools, key, OPTION_##option, NULL, what, NULL},
#define ONLY(tools, key, words, otherwise) {RULE_ONLY, tools, key, OPTIONS, words, otherwise, NULL},
#define OFF(tools, key, otherwise) {RULE_OFF, tools, key, OPTIONS, NULL, otherwise, NULL},
#define OWN(tools, key, otherwise) {RULE_OWN, tools, key, OPTIONS, NULL, otherwise, NULL},
#define SAID(tools, key, what) {RULE_SAID, tools, key, OPTIONS, NULL, what, NULL},
#define IDLE(tools, key, why) {RULE_IDLE, tools, key, OPTIONS, NULL, why, NULL},
#include "config/foreign.def"
};
const int foreign_row_count = sizeof foreign_rows / sizeof *foreign_rows;

const struct foreign_default foreign_defaults[] = {
#define OTHERWISE(tools, option, value, why) {tools, OPTION_##option, value, why},
#include "config/foreign.def"
};
const int foreign_default_count = sizeof foreign_defaults / sizeof *foreign_defaults;

const struct foreign_tool_name foreign_tools[FOREIGN_TOOLS] = {
    {AXOLOTL, CHOICE_config_format_axolotl, "Axolotl", "an", finish_axolotl},
    {FACTORY, CHOICE_config_format_llamafactory, "LLaMA-Factory", "a", finish_factory},
    {TRL, CHOICE_config_format_trl, "TRL", "a", finish_trl},
    {MLX, CHOICE_config_format_mlx, "MLX-LM", "an", finish_mlx},
};

/* --- looking up ----------------------------------------------------------------------------------------------------------- */

static bool starts(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool star_matches(const char *pattern, const char *key)
{
    size_t n = strlen(pattern);
    return n && pattern[n - 1] == '*' && strncmp(pattern, key, n - 1) == 0;
}

static const struct foreign_row *find_row(unsigned tools, const char *key, bool stars)
{
    for (int i = 0; i < foreign_row_count; i++)
        if (foreign_rows[i].tools & tools && strcmp(foreign_rows[i].key, key) == 0)
            return &foreign_rows[i];
    for (int i = 0; stars && i < foreign_row_count; i++)
        if (foreign_rows[i].tools & tools && star_matches(foreign_rows[i].key, key))
            return &foreign_rows[i];
    return NULL;
}

/* Whether the table has keys inside this one. */
static bool has_inner(unsigned tools, const char *key)
{
    size_t n = strlen(key);
    for (int i = 0; i < foreign_row_count; i++) {
        const char *rest = foreign_rows[i].key + n;
        if (foreign_rows[i].tools & tools && starts(foreign_rows[i].key, key) && (starts(rest, ".") || starts(rest, "[].")))
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

enum choice_config_format foreign_format(const struct yaml_node *root)
{
    int best = 0, score = 1;
    for (int t = 0; t < FOREIGN_TOOLS; t++) {
        int known = 0;
        for (const struct yaml_node *n = root ? root->first : NULL; n; n = n->next)
            known += !foreign_own(n->key) &&
                     (find_row(foreign_tools[t].tool, n->key, false) || has_inner(foreign_tools[t].tool, n->key));
        best = known > score ? t + 1 : best;
        score = known > score ? known : score;
    }
    return best ? foreign_tools[best - 1].format : CHOICE_config_format_hone;
}

const char *foreign_owner(const char *key, enum choice_config_format *format)
{
    for (int t = 0; t < FOREIGN_TOOLS; t++)
        if (find_row(foreign_tools[t].tool, key, false) || has_inner(foreign_tools[t].tool, key)) {
            *format = foreign_tools[t].format;
            return foreign_tools[t].name;
        }
    return NULL;
}

/* --- what is found out ------------------------------------------------------------------------------------------------------ */

enum status foreign_set(struct foreign *f, enum option option, const char *text, const struct yaml_node *node, const char *key)
{
    const char *source = node ? arena_format(f->arena, "%s:%d (%s)", f->path, node->line, key)
                              : arena_format(f->arena, "%s: the default of %s (%s)", f->path, f->tool->name, key);
    const char *copy = arena_text(f->arena, text, (int64_t)strlen(text));
    if (!source || !copy)
        return ERR_MEMORY;
    f->values[option].text = copy;
    f->values[option].source = source;
    return OK;
}

enum status foreign_set_real(struct foreign *f, enum option option, double x, const struct yaml_node *node, const char *key)
{
    char text[32];
    snprintf(text, sizeof text, "%.15g", x);
    return foreign_set(f, option, text, node, key);
}

enum status foreign_refuse(struct foreign *f, const struct yaml_node *node, const char *key, const char *why)
{
    f->refused_count++;
    if (f->refused.size > REFUSED_BYTES_MAX) {
        f->refused_more++;
        return OK;
    }
    TRY(buffer_format(&f->refused, "%s%.60s", f->refused.size ? "; " : "", key));
    if (node->kind == YAML_SCALAR)
        TRY(buffer_format(&f->refused, ": %.40s", node->text));
    return buffer_format(&f->refused, " (line %d)%s%.200s", node->line, *why ? ": " : "", why);
}

enum status foreign_say(struct foreign *f, const char *key, const char *value, const char *what)
{
    return buffer_format(&f->said, "changed: %.60s%s%.40s: %s\n", key, *value ? ": " : "", value, what);
}

const struct yaml_node *foreign_find(const struct foreign *f, const char *key)
{
    const struct yaml_node *node = f->root;
    while (node) {
        char part[FOREIGN_KEY_SIZE];
        size_t n = strcspn(key, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, key);
        node = yaml_member(node, part);
        if (!key[n])
            break;
        key += n + 1;
    }
    return node && node->kind != YAML_NULL ? node : NULL;
}

const char *foreign_text(const struct foreign *f, const char *key, const char *otherwise)
{
    const struct yaml_node *node = foreign_find(f, key);
    return node && node->kind == YAML_SCALAR ? node->text : otherwise;
}

double foreign_number(const struct foreign *f, const char *key, double otherwise)
{
    const char *text = foreign_text(f, key, NULL);
    char *end;
    double x = text ? strtod(text, &end) : otherwise;
    return text && (end == text || *end) ? otherwise : x;
}

bool foreign_in_words(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncasecmp(at, word, length) == 0)
            return true;
    return false;
}

bool foreign_is_true(const struct foreign *f, const char *key)
{
    return foreign_in_words("true,yes,on", foreign_text(f, key, ""));
}

bool foreign_is_off(const struct yaml_node *node)
{
    switch (node->kind) {
    case YAML_NULL: return true;
    case YAML_SCALAR: {
        char *end;
        bool zero = strtod(node->text, &end) == 0 && end != node->text && !*end;
        return !*node->text || zero || foreign_in_words("false,no,off,none", node->text);
    }
    default: return !node->first;
    }
}

enum status foreign_joined(struct foreign *f, const struct yaml_node *node, const char **text)
{
    *text = node->kind == YAML_SCALAR || node->kind == YAML_LIST ? node->text : NULL;
    for (const struct yaml_node *n = node->kind == YAML_LIST ? node->first : NULL; n; n = n->next) {
        if (n->kind != YAML_SCALAR) {
            *text = NULL;
            return OK;
        }
        *text = arena_format(f->arena, "%s%s%s", *text, **text ? "," : "", n->text);
        if (!*text)
            return ERR_MEMORY;
    }
    return OK;
}

/* --- one key ------------------------------------------------------------------------------------------------------------------
 */

/* What people write for true and false in YAML. */
static const char *truth(const char *text)
{
    return foreign_in_words("yes,on", text) ? "true" : foreign_in_words("no,off", text) ? "false" : text;
}

static enum status take_value(struct foreign *f, enum option option, const struct yaml_node *node, const char *key)
{
    enum option_kind kind = option_table[option].kind;
    bool several = kind == KIND_TEXT || kind == KIND_PATH;
    const char *text = NULL;
    if (several || node->kind == YAML_SCALAR)
        TRY(foreign_joined(f, node, &text));
    if (!text)
        return foreign_refuse(f, node, key, several ? "one value or a list of them is needed" : "one value is needed");
    return foreign_set(f, option, kind == KIND_BOOL ? truth(text) : text, node, key);
}

static enum status check_words(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    bool allowed = node->kind == YAML_SCALAR && foreign_in_words(row->words, truth(node->text));
    if (node->kind == YAML_LIST) {
        allowed = true;
        for (const struct yaml_node *n = node->first; n; n = n->next)
            allowed &= n->kind == YAML_SCALAR && foreign_in_words(row->words, n->text);
    }
    return allowed ? OK : foreign_refuse(f, node, key, row->text);
}

static enum status add_idle(struct foreign *f, const char *key)
{
    return strchr(key, '[') ? OK : buffer_format(&f->idle, "%s%.60s", f->idle.size ? ", " : "", key);
}

static enum status apply(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    const struct option_row *own = foreign_own(key);
    switch (row->rule) {
    case RULE_TAKE: return take_value(f, row->option, node, key);
    case RULE_TURN:
        if (node->kind != YAML_SCALAR && row->convert != value_targets)
            return foreign_refuse(f, node, key, "one value is needed");
        return row->convert(f, row, node, key);
    case RULE_READ: return OK;
    case RULE_ONLY: return check_words(f, row, node, key);
    case RULE_OWN:
        if (own)
            return take_value(f, table_option(own), node, key);
        return foreign_is_off(node) ? OK : foreign_refuse(f, node, key, row->text);
    case RULE_OFF: return foreign_is_off(node) ? OK : foreign_refuse(f, node, key, row->text);
    case RULE_SAID:
        if (foreign_is_off(node) || starts(node->text, "tokenizer_default"))
            return OK;
        return foreign_say(f, key, node->text, row->text);
    case RULE_IDLE: return add_idle(f, key);
    }
    return OK;
}

/* The key of this tool that may have been meant, and how much of its name: of the same option as the key is in another tool, or
 * else the nearest. */
static const char *nearest_key(const struct foreign *f, const char *key, size_t *shown)
{
    const struct foreign_row *other = find_row(~0u, key, false);
    const char *best = NULL;
    int length = (int)strlen(key), distance = length < 4 ? 1 : length < 6 ? 2 : length / 3;
    for (int i = 0; i < foreign_row_count; i++) {
        const struct foreign_row *row = &foreign_rows[i];
        size_t whole = strcspn(row->key, strchr(key, '.') ? "*[" : "*[.");
        if (!(row->tools & f->tool->tool))
            continue;
        if (other && other->option != OPTIONS && row->option == other->option && !strpbrk(row->key, "*[")) {
            *shown = strlen(row->key);
            return row->key;
        }
        int d = nearest_distance(key, length, row->key, (int64_t)whole);
        if (length > 4 && starts(row->key, key) && d > distance) /* the beginning of a name */
            d = distance;
        if (d <= distance && row->key[whole] != '*') {
            best = row->key;
            distance = d - 1;
            *shown = whole;
        }
    }
    return best;
}

static enum status refuse_unknown(struct foreign *f, const struct yaml_node *node, const char *key)
{
    char why[FOREIGN_KEY_SIZE] = "unknown";
    size_t shown = 0;
    const char *near = nearest_key(f, key, &shown);
    if (near)
        snprintf(why, sizeof why, "unknown, did you mean %.*s?", (int)shown, near);
    return foreign_refuse(f, node, key, why);
}

/* One of hone's own options, unless a key of the tool says the same. */
static enum status take_own(struct foreign *f, const struct option_row *own, const struct yaml_node *node, const char *key)
{
    for (int i = 0; i < foreign_row_count; i++) {
        const struct yaml_node *other = foreign_find(f, foreign_rows[i].key);
        if (foreign_rows[i].tools & f->tool->tool && foreign_rows[i].option == table_option(own) && other) {
            char why[FOREIGN_KEY_SIZE];
            snprintf(why, sizeof why, "%.60s in line %d says it already", foreign_rows[i].key, other->line);
            return foreign_refuse(f, node, key, why);
        }
    }
    return take_value(f, table_option(own), node, key);
}

static enum status walk(struct foreign *f, const struct yaml_node *mapping, const char *prefix);

/* Each mapping of a list. */
static enum status walk_items(struct foreign *f, const struct yaml_node *list, const char *prefix)
{
    for (const struct yaml_node *item = list->first; item; item = item->next)
        if (item->kind == YAML_MAPPING)
            TRY(walk(f, item, prefix));
    return OK;
}

static enum status take_key(struct foreign *f, const struct yaml_node *node, const char *key)
{
    char inside[FOREIGN_KEY_SIZE];
    bool inner = has_inner(f->tool->tool, key);
    const struct foreign_row *row = find_row(f->tool->tool, key, !inner);
    const struct option_row *own = foreign_own(key);
    snprintf(inside, sizeof inside, "%s%s", key, node->kind == YAML_LIST ? "[]." : ".");
    if (!row && !inner && node->kind == YAML_NULL)
        return add_idle(f, key);
    if (!row && !inner)
        return own ? take_own(f, own, node, key) : refuse_unknown(f, node, key);
    if (node->kind == YAML_NULL)
        return OK;
    if (row)
        TRY(apply(f, row, node, key));
    if (!inner)
        return OK;
    if (node->kind == YAML_MAPPING)
        return walk(f, node, inside);
    if (node->kind == YAML_LIST)
        return walk_items(f, node, inside);
    return row ? OK : foreign_refuse(f, node, key, "names with values are needed below it");
}

/* As deep as the table's keys are, which is less than the tree may be. */
static enum status walk(struct foreign *f, const struct yaml_node *mapping, const char *prefix)
{
    for (const struct yaml_node *n = mapping->first; n; n = n->next) {
        char key[FOREIGN_KEY_SIZE];
        snprintf(key, sizeof key, "%.100s%.100s", prefix, n->key);
        TRY(take_key(f, n, key));
    }
    return OK;
}

/* --- the whole
 * ------------------------------------------------------------------------------------------------------------------ */

/* An adapter that is trained on keeps its shape; a run of all weights has none. */
static bool is_of_lora(enum option option)
{
    return option == OPTION_lora_r || option == OPTION_lora_alpha || option == OPTION_lora_dropout ||
           option == OPTION_lora_target_modules || option == OPTION_use_rslora;
}

static bool applies(const struct foreign *f, enum option option)
{
    const char *method = f->values[OPTION_finetuning_type].text, *bits = f->values[OPTION_load_in_4bit].text;
    if (is_of_lora(option))
        return !f->values[OPTION_init_adapter].text && !(method && strcmp(method, "full") == 0);
    if (option == OPTION_warmup_ratio)
        return !f->values[OPTION_warmup_steps].text;
    return option != OPTION_bnb_4bit_use_double_quant || (bits && strcmp(bits, "true") == 0);
}

static enum status add_defaults(struct foreign *f)
{
    for (int i = 0; i < foreign_default_count; i++) {
        const struct foreign_default *d = &foreign_defaults[i];
        if (!(d->tools & f->tool->tool) || f->values[d->option].text || !applies(f, d->option))
            continue;
        f->values[d->option].text = d->value;
        f->values[d->option].source = arena_format(f->arena, "%s: the default of %s", f->path, f->tool->name);
        if (!f->values[d->option].source)
            return ERR_MEMORY;
    }
    return OK;
}

static enum status read_keys(struct foreign *f)
{
    TRY(walk(f, f->root, ""));
    TRY(f->tool->finish(f));
    for (int o = 0; o < OPTIONS && f->values[OPTION_init_adapter].text; o++)
        if (is_of_lora((enum option)o) && o != OPTION_lora_dropout)
            f->values[o].text = NULL;
    return add_defaults(f);
}

static enum status tell(struct foreign *f, struct options *options, enum user_command command)
{
    const char *idle = f->idle.size ? f->idle.data : "", *said = f->said.size ? f->said.data : "";
    options->notes = arena_format(options->arena, "read as %s %s config, with the defaults of %s\n%s%s%s%s", f->tool->article,
                                  f->tool->name, f->tool->name, *idle ? "not needed: " : "", idle, *idle ? "\n" : "", said);
    if (!options->notes)
        return ERR_MEMORY;
    for (const char *line = options->notes; command != COMMAND_CONFIG && *line; line += strcspn(line, "\n") + 1)
        log_message(LOG_INFO, "%s: %.*s", f->path, (int)strcspn(line, "\n"), line);
    return OK;
}

static enum status load(struct foreign *f, struct options *options, enum user_command command)
{
    TRY(read_keys(f));
    if (f->refused_count) {
        char more[40] = "";
        if (f->refused_more)
            snprintf(more, sizeof more, "; and %d more", f->refused_more);
        return fail(ERR_ARGUMENT, "%s: hone cannot follow %d %s of this %s config: %s%s (docs/configs.md has all that it takes)",
                    f->path, f->refused_count, f->refused_count == 1 ? "key" : "keys", f->tool->name, f->refused.data, more);
    }
    for (int o = 0; o < OPTIONS; o++) {
        const struct option_row *row = &option_table[o];
        bool check_only = !table_has(row, command) || options->source[o];
        if (f->values[o].text)
            TRY(table_store(options, row, f->values[o].text, f->values[o].source, check_only));
    }
    return tell(f, options, command);
}

enum status foreign_load(struct options *options, enum user_command command, enum choice_config_format format,
                         const struct yaml_node *root, const char *path)
{
    struct foreign f = {.path = path, .arena = options->arena, .root = root, .given = options};
    if (!root)
        return fail(ERR_FORMAT, "%s: a configuration is needed here, as lines of \"name: value\"", path);
    for (int t = 0; t < FOREIGN_TOOLS; t++)
        if (foreign_tools[t].format == format)
            f.tool = &foreign_tools[t];
    enum status status = load(&f, options, command);
    buffer_free(&f.refused);
    buffer_free(&f.idle);
    buffer_free(&f.said);
    return status;
}
