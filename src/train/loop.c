/* The loop over steps, and the metrics and events that it gives. */
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checksums.h"
#include "base/clock.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "state/checkpoint.h"
#include "state/disk_budget.h"
#include "train/metrics.h"
#include "train/nan_trace.h"
#include "train/run_warnings.h"

#define WITHOUT_BEST ": without --load-best-model-at-end the same command makes the last step the result"
#define BEST_DAMAGED ". It has the lowest validation loss" WITHOUT_BEST

enum { RATE_STEPS = 16, ROWS_NAMED = 10, WARNINGS_MAX = 10 };

struct run {
    struct trainer *t;
    run_listener *listener;
    void *context;
    struct run_result *result;
    struct sequence *sequences;   /* of a step */
    enum nan_trace_fault *faults; /* of these */
    struct metrics metrics;
    double start;
    struct step last;
    double seconds[RATE_STEPS]; /* of the last steps, and their tokens */
    int64_t tokens[RATE_STEPS];
    int64_t steps_here;
    enum guard_finding found; /* in the last step */
    double deviations;
    int64_t sample_tokens; /* so far */
    bool base_is_finite;   /* its files were looked at */
    bool asked;            /* this rank was asked to stop */
    bool stopped;          /* all ranks do */
};

/* Rank 0 writes, and answers prompts; the others write nothing. */
static bool writes(const struct run *r)
{
    return group_rank(r->t->build.group) == 0;
}

/* A request to stop, on any rank, holds for all of them. */
static enum status agree_to_stop(struct run *r)
{
    double asked = r->asked;
    TRY(group_sum(r->t->build.group, &asked, 1));
    r->stopped |= asked > 0;
    return OK;
}

/* --- events ------------------------------------------------------------------------------------------------------------- */

static double recent_rate(const struct run *r)
{
    double seconds = 0, tokens = 0;
    for (int64_t i = 0; i < RATE_STEPS && i < r->steps_here; i++) {
        seconds += r->seconds[i];
        tokens += (double)r->tokens[i];
    }
    return seconds > 0 ? tokens / seconds : 0;
}

static void loop_tell(struct run *r, struct run_event event)
{
    event.seconds = clock_seconds() - r->start;
    event.tokens_per_second = recent_rate(r);
    event.last = r->steps_here ? &r->last : NULL;
    event.in_flight = r->t->stepper.queue.ahead;
    if (r->listener && !r->listener(r->context, &event))
        r->asked = true;
    r->stopped |= r->asked && !r->t->build.group;
}

/* If a call failed in this way, adds what can be done to its message. */
static enum status advise(enum status status, enum status failure, const char *words)
{
    char cause[STATUS_MESSAGE_SIZE];
    snprintf(cause, sizeof cause, "%s", status_message());
    return status == failure ? fail(status, "%s%s", cause, words) : status;
}

/* Before anything is saved: whether the output is still this run's, and the name of a checkpoint (or NULL) is free. */
static enum status loop_check_output(const struct run *r, const char *checkpoint)
{
    const struct trainer *t = r->t;
    enum status status = output_check(&t->place.output);
    if (status == OK && checkpoint && writes(r))
        status = checkpoint_clear(&t->snap, t->job.options->output_dir, checkpoint);
    return group_agree(t->build.group, status);
}

static enum status loop_save(struct run *r)
{
    struct trainer *t = r->t;
    const char *path = checkpoint_path(&t->snap.arena, t->job.options->output_dir, t->snap.state.step);
    if (!path)
        return ERR_MEMORY;
    loop_tell(r, (struct run_event){.kind = RUN_WAIT, .activity = "saving"});
    TRY(loop_check_output(r, path));
    TRY(advise(trainer_save_state(t, path), ERR_IO, checkpoint_after(&t->snap, r->result->checkpoint)));
    r->result->checkpoint = path;
    if (!writes(r))
        return OK;
    TRY(checkpoint_thin(&t->snap, t->job.options->output_dir, t->job.options->save_total_limit));
    loop_tell(r, (struct run_event){.kind = RUN_SAVE, .path = path});
    return OK;
}

