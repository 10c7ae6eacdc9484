/* Reading the configuration of another tool: each key is looked up in the table and taken by its rule; then the tool's function
 * joins what stands in several keys, and its defaults fill the rest. What is refused is collected, and reported at the end. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "config/foreign/state.h"
#include "config/option_table.h"

static enum status take_value(struct foreign *f, enum option option, const struct yaml_node *node, const char *key)
{
    enum option_kind kind = option_table[option].kind;
    bool several = kind == KIND_TEXT || kind == KIND_PATH;
    const char *text = NULL;
    if (several || node->kind == YAML_SCALAR)
        TRY(foreign_joined(f, node, &text));
    if (!text)
        return foreign_refuse(f, node, key, several ? "one value or a list of them is needed" : "one value is needed");
    return foreign_set(f, option, kind == KIND_BOOL ? table_truth(text) : text, node, key);
}

static enum status check_words(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    bool allowed = node->kind == YAML_SCALAR && foreign_in_words(row->words, table_truth(node->text));
    if (node->kind == YAML_LIST) {
        allowed = true;
        for (const struct yaml_node *n = node->first; n; n = n->next)
            allowed &= n->kind == YAML_SCALAR && foreign_in_words(row->words, n->text);
    }
    return allowed ? OK : foreign_refuse(f, node, key, row->text);
}

/* The file is of a method that hone has not: the row that stands first in the table names it. */
static enum status refuse_method(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    char why[FOREIGN_KEY_SIZE];
    if (!f->method || row < f->method) {
        f->method = row;
        f->method_node = node;
    }
    snprintf(why, sizeof why, "not done, it is of %s", row->text);
    return foreign_refuse(f, node, key, row->rule == RULE_METHOD ? row->text : why);
}

/* One process, or one card, is what is done anyway. */
static bool asks_for_one(const struct yaml_node *node, const char *key)
{
    size_t n = strlen(key);
    bool counts = (n > 5 && strcmp(key + n - 5, "_size") == 0) || (n > 7 && strcmp(key + n - 7, "_degree") == 0);
    return counts && node->kind == YAML_SCALAR && strcmp(node->text, "1") == 0;
}

static enum status add_idle(struct foreign *f, const char *key)
{
    return strchr(key, '[') ? OK : buffer_format(&f->idle, "%s%.60s", f->idle.size ? ", " : "", key);
}

static enum status foreign_apply(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    switch (row->rule) {
    case RULE_COPY: return take_value(f, row->option, node, key);
    case RULE_CONVERT:
        if (node->kind != YAML_SCALAR && row->convert != value_targets && row->convert != value_report)
            return foreign_refuse(f, node, key, "one value is needed");
        return row->convert(f, row, node, key);
    case RULE_READ: return OK;
    case RULE_ONLY: return check_words(f, row, node, key);
    case RULE_OFF: return foreign_is_off(node) ? OK : foreign_refuse(f, node, key, row->text);
    case RULE_WARN:
        if (foreign_is_off(node) || strncmp(node->text, "tokenizer_default", strlen("tokenizer_default")) == 0)
            return OK;
        return foreign_say(f, key, node->text, row->text);
    case RULE_METHOD: {
        bool ours = node->kind == YAML_SCALAR && foreign_in_words(row->words, table_truth(node->text));
        return ours || foreign_is_off(node) ? OK : refuse_method(f, row, node, key);
    }
    case RULE_METHOD_OF: return foreign_is_off(node) ? OK : refuse_method(f, row, node, key);
    case RULE_UNDONE: return foreign_is_off(node) || asks_for_one(node, key) ? OK : foreign_leave(f, key, "", row->text);
    case RULE_IDLE: return add_idle(f, key);
    }
    return OK;
}

