/* Writing metrics, and keeping those of an earlier process. */
#include "train/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/process.h"
#include "base/record.h"
#include "format/tfevents.h"
#include "job/report_to.h"
#include "job/samples.h"
#include "state/output.h"

enum { FILE_BYTES_MAX = 1 << 30, LINE_DEFAULT = 4096 };

#define EVENTS_START "events.out.tfevents."

/* --- writing -----------------------------------------------------------------------------------------------------------------
 */

/* Appends the line to a file and clears it. A line that cannot be written is lost, and what was written of it is cut off again.
 * `status`: of making the line. */
static void metrics_flush(struct metrics *m, const char *path, enum status status)
{
    if (!path) { /* a rank that writes nothing */
        m->line.size = 0;
        return;
    }
    if (status == OK)
        status = output_check(&m->trainer->place.output); /* not into another run's file */
    int64_t before = status == OK ? file_size(path) : -1;
    if (status == OK)
        status = file_append(path, m->line.data, m->line.size);
    if (status != OK && !m->lost++)
        log_message(LOG_WARNING, "%s; the run goes on, and this line is missing there, as are others until it can be written",
                    status_message());
    if (status != OK && before >= 0)
        file_cut(path, before);
    m->line.size = 0;
}

/* A line that is made from a record. */
static void metrics_write_record(struct metrics *m, const struct record_field *fields, const void *record)
{
    json_t *tree = record_json(fields, record);
    char *text = json_write(tree, JSON_REAL_PRECISION(9));
    metrics_flush(m, m->path, text ? buffer_format(&m->line, "%s\n", text) : ERR_MEMORY);
    json_text_free(text);
    json_decref(tree);
}

static enum status end_step(struct metrics *m, const struct step *s, const char *guard)
{
    if (guard)
        TRY(buffer_format(&m->line, ", \"guard\": \"%s\"", guard));
    return buffer_format(&m->line, "%s%s}\n", s->verified ? ", \"verified\": true" : "",
                         s->applied || s->idle ? "" : ", \"skipped\": true");
}

/* The forms of a row other than its line of JSON. */
static void write_forms(struct metrics *m, const struct metrics_row *row)
{
    if (m->csv)
        metrics_flush(m, m->csv, metrics_row_csv(row, &m->line));
    if (m->events)
        metrics_flush(m, m->events, metrics_row_event(row, clock_wall(), &m->line));
}

void metrics_step(struct metrics *m, const struct step *s, const char *guard)
{
    struct metrics_row row = {
        .step = s->step,
        .epoch = s->epoch,
        .loss = s->loss,
        .grad_norm = s->norm,
        .learning_rate = s->rate,
        .tokens = s->tokens,
        .trained_tokens = s->targets,
        .tokens_per_second = (double)s->tokens / s->seconds,
        .step_seconds = s->seconds,
        .engine_share = step_engine_share(s),
    };
    enum status status = metrics_row_json(&row, &m->line);
    if (status == OK)
        status = end_step(m, s, guard);
    metrics_flush(m, m->path, status);
    write_forms(m, &row);
}

void metrics_eval(struct metrics *m, double loss, double seconds)
{
    struct metrics_row row = {
        .validation = true, .step = m->trainer->snap.state.step, .eval_loss = loss, .eval_seconds = seconds};
    enum status status = metrics_row_json(&row, &m->line);
    if (status == OK)
        status = buffer_format(&m->line, "}\n");
    metrics_flush(m, m->path, status);
    write_forms(m, &row);
}

struct sample_line {
    const char *event, *prompt, *text;
    int64_t step, new_tokens;
    bool ended;
    double sample_seconds;
};

static const struct record_field sample_fields[] = {
    RECORD(struct sample_line, event),          RECORD(struct sample_line, step),
    RECORD(struct sample_line, prompt),         RECORD(struct sample_line, text),
    RECORD(struct sample_line, new_tokens),     RECORD(struct sample_line, ended),
    RECORD(struct sample_line, sample_seconds), {0},
};

static enum status sample_event(struct metrics *m, int64_t number, const struct sample *s)
{
    char tag[32];
    struct buffer text = {0};
    snprintf(tag, sizeof tag, "samples/%lld", (long long)number);
    enum status status = buffer_format(&text, "**%s**\n\n%s", s->prompt, s->answer.data);
    if (status == OK)
        status = tfevents_text(&m->line, (struct tfevents_place){clock_wall(), m->trainer->snap.state.step}, tag, text.data,
                               text.size);
    buffer_free(&text);
    return status;
}

void metrics_sample(struct metrics *m, int64_t number, const struct sample *s)
{
    struct sample_line line = {"sample",      s->prompt, s->answer.data, m->trainer->snap.state.step,
                               s->new_tokens, s->ended,  s->seconds};
    metrics_write_record(m, sample_fields, &line);
    if (m->events)
        metrics_flush(m, m->events, sample_event(m, number, s));
}

struct end {
    const char *event, *how, *message;
    int64_t steps, result_step;
    double seconds, communication_seconds;
    int64_t all_reduce_bytes, all_gather_bytes, reduce_scatter_bytes, reduce_bytes; /* of this process's steps */
};

