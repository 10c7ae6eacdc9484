/* hone inspect model, adapter and checkpoint: what a directory holds. */
#include <string.h>

#include "cli/cli.h"
#include "cli/view/out.h"
#include "config/options.h"

/* Members of an object, one a line; objects inside it indented below their name. */
static void print_members(const json_t *object, int indent)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_object(value)) {
            out_print("%*s%s\n", indent, "", key);
            print_members(value, indent + 2);
            continue;
        }
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        out_print("%*s%-*s %s\n", indent, "", 18 - indent, key, text ? text : "?"); /* the caller asks json_refused */
        json_text_free(text);
    }
}

static void print_all(const json_t *report)
{
    print_members(report, 0);
}

/* An argument without a name is a directory to look at, except for a model and data. */
hone_status cli_no_directory(hone_options *options)
{
    const char *dir;
    hone_status status = hone_options_get(options, "run_dir", &dir);
    return status == HONE_OK && *dir ? (hone_status)options_stray(COMMAND_INSPECT, dir) : status;
}

hone_status cli_inspect_model(hone_options *options)
{
    hone_status status = cli_no_directory(options);
    return status == HONE_OK ? cli_report(options, hone_inspect_model, print_all) : status;
}

/* The report is complete, but what it says may be an error. */
static enum status inspect_verdict(const json_t *report)
{
    const char *damage = json_string_value(json_object_get(report, "damage"));
    return damage ? fail(ERR_FORMAT, "%s", damage) : OK;
}

static hone_status inspect_print(hone_options *options, hone_status (*make)(const hone_options *options, char **json))
{
    char *json = NULL;
    json_t *report = NULL;
    hone_status status = make(options, &json);
    if (status == HONE_OK)
        status = (hone_status)json_parse(&report, json, (int64_t)strlen(json), "report");
    if (status == HONE_OK && cli_flag(options, "json"))
        out_json(json);
    else if (status == HONE_OK)
        print_all(report);
    if (status == HONE_OK)
        status = (hone_status)(json_refused() ? fail(ERR_MEMORY, "out of memory: the report above is not whole")
                                              : inspect_verdict(report));
    json_decref(report);
    hone_text_destroy(json);
    return status;
}

hone_status cli_inspect_adapter(hone_options *options)
{
    return inspect_print(options, hone_inspect_adapter);
}

hone_status cli_inspect_checkpoint(hone_options *options)
{
    return inspect_print(options, hone_inspect_checkpoint);
}
