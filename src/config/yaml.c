/* A YAML file as options, by libyaml's events: one document, one mapping, and below it scalars alone. So nothing recurses,
 * nothing is expanded, and memory stays within a small multiple of the file. */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/lost.h"
#include "config/synonyms.h"

enum { FILE_MAX = 1 << 20 };

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; freed when the next is read */
    const char *path;
};

static int line_of(const yaml_mark_t *mark)
{
    return (int)mark->line + 1;
}

static enum status next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return OK;
    const char *problem = r->parser.problem ? r->parser.problem : "cannot be read";
    switch (r->parser.error) {
    case YAML_MEMORY_ERROR: return fail(ERR_MEMORY, "%s: out of memory", r->path);
    case YAML_READER_ERROR: /* it counts bytes, because the text could not be decoded into lines */
        return fail(ERR_FORMAT, "%s: not a YAML text: %s at byte %lld", r->path, problem, (long long)r->parser.problem_offset);
    default: return fail(ERR_FORMAT, "%s:%d: not valid YAML: %s", r->path, line_of(&r->parser.problem_mark), problem);
    }
}

static enum status fail_here(const struct reader *r, const char *what)
{
    return fail(ERR_FORMAT, "%s:%d: %s", r->path, line_of(&r->event.start_mark), what);
}

/* The current event is a scalar without a tag whose text holds no zero byte. */
static enum status check_scalar(const struct reader *r)
{
    if (r->event.type == YAML_ALIAS_EVENT)
        return fail_here(r, "aliases (*name) are not supported: write the value out");
    if (r->event.data.scalar.tag)
        return fail_here(r, "tags (!name) are not supported: write the plain value");
    if (strlen((const char *)r->event.data.scalar.value) != r->event.data.scalar.length)
        return fail_here(r, "a text with a zero byte is not supported");
    return OK;
}

static bool is_null(const yaml_event_t *event)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (event->type != YAML_SCALAR_EVENT || event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        if (strcmp((const char *)event->data.scalar.value, nulls[i]) == 0)
            return true;
    return false;
}

static enum status read_key(const struct reader *r, enum user_command command, int lines[OPTIONS], struct word *word)
{
    if (r->event.type != YAML_SCALAR_EVENT && r->event.type != YAML_ALIAS_EVENT)
        return fail_here(r, "a key must be the name of an option");
    TRY(check_scalar(r));
    const char *key = (const char *)r->event.data.scalar.value;
    int64_t length = (int64_t)strlen(key);
    int line = line_of(&r->event.start_mark);
    synonym_find(word, key, length, command);
    if (!word->row && word->answer)
        return fail(ERR_ARGUMENT, "%s:%d: '%.60s' is not an option of hone %s: %s", r->path, line, key,
                    options_command_name(command), word->answer);
    if (!word->row || word->negated) {
        char words[WORDS_SIZE];
        table_suggest(key, length, command, false, words);
        return fail(ERR_ARGUMENT, "%s:%d: unknown key '%.60s'%s (hone %s --help lists all)", r->path, line, key, words,
                    options_command_name(command));
    }
    if (word->row->flag_only)
        return fail(ERR_ARGUMENT, "%s:%d: '%s' can only be given on the command line", r->path, line, word->row->name);
    int *before = &lines[table_option(word->row)];
    if (*before)
        return fail(ERR_ARGUMENT, "%s:%d: %s was already given in line %d: keep one of them", r->path, line, word->row->name,
                    *before);
    *before = line;
    return OK;
}

static enum status read_value(const struct reader *r, struct options *options, enum user_command command, const struct word *word)
{
    const struct option_row *row = word->row;
    int line = line_of(&r->event.start_mark);
    bool several = row->kind == KIND_TEXT || row->kind == KIND_PATH;
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        return fail(ERR_ARGUMENT, "%s:%d: %s takes one value, not a list%s", r->path, line, row->name,
                    several ? ": write several as one text, as in a,b" : "");
    if (r->event.type == YAML_MAPPING_START_EVENT)
        return fail(ERR_ARGUMENT, "%s:%d: %s takes one value, not a mapping", r->path, line, row->name);
    TRY(check_scalar(r));
    if (is_null(&r->event))
        return OK;
    char *source = arena_format(options->arena, "%s:%d", r->path, line);
    if (!source)
        return ERR_MEMORY;
    bool check_only = !table_has(row, command) || options->source[table_option(row)];
    return synonym_store(options, word, (const char *)r->event.data.scalar.value, source, check_only);
}

static enum status read_mapping(struct reader *r, struct options *options, enum user_command command)
{
    int lines[OPTIONS] = {0};
    for (;;) {
        struct word word;
        TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return OK;
        TRY(read_key(r, command, lines, &word));
        TRY(next(r));
        TRY(read_value(r, options, command, &word));
    }
}

static enum status read_stream(struct reader *r, struct options *options, enum user_command command)
{
    TRY(next(r)); /* the stream's start */
    TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return OK;
    TRY(next(r)); /* what the document holds */
    if (r->event.type == YAML_MAPPING_START_EVENT)
        TRY(read_mapping(r, options, command));
    else if (!is_null(&r->event))
        return fail_here(r, r->event.type == YAML_SEQUENCE_START_EVENT
                                ? "options are needed here, as lines of \"name: value\" without dashes before them, not a list"
                                : "options are needed here, as lines of \"name: value\"");
    TRY(next(r)); /* the document's end */
    TRY(next(r));
    return r->event.type == YAML_STREAM_END_EVENT ? OK : fail_here(r, "only one document is allowed in a file");
}

static enum status read_text(const struct buffer *text, struct options *options, enum user_command command, const char *path)
{
    struct reader r = {.path = path};
    if (!yaml_parser_initialize(&r.parser))
        return fail(ERR_MEMORY, "%s: out of memory", path);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text->data, (size_t)text->size);
    enum status status = read_stream(&r, options, command);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return status;
}

enum status options_load_yaml(struct options *options, enum user_command command, const char *path)
{
    struct buffer text = {0};
    struct arena arena = {0};
    enum status status = OK;
    if (!file_exists(path))
        status = fail(ERR_IO, "%s: %s; --config names a YAML file with options", path, lost_path(&arena, path, "file"));
    arena_free(&arena);
    if (status == OK)
        status = file_read(&text, path, FILE_MAX);
    if (status == OK)
        status = read_text(&text, options, command, path);
    buffer_free(&text);
    return status;
}
