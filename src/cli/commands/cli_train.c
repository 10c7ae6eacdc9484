/* hone train: what will be done, then every step as the library's events report it, then the result and how to try it. All
 * progress goes to standard error; standard output has only the result. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/path_hint.h"
#include "base/process.h"
#include "base/record.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/escape.h"
#include "cli/view/history.h"
#include "cli/view/out.h"
#include "cli/view/progress.h"
#include "cli/view/summary.h"
#include "config/options.h"

struct run {
    hone_trainer *trainer;
    const hone_trainer_info *info;
    const char *model, *output;
    json_t *data;  /* the library's summary of it */
    int64_t first; /* steps done before this process began */
    struct screen screen;
    struct mean loss, engine;
    struct eta eta;
    double start, since; /* of the run, and of the current work besides steps: by the clock */
    double first_eval;   /* of the run, also before a resume; NaN before the first one */
    double speed;        /* of the run, once it has ended, as hone watch and hone report have it */
    int evals;           /* 2 are as good as more */
};

/* The mean and the chart of a run that resumes go on from the steps before, which are in its metrics. Without them, as after a
 * checkpoint was moved elsewhere, they begin here. */
static void go_back(struct run *run)
{
    struct history h;
    struct screen *s = &run->screen;
    if (!run->first || history_open(&h, run->output) != OK)
        return;
    for (int64_t i = 0; i < h.step_count && h.steps[i].step <= run->first; i++)
        if (isfinite(h.steps[i].loss)) {
            mean_add(&run->loss, h.steps[i].loss);
            curve_add(&s->losses, mean_value(&run->loss));
        }
    for (int64_t i = 0; i < h.eval_count && h.evals[i].step <= run->first; i++)
        s->eval_loss = h.evals[i].loss;
    s->loss = mean_value(&run->loss);
    history_close(&h);
}

/* From the metrics, since a run that resumed made steps before. Without them, as on a full disk, it is not known. */
static double speed_of_run(const struct run *run)
{
    struct history h;
    if (history_open(&h, run->output) != OK)
        return 0;
    double speed = summary_speed(&h);
    history_close(&h);
    return speed;
}

/* Ends a run at the next event once a signal has asked for it. */
static int train_go_on(const struct run *run, const hone_event *e)
{
    static bool said;
    int64_t last = e->step + e->in_flight;
    if (!signals_stopped())
        return 0;
    if (!said && last > run->first)
        progress_say("stopping after step %lld and saving the state", (long long)last);
    else if (!said)
        progress_say("stopping before the first step: there is nothing to save");
    said = true;
    return 1;
}

/* Brings the screen up to now, and shows it if that is due or `must` be. */
static void show_screen(struct run *run, bool must)
{
    struct screen *s = &run->screen;
    const hone_trainer_info *i = run->info;
    int64_t peak;
    s->seconds = clock_seconds() - run->start;
    if (!progress_due(s->seconds) && !must)
        return;
    s->left = eta_left(&run->eta, s->done, s->total, s->tokens_per_second);
    if (s->activity && s->parts) /* the current validation, of which the rest is left */
        s->left += eta_eval_seconds(&run->eta, s->tokens_per_second) * (1 - (double)s->part / (double)s->parts);
    if (strcmp(i->device, "cpu") != 0)
        s->memory_bytes = i->allocated_bytes;
    else
        process_memory(&s->memory_bytes, &peak);
    progress_tell(s);
}

static void show_step(struct run *run, const hone_event *e)
{
    const hone_step *last = e->last;
    struct screen *s = &run->screen;
    if (isfinite(last->loss)) {
        mean_add(&run->loss, last->loss);
        curve_add(&s->losses, mean_value(&run->loss));
    }
    mean_add(&run->eta.step, last->seconds);
    if (isfinite(last->engine_share))
        mean_add(&run->engine, last->engine_share);
    s->done = e->step;
    s->epoch = last->epoch;
    s->loss = run->loss.share > 0 ? mean_value(&run->loss) : last->loss;
    s->tokens_per_second = e->tokens_per_second;
    s->engine_share = run->engine.share > 0 ? mean_value(&run->engine) : 0;
    show_screen(run, e->step == run->first + 1 || e->step == e->steps);
}