static enum status refuse_unknown(struct foreign *f, const struct yaml_node *node, const char *key)
{
    char why[FOREIGN_KEY_SIZE] = "unknown";
    size_t shown = 0;
    bool room = f->refused.size <= FOREIGN_REFUSED_MAX; /* else looking for it takes long in a large file, for nothing */
    const char *near = room ? foreign_nearest_key(f->tool->tool, key, &shown) : NULL;
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

static enum status foreign_walk(struct foreign *f, const struct yaml_node *mapping, const char *prefix);

/* Each mapping of a list. */
static enum status walk_items(struct foreign *f, const struct yaml_node *list, const char *prefix)
{
    for (const struct yaml_node *item = list->first; item; item = item->next)
        if (item->kind == YAML_MAPPING)
            TRY(foreign_walk(f, item, prefix));
    return OK;
}

static enum status foreign_take_key(struct foreign *f, const struct yaml_node *node, const char *key)
{
    char inside[FOREIGN_KEY_SIZE];
    bool inner = foreign_has_inner(f->tool->tool, key);
    const struct foreign_row *row = foreign_find_row(f->tool->tool, key, !inner);
    const struct option_row *own = foreign_own(key);
    snprintf(inside, sizeof inside, "%s%s", key, node->kind == YAML_LIST ? "[]." : ".");
    if (!row && !inner && node->kind == YAML_NULL)
        return add_idle(f, key);
    if (!row && !inner)
        return own ? take_own(f, own, node, key) : refuse_unknown(f, node, key);
    if (node->kind == YAML_NULL)
        return OK;
    if (row)
        TRY(foreign_apply(f, row, node, key));
    if (!inner)
        return OK;
    if (node->kind == YAML_MAPPING)
        return foreign_walk(f, node, inside);
    if (node->kind == YAML_LIST)
        return walk_items(f, node, inside);
    return row ? OK : foreign_refuse(f, node, key, "names with values are needed below it");
}

/* As deep as the table's keys are, which is less than the tree may be. */
static enum status foreign_walk(struct foreign *f, const struct yaml_node *mapping, const char *prefix)
{
    for (const struct yaml_node *n = mapping->first; n; n = n->next) {
        char key[FOREIGN_KEY_SIZE];
        snprintf(key, sizeof key, "%.100s%.100s", prefix, n->key);
        TRY(foreign_take_key(f, n, key));
    }
    return OK;
}

/* --- the whole ----------------------------------------------------------------------------------------------------------- */

/* An adapter that is trained on keeps its shape; a run of all weights has none. */
static bool is_of_lora(enum option option)
{
    return option == OPTION_lora_r || option == OPTION_lora_alpha || option == OPTION_lora_dropout ||
           option == OPTION_lora_target_modules || option == OPTION_use_rslora;
}

static bool foreign_applies(const struct foreign *f, enum option option)
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
        if (!(d->tools & f->tool->tool) || f->values[d->option].text || !foreign_applies(f, d->option))
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
    TRY(foreign_walk(f, f->root, ""));
    TRY(f->tool->finish(f));
    for (int o = 0; o < OPTIONS && f->values[OPTION_init_adapter].text; o++)
        if (is_of_lora((enum option)o) && o != OPTION_lora_dropout)
            f->values[o].text = NULL;
    return add_defaults(f);
}

/* The tool's defaults that are in force and not hone's: before they are stored, hone's are in `options`. */
static enum status list_defaults(struct foreign *f, const struct options *options, enum user_command command)
{
    size_t n = strlen(f->path);
    for (int o = 0; o < OPTIONS; o++) {
        const char *text = f->values[o].text;
        struct buffer own = {0};
        if (!text || strncmp(f->values[o].source + n, ": ", 2) != 0 || options->source[o] ||
            !table_has(&option_table[o], command))
            continue;
        enum status status = options_get(options, (enum option)o, &own);
        if (status == OK && strcmp(text, own.size ? own.data : "") != 0)
            status = buffer_format(&f->defaults, "%s%s %.40s%s", f->defaults.size ? ", " : "", option_table[o].name, text,
                                   strlen(text) > 40 ? "..." : "");
        buffer_free(&own);
        TRY(status);
    }
    return OK;
}

/* Whether a text has the key as a word of its own, with `before` before it. */
static bool has_key(const struct buffer *text, const char *before, const char *key)
{
    size_t n = strlen(before), length = strlen(key);
    for (const char *at = text->size ? strstr(text->data, before) : NULL; at && *at; at = strstr(at + 1, before)) {
        bool begins = *before || at == text->data || at[-1] == ' ';
        if (begins && strncmp(at + n, key, length) == 0 && strchr(".:[), \n", at[n + length]))
            return true;
    }
    return false;
}

static bool is_undone(const struct foreign *f, const char *key)
{
    bool named = false;
    for (const struct foreign_undone *u = f->undone; u && !named; u = u->next) {
        struct buffer keys = {.data = u->keys.text, .size = u->keys.size};
        named = has_key(&keys, "", key);
    }
    return named;
}

/* The keys of the file that are named nowhere else: those that ask for what is done anyway, and those that only count with
 * others. */
static enum status list_rest(struct foreign *f, struct buffer *rest)
{
    for (const struct yaml_node *n = f->root->first; n; n = n->next) {
        bool named = has_key(&f->idle, "", n->key) || has_key(&f->said, "changed: ", n->key) || is_undone(f, n->key);
        for (int o = 0; o < OPTIONS && !named; o++) {
            const char *source = f->values[o].text ? f->values[o].source : "";
            struct buffer one = {.data = (char *)source, .size = (int64_t)strlen(source)};
            named = has_key(&one, "(", n->key);
        }
        if (!named)
            TRY(buffer_format(rest, "%s%.60s", rest->size ? ", " : "", n->key));
    }
    return OK;
}

