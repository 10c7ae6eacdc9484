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
        printf("%*s%-*s %s\n", indent, "", 18 - indent, key, text ? text : "?");
        free(text);
    }
}

hone_status cli_inspect(hone_options *options)
{
    char *json = NULL;
    json_t *tree;
    hone_status status = hone_inspect_model(options, &json);
    if (status == HONE_OK && cli_flag(options, "json")) {
        puts(json);
        hone_text_destroy(json);
        return HONE_OK;
    }
    if (status == HONE_OK)
        status = cli_report(json, &tree);
    if (status == HONE_OK) {
        print_members(tree, 0);
        json_decref(tree);
    }
    return status;
}