/* What is done besides steps. On a terminal it is shown as soon as it begins. */
static void show_activity(struct run *run, const char *activity, int64_t part, int64_t parts)
{
    struct screen *s = &run->screen;
    bool begins = activity != s->activity;
    if (begins && activity)
        run->since = clock_seconds();
    s->activity = activity;
    s->part = part;
    s->parts = parts;
    show_screen(run, begins && cli_terminal());
}

static enum status to_buffer(void *buffer, const char *text, int64_t length)
{
    return buffer_append(buffer, text, length);
}

/* The lines of an answer, indented. A model may write anything: on a terminal its control characters become signs. */
static void print_answer(const char *answer)
{
    struct buffer shown = {0};
    bool signs = cli_terminal();
    if (signs && escape_text(answer, (int64_t)strlen(answer), to_buffer, &shown) != OK)
        shown.size = 0;
    const char *text = !signs ? answer : shown.size ? shown.data : "", *end;
    for (; *text; text = end + (*end == '\n')) {
        end = text + strcspn(text, "\n");
        progress_say("    %.*s", (int)(end - text), text);
    }
    buffer_free(&shown);
}

static void show_sample(struct run *run, const hone_event *e)
{
    int shown = (int)strcspn(e->prompt, "\n");
    eta_sample(&run->eta, clock_seconds() - run->since, e->step);
    progress_say("step %lld: the answer to \"%.*s%s\" is", (long long)e->step, shown, e->prompt, e->prompt[shown] ? " ..." : "");
    print_answer(e->answer);
    show_activity(run, NULL, 0, 0);
}

static void show_eval(struct run *run, const hone_event *e)
{
    if (!run->evals++)
        run->first_eval = e->eval_loss;
    run->screen.eval_loss = e->eval_loss;
    progress_say("step %lld: validation loss %.4f%s", (long long)e->step, e->eval_loss,
                 e->best && run->evals > 1 ? ", the lowest so far" : "");
    eta_eval(&run->eta, clock_seconds() - run->since, e->step, e->best);
    show_activity(run, NULL, 0, 0);
}

static void show_save(struct run *run, const hone_event *e)
{
    mean_add(&run->eta.save, clock_seconds() - run->since);
    progress_say("step %lld: saved %s", (long long)e->step, e->path);
    show_activity(run, NULL, 0, 0);
}

static void print_start(const hone_trainer_info *i, const json_t *data, cli_say *say)
{
    char all[32], some[32];
    say("model       %s parameters, %s trained (%.2f%%, %s)", cli_count(all, (double)i->parameters),
        cli_count(some, (double)i->trainable_parameters), 100 * (double)i->trainable_parameters / (double)i->parameters,
        i->method);
    cli_data_table("data", data, say);
    say("run         %lld step%s, %lld an epoch, %lld tokens a micro-batch, %s on %s", (long long)i->steps, plural(i->steps),
        (long long)i->steps_per_epoch, (long long)i->micro_batch_tokens, i->dtype, i->device);
    say("memory      %s planned, recompute %s", cli_bytes(all, (double)i->peak_bytes), i->recompute);
    if (i->resumed_from[0])
        say("resumed     from %s, after %lld of %lld steps", i->resumed_from, (long long)i->step, (long long)i->steps);
}

static int train_show(void *context, const hone_event *e)
{
    struct run *run = context;
    switch (e->kind) {
    case HONE_EVENT_START: /* the options and files are fine */
        print_start(run->info, run->data, progress_say);
        progress_say("progress    its loss is a mean of about %d steps; metrics.jsonl has that of each", MEAN_STEPS);
        if (!strcmp(run->info->device, "cpu"))
            progress_say("            engine: the share of a step that only its matmuls would take");
        progress_say("started after %.2f s", run->info->startup_seconds);
        go_back(run);
        run->start = clock_seconds();
        if (cli_terminal())
            show_screen(run, true);
        break;
    case HONE_EVENT_STEP: show_step(run, e); break;
    case HONE_EVENT_EVAL: show_eval(run, e); break;
    case HONE_EVENT_WAIT: show_activity(run, e->activity, e->done, e->total); break;
    case HONE_EVENT_SAMPLE: show_sample(run, e); break;
    case HONE_EVENT_SAVE: show_save(run, e); break;
    }
    return train_go_on(run, e);
}

/* The result of a run. */
struct outcome {
    hone_train_result result;
    hone_trainer_info info;
    double first_eval_loss, tokens_per_second;
    int64_t resumed_step;
    bool stopped_early;
};

