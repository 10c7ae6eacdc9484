/* The loop over steps, and the metrics and events that it gives. */
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/directory.h"
#include "base/log.h"
#include "base/record.h"
#include "train/checkpoint.h"
#include "train/space.h"
#include "train/trace.h"

/* A step of AdamW or Lion moves every weight by about the learning rate, and few weights are larger than this. */
static const double RATE_USUAL_MAX = 0.1;

enum { RATE_STEPS = 16, ROWS_NAMED = 10, WARNINGS_MAX = 10, METRICS_BYTES_MAX = 1 << 30, LINE_SIZE = 1024 };

#define METRICS_FILE "metrics.jsonl"

struct run {
    struct trainer *t;
    run_listener *listener;
    void *context;
    struct run_result *result;
    struct sequence *sequences; /* of a step */
    enum trace_fault *faults;   /* of these */
    const char *metrics;        /* path */
    double start;
    struct trainer_step last;
    double seconds[RATE_STEPS]; /* of the last steps, and their tokens */
    int64_t tokens[RATE_STEPS];
    int64_t steps_here;
    enum guard_finding found; /* in the last step */
    double deviations;
    int64_t lines_lost; /* of the metrics */
    bool stopped;
};

/* --- metrics ------------------------------------------------------------------------------------------------------------ */

/* Appends to a line. Numbers that JSON cannot express are null. */
static int put_number(char *line, int at, const char *key, double x)
{
    size_t left = (size_t)(LINE_SIZE - at);
    return at +
           (isfinite(x) ? snprintf(line + at, left, ", \"%s\": %.9g", key, x) : snprintf(line + at, left, ", \"%s\": null", key));
}

/* A line that cannot be written is lost, and what was written of it is cut off again; the run goes on. */
static void write_line(struct run *r, char *line, int length)
{
    int64_t before = file_size(r->metrics);
    line[length] = '\n';
    bool written = file_append(r->metrics, line, length + 1) == OK;
    if (!written && !r->lines_lost++)
        log_message(LOG_WARNING, "%s; the run goes on, and this line is missing there, as are others until it can be written",
                    status_message());
    if (!written && before >= 0)
        file_cut(r->metrics, before);
}

/* The first line that a process writes to the metrics. */
struct header {
    const char *event, *model, *method, *dtype, *device, *recompute, *resumed_from;
    int64_t from_step, steps, steps_per_epoch, rows, data_tokens, data_trained_tokens, longest_row, eval_rows;
    int64_t parameters, trainable_parameters, micro_batch_tokens;
    double learning_rate, startup_seconds;
};

static const struct record_field header_fields[] = {
    RECORD(struct header, event),
    RECORD(struct header, model),
    RECORD(struct header, method),
    RECORD(struct header, dtype),
    RECORD(struct header, device),
    RECORD(struct header, recompute),
    RECORD(struct header, from_step),
    RECORD(struct header, steps),
    RECORD(struct header, steps_per_epoch),
    RECORD(struct header, rows),
    RECORD(struct header, data_tokens),
    RECORD(struct header, data_trained_tokens),
    RECORD(struct header, longest_row),
    RECORD(struct header, eval_rows),
    RECORD(struct header, parameters),
    RECORD(struct header, trainable_parameters),
    RECORD(struct header, micro_batch_tokens),
    RECORD(struct header, learning_rate),
    RECORD(struct header, startup_seconds),
    RECORD(struct header, resumed_from),
    {0},
};

static json_t *header_json(const struct trainer *t)
{
    struct header header = {
        .event = t->place.step ? "resume" : "start",
        .model = options_model(t->options),
        .method = options_word(OPTION_finetuning_type, (int)t->options->finetuning_type),
        .dtype = session_dtype(&t->session),
        .device = t->session.device->class->name,
        .recompute = recompute_name(t->session.tuning.recompute),
        .resumed_from = t->resume,
        .from_step = t->place.step,
        .steps = t->steps,
        .steps_per_epoch = t->steps_per_epoch,
        .rows = t->data.row_count,
        .data_tokens = t->data.tokens,
        .data_trained_tokens = t->data.trained,
        .longest_row = t->data.longest,
        .eval_rows = t->eval_data.row_count,
        .parameters = t->session.model.parameters,
        .trainable_parameters = t->optimizer.parameters,
        .micro_batch_tokens = t->place.slots,
        .learning_rate = t->options->learning_rate,
        .startup_seconds = clock_since_start(),
    };
    return record_json(header_fields, &header);
}

