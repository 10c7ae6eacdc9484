/* Making run.json. The tree stays in memory, and the file is replaced as a whole whenever the tree grows. */
#include "commands/run_file.h"

#include <stdio.h>
#include <string.h>

#include "base/checksums.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/process.h"
#include "commands/command_plan.h"
#include "data/data_summary.h"

enum { FILE_BYTES_MAX = 1 << 24, DATE_SIZE = 64, MESSAGE_SIZE = 2048 };

#define DATE_PATTERN "%Y-%m-%d %H:%M:%S %z"

/* --- what it is made from ------------------------------------------------------------------------------------------------- */

static json_t *program_json(void)
{
    char path[PROCESS_PATH], digest[HASH_TEXT] = "";
    process_program(path);
    if (*path && checksums_file(path, digest) != OK)
        *digest = 0;
    return json_pack("{s:o, s:s}", "path", json_lossy(path), "xxh128", digest);
}

static enum status add_option(json_t *all, json_t *given, struct hash *hash, const struct options *values, enum option o)
{
    struct buffer text = {0};
    const char *name = options_name(o);
    enum status status = options_get(values, o, &text);
    if (status == OK && text.size) {
        json_object_set_new(all, name, json_lossy(o == OPTION_on_finish ? "(not kept: it may have secrets)" : text.data));
        if (values->source[o])
            json_object_set_new(given, name, json_lossy(values->source[o]));
    }
    if (status == OK && options_decides(o)) {
        hash_add(hash, name, (int64_t)strlen(name) + 1);
        hash_add(hash, text.data ? text.data : "", text.size + 1);
    }
    buffer_free(&text);
    return status;
}

static void add_options(json_t *tree, const struct options *options, enum user_command command)
{
    char digest[HASH_TEXT];
    struct hash hash;
    json_t *all = json_object(), *given = json_object();
    hash_init(&hash);
    for (enum option o = 0; o < OPTIONS; o++)
        if (options_has(command, o))
            (void)add_option(all, given, &hash, options, o);
    digest_text(hash_end(&hash), digest);
    json_object_set_new(tree, "options", all);
    json_object_set_new(tree, "given", given);
    json_object_set_new(tree, "digests", json_pack("{s:s}", "options", digest));
}

static json_t *run_file_plan_json(const struct session *s)
{
    static const struct device_costs none = {0};
    int64_t bytes[LIFE_COUNT], mapped, total = session_bytes(s, bytes, &mapped);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "planned_bytes", (json_int_t)(total - mapped), "mapped_bytes",
                     (json_int_t)mapped, "peak_bytes", (json_int_t)(total + s->process_bytes), "memory_bytes",
                     (json_int_t)s->info.memory, "free_bytes", (json_int_t)s->info.memory_free, "table",
                     plan_rows(s, &none, s->process_bytes));
}

/* --- pieces --------------------------------------------------------------------------------------------------------------- */

static json_t *piece_json(const struct trainer *t)
{
    char date[DATE_SIZE] = "", host[PROCESS_HOST];
    clock_date(date, sizeof date, DATE_PATTERN);
    process_host(host);
    return json_pack("{s:s, s:s, s:I, s:s, s:i, s:i}", "began", date, "host", host, "from_step", (json_int_t)t->snap.state.step,
                     "hone", HONE_VERSION, "threads", parallel_threads(), "ranks", group_size(t->build.group));
}

static enum status read_earlier(json_t **tree, const char *path)
{
    struct buffer text = {0};
    enum status status = file_read(&text, path, FILE_BYTES_MAX);
    if (status == OK)
        status = json_parse(tree, text.data, text.size, path);
    buffer_free(&text);
    return status;
}

/* Those of the file that is there, if it is of the same run. */
static json_t *earlier_pieces(const struct trainer *t, const char *path)
{
    json_t *old = NULL, *pieces = NULL;
    if (t->snap.state.step && file_exists(path) && read_earlier(&old, path) != OK)
        log_message(LOG_WARNING, "%s; the file is written again, without the earlier processes of this run", status_message());
    if (old) {
        const char *run = json_string_value(json_object_get(old, "run"));
        if (run && !strcmp(run, t->snap.identity.run) && json_is_array(json_object_get(old, "pieces")))
            pieces = json_incref(json_object_get(old, "pieces"));
    }
    json_decref(old);
    return pieces ? pieces : json_array();
}

/* --- the file ------------------------------------------------------------------------------------------------------------- */