static const struct record_field outcome_fields[] = {
    RECORD_AS("steps", struct outcome, result.steps),
    RECORD_AS("loss", struct outcome, result.loss),
    RECORD(struct outcome, first_eval_loss),
    RECORD_AS("eval_loss", struct outcome, result.eval_loss),
    RECORD_AS("best_eval_loss", struct outcome, result.best_eval_loss),
    RECORD_AS("seconds", struct outcome, result.seconds),
    RECORD(struct outcome, tokens_per_second),
    RECORD_AS("tokens", struct outcome, result.tokens),
    RECORD_AS("trained_tokens", struct outcome, result.trained_tokens),
    RECORD_AS("skipped_steps", struct outcome, result.skipped_steps),
    RECORD_AS("output", struct outcome, result.output),
    RECORD_AS("checkpoint", struct outcome, result.checkpoint),
    RECORD_AS("best_checkpoint", struct outcome, result.best_checkpoint),
    RECORD_AS("best_step", struct outcome, result.best_step),
    RECORD_AS("saved_step", struct outcome, result.saved_step),
    RECORD(struct outcome, stopped_early),
    RECORD_AS("method", struct outcome, info.method),
    RECORD_AS("recompute", struct outcome, info.recompute),
    RECORD_AS("dtype", struct outcome, info.dtype),
    RECORD_AS("device", struct outcome, info.device),
    RECORD_AS("steps_per_epoch", struct outcome, info.steps_per_epoch),
    RECORD_AS("parameters", struct outcome, info.parameters),
    RECORD_AS("trainable_parameters", struct outcome, info.trainable_parameters),
    RECORD_AS("micro_batch_tokens", struct outcome, info.micro_batch_tokens),
    RECORD_AS("vocabulary", struct outcome, info.vocabulary),
    RECORD_AS("planned_bytes", struct outcome, info.planned_bytes),
    RECORD_AS("allocated_bytes", struct outcome, info.allocated_bytes),
    RECORD_AS("mapped_bytes", struct outcome, info.mapped_bytes),
    RECORD_AS("peak_bytes", struct outcome, info.peak_bytes),
    RECORD_AS("peak_rss_bytes", struct outcome, info.peak_rss_bytes),
    RECORD_AS("startup_seconds", struct outcome, info.startup_seconds),
    RECORD_AS("resumed_from", struct outcome, info.resumed_from),
    RECORD(struct outcome, resumed_step),
    {0},
};

static json_t *outcome_json(const struct run *run, const hone_train_result *r)
{
    const hone_trainer_info *i = run->info;
    struct outcome outcome = {.result = *r,
                              .info = *i,
                              .first_eval_loss = run->first_eval,
                              .tokens_per_second = run->speed,
                              .resumed_step = run->first,
                              .stopped_early = r->stopped_early};
    json_t *out = record_json(outcome_fields, &outcome);
    json_object_set_new(run->data, "eval_rows", json_integer((json_int_t)i->eval_rows));
    json_object_set(out, "data", run->data);
    return out;
}

/* Whether no row went through the chat template that the model has: hone generate then asks without it too. */
static bool trained_raw(const json_t *data)
{
    json_int_t rows = json_integer_value(json_object_get(data, "rows"));
    return rows && json_integer_value(json_object_get(data, "rows_without_template")) == rows;
}

