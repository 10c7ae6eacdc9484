/* hone inspect model: what a model directory holds. */
#include "cli/cli.h"

/* Members of an object, one a line; objects inside it indented below their name. */
static void print_members(const json_t *object, int indent)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", key);
            print_members(value, indent + 2);
            continue;
        }
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        printf("%*s%-*s %s\n", indent, "", 18 - indent, key, text ? text : "?"); /* the caller asks json_refused */
        free(text);
    }
}

static void print_model(const json_t *model)
{
    print_members(model, 0);
}

hone_status cli_inspect_model(hone_options *options)
{
    return cli_report(options, hone_inspect_model, print_model);
}
