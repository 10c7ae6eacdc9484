/* hone watch: the screen of a run that another process makes, from the files that it writes. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/out.h"
#include "cli/view/progress.h"
#include "cli/view/summary.h"

static const double LOOK_SECONDS = 0.25;

/* Of a run that is starting not much is known: what comes later is said later. Returns whether all is said. */
static bool say_model(const struct history *h)
{
    char all[32], some[32];
    const char *model = history_text(h, "model"), *dtype = history_text(h, "dtype"), *device = history_text(h, "device");
    if (!*model)
        return false;
    progress_say("model       %s, %s parameters, %s trained (%s)", cli_base_name(model),
                 cli_count(all, (double)history_number(h, "parameters")),
                 cli_count(some, (double)history_number(h, "trainable_parameters")), history_text(h, "method"));
    if (h->pid && *dtype && *device)
        progress_say("process     %ld, in %s on %s", h->pid, dtype, device);
    return true;
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
    char text[32], place[SUMMARY_PLACE];
    const struct history_eval *best = history_best(h);
    int64_t peak = history_peak(h);
    summary_screen(h, &s);
    if (s.done && s.total)
        out_print("%-11s step %lld of %lld%s\n", history_state_name(h->state), (long long)s.done, (long long)s.total,
                  h->early ? ", then early stopping" : "");
    else
        out_print("%-11s %s\n", history_state_name(h->state), summary_place(h, place));
    if (!isnan(s.loss))
        out_print("loss        %.4f, a mean of about %d steps\n", s.loss, MEAN_STEPS);
    if (best && h->eval_count > 1)
        out_print("validation  %.4f -> %.4f, %.4f at best after step %lld\n", h->evals[0].loss, s.eval_loss, best->loss,
                  (long long)best->step);
    else if (best)
        out_print("validation  %.4f after step %lld\n", best->loss, (long long)best->step);
    if (s.seconds > 0)
        out_print("time        %s\n", screen_time(text, s.seconds));
    if (summary_speed(h) > 0)
        out_print("speed       %.0f tokens/s " SUMMARY_SPEED "\n", summary_speed(h));
    if (peak > 0)
        out_print("memory      %s peak\n", cli_bytes(text, (double)peak));
    if (summary_result(h, place))
        out_print("%-11s %s\n", strcmp(history_text(h, "method"), "full") ? "adapter" : "model", place);
    out_print("see it      hone report ");
    out_word(h->dir);
    out_print("\n");
}

static enum status watch_follow(struct history *h)
{
    int64_t said = h->eval_count; /* those before are in the past */
    double start = clock_seconds();
    progress_say("run         %s%s", h->dir, h->state == HISTORY_RUNNING ? "" : ", which is not running");
    bool known = say_model(h);
    if (!known && h->pid)
        progress_say("process     %ld", h->pid);
    while (h->state == HISTORY_RUNNING && !signals_stopped()) {
        struct screen s;
        say_evals(h, &said);
        summary_screen(h, &s);
        if (progress_due(clock_seconds() - start))
            progress_tell(&s);
        clock_wait(LOOK_SECONDS);
        TRY(history_update(h));
        known = known || say_model(h);
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
            status = watch_follow(&h);
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
