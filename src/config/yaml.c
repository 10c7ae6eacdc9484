/* A YAML file as options: hone's own, which is one mapping of scalars read event by event, or that of another tool, which is
 * recognised by its keys and read as a tree. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/path_hint.h"
#include "config/foreign/foreign.h"
#include "config/yaml_reader.h"
#include "config/yaml_tree.h"

static enum status read_key(const struct yaml_reader *r, enum user_command command, struct word *word)
{
    if (r->event.type != YAML_SCALAR_EVENT && r->event.type != YAML_ALIAS_EVENT)
        return yaml_fail(r, "a key must be the name of an option");
    TRY(yaml_check_scalar(r));
    const char *key = (const char *)r->event.data.scalar.value;
    int64_t length = (int64_t)strlen(key);
    int line = yaml_line(r);
    synonym_find(word, key, length, command);
    if (!word->row || word->negated) {
        char words[WORDS_SIZE], other[WORDS_SIZE] = "";
        enum choice_config_format format;
        const char *owner = foreign_owner(key, &format);
        table_suggest(key, length, command, false, words);
        if (owner)
            snprintf(other, sizeof other, "; for a config of %s, add --config-format %s", owner,
                     options_word(OPTION_config_format, (int)format));
        if (!word->row && word->answer)
            return fail(ERR_ARGUMENT, "%s:%d: '%.60s' is not an option of hone %s: %s%s", r->path, line, key,
                        options_command_name(command), word->answer, other);
        return fail(ERR_ARGUMENT, "%s:%d: unknown key '%.60s'%s (hone %s --help lists all%s)", r->path, line, key, words,
                    options_command_name(command), other);
    }
    if (word->row->flag_only)
        return fail(ERR_ARGUMENT, "%s:%d: '%s' can only be given on the command line", r->path, line, word->row->name);
    return OK;
}

/* `line` is the key's; the current event is its value. */
static enum status check_once(const struct yaml_reader *r, const struct word *word, int line, int lines[OPTIONS])
{
    int *before = &lines[table_option(word->row)];
    if (r->event.type == YAML_SCALAR_EVENT && !synonym_asks(word, (const char *)r->event.data.scalar.value))
        return OK;
    if (*before)
        return fail(ERR_ARGUMENT, "%s:%d: %s was already given in line %d: keep one of them", r->path, line, word->row->name,
                    *before);
    *before = line;
    return OK;
}

/* Whether its value may be several, separated by commas. */
static bool takes_several(const struct option_row *row)
{
    switch (table_option(row)) {
    case OPTION_dataset_path:
    case OPTION_eval_dataset_path:
    case OPTION_column_mapping:
    case OPTION_include:
    case OPTION_lora_target_modules:
    case OPTION_lora_target_parameters:
    case OPTION_rank_pattern:
    case OPTION_alpha_pattern:
    case OPTION_report_to:
    case OPTION_target: return true;
    default: return false;
    }
}

/* The rest of a list as one text. */
static enum status yaml_read_list(struct yaml_reader *r, struct arena *arena, const struct option_row *row, const char **text)
{
    *text = "";
    for (;;) {
        TRY(yaml_next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return OK;
        if (r->event.type == YAML_SEQUENCE_START_EVENT || r->event.type == YAML_MAPPING_START_EVENT)
            return fail(ERR_ARGUMENT, "%s:%d: %s takes a list of single values", r->path, yaml_line(r), row->name);
        TRY(yaml_check_scalar(r));
        *text = arena_format(arena, "%s%s%s", *text, **text ? "," : "", (const char *)r->event.data.scalar.value);
        if (!*text)
            return ERR_MEMORY;
    }
}

static enum status yaml_read_value(struct yaml_reader *r, struct options *options, enum user_command command,
                                   const struct word *word)
{
    const struct option_row *row = word->row;
    int line = yaml_line(r);
    const char *text = NULL;
    if (r->event.type == YAML_SEQUENCE_START_EVENT && !takes_several(row))
        return fail(ERR_ARGUMENT, "%s:%d: %s takes one value, not a list", r->path, line, row->name);
    if (r->event.type == YAML_MAPPING_START_EVENT)
        return fail(ERR_ARGUMENT, "%s:%d: %s takes one value, not a mapping", r->path, line, row->name);
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        TRY(yaml_read_list(r, options->arena, row, &text));
    else
        TRY(yaml_check_scalar(r));
    if (!text && yaml_is_null(r))
        return OK;
    char *source = arena_format(options->arena, "%s:%d", r->path, line);
    if (!source)
        return ERR_MEMORY;
    bool check_only = !table_has(row, command) || options->source[table_option(row)];
    return synonym_store(options, word, text ? text : (const char *)r->event.data.scalar.value, source, check_only);
}

static enum status read_mapping(struct yaml_reader *r, struct options *options, enum user_command command)
{
    int lines[OPTIONS] = {0};
    for (;;) {
        struct word word;
        TRY(yaml_next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return OK;
        TRY(read_key(r, command, &word));
        int line = yaml_line(r);
        TRY(yaml_next(r));
        TRY(check_once(r, &word, line, lines));
        TRY(yaml_read_value(r, options, command, &word));
    }
}

static enum status read_stream(struct yaml_reader *r, struct options *options, enum user_command command)
{
    TRY(yaml_next(r)); /* the stream's start */
    TRY(yaml_next(r));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return OK;
    TRY(yaml_next(r)); /* what the document holds */
    if (r->event.type == YAML_MAPPING_START_EVENT)
        TRY(read_mapping(r, options, command));
    else if (!yaml_is_null(r))
        return yaml_fail(r, r->event.type == YAML_SEQUENCE_START_EVENT
                                ? "options are needed here, as lines of \"name: value\" without dashes before them, not a list"
                                : "options are needed here, as lines of \"name: value\"");
    TRY(yaml_next(r)); /* the document's end */
    TRY(yaml_next(r));
    return r->event.type == YAML_STREAM_END_EVENT ? OK : yaml_fail(r, "only one document is allowed in a file");
}

static enum status read_own(const struct buffer *text, struct options *options, enum user_command command, const char *path)
{
    struct yaml_reader r;
    TRY(yaml_reader_open(&r, text, path));
    enum status status = read_stream(&r, options, command);
    yaml_reader_close(&r);
    return status;
}

/* A file that cannot be read to its end is another tool's if its beginning is. */
static enum status yaml_read_text(const struct buffer *text, struct arena *arena, struct options *options,
                                  enum user_command command, const char *path)
{
    struct yaml_node *root;
    enum choice_config_format format = options->config_format;
    enum status status = yaml_tree_read(&root, arena, text, path);
    if (status == ERR_MEMORY)
        return status;
    if (format == CHOICE_config_format_auto)
        format = foreign_format(root);
    if (format == CHOICE_config_format_hone)
        return read_own(text, options, command, path);
    return status == OK ? foreign_load(options, command, format, root, path) : status;
}

enum status options_load_yaml(struct options *options, enum user_command command, const char *path)
{
    struct buffer text = {0};
    struct arena arena = {0};
    enum status status = OK;
    if (!file_exists(path))
        status = fail(ERR_IO, "%s: %s; --config names a YAML file with options", path, path_hint(&arena, path, "file"));
    if (status == OK)
        status = file_read(&text, path, YAML_FILE_MAX);
    if (status == OK)
        status = yaml_read_text(&text, &arena, options, command, path);
    arena_free(&arena);
    buffer_free(&text);
    return status;
}
