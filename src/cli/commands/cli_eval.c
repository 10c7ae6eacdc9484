/* hone eval: progress to the terminal while it runs, then the figures. */
#include <math.h>
#include <string.h>

#include "base/record.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/out.h"
#include "cli/view/progress.h"

static int eval_show(void *context, int64_t done, int64_t batches, int64_t tokens, double seconds)
{
    struct screen screen = {.what = "batch",
                            .done = done,
                            .total = batches,
                            .epoch = NAN,
                            .loss = NAN,
                            .eval_loss = NAN,
                            .tokens_per_second = seconds > 0 ? (double)tokens / seconds : 0,
                            .seconds = seconds,
                            .left = seconds / (double)done * (double)(batches - done)};
    if (done == 1) /* the options and files are fine */
        cli_data_table("data", context, progress_say);
    if (done < batches && progress_due(seconds))
        progress_tell(&screen);
    return signals_stopped();
}

static hone_status eval_print_json(const hone_eval_result *r, json_t *data)
{
    static const struct record_field fields[] = {
        RECORD(hone_eval_result, loss),
        RECORD(hone_eval_result, perplexity),
        RECORD(hone_eval_result, tokens),
        RECORD(hone_eval_result, trained_tokens),
        RECORD(hone_eval_result, rows),
        RECORD(hone_eval_result, dtype),
        RECORD(hone_eval_result, device),
        RECORD(hone_eval_result, startup_seconds),
        RECORD(hone_eval_result, seconds),
        RECORD(hone_eval_result, planned_bytes),
        RECORD(hone_eval_result, allocated_bytes),
        RECORD(hone_eval_result, mapped_bytes),
        RECORD(hone_eval_result, peak_bytes),
        RECORD(hone_eval_result, peak_rss_bytes),
        {0},
    };
    json_t *out = record_json(fields, r);
    json_object_set(out, "data", data);
    return cli_print_json(out);
}

static void eval_print_text(const hone_eval_result *r)
{
    char memory[32];
    out_print("loss        %.6f\nperplexity  %.4f\n", r->loss, r->perplexity);
    out_print("rows        %lld (%lld tokens, %lld of them counted)\n", (long long)r->rows, (long long)r->tokens,
              (long long)r->trained_tokens);
    out_print("time        %.1f s, %.0f tok/s in %s on %s; started after %.2f s\n", r->seconds,
              r->seconds > 0 ? (double)r->tokens / r->seconds : 0, r->dtype, r->device, r->startup_seconds);
    out_print("memory      %s peak", cli_bytes(memory, (double)r->peak_rss_bytes));
    out_print(" (%s planned)\n", cli_bytes(memory, (double)r->peak_bytes));
}

static hone_status eval_open_data(hone_model *model, json_t **data)
{
    char *text = NULL;
    hone_status status = hone_eval_data(model, &text);
    if (status == HONE_OK)
        status = (hone_status)json_parse(data, text, (int64_t)strlen(text), "report");
    hone_text_destroy(text);
    return status;
}

hone_status cli_eval(hone_options *options)
{
    hone_model *model = NULL;
    json_t *data = NULL;
    hone_eval_result result = {.size = sizeof result};
    hone_status status = signals_watch();
    if (status == HONE_OK)
        status = hone_model_open(&model, options);
    if (status == HONE_OK)
        status = eval_open_data(model, &data);
    if (status == HONE_OK) {
        signals_stop("stopping after this batch; a second Ctrl-C or SIGTERM ends at once", "ended at once");
        status = hone_eval(model, eval_show, data, &result);
    }
    progress_clear();
    if (status == HONE_OK && cli_flag(options, "json"))
        status = eval_print_json(&result, data);
    else if (status == HONE_OK)
        eval_print_text(&result);
    json_decref(data);
    hone_model_close(model);
    return status;
}
