/* hone watch: the screen of a run that another process makes, from the files that it writes. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/summary.h"

static const double LOOK_SECONDS = 0.25;

static void say_start(const struct history *h)
{
    char all[32], some[32];
    const char *model = history_text(h, "model");
    progress_say("run         %s%s", h->dir, h->state == HISTORY_RUNNING ? "" : ", which is not under way");
    if (*model)
        progress_say("model       %s, %s parameters, %s trained (%s)", cli_base_name(model),
                     cli_count(all, (double)history_number(h, "parameters")),
                     cli_count(some, (double)history_number(h, "trainable_parameters")), history_text(h, "method"));
    if (h->pid)
        progress_say("process     %ld, in %s on %s", h->pid, history_text(h, "dtype"), history_text(h, "device"));
}

/* The validations that came since the last look. */
static void say_evals(const struct history *h, int64_t *said)
{
    const struct history_eval *best = history_best(h);
    for (; *said < h->eval_count; ++*said) {
        const struct history_eval *e = &h->evals[*said];
        progress_say("step %lld: validation loss %.4f%s", (long long)e->step, e->loss,
                     *said && best == e ? ", the lowest so far" : "");
    }
}

static void print_end(const struct history *h)
{
    struct screen s;
    char text[32];
    const struct history_eval *best = history_best(h);
    int64_t peak = json_integer_value(json_object_get(history_piece(h), "peak_rss_bytes"));
    summary_screen(h, &s);
    printf("%-11s step %lld of %lld\n", history_state_name(h->state), (long long)s.done, (long long)s.total);
    if (!isnan(s.loss))
        printf("loss        %.4f, a mean of about %d steps\n", s.loss, MEAN_STEPS);
    if (best)
        printf("validation  %.4f -> %.4f, %.4f at best after step %lld\n", h->evals[0].loss, s.eval_loss, best->loss,
               (long long)best->step);
    printf("time        %s, %.0f tok/s\n", screen_time(text, s.seconds), s.tokens_per_second);
    if (peak > 0)
        printf("memory      %s peak\n", cli_bytes(text, (double)peak));
    printf("see it      hone report %s\n", h->dir);
}

static enum status follow(struct history *h)
{
    int64_t said = h->eval_count; /* those before are in the past */
    double start = clock_seconds();
    say_start(h);
    while (h->state == HISTORY_RUNNING && !signals_stopped()) {
        struct screen s;
        say_evals(h, &said);
        summary_screen(h, &s);
        if (progress_due(clock_seconds() - start))
            progress_tell(&s);
        cli_sleep(LOOK_SECONDS);
        TRY(history_update(h));
    }
    say_evals(h, &said);
    progress_clear();
    if (h->state == HISTORY_RUNNING)
        return fail(ERR_STOPPED, "the run goes on; hone watch %s shows it again", h->dir);
    print_end(h);
    return summary_verdict(h);
}

static hone_status watch(hone_options *options, const char *dir)
{
    struct history h;
    enum status status = history_open(&h, dir);
    if (status != OK)
        return (hone_status)status;
    if (cli_flag(options, "json")) {
        status = (enum status)cli_print_json(summary_json(&h));
    } else {
        status = (enum status)signals_watch();
        signals_stop("watching ends", "ended at once");
        if (status == OK)
            status = follow(&h);
    }
    history_close(&h);
    return (hone_status)status;
}

hone_status cli_watch(hone_options *options)
{
    const char *dir;
    hone_status status = hone_options_get(options, "run_dir", &dir);
    if (status == HONE_OK && !*dir)
        status =
            (hone_status)fail(ERR_ARGUMENT, "hone watch needs the directory of a run: hone watch OUT, where OUT is what hone "
                                            "train was given as --output");
    return status == HONE_OK ? watch(options, dir) : status;
}