static void train_print_text(const struct run *run, const hone_train_result *r)
{
    const hone_trainer_info *i = run->info;
    char text[32];
    bool full = options_choice(OPTION_finetuning_type, i->method) == CHOICE_finetuning_type_full;
    if (run->first < r->steps)
        out_print("loss        %.4f in the last of %lld step%s%s\n", r->loss, (long long)r->steps, plural(r->steps),
                  r->stopped_early ? ", then early stopping" : "");
    else
        out_print("loss        no step was left: all %lld were done before (--resume none starts over)\n", (long long)r->steps);
    if (run->evals > 1)
        out_print("validation  %.4f -> %.4f, %.4f at best%s%s\n", run->first_eval, r->eval_loss, r->best_eval_loss,
                  r->best_checkpoint[0] ? " in " : "", r->best_checkpoint);
    else if (run->evals)
        out_print("validation  %.4f\n", r->eval_loss);
    if (r->skipped_steps)
        out_print("skipped     %lld step%s, whose losses or gradients were not finite\n", (long long)r->skipped_steps,
                  plural(r->skipped_steps));
    out_print("time        %s\n", screen_time(text, r->seconds));
    if (run->speed > 0)
        out_print("speed       %.0f tokens/s " SUMMARY_SPEED "\n", run->speed);
    out_print("memory      %s peak", cli_bytes(text, (double)i->peak_rss_bytes));
    out_print(" (%s planned)\n", cli_bytes(text, (double)i->peak_bytes));
    out_print("%-11s %s", full ? "model" : "adapter", r->output);
    if (r->saved_step != r->steps)
        out_print(", of step %lld, which has the lowest validation loss", (long long)r->saved_step);
    out_print("\n");
    out_print("see it      hone report ");
    out_word(r->output);
    out_print("\ntry it      hone generate %s", full ? "--model " : "");
    out_word(r->output);
    out_print("%s --prompt \"...\"\n", trained_raw(run->data) ? " --raw" : "");
}

/* What a run would do, and where it would write. */
static json_t *rehearsal_json(const struct run *run, const hone_train_result *r)
{
    json_t *out = outcome_json(run, r);
    json_object_set_new(out, "dry_run", json_true());
    json_object_set_new(out, "planned_steps", json_integer((json_int_t)run->info->steps));
    json_object_set_new(out, "disk_bytes", json_integer((json_int_t)run->info->disk_bytes));
    json_object_set_new(out, "disk_free_bytes", json_integer((json_int_t)run->info->disk_free_bytes));
    return out;
}

static void print_rehearsal(const struct run *run, const hone_train_result *r)
{
    const hone_trainer_info *i = run->info;
    char one[32], all[32], left[32];
    print_start(i, run->data, out_line);
    out_print("disk        up to %s in %s: %lld checkpoint%s of %s, and the result; %s are free\n",
              cli_bytes(all, (double)i->disk_bytes), r->output, (long long)i->checkpoints, plural(i->checkpoints),
              cli_bytes(one, (double)i->checkpoint_bytes),
              i->disk_free_bytes ? cli_bytes(left, (double)i->disk_free_bytes) : "unknown bytes");
    bool full = options_choice(OPTION_finetuning_type, i->method) == CHOICE_finetuning_type_full;
    out_print("would write %s/%s, metrics.jsonl, run.json and checkpoint-N\n", r->output,
              full ? "model.safetensors and the rest of a model" : "adapter_model.safetensors, adapter_config.json");
    out_print("dry run     nothing was trained or written; without --dry-run the same command begins\n");
}

/* The message of a run that was stopped: where its state is, and how to resume it. */
static hone_status stopped(hone_options *options, const hone_train_result *r)
{
    const char *resume;
    hone_status status = hone_options_get(options, "resume", &resume);
    if (status != HONE_OK || !r->checkpoint[0])
        return status != HONE_OK ? status : HONE_ERR_STOPPED;
    return (hone_status)fail(ERR_STOPPED,
                             "stopped after step %lld; the state is in %s. Resume with: hone train ... (the same command%s)",
                             (long long)r->steps, r->checkpoint,
                             strcmp(resume, "auto") ? ", but with --resume auto" : "; --resume auto is the default");
}

static hone_status read_account(struct run *run)
{
    char *text = NULL;
    hone_status status = hone_trainer_data(run->trainer, &text);
    if (status == HONE_OK)
        status = (hone_status)json_parse(&run->data, text, (int64_t)strlen(text), "report");
    hone_text_destroy(text);
    return status;
}

/* A number among the options. */
static hone_status train_read_number(hone_options *options, const char *key, int64_t *number)
{
    const char *text;
    hone_status status = hone_options_get(options, key, &text);
    if (status == HONE_OK)
        *number = strtoll(text, NULL, 10);
    return status;
}

/* What the progress starts from. */
static void train_begin(struct run *run, const hone_trainer_info *info)
{
    run->info = info;
    run->first = info->step;
    run->first_eval = info->first_eval_loss;
    run->evals = !isnan(run->first_eval);
    run->eta.evaluates.epoch = run->eta.saves.epoch = info->steps_per_epoch;
    run->eta.eval_tokens = json_integer_value(json_object_get(json_object_get(run->data, "eval"), "tokens"));
    run->screen = (struct screen){
        .what = "step", .done = info->step, .total = info->steps, .epoch = NAN, .loss = NAN, .eval_loss = NAN, .left = NAN};
}

