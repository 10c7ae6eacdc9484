/* The estimate of a plan for a card that is not there, for people. */
#include "cli/view/estimate_table.h"
#include "cli/view/out.h"

#include <string.h>

static double estimate_table_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *estimate_table_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

const char *estimate_duration(char out[static 32], double seconds)
{
    static const struct {
        double seconds;
        const char *unit;
    } units[] = {{86400, "days"}, {3600, "hours"}, {60, "minutes"}, {1, "s"}};
    for (int i = 0; i < 4; i++)
        if (seconds >= 2 * units[i].seconds || i == 3) {
            snprintf(out, 32, "%.*f %s", i == 3 && seconds < 10 ? 2 : 1, seconds / units[i].seconds, units[i].unit);
            break;
        }
    return out;
}

static void print_work(const json_t *e)
{
    size_t i;
    const json_t *row;
    double step = estimate_table_number(e, "step_seconds");
    out_print("%-44s %9s %9s %9s %10s %10s %10s  %s\n", "estimate of a step", "commands", "TFLOP", "GB", "seconds", "roofline",
              "share", "assumed rate");
    json_array_foreach(json_object_get(e, "work"), i, row)
    {
        double flops = estimate_table_number(row, "flops");
        char share[16];
        snprintf(share, sizeof share, "%.1f%%", 100 * estimate_table_number(row, "seconds") / step);
        out_print("%-44s %9.0f %9.3f %9.1f %10.4f %10.4f %10s  %s\n", estimate_table_text(row, "work"),
                  estimate_table_number(row, "commands"), flops * 1e-12, estimate_table_number(row, "bytes") * 1e-9,
                  estimate_table_number(row, "seconds"), estimate_table_number(row, "roofline_seconds"),
                  strcmp(estimate_table_text(row, "kind"), "copy") ? share : "overlapped", estimate_table_text(row, "rate"));
    }
    double waits = estimate_table_number(e, "copy_wait_seconds");
    if (estimate_table_number(e, "copied_bytes_per_step") > 0)
        out_print("%-44s %9s %9s %9s %10.4f %10s %9.1f%%  for what has not arrived in time\n", "waits for these copies", "", "",
                  "", waits, "", 100 * waits / step);
    double commands = estimate_table_number(e, "launches_per_step"), gaps = estimate_table_number(e, "gap_seconds");
    out_print("%-44s %9.0f %9s %9s %10.4f %10.4f %9.1f%%  %.1f us a command, %s CUDA graphs\n", "gaps between commands", commands,
              "", "", gaps, 0.0, 100 * gaps / step, 1e6 * gaps / commands,
              json_is_true(json_object_get(e, "graphs")) ? "with" : "without");
    out_print("%-44s %9s %9.3f %9s %10.4f %10.4f\n\n", "step", "", estimate_table_number(e, "flops_per_step") * 1e-12, "", step,
              estimate_table_number(e, "roofline_step_seconds"));
}

static void print_world(const json_t *world)
{
    size_t i;
    const json_t *l;
    char rank[32], sent[32];
    out_print(
        "\n%.0f cards, each with a link of %.0f Gbit/s: an estimate, %.0f%% of that rate and %.0f us a step of a tree assumed\n",
        estimate_table_number(world, "ranks"), estimate_table_number(world, "network_gbps"),
        100 * estimate_table_number(world, "network_share"), 1e6 * estimate_table_number(world, "latency_seconds"));
    out_print("%-46s %10s %5s %11s %9s %12s %12s\n", "divided", "a card", "fits", "sent a step", "seconds", "tokens/s",
              "overlapped");
    json_array_foreach(json_object_get(world, "layouts"), i, l) out_print(
        "%-46s %10s %5s %11s %9.4f %12.0f %12.0f\n", estimate_table_text(l, "what"),
        cli_bytes(rank, estimate_table_number(l, "rank_bytes")), json_is_true(json_object_get(l, "fits")) ? "yes" : "NO",
        cli_bytes(sent, estimate_table_number(l, "sent_bytes")), estimate_table_number(l, "communication_seconds"),
        estimate_table_number(l, "tokens_per_second"), estimate_table_number(l, "overlapped_tokens_per_second"));
    out_print("tokens/s: communication begins when the work has ended; overlapped: all of it under the work.\n");
}

void estimate_print(const json_t *e)
{
    char run[32];
    out_print("\n");
    print_work(e);
    out_print("A step of %.0f tokens in %.4g micro-batches takes %.3g s on %s by this estimate: %.0f tokens a second.\n",
              estimate_table_number(e, "tokens_per_step"), estimate_table_number(e, "micro_batches_per_step"),
              estimate_table_number(e, "step_seconds"), estimate_table_text(e, "name"),
              estimate_table_number(e, "tokens_per_second"));
    if (estimate_table_number(e, "roofline_step_seconds") > 0)
        out_print("The same commands at every published rate, the roofline: %.0f tokens a second; only their FLOPs: %.0f.\n",
                  estimate_table_number(e, "roofline_tokens_per_second"), estimate_table_number(e, "flops_tokens_per_second"));
    if (estimate_table_number(e, "copy_seconds") > 0.9 * estimate_table_number(e, "step_seconds"))
        out_print("Copies through PCIe limit it: they take %.3g s of it, and the card computes meanwhile. More tokens in a "
                  "micro-batch copy less for each.\n",
                  estimate_table_number(e, "copy_seconds"));
    if (estimate_table_number(e, "steps") > 0)
        out_print("The run of %.0f steps takes %s by this estimate, without validations and saves.\n",
                  estimate_table_number(e, "steps"), estimate_duration(run, estimate_table_number(e, "run_seconds")));
    if (json_is_true(json_object_get(e, "synthetic_rows")))
        out_print("There is no data: rows of %.0f tokens are taken. --data FILE gives the time of its own rows%s.\n",
                  estimate_table_number(e, "longest_row"),
                  estimate_table_number(e, "steps") > 0 ? "" : ", --max-steps that of a run");
    if (json_is_true(json_object_get(e, "measured")))
        out_print("Rates were measured on %s%s.\n", estimate_table_text(e, "name"),
                  json_is_true(json_object_get(e, "stand_in")) ? ", a stand-in for tests: its times mean nothing" : "");
    else
        out_print("Nobody has measured it: published rates (%s), assumed shares of them (docs/time.md).\n",
                  estimate_table_text(e, "source"));
    if (json_object_get(e, "world"))
        print_world(json_object_get(e, "world"));
}

