/* The means, the pace and the course of a run are made again from its lines, as the run itself made them. */
#include "cli/view/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/record.h"

static int64_t option_of(const struct history *h, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(h->run, "options"), key));
    int64_t n = text ? strtoll(text, NULL, 10) : 0;
    return n > 0 ? n : 0;
}

static int64_t last_step(const struct history *h)
{
    return h->step_count ? h->steps[h->step_count - 1].step : 0;
}

static void add_evals(const struct history *h, struct eta *eta)
{
    double best = INFINITY;
    for (int64_t i = 0; i < h->eval_count; i++) {
        const struct history_eval *e = &h->evals[i];
        if (isfinite(e->seconds))
            eta_eval(eta, e->seconds, e->step, e->loss < best);
        best = fmin(best, e->loss);
    }
}

static void add_samples(const struct history *h, struct eta *eta)
{
    for (int64_t i = 0; i < h->sample_count; i++)
        if (isfinite(h->samples[i].seconds))
            eta_sample(eta, h->samples[i].seconds, h->samples[i].step);
}

/* Whether the run is at a step whose validation is due and not written yet. */
static bool validates(const struct history *h, const struct eta *eta)
{
    int64_t step = last_step(h), evaluated = h->eval_count ? h->evals[h->eval_count - 1].step : -1;
    const char *on_start = json_string_value(json_object_get(json_object_get(h->run, "options"), "eval_on_start"));
    if (!eta->eval_tokens || evaluated >= step)
        return false;
    if (!step)
        return on_start && !strcmp(on_start, "true");
    return step == h->total || interval_falls_on(eta->evaluates, step);
}

/* Seconds of the steps, validations and samples of the run, by all its processes, and those since its last line. */
static double passed(const struct history *h)
{
    double seconds = 0;
    for (int64_t i = 0; i < h->step_count; i++)
        if (isfinite(h->steps[i].seconds))
            seconds += h->steps[i].seconds;
    for (int64_t i = 0; i < h->eval_count; i++)
        if (isfinite(h->evals[i].seconds))
            seconds += h->evals[i].seconds;
    for (int64_t i = 0; i < h->sample_count; i++)
        if (isfinite(h->samples[i].seconds))
            seconds += h->samples[i].seconds;
    return seconds + (h->state == HISTORY_RUNNING ? file_age(h->metrics) : 0);
}

/* Over the last steps, or all of them. */
static double speed_of(const struct history *h, int64_t steps)
{
    double tokens = 0, seconds = 0;
    for (int64_t i = h->step_count > steps ? h->step_count - steps : 0; i < h->step_count; i++) {
        const struct history_step *step = &h->steps[i];
        if (isfinite(step->tokens_per_second) && isfinite(step->seconds)) {
            tokens += step->tokens_per_second * step->seconds;
            seconds += step->seconds;
        }
    }
    return seconds > 0 ? tokens / seconds : 0;
}

double summary_speed(const struct history *h)
{
    return speed_of(h, h->step_count);
}

void summary_screen(const struct history *h, struct screen *s)
{
    enum { RECENT_STEPS = 16 }; /* as hone train has it */
    int64_t epoch = history_number(h, "steps_per_epoch");
    struct eta eta = {.evaluates = {option_of(h, "eval_steps"), option_of(h, "evals_per_epoch"), epoch},
                      .saves = {option_of(h, "save_steps"), option_of(h, "saves_per_epoch"), epoch}};
    struct mean loss = {0}, engine = {0};
    const json_t *data = json_object_get(h->run, "data"), *plan = json_object_get(h->run, "plan");
    *s = (struct screen){.what = "step", .done = last_step(h), .total = h->total, .epoch = NAN, .loss = NAN, .eval_loss = NAN};
    eta.eval_tokens = json_integer_value(json_object_get(json_object_get(data, "eval"), "tokens"));
    for (int64_t i = 0; i < h->step_count; i++) {
        const struct history_step *step = &h->steps[i];
        if (isfinite(step->loss)) {
            mean_add(&loss, step->loss);
            curve_add(&s->losses, mean_value(&loss));
        }
        if (isfinite(step->seconds))
            mean_add(&eta.step, step->seconds);
        if (isfinite(step->engine_share))
            mean_add(&engine, step->engine_share);
        s->epoch = step->epoch;
    }
    add_evals(h, &eta);
    add_samples(h, &eta);
    s->loss = mean_value(&loss);
    s->eval_loss = h->eval_count ? h->evals[h->eval_count - 1].loss : NAN;
    s->tokens_per_second = speed_of(h, RECENT_STEPS);
    s->engine_share = engine.share > 0 ? mean_value(&engine) : 0;
    s->memory_bytes = json_integer_value(json_object_get(plan, "peak_bytes"));
    s->seconds = passed(h);
    s->left = eta_left(&eta, s->done, s->total, s->tokens_per_second);
    if (h->state != HISTORY_RUNNING)
        return;
    double age = file_age(h->metrics);
    if (!h->header)
        s->activity = "starting";
    else if (validates(h, &eta)) {
        s->activity = "validating";
        s->left += eta_eval_seconds(&eta, s->tokens_per_second);
    } else if (s->done && s->done == s->total)
        s->activity = "saving";
    s->left = fmax(s->left - age, isnan(s->left) ? NAN : 0);
}

static json_t *best_json(const struct history *h)
{
    const struct history_eval *best = history_best(h);
    return best ? json_pack("{s:I, s:f}", "step", (json_int_t)best->step, "eval_loss", best->loss) : json_null();
}