#define END_FIELDS                                                                                                               \
    RECORD(struct end, event), RECORD(struct end, how), RECORD(struct end, steps), RECORD(struct end, result_step),              \
        RECORD(struct end, seconds), RECORD(struct end, message)

static const struct record_field end_fields[] = {END_FIELDS, {0}};

/* The same where several ranks have trained together. */
static const struct record_field end_of_ranks_fields[] = {
    END_FIELDS,
    RECORD(struct end, communication_seconds),
    RECORD(struct end, all_reduce_bytes),
    RECORD(struct end, all_gather_bytes),
    RECORD(struct end, reduce_scatter_bytes),
    RECORD(struct end, reduce_bytes),
    {0},
};

void metrics_end(struct metrics *m, const char *how, int64_t result_step, double seconds, const char *message)
{
    struct end end = {.event = "end",
                      .how = how,
                      .message = message,
                      .steps = m->trainer->snap.state.step,
                      .result_step = result_step,
                      .seconds = seconds};
    const struct group *g = m->trainer->build.group ? m->trainer->build.session.device->group : NULL;
    if (g) {
        end.communication_seconds = g->counters.seconds + g->counters.share_seconds;
        end.all_reduce_bytes = g->counters.bytes[COLLECTIVE_ALL_REDUCE];
        end.all_gather_bytes = g->counters.bytes[COLLECTIVE_ALL_GATHER];
        end.reduce_scatter_bytes = g->counters.bytes[COLLECTIVE_REDUCE_SCATTER];
        end.reduce_bytes = g->counters.bytes[COLLECTIVE_REDUCE];
    }
    metrics_write_record(m, g ? end_of_ranks_fields : end_fields, &end);
}

/* --- opening -----------------------------------------------------------------------------------------------------------------
 */

/* The first line that a process writes. */
struct header {
    const char *event, *model, *method, *dtype, *device, *recompute, *resumed_from;
    int64_t from_step, steps, steps_per_epoch, rows, data_tokens, data_trained_tokens, longest_row, eval_rows;
    int64_t parameters, trainable_parameters, micro_batch_tokens, ranks;
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
    RECORD(struct header, ranks),
    RECORD(struct header, learning_rate),
    RECORD(struct header, startup_seconds),
    RECORD(struct header, resumed_from),
    {0},
};

static json_t *header_json(const struct trainer *t)
{
    struct header header = {
        .event = t->snap.state.step ? "resume" : "start",
        .model = options_model(t->job.options),
        .method = options_word(OPTION_finetuning_type, (int)t->job.options->finetuning_type),
        .dtype = session_dtype(&t->build.session),
        .device = t->build.session.device->class->name,
        .recompute = recompute_name(t->build.session.tuning.recompute),
        .resumed_from = t->snap.resume,
        .from_step = t->snap.state.step,
        .steps = t->rows.steps,
        .steps_per_epoch = t->rows.steps_per_epoch,
        .rows = t->rows.data.row_count,
        .data_tokens = t->rows.data.tokens,
        .data_trained_tokens = t->rows.data.trained,
        .longest_row = t->rows.data.longest,
        .eval_rows = t->rows.eval_data.row_count,
        .parameters = t->build.session.model.parameters,
        .trainable_parameters = t->build.optimizer.parameters,
        .micro_batch_tokens = t->build.slots,
        .ranks = group_size(t->build.group),
        .learning_rate = t->job.options->learning_rate,
        .startup_seconds = clock_since_start(),
    };
    return record_json(header_fields, &header);
}

static enum status metrics_write_header(struct metrics *m)
{
    json_t *header = header_json(m->trainer);
    char *text = json_write(header, JSON_COMPACT | JSON_REAL_PRECISION(9));
    enum status status = text ? buffer_format(&m->line, "%s\n", text) : ERR_MEMORY;
    json_text_free(text);
    json_decref(header);
    TRY(status);
    metrics_flush(m, m->path, OK);
    return OK;
}

/* What is kept of an earlier process, in the forms of its files. */
struct kept {
    struct buffer lines, csv, events;
    int64_t broken; /* lines that could not be read */
    int64_t last;   /* the step that the earlier process came to */
    bool unread;    /* the whole file: it stays, and lines are added to it */
};

/* The line that ended the earlier process is no longer true. */
static enum status keep_line(struct metrics *m, struct kept *kept, const char *line, int64_t length)
{
    struct metrics_row row;
    json_t *tree = NULL;
    int64_t step = 0;
    enum status status = json_parse(&tree, line, length, m->path);
    if (status == ERR_MEMORY)
        return status;
    bool good = status == OK && json_get_int(tree, "step", &step, m->path) == OK;
    const char *event = json_string_value(json_object_get(tree, "event"));
    kept->broken += !good;
    kept->last = good ? max(kept->last, step) : kept->last;
    status = OK;
    if (good && step <= m->trainer->snap.state.step && !(event && !strcmp(event, "end"))) {
        status = buffer_append(&kept->lines, line, length);
        if (status == OK)
            status = buffer_append(&kept->lines, "\n", 1);
        bool is_row = metrics_row_read(&row, tree);
        if (status == OK && is_row && m->csv)
            status = metrics_row_csv(&row, &kept->csv);
        if (status == OK && is_row && m->events)
            status = metrics_row_event(&row, clock_wall(), &kept->events);
    }
    json_decref(tree);
    return status;
}

