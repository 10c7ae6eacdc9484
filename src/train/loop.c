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

enum { RATE_STEPS = 16, SKIPPED_MAX = 10, METRICS_BYTES_MAX = 1 << 30, LINE_SIZE = 1024 };

#define METRICS_FILE "metrics.jsonl"

struct run {
    struct trainer *t;
    run_listener *listener;
    void *context;
    struct run_result *result;
    struct sequence *sequences; /* of a step */
    const char *metrics;        /* path */
    double start;
    struct trainer_step last;
    double seconds[RATE_STEPS]; /* of the last steps, and their tokens */
    int64_t tokens[RATE_STEPS];
    int64_t steps_here;
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

static enum status write_line(const struct run *r, char *line, int length)
{
    line[length] = '\n';
    return file_append(r->metrics, line, length + 1);
}

/* The first line that a process writes to the metrics. */
struct header {
    const char *event, *model, *method, *dtype, *device, *recompute, *resumed_from;
    int64_t from_step, steps, steps_per_epoch, rows, data_tokens, data_trained_tokens, longest_row, eval_rows;
    int64_t parameters, trainable_parameters, micro_batch_tokens;
    double startup_seconds;
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
    RECORD(struct header, startup_seconds),
    RECORD(struct header, resumed_from),
    {0},
};

static json_t *header_json(const struct trainer *t)
{
    struct header header = {
        .event = t->place.step ? "resume" : "start",
        .model = t->options->model_name_or_path,
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
        .startup_seconds = clock_since_start(),
    };
    return record_json(header_fields, &header);
}

static enum status write_header(const struct run *r)
{
    json_t *header = header_json(r->t);
    char *text = header ? json_dumps(header, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    struct buffer line = {0};
    enum status status = text ? buffer_format(&line, "%s\n", text) : fail(ERR_MEMORY, "out of memory: the header of the metrics");
    if (status == OK)
        status = file_append(r->metrics, line.data, line.size);
    buffer_free(&line);
    free(text);
    json_decref(header);
    return status;
}

static enum status write_step(const struct run *r)
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
    n += snprintf(line + n, sizeof line - (size_t)n, "%s}", s->applied ? "" : ", \"skipped\": true");
    return write_line(r, line, n);
}

static enum status write_eval(const struct run *r, double loss, double seconds)
{
    char line[LINE_SIZE];
    int n = snprintf(line, sizeof line, "{\"event\": \"eval\", \"step\": %lld", (long long)r->t->place.step);
    n = put_number(line, n, "eval_loss", loss);
    n = put_number(line, n, "eval_seconds", seconds);
    n += snprintf(line + n, sizeof line - (size_t)n, "}");
    return write_line(r, line, n);
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

/* Sets *best if the loss is the lowest so far and a step was taken. A validation that is stopped has no result. */
static enum status validate(struct run *r, bool *best)
{
    struct trainer *t = r->t;
    double start = clock_seconds(), loss;
    enum status status = eval_run(&t->evaluation, &t->session, wait, r, &loss);
    if (r->stopped)
        return OK;
    TRY(status);
    t->place.eval_loss = loss;
    *best = t->place.step > 0 && !(loss >= t->place.best_loss);
    if (*best || t->place.step == 0) {
        t->place.best_loss = loss;
        t->place.best_step = t->place.step;
    }
    TRY(write_eval(r, loss, clock_seconds() - start));
    tell(r, (struct run_event){.kind = RUN_EVAL, .eval_loss = loss, .best = *best});
    return OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

/* Names the rows of a step that was not applied: one of them, or the learning rate, made the numbers overflow. */
static enum status report_skipped(const struct run *r)
{
    struct trainer *t = r->t;
    const int64_t *rows;
    int64_t count;
    struct buffer named = {0};
    enum status status = sampler_step(&t->sampler, t->place.step - 1, &rows, &count);
    for (int64_t i = 0; status == OK && i < count && i < SKIPPED_MAX; i++)
        status = buffer_format(&named, "%s%s:%lld", i ? ", " : "", data_file_of(&t->data, rows[i]),
                               (long long)t->data.rows[rows[i]].line);
    if (status == OK)
        log_message(LOG_WARNING, "step %lld was skipped: its gradient is not finite. Its rows: %s%s", (long long)t->place.step,
                    named.data, count > SKIPPED_MAX ? ", ..." : "");
    buffer_free(&named);
    TRY(status);
    if (t->place.skipped_in_row < SKIPPED_MAX)
        return OK;
    return fail(
        ERR_DATA,
        "%d steps in a row had gradients that are not finite: lower --learning-rate, or use --dtype float32 if the weights "
        "are too large for this type",
        (int)SKIPPED_MAX);
}

static enum status queue_step(struct run *r)
{
    struct trainer *t = r->t;
    const int64_t *rows;
    int64_t count, trained = 0;
    TRY(sampler_step(&t->sampler, t->place.step + t->queue.ahead, &rows, &count));
    for (int64_t i = 0; i < count; i++) {
        TRY(data_use(&t->data, rows[i]));
        r->sequences[i] = batch_sequence(&t->data, rows[i], i);
        trained += t->data.rows[rows[i]].trained;
    }
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
    TRY(write_step(r));
    if (!r->last.applied)
        TRY(report_skipped(r));
    tell(r, (struct run_event){.kind = RUN_STEP});
    return OK;
}

static bool due(int64_t step, int64_t every, int64_t last)
{
    return step == last || (every && step % every == 0);
}

/* Whether a step may stay in flight while the next is enqueued: not where the host computes, and not after a skipped step, since
 * too many of those end the run. */
static bool may_wait(const struct run *r)
{
    return r->t->session.device->class->asynchronous && !r->t->place.skipped_in_row && !r->stopped;
}

/* Steps are reported one step late, so that the device always has the next one, but in order and before anything that depends on
 * them: a validation, a checkpoint, the end. */
static enum status all_steps(struct run *r)
{
    struct trainer *t = r->t;
    const struct options *o = t->options;
    bool best = false;
    if (t->eval_data.row_count && o->eval_on_start && t->place.step == 0)
        TRY(validate(r, &best));
    while (t->place.step < t->steps && !r->stopped) {
        best = false;
        TRY(queue_step(r));
        int64_t step = t->place.step + t->queue.ahead;
        bool validates = t->eval_data.row_count && due(step, o->eval_steps, t->steps);
        bool saves = due(step, o->save_steps, t->steps);
        while (t->queue.ahead > (!validates && !saves && may_wait(r)))
            TRY(report_step(r));
        if (validates && !r->stopped)
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
    if (!r.metrics || !r.sequences)
        return ERR_MEMORY;
    TRY(checkpoint_make_room(t, output, METRICS_FILE));
    TRY(cut_metrics(&r));
    TRY(write_header(&r));
    r.start = clock_seconds();
    tell(&r, (struct run_event){.kind = RUN_START});
    enum status status = all_steps(&r);
    if (status != OK) {
        trainer_settle(t);
        return status;
    }
    result->seconds = clock_seconds() - r.start;
    if (r.stopped && t->place.step < t->steps)
        return fail(ERR_STOPPED, "stopped after step %lld of %lld", (long long)t->place.step, (long long)t->steps);
    return trainer_save(t, output);
}
