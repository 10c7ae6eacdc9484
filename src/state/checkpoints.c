/* The checkpoints in an output directory: which to resume from, which to keep, which are not this run's, and what a killed run
 * left of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksums.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/name.h"
#include "base/path_hint.h"
#include "state/checkpoint.h"
#include "state/fingerprint.h"
#include "state/run_state.h"

#define NAME_START "checkpoint-"
#define PART_END ".part"
#define OLD_END ".old"

enum { FILE_NAME_SIZE = 256, RUN_FILE_BYTES_MAX = 1 << 24 };

struct entry {
    const char *name, *path;
    int64_t step;
};

struct entries {
    struct arena arena;
    struct entry *entry; /* by step, the last first */
    int64_t count;
    const char **names; /* of all that is there */
    int64_t name_count;
};

static int64_t step_of(const char *name)
{
    size_t start = strlen(NAME_START);
    const char *digits = name + start;
    bool named = !strncmp(name, NAME_START, start) && *digits && !digits[strspn(digits, "0123456789")] && strlen(digits) < 18;
    return named ? strtoll(digits, NULL, 10) : -1;
}

const char *checkpoint_after(const struct snapshot *snap, const char *saved)
{
    if (!saved && !snap->resume)
        return ". Nothing was saved before: once that is fixed, the same command starts over";
    return strcmp(snap->job->options->resume, "auto") != 0
               ? ". What was saved before stays: once that is fixed, the same command with --resume auto resumes"
               : ". What was saved before stays: once that is fixed, the same command resumes";
}

char *checkpoint_path(struct arena *arena, const char *output, int64_t step)
{
    char *name = arena_format(arena, NAME_START "%lld", (long long)step);
    return name ? file_join(arena, output, name) : NULL;
}

static int last_first(const void *a, const void *b)
{
    int64_t x = ((const struct entry *)a)->step, y = ((const struct entry *)b)->step;
    return (x < y) - (x > y);
}

/* The step that a checkpoint was made after, whatever it was renamed to. A damaged one has that of its name. */
static enum status read_step(struct entry *e)
{
    json_t *tree;
    enum status status = checkpoint_dir_read(e->path, &tree);
    const json_t *step = json_object_get(tree, RUN_STATE_STEP);
    int64_t is = json_is_integer(step) ? json_integer_value(step) : e->step;
    if (is >= 0 && is != e->step && (status = checksums_check(e->path)) == OK)
        e->step = is;
    json_decref(tree);
    return status == ERR_MEMORY ? status : OK;
}

static enum status list_entries(struct entries *list, const char *output)
{
    TRY(directory_list(&list->arena, output, &list->names, &list->name_count));
    list->entry = arena_array(&list->arena, list->name_count, sizeof *list->entry);
    if (!list->entry)
        return ERR_MEMORY;
    for (int64_t i = 0; i < list->name_count; i++) {
        const char *name = list->names[i];
        if (step_of(name) < 0)
            continue;
        struct entry e = {name, file_join(&list->arena, output, name), step_of(name)};
        if (!e.path)
            return ERR_MEMORY;
        TRY(read_step(&e));
        list->entry[list->count++] = e;
    }
    qsort(list->entry, (size_t)list->count, sizeof *list->entry, last_first);
    return OK;
}

/* Memory that runs out is an error, not an answer. */
static enum status checkpoints_is_own(const struct snapshot *snap, const struct entry *e, bool *own)
{
    json_t *tree;
    enum status status = checkpoint_dir_read(e->path, &tree);
    const char *run = json_string_value(json_object_get(tree, CHECKPOINT_RUN));
    *own = run && !strcmp(run, snap->identity.run) && checksums_there(e->path);
    json_decref(tree);
    return status == ERR_MEMORY ? status : OK;
}

/* --- what a killed run left --------------------------------------------------------------------------------------------- */

/* Whether the name was made from another one, which is then *from: with `end`, or as file_sibling makes it. */
static bool is_made(const char *name, const char *end, bool sibling, char from[FILE_NAME_SIZE])
{
    int64_t n = (int64_t)strlen(name), plain = n - (int64_t)strlen(end);
    int64_t stem = sibling ? file_sibling_stem(name, end) : plain > 0 && !strcmp(name + plain, end) ? plain : -1;
    if (stem < 0 || n >= FILE_NAME_SIZE)
        return false;
    snprintf(from, FILE_NAME_SIZE, "%.*s", (int)stem, name);
    return true;
}

/* Of a checkpoint that was being written, replaced or removed; *from is its name. */
static bool is_of_checkpoint(const char *name, char from[FILE_NAME_SIZE])
{
    return (is_made(name, PART_END, false, from) || is_made(name, OLD_END, true, from)) && step_of(from) >= 0;
}