/* The last columns of a card's row. `second`: which rate stands next to tokens/s. */
static void print_rates(const json_t *card, bool fits, const char *second, bool runs)
{
    char run[32];
    if (fits)
        out_print("%11.0f %11.0f %14s\n", estimate_table_number(card, "tokens_per_second"), estimate_table_number(card, second),
                  runs ? estimate_duration(run, estimate_table_number(card, "run_seconds")) : "");
    else
        out_print("%11s %11s %14s\n", "-", "-", runs ? "-" : "");
}

/* So many of each card, and how a run is divided among them. */
static void print_worlds(const json_t *cards)
{
    size_t i;
    const json_t *card, *first = json_array_get(cards, 0);
    char needs[32], memory[32];
    bool runs = estimate_table_number(first, "steps") > 0;
    out_print("%.0f cards, each with a link of %.0f Gbit/s\n\n", estimate_table_number(first, "ranks"),
              estimate_table_number(first, "network_gbps"));
    out_print("%-18s %10s %10s %10s %5s %11s %11s %14s\n", "cards", "divided", "needs each", "memory", "fits", "tokens/s",
              "overlapped", runs ? "the run" : "");
    json_array_foreach(cards, i, card)
    {
        bool fits = json_is_true(json_object_get(card, "fits"));
        out_print("%-18s %10s %10s %10s %5s ", estimate_table_text(card, "name"), estimate_table_text(card, "layout"),
                  cli_bytes(needs, estimate_table_number(card, "rank_bytes")),
                  cli_bytes(memory, estimate_table_number(card, "memory_bytes")), fits ? "yes" : "NO");
        print_rates(card, fits, "overlapped_tokens_per_second", runs);
    }
    out_print("\ndivided: by --shard. tokens/s: of all cards, with communication after the work; overlapped: all of it under the "
              "work.\n");
}

struct in_host { /* what some card only fits with */
    bool layers, activations;
};

static struct in_host print_singles(const json_t *cards)
{
    size_t i;
    const json_t *card, *first = json_array_get(cards, 0);
    char needs[32], memory[32], layers[32];
    struct in_host in_host = {0};
    bool runs = estimate_table_number(first, "steps") > 0;
    out_print("%-18s %10s %10s %5s %7s %9s %10s %7s %11s %11s %14s\n", "card", "needs", "memory", "fits", "layers", "dtype",
              "recompute", "slots", "tokens/s", "roofline", runs ? "the run" : "");
    json_array_foreach(cards, i, card)
    {
        bool fits = json_is_true(json_object_get(card, "fits"));
        double resident = estimate_table_number(card, "resident_layers");
        bool offloads = fits && estimate_table_number(card, "offloaded_bytes") > 0;
        in_host.layers = in_host.layers || (fits && resident < estimate_table_number(card, "layers"));
        in_host.activations = in_host.activations || offloads;
        snprintf(layers, sizeof layers, "%s%.0f/%.0f", offloads ? "*" : "", resident, estimate_table_number(card, "layers"));
        out_print("%-18s %10s %10s %5s %7s %9s %10s %7.0f ", estimate_table_text(card, "name"),
                  cli_bytes(needs, estimate_table_number(card, "peak_bytes")),
                  cli_bytes(memory, estimate_table_number(card, "memory_bytes")), fits ? "yes" : "NO", layers,
                  estimate_table_text(card, "dtype"), estimate_table_text(card, "recompute"),
                  estimate_table_number(card, "micro_batch_tokens"));
        print_rates(card, fits, "roofline_tokens_per_second", runs);
    }
    out_print("\n");
    return in_host;
}

void estimate_print_cards(const json_t *cards)
{
    const json_t *first = json_array_get(cards, 0);
    struct in_host in_host = {0};
    bool runs = estimate_table_number(first, "steps") > 0;
    if (json_object_get(first, "ranks"))
        print_worlds(cards);
    else
        in_host = print_singles(cards);
    out_print(
        "Tokens a second%s are estimates for rows of up to %.0f tokens%s: nobody has measured them. --gpu NAME shows what they "
        "are made of.\n",
        runs ? " and times of the run" : "", estimate_table_number(first, "longest_row"),
        json_is_true(json_object_get(first, "synthetic_rows")) ? ", as no data was given" : "");
    if (in_host.activations)
        out_print(
            "*: activations wait in host memory and are copied out and back in every micro-batch: --activation-offloading.\n");
    if (in_host.layers)
        out_print("Layers that do not stay on a card are copied from host memory in every micro-batch: --resident-layers.\n");
}