static enum status write_header(const struct run *r)
{
    json_t *header = header_json(r->t);
    char *text = json_write(header, JSON_COMPACT | JSON_REAL_PRECISION(9));
    struct buffer line = {0};
    enum status status = text ? buffer_format(&line, "%s\n", text) : ERR_MEMORY;
    if (status == OK)
        status = file_append(r->metrics, line.data, line.size);
    buffer_free(&line);
    free(text);
    json_decref(header);
    return status;
}

static void write_step(struct run *r)
{
    const struct trainer_step *s = &r->last;
    char line[LINE_SIZE];
    int n = snprintf(line, sizeof line, "{\"step\": %lld", (long long)s->step);
    n = put_number(line, n, "epoch", s->epoch);
    n = put_number(line, n, "loss", s->loss);
    n = put_number(line, n, "grad_norm", s->norm);
    n = put_number(line, n, "learning_rate", s->rate);
    n += snprintf(line + n, sizeof line - (size_t)n, ", \"tokens\": %lld, \"trained_tokens\": %lld", (long long)s->tokens,
                  (long long)s->targets);
    n = put_number(line, n, "tokens_per_second", (double)s->tokens / s->seconds);
    n = put_number(line, n, "step_seconds", s->seconds);
    if (r->found)
        n += snprintf(line + n, sizeof line - (size_t)n, ", \"guard\": \"%s\"", guard_name(r->found));
    n += snprintf(line + n, sizeof line - (size_t)n, "%s%s}", s->verified ? ", \"verified\": true" : "",
                  s->applied ? "" : ", \"skipped\": true");
    write_line(r, line, n);
}

static void write_eval(struct run *r, double loss, double seconds)
{
    char line[LINE_SIZE];
    int n = snprintf(line, sizeof line, "{\"event\": \"eval\", \"step\": %lld", (long long)r->t->place.step);
    n = put_number(line, n, "eval_loss", loss);
    n = put_number(line, n, "eval_seconds", seconds);
    n += snprintf(line + n, sizeof line - (size_t)n, "}");
    write_line(r, line, n);
}

/* Keeps an earlier file's lines up to the step that the run is at; at step 0 the file starts empty. */
static enum status cut_metrics(const struct run *r)
{
    struct buffer old = {0}, kept = {0};
    enum status status = OK;
    if (r->t->place.step && file_exists(r->metrics))
        status = file_read(&old, r->metrics, METRICS_BYTES_MAX);
    for (char *line = old.data, *end; status == OK && line && *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) /* cut off by a crash */
            break;
        json_t *tree = NULL;
        int64_t step = 0;
        bool good = json_parse(&tree, line, end - line, r->metrics) == OK && json_get_int(tree, "step", &step, r->metrics) == OK;
        if (good && step <= r->t->place.step)
            status = buffer_append(&kept, line, end - line + 1);
        json_decref(tree);
    }
    if (status == OK)
        status = file_replace(r->metrics, kept.data ? kept.data : "", kept.size);
    buffer_free(&old);
    buffer_free(&kept);
    return status;
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

static void tell(struct run *r, struct run_event event)
{
    event.seconds = clock_seconds() - r->start;
    event.tokens_per_second = recent_rate(r);
    event.last = r->steps_here ? &r->last : NULL;
    event.under_way = r->t->queue.ahead;
    if (r->listener && !r->listener(r->context, &event))
        r->stopped = true;
}

static enum status save(struct run *r)
{
    struct trainer *t = r->t;
    const char *path = checkpoint_path(&t->arena, t->options->output_dir, t->place.step);
    if (!path)
        return ERR_MEMORY;
    TRY(checkpoint_save(t, path));
    r->result->checkpoint = path;
    TRY(checkpoint_thin(t, t->options->output_dir, t->options->save_total_limit));
    tell(r, (struct run_event){.kind = RUN_SAVE, .path = path});
    return OK;
}

static bool wait(void *context, int64_t done, int64_t batches, int64_t tokens, double seconds)
{
    struct run *r = context;
    (void)done, (void)batches, (void)tokens, (void)seconds;
    tell(r, (struct run_event){.kind = RUN_WAIT});
    return !r->stopped;
}