static bool is_listed(const char *name, const char *const *list)
{
    while (*list && strcmp(name, *list) != 0)
        list++;
    return *list;
}

/* Of a file that was being written. */
static bool is_of_file(const char *name)
{
    char from[FILE_NAME_SIZE];
    return is_made(name, PART_END, true, from) && (output_is_result(from) || is_listed(from, output_metrics));
}

/* Puts a checkpoint that has no name under it, if it is whole. What is not known to be of no use is left. */
static enum status put_back(const char *path, const char *to, bool *useless)
{
    char run[RUN_ID_SIZE];
    *useless = file_exists(to);
    if (!directory_is_free(to))
        return OK;
    enum status status = checksums_check(path);
    *useless = status == ERR_FORMAT;
    if (status != OK || checkpoint_dir_kind(path, run) != CHECKPOINT_OF_RUN)
        return status == ERR_MEMORY ? status : OK;
    TRY(file_rename(path, to));
    log_message(LOG_WARNING, "%s: a run was killed while it changed names; the checkpoint is whole, and has its name again", to);
    return OK;
}

/* From the last name to the first: of a checkpoint's own the part, which is newer, before what it was to replace. */
static enum status recover(struct arena *arena, const struct output *o)
{
    const char **names;
    int64_t count;
    TRY(directory_list(arena, o->dir, &names, &count));
    for (int64_t i = count - 1; i >= 0; i--) {
        char from[FILE_NAME_SIZE];
        bool tree = is_of_checkpoint(names[i], from), useless = is_of_file(names[i]);
        const char *path = file_join(arena, o->dir, names[i]), *to = tree ? file_join(arena, o->dir, from) : NULL;
        if (!path || (tree && !to))
            return ERR_MEMORY;
        if (tree)
            TRY(put_back(path, to, &useless));
        if (useless && o->lock.fd >= 0) /* without a lock another run may be writing it */
            directory_discard(path);
    }
    return OK;
}

enum status checkpoint_recover(const struct output *o)
{
    struct arena arena = {0};
    enum status status = o->dir ? recover(&arena, o) : OK;
    arena_free(&arena);
    return status;
}

/* --- finding ------------------------------------------------------------------------------------------------------------ */

static enum status resume_from(struct snapshot *snap, const char *dir)
{
    const char *path = arena_text(&snap->arena, dir, (int64_t)strlen(dir));
    if (!path)
        return ERR_MEMORY;
    TRY(checkpoint_open(snap, path));
    snap->resume = path;
    return OK;
}

/* A damaged one costs the steps since the one before it, not the run. */
static enum status resume_newest(struct snapshot *snap, const struct entries *list)
{
    int64_t damaged = 0;
    char cause[512] = "";
    for (int64_t i = 0; i < list->count; i++) {
        char run[RUN_ID_SIZE];
        TRY(directory_may_read(&snap->arena, list->entry[i].path));
        enum checkpoint_kind kind = checkpoint_dir_kind(list->entry[i].path, run);
        if (kind == CHECKPOINT_FOREIGN) {
            log_message(LOG_WARNING, "%s is not a checkpoint of hone's: it is passed over", list->entry[i].path);
            continue;
        }
        enum status status = resume_from(snap, list->entry[i].path);
        if (status != ERR_FORMAT && status != ERR_IO)
            return status;
        damaged++;
        snprintf(cause, sizeof cause, "%s", status_message());
        log_message(LOG_WARNING, "%s cannot be used, the one before it is tried: %s", list->entry[i].path, cause);
    }
    return damaged ? fail(ERR_FORMAT,
                          "%s: none of its %lld checkpoints can be used, the last because: %s. --resume none starts over, and "
                          "keeps them in a folder of their own",
                          snap->job->options->output_dir, (long long)damaged, cause)
                   : OK;
}

enum status checkpoint_check_resume(const char *resume, struct arena *arena)
{
    if (!strcmp(resume, "none") || !strcmp(resume, "auto") || file_exists(resume))
        return OK;
    return fail(ERR_IO, "%s: %s; --resume takes auto, none, or a folder checkpoint-N", resume,
                path_hint(arena, resume, "checkpoint"));
}

enum status checkpoint_find(struct snapshot *snap)
{
    const char *resume = snap->job->options->resume, *output = snap->job->options->output_dir;
    if (!strcmp(resume, "none"))
        return OK;
    if (strcmp(resume, "auto") != 0) {
        TRY(checkpoint_check_resume(resume, &snap->arena));
        TRY(directory_may_read(&snap->arena, resume));
        return resume_from(snap, resume);
    }
    if (!output || !file_is_directory(output))
        return OK;
    struct entries list = {0};
    enum status status = list_entries(&list, output);
    if (status == OK)
        status = resume_newest(snap, &list);
    arena_free(&list.arena);
    return status;
}

