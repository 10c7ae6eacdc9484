/* The checkpoints in an output directory: which to resume from, which to keep, which are not this run's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "train/checkpoint.h"

#define NAME_START "checkpoint-"

struct entry {
    const char *name, *path;
    int64_t step;
};

struct entries {
    struct arena arena;
    struct entry *entry; /* by step, the last first */
    int64_t count;
};

static int64_t step_of(const char *name)
{
    size_t start = strlen(NAME_START);
    const char *digits = name + start;
    bool named = !strncmp(name, NAME_START, start) && *digits && !digits[strspn(digits, "0123456789")] && strlen(digits) < 18;
    return named ? strtoll(digits, NULL, 10) : -1;
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

static enum status list_entries(struct entries *list, const char *output)
{
    const char **names;
    int64_t count;
    TRY(directory_list(&list->arena, output, &names, &count));
    list->entry = arena_array(&list->arena, count, sizeof *list->entry);
    if (!list->entry)
        return ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        if (step_of(names[i]) < 0)
            continue;
        struct entry e = {names[i], file_join(&list->arena, output, names[i]), step_of(names[i])};
        if (!e.path)
            return ERR_MEMORY;
        list->entry[list->count++] = e;
    }
    qsort(list->entry, (size_t)list->count, sizeof *list->entry, last_first);
    return OK;
}

static bool is_own(const struct trainer *t, const struct entry *e)
{
    char run[RUN_ID_SIZE];
    return checkpoint_kind(e->path, run) == CHECKPOINT_OF_RUN && !strcmp(run, t->identity.run);
}

/* --- finding ------------------------------------------------------------------------------------------------------------ */

static enum status resume_from(struct trainer *t, const char *dir)
{
    const char *path = arena_text(&t->arena, dir, (int64_t)strlen(dir));
    if (!path)
        return ERR_MEMORY;
    TRY(checkpoint_open(t, path));
    t->resume = path;
    return OK;
}

/* A damaged one costs the steps since the one before it, not the run. */
static enum status resume_newest(struct trainer *t, const struct entries *list)
{
    int64_t damaged = 0;
    char cause[512] = "";
    for (int64_t i = 0; i < list->count; i++) {
        char run[RUN_ID_SIZE];
        enum checkpoint_kind kind = checkpoint_kind(list->entry[i].path, run);
        if (kind == CHECKPOINT_FOREIGN) {
            log_message(LOG_WARNING, "%s is not a checkpoint of hone's: it is passed over", list->entry[i].path);
            continue;
        }
        enum status status = resume_from(t, list->entry[i].path);
        if (status != ERR_FORMAT)
            return status;
        damaged++;
        snprintf(cause, sizeof cause, "%s", status_message());
        log_message(LOG_WARNING, "%s cannot be used, the one before it is tried: %s", list->entry[i].path, cause);
    }
    return damaged ? fail(ERR_FORMAT,
                          "%s: none of its %lld checkpoints can be used, the last because: %s. --resume none starts over, and "
                          "keeps them in a folder of their own",
                          t->options->output_dir, (long long)damaged, cause)
                   : OK;
}

enum status checkpoint_find(struct trainer *t)
{
    const char *resume = t->options->resume, *output = t->options->output_dir;
    if (!strcmp(resume, "none"))
        return OK;
    if (strcmp(resume, "auto") != 0)
        return resume_from(t, resume);
    if (!output || !file_is_directory(output))
        return OK;
    struct entries list = {0};
    enum status status = list_entries(&list, output);
    if (status == OK)
        status = resume_newest(t, &list);
    arena_free(&list.arena);
    return status;
}

/* --- keeping ------------------------------------------------------------------------------------------------------------ */

enum status checkpoint_count(const struct trainer *t, const char *output, int64_t *count)
{
    struct entries list = {0};
    enum status status = list_entries(&list, output);
    *count = 0;
    for (int64_t i = 0; status == OK && i < list.count; i++)
        *count += is_own(t, &list.entry[i]);
    arena_free(&list.arena);
    return status;
}

static enum status thin(const struct trainer *t, const struct entries *list, int64_t keep)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < list->count; i++)
        if (is_own(t, &list->entry[i]) && kept++ >= keep && list->entry[i].step != t->place.best_step)
            TRY(directory_remove(list->entry[i].path));
    return OK;
}

enum status checkpoint_thin(const struct trainer *t, const char *output, int64_t keep)
{
    struct entries list = {0};
    enum status status = list_entries(&list, output);
    if (status == OK)
        status = thin(t, &list, keep);
    arena_free(&list.arena);
    return status;
}

static enum status set_aside(const struct trainer *t, struct entries *list, const char *output, const char *const *others)
{
    int64_t count = 0, more = 0;
    while (others[more])
        more++;
    const char **names = arena_array(&list->arena, list->count + more, sizeof *names);
    if (!names)
        return ERR_MEMORY;
    for (int64_t i = 0; i < list->count; i++)
        if (list->entry[i].step > t->place.step || !is_own(t, &list->entry[i]))
            names[count++] = list->entry[i].name;
    for (; t->place.step == 0 && *others; others++) {
        const char *path = file_join(&list->arena, output, *others);
        if (!path)
            return ERR_MEMORY;
        if (file_size(path) > 0)
            names[count++] = *others;
    }
    return output_set_aside(output, names, count, t->options->dry_run);
}

enum status checkpoint_make_room(const struct trainer *t, const char *output, const char *const *others)
{
    struct entries list = {0};
    enum status status = list_entries(&list, output);
    if (status == OK)
        status = set_aside(t, &list, output, others);
    arena_free(&list.arena);
    return status;
}
