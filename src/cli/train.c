/* hone train: what will be done, then every step as the library's events report it, then the result and how to try it.
 * All progress goes to standard error; standard output has the result alone. */
#include <math.h>
#include <string.h>

#include "base/lost.h"
#include "base/record.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "config/options.h"

struct run {
    hone_trainer *trainer;
    const hone_trainer_info *info;
    json_t *data;           /* the library's account of it */
    int64_t first;          /* steps done before this process began */
    double smoothed, share; /* the loss averaged over about ten steps, and the weight of the average so far */
    double pace, paced;     /* the same for a step's seconds, without validations */
    double first_eval;      /* of the run, also before a resume; NaN before the first one */
    int evals;              /* 2 are as good as more */
};

/* Ends a run at the next event once a signal has asked for it. */
static int go_on(const hone_event *e)
{
    static bool said;
    if (!signals_stopped())
        return 0;
    if (!said)
        progress_say("stopping after step %lld and saving the state", (long long)(e->step + e->under_way));
    said = true;
    return 1;
}

static void show_step(struct run *run, const hone_event *e)
{
    const hone_step *last = e->last;
    if (isfinite(last->loss)) {
        run->smoothed = 0.9 * run->smoothed + 0.1 * last->loss;
        run->share = 0.9 * run->share + 0.1;
    }
    run->pace = 0.9 * run->pace + 0.1 * last->seconds;
    run->paced = 0.9 * run->paced + 0.1;
    bool due = progress_due(e->seconds), end = e->step == run->first + 1 || e->step == e->steps;
    if (!due && !end)
        return;
    char passed[32], left[32];
    progress_tell("step %lld/%lld, epoch %.2f, loss %.4f, %.0f tok/s, %s, ETA %s", (long long)e->step, (long long)e->steps,
                  last->epoch, run->share > 0 ? run->smoothed / run->share : last->loss, e->tokens_per_second,
                  progress_time(passed, e->seconds), progress_time(left, run->pace / run->paced * (double)(e->steps - e->step)));
}

/* The answer's lines are indented. */
static void show_sample(const hone_event *e)
{
    progress_say("step %lld: the answer to \"%s\" is", (long long)e->step, e->prompt);
    progress_clear();
    for (const char *line = e->answer; line;) {
        const char *end = strchr(line, '\n');
        fputs("    ", stderr);
        cli_answer(stderr, line, end ? (size_t)(end - line) : strlen(line));
        fputs("\n", stderr);
        line = end ? end + 1 : NULL;
    }
    progress_again();
}

static void print_start(const hone_trainer_info *i, const json_t *data)
{
    char all[32], some[32];
    progress_say("model       %s parameters, %s trained (%.2f%%, %s)", cli_count(all, (double)i->parameters),
                 cli_count(some, (double)i->trainable_parameters), 100 * (double)i->trainable_parameters / (double)i->parameters,
                 i->method);
    cli_account("data", data, progress_say);
    progress_say("run         %lld steps, %lld an epoch, %lld tokens a micro-batch, %s on %s", (long long)i->steps,
                 (long long)i->steps_per_epoch, (long long)i->micro_batch_tokens, i->dtype, i->device);
    progress_say("memory      %s planned, recompute %s", cli_bytes(all, (double)i->peak_bytes), i->recompute);
    if (i->resumed_from[0])
        progress_say("resumed     from %s, after %lld of %lld steps", i->resumed_from, (long long)i->step, (long long)i->steps);
    progress_say("started after %.2f s", i->startup_seconds);
}

static int show(void *context, const hone_event *e)
{
    struct run *run = context;
    switch (e->kind) {
    case HONE_EVENT_START: /* the options and files are fine */
        print_start(run->info, run->data);
        if (cli_terminal())
            progress_tell("step %lld/%lld", (long long)e->step, (long long)e->steps);
        break;
    case HONE_EVENT_STEP: show_step(run, e); break;
    case HONE_EVENT_EVAL:
        if (!run->evals++)
            run->first_eval = e->eval_loss;
        progress_say("step %lld: validation loss %.4f%s", (long long)e->step, e->eval_loss,
                     e->best && run->evals > 1 ? ", the lowest so far" : "");
        break;
    case HONE_EVENT_WAIT: break;
    case HONE_EVENT_SAMPLE: show_sample(e); break;
    case HONE_EVENT_SAVE: progress_say("step %lld: saved %s", (long long)e->step, e->path); break;
    }
    return go_on(e);
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
    RECORD_CHARS("output", struct outcome, result.output),
    RECORD_CHARS("checkpoint", struct outcome, result.checkpoint),
    RECORD_CHARS("best_checkpoint", struct outcome, result.best_checkpoint),
    RECORD_AS("best_step", struct outcome, result.best_step),
    RECORD_AS("saved_step", struct outcome, result.saved_step),
    RECORD(struct outcome, stopped_early),
    RECORD_CHARS("method", struct outcome, info.method),
    RECORD_CHARS("recompute", struct outcome, info.recompute),
    RECORD_CHARS("dtype", struct outcome, info.dtype),
    RECORD_CHARS("device", struct outcome, info.device),
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
    RECORD_CHARS("resumed_from", struct outcome, info.resumed_from),
    RECORD(struct outcome, resumed_step),
    {0},
};