/* One that cannot be read says nothing: that is reported when it is to be resumed. */
static enum status read_moment(const char *dir, int64_t *moment, bool *found)
{
    json_t *tree;
    enum status status = checkpoint_dir_read(dir, &tree);
    int64_t began = json_integer_value(json_object_get(tree, RUN_STATE_BEGAN));
    *found = run_state_is_moment(began);
    if (*found)
        *moment = began;
    json_decref(tree);
    return status == ERR_MEMORY ? status : OK;
}

enum status checkpoint_find_moment(const struct options *o, int64_t *moment)
{
    const char *resume = o->resume, *output = o->output_dir;
    bool found = false;
    if (!strcmp(resume, "none"))
        return OK;
    if (strcmp(resume, "auto") != 0)
        return read_moment(resume, moment, &found);
    if (!output || !file_is_directory(output))
        return OK;
    struct entries list = {0};
    enum status status = list_entries(&list, output);
    for (int64_t i = 0; i < list.count && status == OK && !found; i++)
        status = read_moment(list.entry[i].path, moment, &found);
    arena_free(&list.arena);
    return status;
}

/* --- keeping ------------------------------------------------------------------------------------------------------------ */

/* What a checkpoint is that has no place next to those of the run, or NULL. */
static const char *why_aside(const struct snapshot *snap, const struct entry *e)
{
    char run[RUN_ID_SIZE];
    switch (checkpoint_dir_kind(e->path, run)) {
    case CHECKPOINT_FOREIGN: return "not a checkpoint of hone's";
    case CHECKPOINT_DAMAGED: return "damaged";
    case CHECKPOINT_OF_RUN: break;
    }
    if (strcmp(run, snap->identity.run) != 0)
        return OUTPUT_EARLIER;
    return e->step > snap->state.step ? "of a later step than the run goes on from" : NULL;
}

static enum status find_step(struct snapshot *snap, const struct entries *list, int64_t step, const char **path)
{
    for (int64_t i = 0; i < list->count; i++) {
        const struct entry *e = &list->entry[i];
        bool own = false;
        if (e->step == step)
            TRY(checkpoints_is_own(snap, e, &own));
        if (own) {
            *path = arena_text(&snap->arena, e->path, (int64_t)strlen(e->path));
            return *path ? OK : ERR_MEMORY;
        }
    }
    return OK;
}

enum status checkpoint_of_step(struct snapshot *snap, const char *output, int64_t step, const char **path)
{
    struct entries list = {0};
    *path = NULL;
    enum status status = list_entries(&list, output);
    if (status == OK)
        status = find_step(snap, &list, step, path);
    arena_free(&list.arena);
    return status;
}

enum status checkpoint_clear(const struct snapshot *snap, const char *output, const char *path)
{
    struct entry e = {.name = strrchr(path, '/') + 1, .path = path, .step = snap->state.step};
    const struct output_aside aside = {e.name, "not of this run, but came while it went on"};
    struct arena arena = {0};
    bool own;
    if (directory_is_free(path))
        return OK;
    TRY(read_step(&e));
    TRY(checkpoints_is_own(snap, &e, &own));
    if (own && e.step == snap->state.step)
        return OK;
    const char *to = checkpoint_path(&arena, output, e.step); /* one that was renamed gets its name back */
    enum status status = !to                            ? ERR_MEMORY
                         : own && directory_is_free(to) ? file_rename(path, to)
                                                        : output_set_aside(output, &aside, 1, false);
    arena_free(&arena);
    return status;
}

enum status checkpoint_count(const struct snapshot *snap, const char *output, int64_t *count)
{
    struct entries list = {0};
    enum status status = list_entries(&list, output);
    *count = 0;
    for (int64_t i = 0; status == OK && i < list.count; i++)
        *count += !why_aside(snap, &list.entry[i]);
    arena_free(&list.arena);
    return status;
}

/* It loses its name first: a kill while its files go one by one leaves no half of it under the name. */
static enum status remove_whole(struct arena *arena, const char *path)
{
    const char *aside = file_sibling(arena, path, OLD_END);
    if (!aside)
        return ERR_MEMORY;
    TRY(file_rename(path, aside));
    return directory_remove(aside);
}

static enum status thin(const struct snapshot *snap, struct entries *list, int64_t keep)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < list->count; i++) {
        bool own;
        TRY(checkpoints_is_own(snap, &list->entry[i], &own));
        if (!own || kept++ < keep || list->entry[i].step == snap->state.best_step)
            continue;
        enum status status = remove_whole(&list->arena, list->entry[i].path);
        if (status == ERR_IO)
            log_message(LOG_WARNING, "%s; the run goes on, and this old checkpoint takes its room on the disk", status_message());
        else
            TRY(status);
    }
    return OK;
}