/* Sets *best if the loss is the lowest so far and a step was taken. A validation that is stopped has no result, and stays due. */
static enum status validate(struct run *r, bool *best)
{
    struct trainer *t = r->t;
    double start = clock_seconds(), loss;
    t->place.eval_due = true;
    if (r->stopped)
        return OK;
    enum status status = eval_run(&t->evaluation, &t->session, wait, r, &loss);
    if (r->stopped)
        return OK;
    TRY(status);
    t->place.eval_due = false;
    t->place.eval_loss = loss;
    if (isnan(t->place.first_eval_loss))
        t->place.first_eval_loss = loss;
    *best = t->place.step > 0 && !(loss >= t->place.best_loss);
    if (*best || t->place.step == 0) {
        t->place.best_loss = loss;
        t->place.best_step = t->place.step;
    }
    write_eval(r, loss, clock_seconds() - start);
    tell(r, (struct run_event){.kind = RUN_EVAL, .eval_loss = loss, .best = *best});
    return OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

/* The loss of guessing every token, or that of the first step: what a model must not exceed by far. */
static double worst_guess(const struct trainer *t)
{
    return fmax(log((double)t->session.model.config.vocabulary), t->place.first_loss);
}

/* What is wrong with the last step, as a sentence. */
static enum status tell_finding(const struct run *r, struct buffer *text)
{
    const struct trainer_step *s = &r->last;
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
    return buffer_format(text, "%s%s:%lld", before, data_file_of(&t->data, row), (long long)t->data.rows[row].line);
}

/* Sets the run's sequences to those of a step, counted from 0; also the rows that they are. */
static enum status read_rows(struct run *r, int64_t step, const int64_t **rows, int64_t *count)
{
    struct trainer *t = r->t;
    TRY(sampler_step(&t->sampler, step, rows, count));
    for (int64_t i = 0; i < *count; i++) {
        TRY(data_use(&t->data, (*rows)[i]));
        r->sequences[i] = batch_sequence(&t->data, (*rows)[i], i);
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
    TRY(read_rows(r, r->last.step - 1, &rows, &count));
    TRY(trace_step(r->t, r->last.step, r->sequences, count, r->faults));
    for (int64_t i = 0; i < count; i++) {
        if (r->faults[i] == TRACE_NONE || (*named)++ >= ROWS_NAMED)
            continue;
        TRY(name_row(t, text, *named == 1 ? ". At fault: " : ", ", rows[i]));
        TRY(buffer_format(text, " (its %s)", r->faults[i] == TRACE_LOSS ? "loss" : "gradient"));
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
    TRY(sampler_step(&t->sampler, r->last.step - 1, &rows, &count));
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
    struct trainer_place *place = &r->t->place;
    bool said = (r->found == GUARD_DEAD || r->found == GUARD_WORSE) && place->bad_in_row > 1;
    if (said || place->warnings++ >= WARNINGS_MAX)
        return OK;
    enum status status = tell_finding(r, &text);
    if (status == OK)
        status = name_rows(r, &text);
    if (status == OK)
        log_message(LOG_WARNING, "%s%s", text.data,
                    place->warnings == WARNINGS_MAX ? ". More such steps are told in metrics.jsonl alone" : "");
    buffer_free(&text);
    return status;
}

/* Has the guard look at the last step. Steps that are not finite may be the fault of the base, which ends the run at once; too
 * many bad ones in a row end it too. */
static enum status look(struct run *r)
{
    struct trainer *t = r->t;
    const struct trainer_step *s = &r->last;
    if (isnan(t->place.first_loss) && isfinite(s->loss))
        t->place.first_loss = s->loss;
    struct guard_step seen = {.loss = s->loss, .norm = s->norm, .applied = s->applied, .guess = worst_guess(t)};
    r->found = guard_look(&t->place.guard, &seen, &r->deviations);
    t->place.bad_in_row = guard_is_bad(r->found) ? t->place.bad_in_row + 1 : 0;
    write_step(r);
    if (!r->found)
        return OK;
    if (r->found == GUARD_NOT_FINITE && t->place.bad_in_row == 1)
        TRY(model_check_finite(&t->session.model));
    TRY(warn(r));
    if (t->place.bad_in_row < t->options->max_bad_steps)
        return OK;
    return fail(ERR_DATA,
                "%lld steps in a row were bad, the last one: %s (--max-bad-steps). Lower --learning-rate%s, or look at the rows "
                "that the warnings name",
                (long long)t->place.bad_in_row, guard_name(r->found),
                t->session.run == RUN_FLOAT32 ? "" : ", use --dtype float32 if the weights are too large for this type");
}

static enum status queue_step(struct run *r)
{
    struct trainer *t = r->t;
    const int64_t *rows;
    int64_t count, trained = 0;
    TRY(read_rows(r, t->place.step + t->queue.ahead, &rows, &count));
    for (int64_t i = 0; i < count; i++)
        trained += t->data.rows[rows[i]].trained;
    if (!trained)
        return fail(ERR_DATA, "%s: step %lld has no token to train: its rows have no assistant text", t->options->dataset_path,
                    (long long)(t->place.step + t->queue.ahead + 1));
    return trainer_queue(t, r->sequences, count, -1);
}

static enum status report_step(struct run *r)
{
    struct trainer *t = r->t;
    TRY(trainer_report(t, &r->last));
    r->seconds[r->steps_here % RATE_STEPS] = r->last.seconds;
    r->tokens[r->steps_here++ % RATE_STEPS] = r->last.tokens;
    r->result->loss = r->last.loss;
    r->result->tokens += r->last.tokens;
    r->result->targets += r->last.targets;
    TRY(look(r));
    tell(r, (struct run_event){.kind = RUN_STEP});
    return OK;
}

static bool due(int64_t step, int64_t every, int64_t last)
{
    return step == last || (every && step % every == 0);
}

/* Whether a step may stay in flight while the next is enqueued: not where the host computes, and not after a bad step, since too
 * many of those end the run. */
static bool may_wait(const struct run *r)
{
    return r->t->session.device->class->asynchronous && !r->t->place.bad_in_row && !r->stopped;
}

/* Steps are reported one step late, so that the device always has the next one, but in order and before anything that depends on
 * them: a validation, a checkpoint, the end. */
static enum status all_steps(struct run *r)
{
    struct trainer *t = r->t;
    const struct options *o = t->options;
    bool best = false;
    bool begins = t->place.step == 0, resumes_due = !begins && t->place.eval_due;
    if (t->eval_data.row_count && ((begins && o->eval_on_start) || resumes_due))
        TRY(validate(r, &best));
    if (resumes_due && !t->place.eval_due) /* the checkpoint gets the result too */
        TRY(save(r));
    while (t->place.step < t->steps && !r->stopped) {
        best = false;
        TRY(queue_step(r));
        int64_t step = t->place.step + t->queue.ahead;
        bool validates = t->eval_data.row_count && due(step, o->eval_steps, t->steps);
        bool saves = due(step, o->save_steps, t->steps);
        while (t->queue.ahead > (!validates && !saves && may_wait(r)))
            TRY(report_step(r));
        if (validates)
            TRY(validate(r, &best));
        if (best || r->stopped || saves)
            TRY(save(r));
    }
    return OK;
}

enum status run_all(struct trainer *t, run_listener *listener, void *context, struct run_result *result)
{
    struct run r = {.t = t, .listener = listener, .context = context, .result = result};
    const char *output = t->options->output_dir;
    *result = (struct run_result){.loss = NAN};
    TRY(directory_make(output));
    r.metrics = file_join(&t->arena, output, METRICS_FILE);
    r.sequences = arena_array(&t->arena, t->sampler.max_rows, sizeof *r.sequences);
    r.faults = arena_array(&t->arena, t->sampler.max_rows, sizeof *r.faults);
    if (!r.metrics || !r.sequences || !r.faults)
        return ERR_MEMORY;
    TRY(checkpoint_make_room(t, output, METRICS_FILE));
    TRY(space_check(t));
    TRY(cut_metrics(&r));
    TRY(write_header(&r));
    if (t->rate_words[0])
        log_message(LOG_INFO, "learning rate %s", t->rate_words);
    if (t->options->learning_rate > RATE_USUAL_MAX)
        log_message(
            LOG_WARNING,
            "--learning-rate %g is very high: a step moves every weight by about that much, and usual rates are from 1e-5 "
            "to 1e-3",
            t->options->learning_rate);
    if (t->options->verify_every > t->steps)
        log_message(LOG_WARNING, "--verify-every %lld: the run has %lld steps, and none of them will be computed twice",
                    (long long)t->options->verify_every, (long long)t->steps);
    r.start = clock_seconds();
    tell(&r, (struct run_event){.kind = RUN_START});
    enum status status = all_steps(&r);
    if (status != OK) {
        trainer_settle(t);
        return status;
    }
    result->seconds = clock_seconds() - r.start;
    if (r.stopped && (t->place.step < t->steps || t->place.eval_due))
        return fail(ERR_STOPPED, "stopped after step %lld of %lld%s", (long long)t->place.step, (long long)t->steps,
                    t->place.eval_due ? ", before its validation" : "");
    if (t->place.bad_in_row)
        log_message(LOG_WARNING,
                    "the run ends with %lld bad steps: its result may be worse than what it began with. Lower --learning-rate",
                    (long long)t->place.bad_in_row);
    return trainer_save(t, output);
}
