/* Reading what a run writes, while it writes it. */
#include "cli/view/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/lock.h"

enum {
    RUN_BYTES_MAX = 1 << 24,
    METRICS_BYTES_MAX = 1 << 30 /* some four million steps */,
    LINE_BYTES_MAX = 1 << 20,
    OWNER_BYTES_MAX = 512
};
#define STEP_MAX (INT64_MAX / 4)

const char *history_state_name(enum history_state state)
{
    static const char *const names[] = {"running", "finished", "stopped", "failed", "killed", "unknown"};
    return names[state];
}

/* --- values --------------------------------------------------------------------------------------------------------------- */

static double history_number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static int64_t count_of(const json_t *object, const char *key)
{
    int64_t n = json_integer_value(json_object_get(object, key));
    return n > 0 && n < STEP_MAX ? n : 0;
}

int64_t history_number(const struct history *h, const char *key)
{
    int64_t n = count_of(h->run, key);
    return n ? n : count_of(h->header, key);
}

const char *history_text(const struct history *h, const char *key)
{
    const char *text = json_string_value(json_object_get(h->run, key));
    if (!text)
        text = json_string_value(json_object_get(h->header, key));
    return text ? text : "";
}

const json_t *history_piece(const struct history *h)
{
    const json_t *pieces = json_object_get(h->run, "pieces");
    size_t count = json_array_size(pieces);
    return count ? json_array_get(pieces, count - 1) : NULL;
}

int64_t history_peak(const struct history *h)
{
    const json_t *piece;
    size_t i;
    int64_t peak = 0;
    json_array_foreach(json_object_get(h->run, "pieces"), i, piece)
    {
        int64_t bytes = json_integer_value(json_object_get(piece, "peak_rss_bytes"));
        if (count_of(piece, "step") > count_of(piece, "from_step") && bytes > peak)
            peak = bytes;
    }
    return peak;
}

const struct history_eval *history_best(const struct history *h)
{
    const struct history_eval *best = NULL;
    for (int64_t i = 0; i < h->eval_count; i++)
        if (isfinite(h->evals[i].loss) && (!best || h->evals[i].loss < best->loss))
            best = &h->evals[i];
    return best;
}

/* --- lines of the metrics ------------------------------------------------------------------------------------------------- */

static void history_forget(struct history *h)
{
    json_decref(h->header);
    h->header = NULL;
    h->step_count = h->eval_count = h->sample_count = h->total = h->resumes = h->bad_lines = h->read = 0;
    h->skipped = h->flagged = h->result_step = 0;
    h->early = false;
}

static enum status add_step(struct history *h, const json_t *line)
{
    int64_t step = count_of(line, "step");
    while (h->step_count && h->steps[h->step_count - 1].step >= step)
        h->step_count--;
    TRY(memory_grow(&h->steps, &h->step_room, h->step_count + 1, sizeof *h->steps));
    h->steps[h->step_count++] = (struct history_step){.step = step,
                                                      .epoch = history_number_of(line, "epoch"),
                                                      .loss = history_number_of(line, "loss"),
                                                      .norm = history_number_of(line, "grad_norm"),
                                                      .rate = history_number_of(line, "learning_rate"),
                                                      .tokens_per_second = history_number_of(line, "tokens_per_second"),
                                                      .seconds = history_number_of(line, "step_seconds"),
                                                      .engine_share = history_number_of(line, "engine_share")};
    h->skipped += json_is_true(json_object_get(line, "skipped"));
    h->flagged += json_is_string(json_object_get(line, "guard"));
    return OK;
}

static enum status add_eval(struct history *h, const json_t *line)
{
    int64_t step = count_of(line, "step");
    while (h->eval_count && h->evals[h->eval_count - 1].step >= step)
        h->eval_count--;
    TRY(memory_grow(&h->evals, &h->eval_room, h->eval_count + 1, sizeof *h->evals));
    h->evals[h->eval_count++] =
        (struct history_eval){step, history_number_of(line, "eval_loss"), history_number_of(line, "eval_seconds")};
    return OK;
}

static enum status add_sample(struct history *h, const json_t *line)
{
    const char *prompt = json_string_value(json_object_get(line, "prompt"));
    const char *text = json_string_value(json_object_get(line, "text"));
    int64_t step = count_of(line, "step");
    if (!prompt || !text)
        return OK;
    while (h->sample_count && h->samples[h->sample_count - 1].step > step)
        h->sample_count--;
    TRY(memory_grow(&h->samples, &h->sample_room, h->sample_count + 1, sizeof *h->samples));
    prompt = arena_text(&h->arena, prompt, (int64_t)strlen(prompt));
    text = arena_text(&h->arena, text, (int64_t)strlen(text));
    if (!prompt || !text)
        return ERR_MEMORY;
    h->samples[h->sample_count++] = (struct history_sample){step, prompt, text, history_number_of(line, "sample_seconds")};
    return OK;
}

static void add_end(struct history *h, const json_t *line)
{
    const char *how = json_string_value(json_object_get(line, "how"));
    h->early = how && !strcmp(how, "early_stopping");
    h->result_step = count_of(line, "result_step");
}

