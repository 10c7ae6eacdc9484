/* hone plan: the memory of a run as a table. */
#include <string.h>

#include "cli/cli.h"
#include "cli/view/estimate_table.h"
#include "cli/view/out.h"

static void print_plan(const json_t *plan)
{
    if (json_object_get(plan, "cards")) {
        estimate_print_cards(json_object_get(plan, "cards"));
        return;
    }
    char text[32], count[32], room[CLI_MEMORY_SIZE];
    size_t i;
    const json_t *row;
    out_print("%-26s %12s %18s %14s\n", "block", "size", "bytes", "bits a weight");
    json_array_foreach(json_object_get(plan, "table"), i, row)
    {
        json_int_t bytes = json_integer_value(json_object_get(row, "bytes"));
        out_print("%-26s %12s %18lld", cli_block(json_object_get(plan, "table"), i), cli_bytes(text, (double)bytes),
                  (long long)bytes);
        if (json_object_get(row, "bits_per_weight"))
            out_print(" %14.3f", json_real_value(json_object_get(row, "bits_per_weight")));
        out_print("\n");
    }
    json_int_t peak = json_integer_value(json_object_get(plan, "peak_bytes"));
    out_print("%-26s %12s %18lld\n\n", "peak", cli_bytes(text, (double)peak), (long long)peak);
    json_int_t ranks = json_integer_value(json_object_get(plan, "ranks"));
    if (ranks > 1)
        out_print("this is a rank of %lld, with --shard %s; rank 0 keeps as much as any\n", (long long)ranks,
                  json_string_value(json_object_get(plan, "shard")));
    out_print("%s has %s\n", json_string_value(json_object_get(plan, "device")), cli_memory(room, plan));
    bool reads = json_is_true(json_object_get(plan, "reads_from_disk"));
    if (reads) {
        char left[32];
        out_print("the weights in mapped files need %s of page cache, %s are left for it\n",
                  cli_bytes(text, (double)json_integer_value(json_object_get(plan, "mapped_bytes"))),
                  cli_bytes(left, (double)json_integer_value(json_object_get(plan, "page_cache_bytes"))));
    }
    out_print("%s parameters at %.1f bits, %s on %s, %lld token slots a micro-batch: %s\n",
              cli_count(count, (double)json_integer_value(json_object_get(plan, "parameters"))),
              json_real_value(json_object_get(plan, "bits_per_weight")), json_string_value(json_object_get(plan, "dtype")),
              json_string_value(json_object_get(plan, "device")),
              (long long)json_integer_value(json_object_get(plan, "micro_batch_tokens")),
              !json_is_true(json_object_get(plan, "fits")) ? "it does NOT fit"
              : reads                                      ? "it will read weights from disk in every step"
                                                           : "it fits");
    json_int_t layers = json_integer_value(json_object_get(plan, "layers"));
    json_int_t resident = json_integer_value(json_object_get(plan, "resident_layers"));
    double copied_bytes = (double)json_integer_value(json_object_get(plan, "copied_bytes"));
    double offloaded = (double)json_integer_value(json_object_get(plan, "offloaded_bytes"));
    double offloaded_copied = (double)json_integer_value(json_object_get(plan, "offloaded_copied_bytes"));
    char copied[32];
    if (resident < layers)
        out_print("%lld of %lld layers stay on the card; the other %lld (%s) lie in pinned host memory and are copied ahead of "
                  "their use, %s for each micro-batch\n",
                  (long long)resident, (long long)layers, (long long)(layers - resident),
                  cli_bytes(text, (double)json_integer_value(json_object_get(plan, "host_bytes"))),
                  cli_bytes(copied, copied_bytes - offloaded_copied));
    if (offloaded > 0)
        out_print("%s of activations wait in pinned host memory for the backward pass, %s are copied out and back for each "
                  "micro-batch\n",
                  cli_bytes(text, offloaded), cli_bytes(copied, offloaded_copied));
    if (json_object_get(plan, "slot_bytes"))
        out_print("a further slot of a trainer (docs/library.md) takes %s of host memory, and %s more while gradients wait\n",
                  cli_bytes(text, (double)json_integer_value(json_object_get(plan, "slot_bytes"))),
                  cli_bytes(copied, (double)json_integer_value(json_object_get(plan, "slot_gradient_bytes"))));
    if (json_object_get(plan, "other_dtype"))
        out_print("%s\n", json_string_value(json_object_get(json_object_get(plan, "other_dtype"), "says")));
    if (json_object_get(plan, "data"))
        cli_data_table("data", json_object_get(plan, "data"), out_line);
    if (json_object_get(plan, "estimate"))
        estimate_print(json_object_get(plan, "estimate"));
}

hone_status cli_plan(hone_options *options)
{
    return cli_report(options, hone_plan, print_plan);
}
