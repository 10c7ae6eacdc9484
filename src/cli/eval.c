/* hone eval: progress to the terminal while it runs, then the figures. */
#include <math.h>

#include "cli/cli.h"

struct bar {
    bool terminal;
    double printed;                     /* when, in seconds of the run */
};

/* A line that is written over on a terminal; in a log, a plain line every ten seconds. */
static int show(void *context, int64_t done, int64_t batches, int64_t tokens, double seconds)
{
    struct bar *bar = context;
    bool last = done == batches;
    if (!last && seconds - bar->printed < (bar->terminal ? 0.1 : 10))
        return cli_interrupted();
    bar->printed = seconds;
    double rate = seconds > 0 ? (double)tokens / seconds : 0, left = seconds / (double)done * (double)(batches - done);
    if (bar->terminal)
        fprintf(stderr, "\r\033[Keval %lld/%lld batches · %.0f tok/s · %.0f s left%s", (long long)done, (long long)batches, rate,
                left, last ? "\r\033[K" : "");
    else if (!last)
        fprintf(stderr, "eval %lld/%lld batches, %.0f tok/s, %.0f s left\n", (long long)done, (long long)batches, rate, left);
    fflush(stderr);
    return cli_interrupted();
}

/* A number, or null where JSON has none for it. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static void print_json(const hone_eval_result *r)
{
    json_t *out = json_pack("{s:o, s:o, s:I, s:I, s:I, s:s, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "loss", number(r->loss), "perplexity",
                            number(r->perplexity), "tokens", (json_int_t)r->tokens, "trained_tokens", (json_int_t)r->trained_tokens,
                            "rows", (json_int_t)r->rows, "dtype", r->dtype, "device", r->device, "startup_seconds",
                            r->startup_seconds, "seconds", r->seconds, "planned_bytes", (json_int_t)r->planned_bytes,
                            "allocated_bytes", (json_int_t)r->allocated_bytes, "mapped_bytes", (json_int_t)r->mapped_bytes,
                            "peak_bytes", (json_int_t)r->peak_bytes, "peak_rss_bytes", (json_int_t)r->peak_rss_bytes);
    json_dumpf(out, stdout, JSON_REAL_PRECISION(17));
    puts("");
    json_decref(out);
}

static void print_text(const hone_eval_result *r)
{
    char memory[32];
    printf("loss        %.6f\nperplexity  %.4f\n", r->loss, r->perplexity);
    printf("rows        %lld (%lld tokens, %lld of them counted)\n", (long long)r->rows, (long long)r->tokens,
           (long long)r->trained_tokens);
    printf("time        %.1f s, %.0f tok/s in %s on %s; started after %.2f s\n", r->seconds,
           r->seconds > 0 ? (double)r->tokens / r->seconds : 0, r->dtype, r->device, r->startup_seconds);
    printf("memory      %s at most", cli_bytes(memory, (double)r->peak_rss_bytes));
    printf(" (%s were planned)\n", cli_bytes(memory, (double)r->peak_bytes));
}

hone_status cli_eval(hone_options *options)
{
    hone_model *model = NULL;
    hone_eval_result result = {.size = sizeof result};
    struct bar bar = {.terminal = cli_terminal()};
    cli_catch_signals();
    hone_status status = hone_model_open(&model, options);
    if (status == HONE_OK)
        status = hone_eval(model, show, &bar, &result);
    if (status != HONE_OK && bar.terminal && bar.printed > 0)
        fputs("\n", stderr);
    if (status == HONE_OK && cli_flag(options, "json"))
        print_json(&result);
    else if (status == HONE_OK)
        print_text(&result);
    hone_model_close(model);
    return status;
}