static hone_status print_json(const struct run *run, const hone_trainer_info *i, const hone_train_result *r)
{
    struct outcome outcome = {.result = *r,
                              .info = *i,
                              .first_eval_loss = run->first_eval,
                              .tokens_per_second = r->seconds > 0 ? (double)r->tokens / r->seconds : 0,
                              .resumed_step = run->first,
                              .stopped_early = r->stopped_early};
    json_t *out = record_json(outcome_fields, &outcome);
    json_object_set_new(run->data, "eval_rows", json_integer((json_int_t)i->eval_rows));
    json_object_set(out, "data", run->data);
    return cli_print_json(out);
}

/* The quotes that keep a word whole in a shell. */
static const char *quote(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,:@%=";
    return word[strspn(word, plain)] ? "'" : "";
}

static void print_text(const struct run *run, const char *model, const hone_trainer_info *i, const hone_train_result *r)
{
    char text[32];
    bool full = options_choice(OPTION_finetuning_type, i->method) == CHOICE_finetuning_type_full;
    if (run->first < r->steps)
        printf("loss        %.4f in the last of %lld steps\n", r->loss, (long long)r->steps);
    else
        printf("loss        no step was left: all %lld were done before (--resume none starts over)\n", (long long)r->steps);
    if (run->evals > 1)
        printf("validation  %.4f -> %.4f, %.4f at best%s%s\n", run->first_eval, r->eval_loss, r->best_eval_loss,
               r->best_checkpoint[0] ? " in " : "", r->best_checkpoint);
    else if (run->evals)
        printf("validation  %.4f\n", r->eval_loss);
    if (r->skipped_steps)
        printf("skipped     %lld steps, whose losses or gradients were not finite\n", (long long)r->skipped_steps);
    printf("time        %s, %.0f tok/s\n", progress_time(text, r->seconds), r->seconds > 0 ? (double)r->tokens / r->seconds : 0);
    printf("memory      %s peak", cli_bytes(text, (double)i->peak_rss_bytes));
    printf(" (%s planned)\n", cli_bytes(text, (double)i->peak_bytes));
    printf("%-11s %s", full ? "model" : "adapter", r->output);
    if (r->saved_step != r->steps)
        printf(", of step %lld, which has the lowest validation loss", (long long)r->saved_step);
    puts("");
    const char *named = full ? r->output : model, *q = quote(named), *p = quote(r->output);
    printf("try it      hone generate --model %s%s%s", q, named, q);
    if (!full)
        printf(" --adapter %s%s%s", p, r->output, p);
    puts(" --prompt \"...\"");
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

hone_status cli_train(hone_options *options)
{
    struct run run = {.first_eval = NAN};
    hone_trainer_info info = {.size = sizeof info};
    hone_train_result result = {.size = sizeof result};
    const char *model, *data, *output;
    signals_survive(); /* a reader of the progress that leaves must not end the run */
    hone_status status = signals_watch();
    if (status == HONE_OK)
        status = hone_options_get(options, "model", &model);
    if (status == HONE_OK)
        status = hone_options_get(options, "data", &data);
    if (status == HONE_OK)
        status = hone_options_get(options, "output", &output);
    if (status == HONE_OK && *model && *data && !*output) /* the library would say so too, but after it has encoded all data */
        status = (hone_status)fail(ERR_ARGUMENT, "hone train needs --output DIR, where the result goes");
    if (status == HONE_OK)
        status = (hone_status)lost_output(output);
    if (status == HONE_OK)
        status = hone_trainer_open(&run.trainer, options, 0);
    if (status == HONE_OK)
        status = hone_trainer_get_info(run.trainer, &info);
    if (status == HONE_OK)
        status = read_account(&run);
    if (status == HONE_OK) {
        run.info = &info;
        run.first = info.step;
        run.first_eval = info.first_eval_loss;
        run.evals = !isnan(run.first_eval);
        /* until here nothing is lost if the program ends at once */
        signals_stop(
            "the step under way is finished and the state saved; a second Ctrl-C or SIGTERM ends at once, without saving",
            "ended at once; what was done since the last checkpoint is lost");
        status = hone_train(run.trainer, show, &run, &result);
        progress_clear();
    }
    if (status == HONE_ERR_STOPPED)
        status = stopped(options, &result);
    else if (status == HONE_OK)
        status = hone_trainer_get_info(run.trainer, &info); /* again, for the peak */
    if (status == HONE_OK && cli_flag(options, "json"))
        status = print_json(&run, &info, &result);
    else if (status == HONE_OK)
        print_text(&run, model, &info, &result);
    json_decref(run.data);
    hone_trainer_close(run.trainer);
    return cli_finish(options, status, &result);
}