struct stand {
    const char *run, *state, *why, *model, *method, *smoothing, *activity;
    int64_t pid, step, steps, resumes, skipped_steps, unreadable_lines, planned_bytes, peak_bytes, result_step;
    double epoch, loss, last_loss, eval_loss, tokens_per_second, engine_share, seconds, seconds_left;
    bool stopped_early;
};

json_t *summary_json(const struct history *h)
{
    static const struct record_field fields[] = {
        RECORD(struct stand, run),
        RECORD(struct stand, state),
        RECORD(struct stand, why),
        RECORD(struct stand, pid),
        RECORD(struct stand, model),
        RECORD(struct stand, method),
        RECORD(struct stand, step),
        RECORD(struct stand, steps),
        RECORD(struct stand, epoch),
        RECORD(struct stand, loss),
        RECORD(struct stand, smoothing),
        RECORD(struct stand, last_loss),
        RECORD(struct stand, eval_loss),
        RECORD(struct stand, activity),
        RECORD(struct stand, tokens_per_second),
        RECORD(struct stand, engine_share),
        RECORD(struct stand, seconds),
        RECORD(struct stand, seconds_left),
        RECORD(struct stand, planned_bytes),
        RECORD(struct stand, peak_bytes),
        RECORD(struct stand, stopped_early),
        RECORD(struct stand, result_step),
        RECORD(struct stand, resumes),
        RECORD(struct stand, skipped_steps),
        RECORD(struct stand, unreadable_lines),
        {0},
    };
    struct screen s;
    summary_screen(h, &s);
    struct stand stand = {
        .run = h->dir,
        .state = history_state_name(h->state),
        .why = h->why,
        .pid = h->pid,
        .model = history_text(h, "model"),
        .method = history_text(h, "method"),
        .step = s.done,
        .steps = s.total,
        .epoch = s.epoch,
        .loss = s.loss,
        .smoothing = "exponential mean of about 10 steps",
        .last_loss = h->step_count ? h->steps[h->step_count - 1].loss : NAN,
        .eval_loss = s.eval_loss,
        .activity = s.activity,
        .tokens_per_second = summary_speed(h),
        .engine_share = s.engine_share > 0 ? s.engine_share : NAN,
        .seconds = s.seconds,
        .seconds_left = h->state == HISTORY_RUNNING ? s.left : NAN,
        .planned_bytes = json_integer_value(json_object_get(json_object_get(h->run, "plan"), "planned_bytes")),
        .peak_bytes = s.memory_bytes,
        .stopped_early = h->early,
        .result_step = h->result_step,
        .resumes = h->resumes,
        .skipped_steps = h->skipped,
        .unreadable_lines = h->bad_lines,
    };
    json_t *tree = record_json(fields, &stand);
    if (tree)
        json_object_set_new(tree, "best", best_json(h));
    return tree;
}

static bool has_checkpoint(const struct history *h)
{
    struct arena arena = {0};
    const char **names;
    int64_t count = 0;
    bool found = false;
    if (directory_list(&arena, h->dir, &names, &count) != OK)
        count = 0;
    for (int64_t i = 0; i < count; i++)
        found |= !strncmp(names[i], "checkpoint-", 11) && !strchr(names[i], '.');
    arena_free(&arena);
    return found;
}

const char *summary_place(const struct history *h, char text[static SUMMARY_PLACE])
{
    int64_t step = last_step(h);
    if (step && h->total)
        snprintf(text, SUMMARY_PLACE, "after step %lld of %lld", (long long)step, (long long)h->total);
    else if (step)
        snprintf(text, SUMMARY_PLACE, "after step %lld", (long long)step);
    else
        snprintf(text, SUMMARY_PLACE, "before its first step");
    return text;
}

const char *summary_result(const struct history *h, char text[static SUMMARY_PLACE])
{
    bool other = h->result_step != last_step(h);
    if (h->state != HISTORY_FINISHED || !h->result_step || (!other && !h->early))
        return NULL;
    snprintf(text, SUMMARY_PLACE, "of step %lld%s", (long long)h->result_step,
             other ? ", which has the lowest validation loss" : ", the last");
    return text;
}

enum status summary_verdict(const struct history *h)
{
    char place[SUMMARY_PLACE];
    int code = (int)json_integer_value(json_object_get(history_piece(h), "status"));
    switch (h->state) {
    case HISTORY_RUNNING:
    case HISTORY_FINISHED: break;
    case HISTORY_STOPPED:
        return fail(ERR_STOPPED, "%s: the run was stopped %s; the same hone train command resumes it", h->dir,
                    summary_place(h, place));
    case HISTORY_FAILED:
        return fail(code > 0 && code <= (int)ERR_RANK ? (enum status)code : ERR_INTERNAL, "%s: the run failed %s: %s", h->dir,
                    summary_place(h, place), h->why ? h->why : "it did not say why");
    case HISTORY_KILLED:
        return fail(
            ERR_STOPPED,
            "%s: the run's process ended without a word %s: by a second Ctrl-C, by a kill, or because memory ran out. The same "
            "hone train command %s",
            h->dir, summary_place(h, place),
            has_checkpoint(h) ? "resumes it from its last checkpoint" : "starts it over: there is no checkpoint");
    case HISTORY_UNKNOWN:
        return fail(ERR_UNSUPPORTED,
                    "%s: this file system has no locks, so hone cannot know whether the run is alive; what it wrote ends %s",
                    h->dir, summary_place(h, place));
    }
    return OK;
}