static void run_file_write(struct run_file *f)
{
    struct arena arena = {0};
    const char *path = file_join(&arena, f->trainer->job.options->output_dir, RUN_FILE);
    if (output_check(&f->trainer->place.output) != OK) { /* not over another run's: the next save says so, and ends the run */
        arena_free(&arena);
        return;
    }
    enum status status = path ? json_replace_file(path, f->tree) : ERR_MEMORY;
    if (status != OK && !f->lost)
        log_message(LOG_WARNING, "%s; the run goes on, and hone report will know less of it", status_message());
    f->lost = status != OK;
    arena_free(&arena);
}

static json_t *run_file_make(const struct run_file *f, const char *path)
{
    const struct trainer *t = f->trainer;
    const struct session *s = &t->build.session;
    json_t *pieces = earlier_pieces(t, path);
    json_array_append_new(pieces, piece_json(t));
    json_t *tree =
        json_pack("{s:s, s:s, s:o, s:o, s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "run",
                  t->snap.identity.run, "hone", HONE_VERSION, "program", program_json(), "model",
                  json_lossy(t->job.options->model_name_or_path), "family", s->model.family->model_type, "parameters",
                  (json_int_t)s->model.parameters, "trainable_parameters", (json_int_t)t->build.optimizer.parameters, "method",
                  options_word(OPTION_finetuning_type, (int)t->job.options->finetuning_type), "dtype", session_dtype(s), "device",
                  s->device->class->name, "device_name", s->info.name, "recompute", recompute_name(s->tuning.recompute),
                  "micro_batch_tokens", (json_int_t)t->build.slots, "steps", (json_int_t)t->rows.steps, "steps_per_epoch",
                  (json_int_t)t->rows.steps_per_epoch, "plan", run_file_plan_json(s), "data",
                  data_summary_run_json(&t->rows.data, &t->rows.sampler, &t->rows.eval_data), "pieces", pieces);
    if (tree)
        add_options(tree, f->options, f->command);
    if (tree && t->job.options->hub_commit)
        json_object_set_new(tree, "hub",
                            json_pack("{s:s, s:s}", "name", t->job.options->hub_name, "commit", t->job.options->hub_commit));
    return tree;
}

void run_file_begin(struct run_file *f)
{
    struct arena arena = {0};
    const char *path = file_join(&arena, f->trainer->job.options->output_dir, RUN_FILE);
    json_decref(f->tree);
    f->tree = path ? run_file_make(f, path) : NULL;
    f->lost = false;
    arena_free(&arena);
    run_file_write(f);
    run_file_digests(f); /* of a run that resumes they may be known */
}

void run_file_digests(struct run_file *f)
{
    const struct identity *i = &f->trainer->snap.identity;
    json_t *digests = json_object_get(f->tree, "digests");
    if (!i->hashed || !digests || json_object_get(digests, "base"))
        return;
    json_object_set_new(digests, "base", json_string(i->base));
    json_object_set_new(digests, "data", json_string(i->data));
    if (f->trainer->rows.eval_data.row_count)
        json_object_set_new(digests, "eval_data", json_string(i->eval_data));
    if (f->trainer->snap.origin)
        json_object_set(f->tree, "made_from", f->trainer->snap.origin);
    run_file_write(f);
}

void run_file_end(struct run_file *f, enum status status, double seconds)
{
    const json_t *pieces = json_object_get(f->tree, "pieces");
    json_t *piece = json_array_get(pieces, json_array_size(pieces) - 1);
    char date[DATE_SIZE] = "", message[MESSAGE_SIZE];
    int64_t now, peak;
    if (!piece) {
        json_decref(f->tree);
        f->tree = NULL;
        return;
    }
    snprintf(message, sizeof message, "%s", status_message());
    clock_date(date, sizeof date, DATE_PATTERN);
    process_memory(&now, &peak);
    json_t *end = json_pack("{s:s, s:s, s:i, s:I, s:f, s:I}", "ended", date, "how",
                            status == OK            ? "finished"
                            : status == ERR_STOPPED ? "stopped"
                                                    : "failed",
                            "status", (int)status, "step", (json_int_t)f->trainer->snap.state.step, "seconds", seconds,
                            "peak_rss_bytes", (json_int_t)peak);
    if (end && status != OK)
        json_object_set_new(end, "why", json_string(message));
    if (end)
        json_object_update(piece, end);
    json_decref(end);
    run_file_write(f);
    json_decref(f->tree);
    f->tree = NULL;
    if (status != OK)
        fail(status, "%s", message); /* the run's, whatever became of the file */
}