static bool wait_for_token(void *context)
{
    struct run *r = context;
    loop_tell(
        r, (struct run_event){
               .kind = RUN_WAIT, .activity = "sampling", .done = r->sample_tokens++, .total = r->t->job.options->sample_length});
    return !r->stopped;
}

static bool wait_for_batch(void *context, int64_t done, int64_t batches, int64_t tokens, double seconds)
{
    struct run *r = context;
    (void)tokens, (void)seconds;
    loop_tell(r, (struct run_event){.kind = RUN_WAIT, .activity = "validating", .done = done, .total = batches});
    return !r->stopped;
}

/* --- validations and samples ---------------------------------------------------------------------------------------------- */

/* Whether enough validations in a row brought nothing. */
static bool is_stale(const struct trainer *t)
{
    return t->job.options->early_stopping_patience && t->snap.state.stale_evals >= t->job.options->early_stopping_patience;
}

static bool has_ended(const struct trainer *t)
{
    return t->snap.state.step >= t->rows.steps || is_stale(t);
}

/* As transformers' EarlyStoppingCallback: the loss must be lower than the lowest before it by more than the threshold. */
static void count_stale(struct trainer *t, double loss)
{
    struct run_state *p = &t->snap.state;
    bool better = isnan(p->best_loss) || p->best_loss - loss > t->job.options->early_stopping_threshold;
    p->stale_evals = better ? 0 : p->stale_evals + 1;
}

/* Sets *best if the loss is the lowest so far and a step was taken. A validation that is stopped has no result, and stays due. */
static enum status validate(struct run *r, bool *best)
{
    struct trainer *t = r->t;
    double start = clock_seconds(), loss;
    t->snap.state.eval_due = true;
    if (r->stopped)
        return OK;
    if (!wait_for_batch(r, 0, t->build.evaluation.count, 0, 0))
        return OK;
    enum status status = eval_run(&t->build.evaluation, &t->build.session, wait_for_batch, r, &loss);
    if (r->stopped)
        return OK;
    TRY(status);
    t->snap.state.eval_due = false;
    t->snap.state.eval_loss = loss;
    if (isnan(t->snap.state.first_eval_loss))
        t->snap.state.first_eval_loss = loss;
    count_stale(t, loss);
    *best = t->snap.state.step > 0 && !(loss >= t->snap.state.best_loss);
    if (*best || t->snap.state.step == 0) {
        t->snap.state.best_loss = loss;
        t->snap.state.best_step = t->snap.state.step;
    }
    metrics_eval(&r->metrics, loss, clock_seconds() - start);
    loop_tell(r, (struct run_event){.kind = RUN_EVAL, .eval_loss = loss, .best = *best});
    return OK;
}

static enum status make_sample(struct run *r, int64_t i, struct sample *sample)
{
    const struct samples *s = &r->t->job.samples;
    const struct sample_answers *a = &r->t->answers;
    sample->prompt = s->prompt[i];
    TRY(buffer_append(&sample->answer, "", 0)); /* which may have no token */
    r->sample_tokens = 0;
    if (!wait_for_token(r))
        return OK;
    double start = clock_seconds();
    enum status status = a->make(a->maker, sample, wait_for_token, r);
    sample->seconds = clock_seconds() - start;
    if (status == ERR_STOPPED || status == ERR_MEMORY)
        return status == ERR_STOPPED && r->stopped ? OK : status;
    if (status != OK) {
        log_message(LOG_WARNING, "step %lld: the prompt \"%.60s\" cannot be answered: %s", (long long)r->t->snap.state.step,
                    sample->prompt, status_message());
        return OK;
    }
    metrics_sample(&r->metrics, i + 1, sample);
    loop_tell(r, (struct run_event){.kind = RUN_SAMPLE, .sample = sample});
    return OK;
}