/* Zero bytes are what a crash leaves where a file grew and nothing was written. A last line without an end was cut off by one. */
static enum status keep_each(struct metrics *m, struct kept *kept, const struct buffer *old)
{
    const char *line = old->data, *last = line ? line + old->size : NULL, *end;
    for (; line < last && (end = memchr(line, '\n', (size_t)(last - line))); line = end + 1) {
        while (!*line)
            line++;
        TRY(keep_line(m, kept, line, end - line));
    }
    int64_t again = kept->last - m->trainer->snap.state.step;
    if (again > 0)
        log_message(LOG_INFO, "%lld step%s that an earlier process made after the checkpoint %s computed again", (long long)again,
                    plural(again), is_or_are(again));
    if (kept->broken)
        log_message(LOG_WARNING, "%s: %lld line%s of an earlier process %s left out as damaged", m->path, (long long)kept->broken,
                    plural(kept->broken), is_or_are(kept->broken));
    return OK;
}

/* Up to the step that the run is at; at step 0 the files start empty. */
static enum status keep_lines(struct metrics *m, struct kept *kept)
{
    struct buffer old = {0};
    enum status status = OK;
    if (m->trainer->snap.state.step && file_exists(m->path))
        status = file_read(&old, m->path, FILE_BYTES_MAX);
    kept->unread = status != OK && status != ERR_MEMORY;
    if (kept->unread) {
        log_message(LOG_WARNING, "%s; the run goes on and adds its lines to what is there", status_message());
        status = OK;
    }
    if (status == OK && m->csv)
        status = metrics_csv_header(&kept->csv);
    if (status == OK && !kept->unread)
        status = keep_each(m, kept, &old);
    buffer_free(&old);
    return status;
}

/* A new file of events, whose name comes after those that are there: readers take them in this order. If it is the first one it
 * has what the run did before too. */
static enum status start_events(struct metrics *m, struct arena *arena, const struct kept *kept)
{
    int64_t step = m->trainer->snap.state.step, count, newest = 0;
    const char **names, *dir = file_join(arena, m->trainer->job.options->output_dir, OUTPUT_EVENTS);
    double now = clock_wall();
    char host[PROCESS_HOST];
    if (!dir)
        return ERR_MEMORY;
    TRY(directory_make(dir));
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++)
        if (!strncmp(names[i], EVENTS_START, strlen(EVENTS_START)))
            newest = max(newest, strtoll(names[i] + strlen(EVENTS_START), NULL, 10));
    process_host(host);
    m->events = arena_format(&m->trainer->snap.arena, "%s/" EVENTS_START "%010lld.%s.%lld.0", dir,
                             (long long)max((int64_t)now, newest + 1), host, (long long)process_id());
    if (!m->events)
        return ERR_MEMORY;
    TRY(tfevents_version(&m->line, now));
    if (newest)
        TRY(tfevents_start(&m->line, (struct tfevents_place){now, step + 1}));
    else
        TRY(buffer_append(&m->line, kept->events.data ? kept->events.data : "", kept->events.size));
    TRY(file_replace(m->events, m->line.data, m->line.size));
    m->line.size = 0;
    return OK;
}

static enum status metrics_open_files(struct metrics *m, struct arena *arena, struct kept *kept)
{
    const struct options *o = m->trainer->job.options;
    struct arena *lives = &m->trainer->snap.arena;
    m->path = file_join(lives, o->output_dir, OUTPUT_METRICS);
    m->csv = report_to_has(o, CHOICE_report_to_csv) ? file_join(lives, o->output_dir, OUTPUT_CSV) : NULL;
    m->events = report_to_has(o, CHOICE_report_to_tensorboard) ? "" : NULL;
    if (!m->path || (!m->csv && report_to_has(o, CHOICE_report_to_csv)))
        return ERR_MEMORY;
    TRY(buffer_reserve(&m->line, LINE_DEFAULT));
    TRY(keep_lines(m, kept));
    if (!kept->unread)
        TRY(file_replace(m->path, kept->lines.data ? kept->lines.data : "", kept->lines.size));
    if (m->csv && !(kept->unread && file_exists(m->csv)))
        TRY(file_replace(m->csv, kept->csv.data, kept->csv.size));
    if (m->events)
        TRY(start_events(m, arena, kept));
    return metrics_write_header(m);
}

enum status metrics_open(struct metrics *m, struct trainer *t)
{
    struct arena arena = {0};
    struct kept kept = {0};
    *m = (struct metrics){.trainer = t};
    if (group_rank(t->build.group))
        return OK;
    enum status status = metrics_open_files(m, &arena, &kept);
    buffer_free(&kept.lines);
    buffer_free(&kept.csv);
    buffer_free(&kept.events);
    arena_free(&arena);
    return status;
}

void metrics_close(struct metrics *m)
{
    buffer_free(&m->line);
    *m = (struct metrics){0};
}