static enum status history_add_line(struct history *h, const char *text, int64_t length)
{
    json_t *line = NULL;
    enum status status = length <= LINE_BYTES_MAX ? json_parse(&line, text, length, h->metrics) : ERR_FORMAT;
    if (status == ERR_MEMORY)
        return status;
    const char *event = json_string_value(json_object_get(line, "event"));
    if (status != OK || !json_is_object(line)) {
        h->bad_lines++;
        status = OK;
    } else if (!event && json_object_get(line, "step")) {
        status = add_step(h, line);
    } else if (event && !strcmp(event, "eval")) {
        status = add_eval(h, line);
    } else if (event && !strcmp(event, "sample")) {
        status = add_sample(h, line);
    } else if (event && (!strcmp(event, "start") || !strcmp(event, "resume"))) {
        h->resumes += h->header != NULL;
        json_decref(h->header);
        h->header = json_incref(line);
        h->total = count_of(line, "steps");
        h->result_step = 0;
        h->early = false;
    } else if (event && !strcmp(event, "end")) {
        add_end(h, line);
    }
    json_decref(line);
    return status;
}

/* Whether the file is still the one of which a part was read: a run that resumes or starts over replaces it. */
static bool goes_on(const struct history *h, const struct file_map *map)
{
    return map->size >= h->read && (!h->read || map->data[h->read - 1] == '\n');
}

static enum status read_metrics(struct history *h)
{
    struct file_map map;
    if (!file_exists(h->metrics)) {
        history_forget(h);
        return OK;
    }
    TRY(file_map_within(&map, h->metrics, METRICS_BYTES_MAX));
    if (!goes_on(h, &map))
        history_forget(h);
    enum status status = OK;
    while (status == OK && h->read < map.size) {
        const char *text = (const char *)map.data + h->read, *end = memchr(text, '\n', (size_t)(map.size - h->read));
        if (!end) /* it is being written, or was cut off by a crash */
            break;
        if (end > text)
            status = history_add_line(h, text, end - text);
        h->read += end - text + 1;
    }
    file_unmap(&map);
    return status;
}

/* --- the run -------------------------------------------------------------------------------------------------------------- */

static enum status read_run(struct history *h)
{
    json_t *tree = NULL;
    if (!file_exists(h->run_file))
        return OK;
    enum status status = json_parse_file(&tree, h->run_file, RUN_BYTES_MAX);
    if (status == ERR_MEMORY)
        return status;
    if (status == OK && json_is_object(tree)) {
        json_decref(h->run);
        h->run = json_incref(tree);
    }
    json_decref(tree);
    return OK;
}

/* Of a lock that is held: the process, where the file says it. */
static long owner_of(const char *path)
{
    struct buffer text = {0};
    long pid = 0;
    if (file_read(&text, path, OWNER_BYTES_MAX) == OK)
        pid = strtol(text.data, NULL, 10);
    buffer_free(&text);
    return pid > 0 ? pid : 0;
}

static enum history_state find_state(struct history *h)
{
    bool held = false;
    enum status locks = lock_is_held(h->lock, &held);
    h->pid = held ? owner_of(h->lock) : 0;
    h->why = NULL;
    if (held)
        return HISTORY_RUNNING;
    const json_t *piece = history_piece(h);
    const char *how = json_string_value(json_object_get(piece, "how"));
    if (how && !strcmp(how, "finished"))
        return HISTORY_FINISHED;
    if (how && !strcmp(how, "stopped"))
        return HISTORY_STOPPED;
    if (how && !strcmp(how, "failed")) {
        h->why = json_string_value(json_object_get(piece, "why"));
        return HISTORY_FAILED;
    }
    if (!piece && h->total && h->step_count && h->steps[h->step_count - 1].step >= h->total) /* of an older hone */
        return HISTORY_FINISHED;
    return locks == OK ? HISTORY_KILLED : HISTORY_UNKNOWN;
}

/* The lock first: a run that ends between the two has then written all that is read. */
enum status history_update(struct history *h)
{
    enum history_state before = find_state(h);
    TRY(read_metrics(h));
    TRY(read_run(h));
    h->state = before == HISTORY_RUNNING ? before : find_state(h);
    if (!h->total)
        h->total = count_of(h->run, "steps");
    return OK;
}

/* People also name a file of the run, or one of its checkpoints. */
static enum status no_run(const struct history *h)
{
    struct arena arena = {0};
    const char *above = file_join(&arena, h->dir, "../metrics.jsonl");
    bool inside = above && file_exists(above);
    arena_free(&arena);
    if (file_exists(h->dir) && !file_is_directory(h->dir))
        return fail(ERR_ARGUMENT, "%s is a file: name the directory that it lies in, which hone train was given as --output",
                    h->dir);
    if (!file_exists(h->dir))
        return fail(ERR_IO, "%s: there is no such directory: name the one that hone train was given as --output", h->dir);
    return fail(ERR_ARGUMENT, "%s: no run was here: it has neither metrics.jsonl nor run.json. %s", h->dir,
                inside ? "The directory above it has: name that one"
                       : "Name the directory that hone train was given as --output");
}

enum status history_open(struct history *h, const char *dir)
{
    *h = (struct history){.dir = dir};
    bool fits = snprintf(h->metrics, sizeof h->metrics, "%s/metrics.jsonl", dir) < (int)sizeof h->metrics;
    fits &= snprintf(h->run_file, sizeof h->run_file, "%s/run.json", dir) < (int)sizeof h->run_file;
    fits &= snprintf(h->lock, sizeof h->lock, "%s/run.lock", dir) < (int)sizeof h->lock;
    enum status status = !fits ? fail(ERR_ARGUMENT, "%.60s...: a path that is too long", dir)
                         : file_exists(h->metrics) || file_exists(h->run_file) || file_exists(h->lock) ? history_update(h)
                                                                                                       : no_run(h);
    if (status != OK)
        history_close(h);
    return status;
}

void history_close(struct history *h)
{
    json_decref(h->run);
    json_decref(h->header);
    memory_free(h->steps);
    memory_free(h->evals);
    memory_free(h->samples);
    arena_free(&h->arena);
    *h = (struct history){0};
}
