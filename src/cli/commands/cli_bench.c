/* hone bench: the measurements of training steps as tables. */
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/out.h"

static double bench_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Whole numbers as such: a count that is not whole is worth seeing. */
static const char *bench_count(char text[static 32], double n)
{
    snprintf(text, 32, n == (double)(long long)n ? "%.0f" : "%.2f", n);
    return text;
}

static void print_counts(const json_t *report)
{
    static const char *const names[][2] = {
        {"allocations", "allocations on the device"},
        {"host_allocations", "allocations of the host"},
        {"compiled", "kernels compiled"},
        {"loaded", "kernels loaded"},
        {"syncs", "synchronisations"},
        {"waits", "waits for one copy"},
        {"copies_in", "copies in"},
        {"bytes_in", "bytes in"},
        {"copies_out", "copies out"},
        {"bytes_out", "bytes out"},
        {"side_copies", "copies on a second stream"},
        {"side_bytes", "their bytes"},
        {"runs", "programs run"},
        {"graph_launches", "of them as one graph"},
        {"launches", "commands launched one by one"},
    };
    char a[32], b[32], c[32], size[32];
    size_t i;
    const json_t *op, *per_step = json_object_get(report, "per_step"), *layer = json_object_get(report, "launches_per_layer");
    out_print("\n%-30s %12s\n", "a step", "");
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        out_print("%-30s %12s\n", names[i][1], bench_count(a, bench_number(per_step, names[i][0])));
    out_print("\n%-26s %9s %9s %9s %12s\n", "op", "launches", "products", "fills", "operands");
    json_array_foreach(json_object_get(report, "ops"), i, op)
        out_print("%-26s %9s %9s %9s %12s\n", json_string_value(json_object_get(op, "op")),
                  bench_count(a, bench_number(op, "launches")), bench_count(b, bench_number(op, "products")),
                  bench_count(c, bench_number(op, "fills")), cli_bytes(size, bench_number(op, "bytes")));
    if (json_is_integer(layer))
        out_print("\n%lld launches for a decoder layer, forward and backward, including matmuls, with operands of %s\n",
                  (long long)json_integer_value(layer), cli_bytes(size, bench_number(report, "bytes_per_layer")));
}

/* Rates of what takes no time to speak of are left out. */
static const char *rate(char text[static 32], double amount, double seconds)
{
    snprintf(text, 32, amount > 0 && seconds > 0 ? "%.1f" : "-", amount * 1e-9 / seconds);
    return text;
}

static void print_profile(const json_t *profile, double tokens)
{
    char calls[32], flops[32], bare[32], size[32];
    double step = bench_number(profile, "step_seconds");
    size_t i;
    const json_t *op;
    out_print("\n%-26s %7s %10s %6s %10s %11s %10s\n", "op", "calls", "ms", "share", "GFLOP/s", "operands", "bare ms");
    json_array_foreach(json_object_get(profile, "ops"), i, op)
    {
        double seconds = bench_number(op, "seconds"), alone = bench_number(op, "bare_seconds");
        snprintf(bare, sizeof bare, alone > 0 ? "%.3f" : "-", 1e3 * alone);
        out_print("%-26s %7s %10.3f %5.1f%% %10s %11s %10s\n", json_string_value(json_object_get(op, "op")),
                  bench_count(calls, bench_number(op, "calls")), 1e3 * seconds, 100 * bench_number(op, "share"),
                  rate(flops, bench_number(op, "flops"), seconds), cli_bytes(size, bench_number(op, "bytes")), bare);
    }
    out_print("\nops         %.3f ms, each waited for\n", 1e3 * bench_number(profile, "ops_seconds"));
    out_print("step        %.3f ms, %.0f tok/s, %s GFLOP/s\n", 1e3 * step, step > 0 ? tokens / step : 0,
              rate(flops, bench_number(profile, "flops"), step));
    out_print("bare        %.3f ms for only the matmuls: %.1f%% of the step (medians of %lld round%s)\n",
              1e3 * bench_number(profile, "bare_seconds"), 100 * bench_number(profile, "ratio"),
              (long long)bench_number(profile, "rounds"), bench_number(profile, "rounds") == 1 ? "" : "s");
}

static void print_graph(const json_t *report)
{
    const json_t *graph = json_object_get(report, "graph"), *reached = json_object_get(graph, "reached");
    out_print("\ngraphs      %lld steps captured and uncaptured: the same bytes\n", (long long)bench_number(graph, "steps"));
    if (!json_is_true(json_object_get(graph, "captured"))) {
        out_print("            the device captured nothing; the warning above says why\n");
        return;
    }
    out_print("            %.3f ms captured, %.3f ms uncaptured: %.2f times as fast\n",
              1e3 * bench_number(graph, "captured_seconds"), 1e3 * bench_number(graph, "uncaptured_seconds"),
              bench_number(graph, "ratio"));
    if (json_is_null(reached))
        out_print("            these times are a simulator's and mean nothing\n");
    else
        out_print("            the goal for graphs is %.2f times: %s\n", bench_number(graph, "goal"),
                  json_is_true(reached) ? "reached" : "NOT reached");
}

static void print_communication(const json_t *c, double step)
{
    static const char *const kinds[] = {"all_reduce", "reduce_scatter", "reduce", "all_gather"};
    char size[32], key[32];
    if (bench_number(c, "ranks") < 2)
        return;
    out_print("ranks       %.0f, which wait %.3f ms a step for each other (%.1f%%)\n", bench_number(c, "ranks"),
              1e3 * bench_number(c, "seconds_per_step"), step > 0 ? 100 * bench_number(c, "seconds_per_step") / step : 0);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        snprintf(key, sizeof key, "%s_bytes", kinds[i]);
        if (bench_number(c, key) > 0)
            out_print("            %s a step to %s\n", cli_bytes(size, bench_number(c, key)), kinds[i]);
    }
}

static void print_bench(const json_t *report)
{
    bool stand_in = json_is_true(json_object_get(report, "stand_in"));
    out_print("device      %s: %s, %s\n", json_string_value(json_object_get(report, "device")),
              json_string_value(json_object_get(report, "name")), json_string_value(json_object_get(report, "dtype")));
    out_print("steps       %lld of %lld synthetic tokens, %lld a micro-batch\n", (long long)bench_number(report, "steps"),
              (long long)bench_number(report, "tokens"), (long long)bench_number(report, "micro_batch_tokens"));
    out_print("time        %.3f ms a step, %.0f tok/s%s\n", 1e3 * bench_number(report, "step_seconds"),
              bench_number(report, "tokens_per_second"), stand_in ? " on a simulator, which says nothing about a GPU" : "");
    print_communication(json_object_get(report, "communication"), bench_number(report, "step_seconds"));
    if (json_object_get(report, "per_step"))
        print_counts(report);
    if (json_object_get(report, "profile"))
        print_profile(json_object_get(report, "profile"), bench_number(report, "tokens"));
    const json_t *calibration = json_object_get(report, "calibration");
    if (calibration)
        out_print("calibration %s: hone plan --gpu takes it%s\n", json_string_value(json_object_get(calibration, "file")),
                  stand_in ? "; this device stands in for a GPU, and its times mean nothing" : "");
    if (json_object_get(report, "graph"))
        print_graph(report);
}

hone_status cli_bench(hone_options *options)
{
    hone_status status = signals_watch();
    if (!hone_rank()) /* the others need not say it too */
        signals_end("ended before the steps were measured: there is no result");
    return status == HONE_OK ? cli_report(options, hone_bench, print_bench) : status;
}
