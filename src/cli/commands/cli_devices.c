/* hone devices: what this machine has, and why the rest is missing. */
#include "cli/cli.h"
#include "cli/view/out.h"

static void print_devices(const json_t *report)
{
    char room[CLI_MEMORY_SIZE];
    size_t i;
    const json_t *d;
    json_array_foreach(json_object_get(report, "devices"), i, d)
    {
        const char *name = json_string_value(json_object_get(d, "device"));
        if (json_is_true(json_object_get(d, "usable")))
            out_print("%-8s %s: %lld threads, %s%shas %s%s%s%s\n", name, json_string_value(json_object_get(d, "name")),
                      (long long)json_integer_value(json_object_get(d, "threads")),
                      json_is_string(json_object_get(d, "instructions")) ? json_string_value(json_object_get(d, "instructions"))
                                                                         : "",
                      json_is_string(json_object_get(d, "instructions")) ? ", " : "", cli_memory(room, d),
                      json_is_true(json_object_get(d, "bfloat16")) ? ", bfloat16 in hardware" : "",
                      json_is_string(json_object_get(d, "id")) ? ", id " : "",
                      json_is_string(json_object_get(d, "id")) ? json_string_value(json_object_get(d, "id")) : "");
        else
            out_print("%-8s not usable: %s\n", name, json_string_value(json_object_get(d, "why")));
    }
    out_print("\n%s.\n", json_string_value(json_object_get(report, "tried")));
}

hone_status cli_devices(hone_options *options)
{
    return cli_report(options, hone_devices, print_devices);
}