/* An answer that is stopped has no result. */
static enum status answer_prompts(struct run *r)
{
    const struct samples *s = &r->t->job.samples;
    bool answers = writes(r) || r->t->build.session.engine.gather.wanted; /* with weights that are gathered, all ranks compute */
    for (int64_t i = 0; r->t->answers.make && answers && i < s->count && !r->stopped; i++) {
        struct sample sample = {0};
        enum status status = make_sample(r, i, &sample);
        buffer_free(&sample.answer);
        TRY(status);
    }
    return OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

/* The loss of guessing every token, or that of the first step: what a model must not exceed by far. */
static double worst_guess(const struct trainer *t)
{
    return fmax(log((double)t->build.session.model.config.vocabulary), t->snap.state.first_loss);
}

/* What is wrong with the last step, as a sentence. */
static enum status tell_finding(const struct run *r, struct buffer *text)
{
    const struct step *s = &r->last;
    long long step = (long long)s->step;
    switch (r->found) {
    case GUARD_FINE: break;
    case GUARD_NOT_FINITE:
        return buffer_format(text, "step %lld%s: its %s is not finite", step, s->applied ? "" : " was skipped",
                             isfinite(s->loss) ? "gradient" : "loss");
    case GUARD_DEAD:
        return buffer_format(text, "step %lld: the gradient is 0, and the loss is %.4g: nothing can be learned any more", step,
                             s->loss);
    case GUARD_WORSE:
        return buffer_format(text, "step %lld: the loss is %.4g, far above %.4g, which guessing or the first step gave", step,
                             s->loss, worst_guess(r->t));
    case GUARD_LOSS:
        return buffer_format(text, "step %lld: the loss is %.4g, %.0f standard deviations above that of the steps before it",
                             step, s->loss, r->deviations);
    case GUARD_NORM:
        return buffer_format(text,
                             "step %lld: the norm of the gradient is %.4g, %.0f standard deviations above the steps before it",
                             step, s->norm, r->deviations);
    }
    return OK;
}

static enum status name_row(const struct trainer *t, struct buffer *text, const char *before, int64_t row)
{
    return buffer_format(text, "%s%s:%lld", before, data_file_of(&t->rows.data, row), (long long)t->rows.data.rows[row].line);
}

/* Sets the run's sequences to those of a step, counted from 0; also the rows that they are. */
static enum status loop_read_rows(struct run *r, int64_t step, const int64_t **rows, int64_t *count)
{
    struct trainer *t = r->t;
    TRY(sampler_step(&t->rows.sampler, step, rows, count));
    for (int64_t i = 0; i < *count; i++) {
        TRY(data_use(&t->rows.data, (*rows)[i]));
        r->sequences[i] = batch_sequence(&t->rows.data, (*rows)[i], i);
    }
    return OK;
}

/* The rows of the last step that are not finite by themselves; *named: how many. */
static enum status name_faults(struct run *r, struct buffer *text, int64_t *named)
{
    const struct trainer *t = r->t;
    const int64_t *rows;
    int64_t count;
    *named = 0;
    TRY(loop_read_rows(r, r->last.step - 1, &rows, &count));
    TRY(nan_trace_step(&r->t->stepper, r->last.step, r->sequences, count, r->faults));
    for (int64_t i = 0; i < count; i++) {
        if (r->faults[i] == NAN_TRACE_NONE || (*named)++ >= ROWS_NAMED)
            continue;
        TRY(name_row(t, text, *named == 1 ? ". At fault: " : ", ", rows[i]));
        TRY(buffer_format(text, " (its %s)", r->faults[i] == NAN_TRACE_LOSS ? "loss" : "gradient"));
    }
    return *named > ROWS_NAMED ? buffer_format(text, " and %lld more", (long long)(*named - ROWS_NAMED)) : OK;
}

static enum status name_rows(struct run *r, struct buffer *text)
{
    struct trainer *t = r->t;
    const int64_t *rows;
    int64_t count, worst = r->last.worst, at_fault = 0;
    if (r->found == GUARD_NOT_FINITE) {
        TRY(name_faults(r, text, &at_fault));
        if (at_fault)
            return OK;
        TRY(buffer_format(text, ". No row is at fault by itself"));
    }
    TRY(sampler_step(&t->rows.sampler, r->last.step - 1, &rows, &count));
    for (int64_t i = 0; i < count && i < ROWS_NAMED; i++)
        TRY(name_row(t, text, i ? ", " : ". Its rows: ", rows[i]));
    if (count > ROWS_NAMED)
        TRY(buffer_format(text, " and %lld more", (long long)(count - ROWS_NAMED)));
    if (worst < 0)
        return OK;
    TRY(name_row(t, text, "; ", rows[worst]));
    return isfinite(r->last.worst_loss) ? buffer_format(text, " has the highest loss, %.4g", r->last.worst_loss)
                                        : buffer_format(text, " has a loss that is not finite");
}

/* Where nothing is learned any more, the first of the steps says it for all. */
static enum status warn(struct run *r)
{
    struct buffer text = {0};
    struct run_state *state = &r->t->snap.state;
    bool said = (r->found == GUARD_DEAD || r->found == GUARD_WORSE) && state->bad_in_row > 1;
    int64_t count = said ? 0 : r->found == GUARD_NOT_FINITE ? state->skipped : ++state->warnings; /* each has its own limit */
    if (said || count > WARNINGS_MAX)
        return OK;
    enum status status = tell_finding(r, &text);
    if (status == OK)
        status = name_rows(r, &text);
    if (status == OK)
        log_message(LOG_WARNING, "%s%s", text.data, count == WARNINGS_MAX ? ". metrics.jsonl has the others" : "");
    buffer_free(&text);
    return status;
}

/* Has the guard look at the last step. Steps that are not finite may be the fault of weights, which ends the run at once; too
 * many bad ones in a row end it too. */
static enum status loop_look(struct run *r)
{
    struct trainer *t = r->t;
    const struct step *s = &r->last;
    if (s->idle) {
        r->found = GUARD_FINE;
        metrics_step(&r->metrics, s, NULL);
        return OK;
    }
    if (isnan(t->snap.state.first_loss) && isfinite(s->loss))
        t->snap.state.first_loss = s->loss;
    struct guard_step seen = {.loss = s->loss, .norm = s->norm, .applied = s->applied, .guess = worst_guess(t)};
    r->found = guard_look(&t->snap.state.guard, &seen, &r->deviations);
    t->snap.state.bad_in_row = guard_is_bad(r->found) ? t->snap.state.bad_in_row + 1 : 0;
    metrics_step(&r->metrics, s, guard_name(r->found));
    if (!r->found)
        return OK;
    if (r->found == GUARD_NOT_FINITE && t->snap.state.bad_in_row == 1)
        TRY(nan_trace_weights(&t->stepper, &r->base_is_finite));
    TRY(warn(r));
    if (t->snap.state.bad_in_row < t->job.options->max_bad_steps)
        return OK;
    return fail(ERR_DATA,
                "%lld step%s in a row %s bad, the last one: %s (--max-bad-steps). Lower --learning-rate%s, or look at the rows "
                "that the warnings name",
                (long long)t->snap.state.bad_in_row, plural(t->snap.state.bad_in_row),
                t->snap.state.bad_in_row == 1 ? "was" : "were", guard_name(r->found),
                t->build.session.run == RUN_FLOAT32 ? "" : ", use --dtype float32 if the weights are too large for this type");
}

static enum status queue_step(struct run *r)
{
    struct trainer *t = r->t;
    const int64_t *rows;
    int64_t count;
    TRY(loop_read_rows(r, t->snap.state.step + t->stepper.queue.ahead, &rows, &count));
    return stepper_queue(&t->stepper, r->sequences, count, -1);
}

static enum status report_step(struct run *r)
{
    struct trainer *t = r->t;
    t->stepper.queue.asks_stop = r->asked;
    TRY(stepper_report(&t->stepper, &r->last));
    r->stopped |= r->last.stops;
    r->seconds[r->steps_here % RATE_STEPS] = r->last.seconds;
    r->tokens[r->steps_here++ % RATE_STEPS] = r->last.tokens;
    if (!r->last.idle)
        r->result->loss = r->last.loss;
    r->result->tokens += r->last.tokens;
    r->result->targets += r->last.targets;
    TRY(loop_look(r));
    loop_tell(r, (struct run_event){.kind = RUN_STEP});
    return OK;
}

static bool due(int64_t step, struct interval interval, int64_t last)
{
    return step == last || interval_falls_on(interval, step);
}

/* Whether a step may stay in flight while the next is enqueued: not where the host computes, and not after a bad step, since too
 * many of those end the run. */
static bool may_wait(const struct run *r)
{
    return r->t->build.session.device->class->asynchronous && !r->t->snap.state.bad_in_row && !r->stopped;
}

/* Steps are reported one step late, so that the device always has the next one, but in order and before anything that depends on
 * them: a validation, a checkpoint, the end. */
static enum status all_steps(struct run *r)
{
    struct trainer *t = r->t;
    const struct options *o = t->job.options;
    bool best = false, begins = t->snap.state.step == 0, resumes_due = !begins && t->snap.state.eval_due;
    bool looks = (begins && o->eval_on_start) || resumes_due;
    if (t->rows.eval_data.row_count && looks)
        TRY(validate(r, &best));
    if (looks)
        TRY(answer_prompts(r));
    if (looks)
        TRY(agree_to_stop(r));
    if (resumes_due && !t->snap.state.eval_due) /* the checkpoint gets the result too */
        TRY(loop_save(r));
    while (!has_ended(t) && !r->stopped) {
        best = false;
        TRY(queue_step(r));
        int64_t step = t->snap.state.step + t->stepper.queue.ahead;
        bool looks_now =
            (t->rows.eval_data.row_count || t->job.samples.count) && due(step, rows_evals(&t->rows, o), t->rows.steps);
        bool saves = due(step, rows_saves(&t->rows, o), t->rows.steps), exchanges = diloco_due(&t->stepper, step);
        while (t->stepper.queue.ahead > (!looks_now && !saves && !exchanges && may_wait(r)))
            TRY(report_step(r));
        if (exchanges)
            TRY(diloco_exchange(&t->stepper));
        if (looks_now && t->rows.eval_data.row_count)
            TRY(validate(r, &best));
        TRY(looks_now ? answer_prompts(r) : OK);
        TRY(looks_now ? agree_to_stop(r) : OK);
        if (best || r->stopped || saves || has_ended(t))
            TRY(loop_save(r));
    }
    return OK;
}

/* --- the whole run -------------------------------------------------------------------------------------------------------- */

/* *path is NULL if it is not there. */
static enum status find_best(struct trainer *t, const char **path)
{
    return checkpoint_of_step(&t->snap, t->job.options->output_dir, t->snap.state.best_step, path);
}

static enum status check_best(struct trainer *t, const char **path)
{
    TRY(find_best(t, path));
    return *path ? advise(checksums_check(*path), ERR_FORMAT, BEST_DAMAGED) : OK;
}

static enum status lost_best(const struct trainer *t)
{
    return fail(ERR_IO, "%s/checkpoint-%lld, which has the lowest validation loss, is gone" WITHOUT_BEST,
                t->job.options->output_dir, (long long)t->snap.state.best_step);
}

/* Before the first step of a run that resumes: a result that cannot be made is reported now. A checkpoint that was resumed from
 * elsewhere, and is the best so far, is saved here too. */
static enum status keep_best(struct run *r)
{
    struct trainer *t = r->t;
    const char *path = NULL;
    if (!t->job.options->load_best_model_at_end || !t->snap.state.best_step)
        return OK;
    TRY(group_agree(t->build.group, writes(r) ? check_best(t, &path) : OK));
    int32_t there = path != NULL;
    TRY(group_tell(t->build.group, &there, (int64_t)sizeof there));
    if (there)
        return OK;
    return t->snap.state.best_step == t->snap.state.step ? loop_save(r) : lost_best(t);
}

/* The weights of the last step, or those of the best checkpoint, byte by byte. */
static enum status loop_save_result(struct run *r)
{
    struct trainer *t = r->t;
    const struct run_state *p = &t->snap.state;
    const char *output = t->job.options->output_dir, *after = checkpoint_after(&t->snap, r->result->checkpoint);
    bool other = t->job.options->load_best_model_at_end && p->best_step && p->best_step != p->step;
    r->result->saved_step = other ? p->best_step : p->step;
    if (t->job.options->load_best_model_at_end && !p->best_step)
        log_message(
            LOG_WARNING,
            "--load-best-model-at-end: no validation loss was below %.4f, that of the model as it was: the result is that "
            "of the last step. Lower --learning-rate, or look at the data",
            p->best_loss);
    TRY(loop_check_output(r, NULL));
    if (!other)
        return advise(checkpoint_save_result(&t->snap, output), ERR_IO, after);
    if (!writes(r))
        return OK;
    const char *path;
    TRY(find_best(t, &path));
    if (!path)
        return lost_best(t);
    return advise(advise(checkpoint_copy_result(&t->snap, path, output), ERR_FORMAT, BEST_DAMAGED), ERR_IO, after);
}

static enum status loop_finish(struct run *r)
{
    struct trainer *t = r->t;
    if (r->stopped && (!has_ended(t) || t->snap.state.eval_due))
        return fail(ERR_STOPPED, "stopped after step %lld of %lld%s", (long long)t->snap.state.step, (long long)t->rows.steps,
                    t->snap.state.eval_due ? ", before its validation" : "");
    r->result->stopped_early = t->snap.state.step < t->rows.steps;
    if (r->result->stopped_early)
        log_message(LOG_INFO,
                    "early stopping after step %lld of %lld: --early-stopping-patience %lld is used up; the lowest validation "
                    "loss is %.4f, of step %lld",
                    (long long)t->snap.state.step, (long long)t->rows.steps, (long long)t->job.options->early_stopping_patience,
                    t->snap.state.best_loss, (long long)t->snap.state.best_step);
    if (t->snap.state.bad_in_row)
        log_message(LOG_WARNING,
                    "the run ends with %lld bad steps: its result may be worse than what it began with. Lower --learning-rate",
                    (long long)t->snap.state.bad_in_row);
    return loop_save_result(r);
}

static enum status loop_run_steps(struct run *r)
{
    struct trainer *t = r->t;
    TRY(metrics_open(&r->metrics, t));
    run_warn_of_options(t);
    r->start = clock_seconds();
    loop_tell(r, (struct run_event){.kind = RUN_START});
    enum status status = keep_best(r);
    if (status == OK)
        status = all_steps(r);
    r->result->seconds = clock_seconds() - r->start;
    if (status == OK)
        status = loop_finish(r);
    char message[STATUS_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", status_message());
    if (status != OK)
        stepper_settle(&t->stepper); /* which may fail too, and say so */
    metrics_end(&r->metrics,
                status == ERR_STOPPED      ? "stopped"
                : status != OK             ? "failed"
                : r->result->stopped_early ? "early_stopping"
                                           : "finished",
                status == OK ? r->result->saved_step : 0, r->result->seconds, status == OK ? NULL : message);
    return status == OK ? OK : fail(status, "%s", message);
}

static enum status make_output(struct trainer *t, const char *output)
{
    TRY(output_check(&t->place.output));
    TRY(t->snap.resume ? run_state_check(&t->snap.state, &t->rows, t->snap.resume) : OK);
    TRY(disk_budget_check(&t->snap)); /* what is refused has moved nothing */
    TRY(t->job.options->dry_run ? OK : directory_make(output));
    return file_is_directory(output) ? checkpoint_make_room(&t->snap, output, output_metrics) : OK;
}

enum status run_all(struct trainer *t, run_listener *listener, void *context, struct run_result *result)
{
    struct run r = {.t = t, .listener = listener, .context = context, .result = result};
    const char *output = t->job.options->output_dir;
    *result = (struct run_result){.loss = NAN};
    r.sequences = arena_array(&t->snap.arena, t->rows.sampler.max_rows, sizeof *r.sequences);
    r.faults = arena_array(&t->snap.arena, t->rows.sampler.max_rows, sizeof *r.faults);
    if (!r.sequences || !r.faults)
        return ERR_MEMORY;
    TRY(group_agree(t->build.group, writes(&r) ? make_output(t, output) : OK));
    if (t->job.options->dry_run) {
        run_warn_of_options(t);
        return OK;
    }
    enum status status = loop_run_steps(&r);
    metrics_close(&r.metrics);
    return status;
}