enum status checkpoint_thin(const struct snapshot *snap, const char *output, int64_t keep)
{
    struct entries list = {0};
    enum status status = list_entries(&list, output);
    if (status == OK)
        status = thin(snap, &list, keep);
    arena_free(&list.arena);
    return status;
}

/* Whose run.json is. */
enum run_file { RUN_OWN, RUN_OF_ANOTHER, RUN_UNKNOWN };

static enum status read_run_file(const struct snapshot *snap, struct arena *arena, const char *output, enum run_file *whose)
{
    json_t *tree = NULL;
    const char *path = file_join(arena, output, RUN_FILE);
    enum status status = !path ? ERR_MEMORY : file_exists(path) ? json_parse_file(&tree, path, RUN_FILE_BYTES_MAX) : OK;
    const char *run = json_string_value(json_object_get(tree, "run"));
    *whose = !run ? RUN_UNKNOWN : strcmp(run, snap->identity.run) != 0 ? RUN_OF_ANOTHER : RUN_OWN;
    json_decref(tree);
    return status == ERR_MEMORY ? status : OK;
}

static enum status has_weights(const struct entry *e, const char *name, const char *checksum, bool *has)
{
    struct buffer lines = {0};
    enum status status = checksums_there(e->path) ? checksums_read(&lines, e->path) : OK;
    const char *line = checksums_line(&lines, name);
    *has = line && !memcmp(line, checksum, HASH_TEXT - 1);
    buffer_free(&lines);
    return status == ERR_MEMORY ? status : OK;
}

/* Whether a result is there that would be lost if it were replaced: the run's own is that of one of its checkpoints. */
static enum status find_lone_result(struct entries *list, const char *output, bool *lone)
{
    for (int64_t i = 0; i < list->name_count && !*lone; i++) {
        const char *name = list->names[i], *path = file_join(&list->arena, output, name);
        char checksum[HASH_TEXT];
        bool has = false;
        if (!path)
            return ERR_MEMORY;
        if (!output_is_result(name) || !name_ends_with(name, ".safetensors"))
            continue;
        enum status status = checksums_file(path, checksum);
        for (int64_t k = 0; k < list->count && status == OK && !has; k++)
            status = has_weights(&list->entry[k], name, checksum, &has);
        if (status == ERR_MEMORY)
            return status;
        *lone = !has;
    }
    return OK;
}

/* Lists what is in the way of the run. Where nothing says whose they are, a result is an earlier run's, and the lines of metrics
 * are of the run whose checkpoints are next to them. */
static enum status list_aside(const struct snapshot *snap, struct entries *list, const char *output, const char *const *others,
                              struct output_aside *aside, int64_t *count)
{
    enum run_file whose;
    bool begins = snap->state.step == 0, own = false;
    for (int64_t i = 0; i < list->count; i++) {
        const char *why = why_aside(snap, &list->entry[i]);
        own |= !why;
        if (why)
            aside[(*count)++] = (struct output_aside){list->entry[i].name, why};
    }
    TRY(read_run_file(snap, &list->arena, output, &whose));
    bool results = begins || whose != RUN_OWN, lines = begins || whose == RUN_OF_ANOTHER || (whose == RUN_UNKNOWN && !own);
    bool lone = false;
    if (!results)
        TRY(find_lone_result(list, output, &lone));
    for (int64_t i = 0; i < list->name_count; i++) {
        const char *path = file_join(&list->arena, output, list->names[i]);
        if (!path)
            return ERR_MEMORY;
        bool result = output_is_result(list->names[i]);
        if ((lines && is_listed(list->names[i], others) && file_size(path) > 0) || (results && result))
            aside[(*count)++] = (struct output_aside){list->names[i], OUTPUT_EARLIER};
        else if (lone && result)
            aside[(*count)++] = (struct output_aside){list->names[i], "of no checkpoint that is here"};
    }
    for (int64_t i = 0; i + 1 < *count; i++)
        if (!strcmp(aside[i].name, RUN_FILE)) { /* the last: a kill on the way must leave it next to what it is about */
            aside[i] = aside[*count - 1];
            aside[*count - 1] = (struct output_aside){RUN_FILE, OUTPUT_EARLIER};
        }
    return OK;
}

static enum status set_aside(const struct snapshot *snap, struct entries *list, const char *output, const char *const *others)
{
    int64_t count = 0;
    struct output_aside *aside = arena_array(&list->arena, list->name_count, sizeof *aside); /* each is listed once at most */
    if (!aside)
        return ERR_MEMORY;
    TRY(list_aside(snap, list, output, others, aside, &count));
    return output_set_aside(output, aside, count, snap->job->options->dry_run);
}

enum status checkpoint_make_room(const struct snapshot *snap, const char *output, const char *const *others)
{
    struct entries list = {0};
    enum status status = list_entries(&list, output);
    if (status == OK)
        status = set_aside(snap, &list, output, others);
    arena_free(&list.arena);
    return status;
}
