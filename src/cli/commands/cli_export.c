/* hone merge, hone export, hone quantize: what was written, and how much of the adapter's change is left of it. */
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/out.h"

/* Of a change: noise that is not worth a word, and noise and a part left that are worth a remedy. */
#define NOISE_SMALL 0.1
#define NOISE_LARGE 0.4
#define LEFT_MIN 0.95

static double export_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* The files of a dry run, as they would be. */
static void print_files(const json_t *report)
{
    size_t i;
    const json_t *file, *room = json_object_get(report, "disk_free_bytes");
    char bytes[32], left[32];
    out_print("would %s %s; %s are free\n",
              json_is_true(json_object_get(report, "replaces")) ? "replace what is there by" : "write",
              cli_bytes(bytes, export_number(report, "bytes")),
              json_is_null(room) ? "unknown bytes" : cli_bytes(left, json_number_value(room)));
    json_array_foreach(json_object_get(report, "files"), i, file) out_print(
        "  %-12s %s\n", cli_bytes(bytes, export_number(file, "bytes")), json_string_value(json_object_get(file, "name")));
    out_print("dry run     nothing was written; without --dry-run the same command begins\n");
}

/* What rounding did to what was trained. Returns whether it is a reason to do something. */
static bool print_rounding(const json_t *row)
{
    double noise = export_number(row, "change_lost"), left = export_number(row, "change_kept");
    if (!json_object_get(row, "change_lost"))
        return false;
    if (noise < NOISE_SMALL)
        out_print("; all of the adapter's change is in it");
    else
        out_print("; %.0f%% of the adapter's change is in it, and rounding adds noise %.2g times as large", 100 * left, noise);
    return noise >= NOISE_LARGE || left < LEFT_MIN;
}

static void export_print_report(const json_t *report)
{
    bool rounded = false;
    size_t i;
    const json_t *row, *difference = json_object_get(report, "logits_difference");
    char bytes[32];
    out_print("%s: %s, %s\n", json_string_value(json_object_get(report, "output")),
              json_string_value(json_object_get(report, "format")), json_string_value(json_object_get(report, "type")));
    json_array_foreach(json_object_get(report, "types"), i, row)
    {
        out_print("%-6s %5lld tensors, %s", json_string_value(json_object_get(row, "type")),
                  (long long)json_integer_value(json_object_get(row, "tensors")), cli_bytes(bytes, export_number(row, "bytes")));
        if (json_object_get(row, "instead_of"))
            out_print(", for %s, whose blocks of %lld numbers do not divide their rows",
                      json_string_value(json_object_get(row, "instead_of")),
                      (long long)json_integer_value(json_object_get(row, "block")));
        rounded |= print_rounding(row);
        out_print("\n");
    }
    if (rounded)
        out_print(
            "what was trained is small next to this rounding, so the merged model may answer unlike the adapter: write --type "
            "f32 (or f16), train for longer, or use the adapter next to its model (docs/export.md)\n");
    if (json_is_true(json_object_get(report, "dry_run"))) {
        print_files(report);
        return;
    }
    out_print("read back: tensors within %.2g", export_number(report, "tensor_error"));
    if (json_is_number(difference))
        out_print(", logits within %.2g of their range", json_number_value(difference));
    out_print("\n");
}

static int export_asked_to_stop(void *context)
{
    (void)context;
    return signals_stopped();
}

static hone_status export_make(hone_options *options, hone_status (*write)(const hone_options *options, char **json))
{
    hone_status status = signals_watch();
    if (status != HONE_OK)
        return status;
    signals_survive();
    signals_stop("stopping; what is not complete is removed; a second Ctrl-C or SIGTERM ends at once",
                 "ended at once; files that are not complete, *.part*, are left next to the output");
    hone_set_stop(export_asked_to_stop, NULL);
    return cli_report(options, write, export_print_report);
}

hone_status cli_merge(hone_options *options)
{
    return export_make(options, hone_merge);
}

hone_status cli_export(hone_options *options)
{
    return export_make(options, hone_export);
}

hone_status cli_quantize(hone_options *options)
{
    return export_make(options, hone_quantize);
}
