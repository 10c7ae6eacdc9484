/* Reading libyaml's events. */
#include "config/yaml_reader.h"

#include <string.h>

enum status yaml_reader_open(struct yaml_reader *r, const struct buffer *text, const char *path)
{
    *r = (struct yaml_reader){.path = path};
    if (!yaml_parser_initialize(&r->parser))
        return fail(ERR_MEMORY, "%s: out of memory", path);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text->data, (size_t)text->size);
    return OK;
}

void yaml_reader_close(struct yaml_reader *r)
{
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
}

enum status yaml_next(struct yaml_reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return OK;
    const char *problem = r->parser.problem ? r->parser.problem : "cannot be read";
    switch (r->parser.error) {
    case YAML_MEMORY_ERROR: return fail(ERR_MEMORY, "%s: out of memory", r->path);
    case YAML_READER_ERROR: /* it counts bytes, because the text could not be decoded into lines */
        return fail(ERR_FORMAT, "%s: not a YAML text: %s at byte %lld", r->path, problem, (long long)r->parser.problem_offset);
    default: return fail(ERR_FORMAT, "%s:%d: not valid YAML: %s", r->path, (int)r->parser.problem_mark.line + 1, problem);
    }
}

int yaml_line(const struct yaml_reader *r)
{
    return (int)r->event.start_mark.line + 1;
}

enum status yaml_fail(const struct yaml_reader *r, const char *what)
{
    return fail(ERR_FORMAT, "%s:%d: %s", r->path, yaml_line(r), what);
}

enum status yaml_check_scalar(const struct yaml_reader *r)
{
    if (r->event.type == YAML_ALIAS_EVENT)
        return yaml_fail(r, "aliases (*name) are not supported: write the value out");
    if (r->event.data.scalar.tag)
        return yaml_fail(r, "tags (!name) are not supported: write the plain value");
    if (strlen((const char *)r->event.data.scalar.value) != r->event.data.scalar.length)
        return yaml_fail(r, "a text with a zero byte is not supported");
    return OK;
}

bool yaml_is_null(const struct yaml_reader *r)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (r->event.type != YAML_SCALAR_EVENT || r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        if (strcmp((const char *)r->event.data.scalar.value, nulls[i]) == 0)
            return true;
    return false;
}
