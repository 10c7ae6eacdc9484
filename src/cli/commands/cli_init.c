/* hone init: what was chosen and why, in a few lines; the whole of it stands in the file. */
#include "cli/cli.h"
#include "cli/view/out.h"

static void init_print_report(const json_t *report)
{
    size_t i;
    const json_t *row;
    if (json_is_true(json_object_get(report, "dry_run"))) { /* the file itself, for a pipe */
        out_text(stdout, json_string_value(json_object_get(report, "yaml")));
        return;
    }
    json_array_foreach(json_object_get(report, "summary"), i, row) out_print("%s\n", json_string_value(row));
    out_print("next        hone train --config ");
    out_word(json_string_value(json_object_get(report, "output")));
    out_print("\n");
}

hone_status cli_init(hone_options *options)
{
    return cli_report(options, hone_init, init_print_report);
}