static enum status foreign_add_line(struct buffer *notes, const char *before, const struct buffer *line)
{
    return line->size ? buffer_format(notes, "%s%s\n", before, line->data) : OK;
}

static enum status write_notes(struct foreign *f, struct buffer *notes, enum user_command command)
{
    struct buffer rest = {0};
    enum status status =
        buffer_format(notes, "read as %s %s config, with the defaults of %s\n", f->tool->article, f->tool->name, f->tool->name);
    if (status == OK && f->defaults.size)
        status = buffer_format(notes, "defaults of %s that are not hone's: %s\n", f->tool->name, f->defaults.data);
    if (status == OK)
        status = foreign_add_line(notes, "not needed: ", &f->idle);
    if (status == OK && command == COMMAND_CONFIG)
        status = list_rest(f, &rest);
    if (status == OK)
        status = foreign_add_line(notes, "nothing to write for: ", &rest);
    if (status == OK && f->said.size)
        status = buffer_append(notes, f->said.data, f->said.size);
    for (const struct foreign_undone *u = f->undone; u && status == OK; u = u->next)
        status = buffer_format(notes, "not done: %s: %s\n", u->keys.text, u->helps);
    buffer_free(&rest);
    return status;
}

static enum status foreign_tell(struct foreign *f, struct options *options, enum user_command command)
{
    struct buffer notes = {0};
    enum status status = write_notes(f, &notes, command);
    if (status == OK)
        options->notes = arena_text(options->arena, notes.data, notes.size);
    buffer_free(&notes);
    TRY(status);
    if (!options->notes)
        return ERR_MEMORY;
    for (const char *line = options->notes; command != COMMAND_CONFIG && *line; line += strcspn(line, "\n") + 1)
        log_message(LOG_INFO, "%s: %.*s", f->path, (int)strcspn(line, "\n"), line);
    return OK;
}

/* Adds what is wrong with values, as table_store says it, without the path before it. */
static enum status check_values(struct foreign *f, struct options *options)
{
    for (int o = 0; o < OPTIONS; o++) {
        const char *text = f->values[o].text, *source = f->values[o].source;
        enum status status = text ? table_store(options, &option_table[o], text, source, true) : OK;
        if (status == OK)
            continue;
        if (status != ERR_ARGUMENT)
            return status;
        if (f->refused.size > FOREIGN_REFUSED_MAX || strlen(status_message()) <= strlen(f->path))
            f->refused_more++;
        else
            TRY(buffer_format(&f->refused, "%sline %.200s", f->refused.size ? "; " : "", status_message() + strlen(f->path) + 1));
        f->refused_count++;
    }
    return OK;
}

/* What the file is, where hone has not its method: said before its keys. */
static const char *name_method(const struct foreign *f, char *text, size_t size)
{
    const struct yaml_node *node = f->method_node;
    if (!f->method)
        return "";
    const char *name = f->method->rule == RULE_METHOD_OF ? f->method->text : node->kind == YAML_SCALAR ? node->text : "";
    bool chosen = foreign_in_words("dpo,ipo,orpo,simpo,cpo", name);
    snprintf(text, size,
             "this is a config for another method of training, %.40s (%.60s in line %d): hone has supervised fine-tuning, %s; ",
             name, node->key, node->line,
             chosen ? "which without the keys of that method trains the chosen answer of each preference row (docs/data.md)"
                    : "which needs rows with answers (docs/data.md) and none of the keys of that method");
    return text;
}

static enum status load(struct foreign *f, struct options *options, enum user_command command)
{
    TRY(read_keys(f));
    int keys = f->refused_count;
    TRY(check_values(f, options));
    if (keys || f->refused_count > 1) { /* one wrong value has a message of its own */
        char more[40] = "", method[2 * FOREIGN_KEY_SIZE];
        if (f->refused_more)
            snprintf(more, sizeof more, "; and %d more", f->refused_more);
        return fail(ERR_ARGUMENT,
                    "%s: %shone cannot follow %d %s of this %s config: %s%s (docs/configs.md has all that it takes)", f->path,
                    name_method(f, method, sizeof method), f->refused_count, f->refused_count == 1 ? "key" : "keys",
                    f->tool->name, f->refused.data, more);
    }
    TRY(list_defaults(f, options, command));
    for (int o = 0; o < OPTIONS; o++) {
        const struct option_row *row = &option_table[o];
        bool check_only = !table_has(row, command) || options->source[o];
        if (f->values[o].text)
            TRY(table_store(options, row, f->values[o].text, f->values[o].source, check_only));
    }
    return foreign_tell(f, options, command);
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
    buffer_free(&f.defaults);
    return status;
}
