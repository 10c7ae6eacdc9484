/* hone kernels: which kernels the runs of a model need on CUDA, and compiling them ahead of time. */
#include "cli/cli.h"
#include "cli/view/out.h"

static void print_list(const json_t *report)
{
    size_t i;
    const json_t *k;
    json_t *there;
    const char *target;
    const json_t *kernels = json_object_get(report, "kernels");
    json_array_foreach(kernels, i, k)
    {
        out_print("%-20s", json_string_value(json_object_get(k, "kernel")));
        json_object_foreach(json_object_get(k, "cached"), target, there)
            out_print(" %-7s %-11s", target, json_is_true(there) ? "cached" : "not cached");
        const char *from = json_string_value(json_object_get(k, "from")), *below = json_string_value(json_object_get(k, "below"));
        out_print(" %s%s%s %s\n",
                  from    ? "from "
                  : below ? "below "
                          : "",
                  from    ? from
                  : below ? below
                          : "",
                  from || below ? ":" : "", json_string_value(json_object_get(k, "defines")));
    }
    out_print("\n%zu kernels", json_array_size(kernels));
    if (!json_object_size(json_object_get(json_array_get(kernels, 0), "cached")))
        out_print("; there is no card here, so name one to see which are in the cache: --target sm_89");
    out_print("\n");
}

static void print_built(const json_t *report)
{
    size_t i;
    const json_t *t;
    const char *output = json_string_value(json_object_get(report, "output"));
    json_array_foreach(json_object_get(report, "targets"), i, t)
        out_print("%-7s %lld kernels by NVRTC %s, %lld of them compiled now\n", json_string_value(json_object_get(t, "target")),
                  (long long)json_integer_value(json_object_get(t, "kernels")), json_string_value(json_object_get(t, "nvrtc")),
                  (long long)json_integer_value(json_object_get(t, "compiled")));
    out_print("\nTo use them: HONE_CACHE=");
    out_word(output);
    out_print(" hone train …\n");
}

hone_status cli_kernels_list(hone_options *options)
{
    return cli_report(options, hone_kernels_list, print_list);
}

hone_status cli_kernels_build(hone_options *options)
{
    return cli_report(options, hone_kernels_build, print_built);
}