static hone_status train_read_options(struct run *run, hone_options *options)
{
    const char *data;
    hone_status status = train_read_number(options, "eval_steps", &run->eta.evaluates.steps);
    if (status == HONE_OK)
        status = train_read_number(options, "evals_per_epoch", &run->eta.evaluates.per_epoch);
    if (status == HONE_OK)
        status = train_read_number(options, "save_steps", &run->eta.saves.steps);
    if (status == HONE_OK)
        status = train_read_number(options, "saves_per_epoch", &run->eta.saves.per_epoch);
    if (status == HONE_OK)
        status = hone_options_get(options, "model", &run->model);
    if (status == HONE_OK)
        status = hone_options_get(options, "data", &data);
    if (status == HONE_OK)
        status = hone_options_get(options, "output", &run->output);
    if (status == HONE_OK && *run->model && *data && !*run->output) /* the library would say so too, but after all data is read */
        status = (hone_status)fail(ERR_ARGUMENT, "hone train needs --output DIR, where the result goes");
    return status == HONE_OK ? (hone_status)path_hint_output(run->output) : status;
}

static hone_status train_open_trainer(struct run *run, hone_options *options, hone_trainer_info *info)
{
    hone_status status = hone_trainer_open(&run->trainer, options, NULL);
    if (status == HONE_OK)
        status = hone_trainer_get_info(run->trainer, info);
    if (status == HONE_OK)
        status = read_account(run);
    if (status == HONE_OK)
        train_begin(run, info);
    return status;
}

static hone_status train_and_save(struct run *run, hone_options *options, hone_trainer_info *info, hone_train_result *result)
{
    /* until here nothing is lost if the program ends at once */
    signals_stop("the current step is finished and the state saved; a second Ctrl-C or SIGTERM ends at once, without saving",
                 "ended at once; what was done since the last checkpoint is lost");
    hone_status status = hone_train(run->trainer, train_show, run, result);
    progress_clear();
    if (status == HONE_ERR_STOPPED)
        return stopped(options, result);
    if (status == HONE_OK)
        status = hone_trainer_get_info(run->trainer, info); /* again, for the peak */
    if (hone_rank() != 0)
        return status;
    if (status == HONE_OK)
        run->speed = speed_of_run(run);
    if (status == HONE_OK && cli_flag(options, "json"))
        return cli_print_json(outcome_json(run, result));
    if (status == HONE_OK)
        train_print_text(run, result);
    return status;
}

/* The result is in files, and what was printed is in run.json: a reader that left, or a full disk under a log, is no reason to
 * give the command again. */
static void forgive_standard_output(void)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || !freopen("/dev/null", "w", stdout))
        return;
    progress_say(
        "hone: warning: the summary cannot be written to standard output; the run has ended well, and its result is saved");
}

static hone_status rehearse(struct run *run, hone_options *options, hone_train_result *result)
{
    hone_status status = hone_train(run->trainer, NULL, NULL, result);
    if (hone_rank() != 0)
        return status;
    if (status == HONE_OK && cli_flag(options, "json"))
        return cli_print_json(rehearsal_json(run, result));
    if (status == HONE_OK)
        print_rehearsal(run, result);
    return status;
}

hone_status cli_train(hone_options *options)
{
    struct run run = {.first_eval = NAN};
    hone_trainer_info info = {.size = sizeof info};
    hone_train_result result = {.size = sizeof result, .checkpoint = ""};
    bool dry = cli_flag(options, "dry_run"), shows = hone_rank() == 0; /* of many ranks, the first */
    if (!shows)
        progress_silence();
    signals_survive(); /* a reader of the progress that leaves must not end the run */
    hone_status status = signals_watch();
    if (status == HONE_OK)
        status = train_read_options(&run, options);
    if (status == HONE_OK)
        status = train_open_trainer(&run, options, &info);
    if (status == HONE_OK)
        status = dry ? rehearse(&run, options, &result) : train_and_save(&run, options, &info, &result);
    json_decref(run.data);
    hone_trainer_close(run.trainer);
    if (status == HONE_OK && !dry)
        forgive_standard_output();
    return dry || !shows ? status : cli_finish(options, status, &result);
}
