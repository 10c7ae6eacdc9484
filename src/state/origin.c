/* Describing what a run is made from, once, and writing it next to each result. */
#include "state/origin.h"

#include <stdio.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/minisign.h"
#include "base/name.h"
#include "format/provenance.h"
#include "models/model_copy.h"
#include "state/fingerprint.h"

/* Files to be listed. */
struct list {
    struct arena *arena;
    struct provenance_file *file;
    int64_t count, capacity;
};

static enum status origin_add_file(struct list *list, const char *dir, const char *name)
{
    struct provenance_file f = {.name = arena_text(list->arena, name, (int64_t)strlen(name)),
                                .path = file_join(list->arena, dir, name)};
    if (!f.name || !f.path)
        return ERR_MEMORY;
    TRY(memory_grow(&list->file, &list->capacity, list->count + 1, (int64_t)sizeof f));
    list->file[list->count++] = f;
    return OK;
}

static void choose_digest(const struct snapshot *snap, struct provenance_file *f, enum provenance_by otherwise)
{
    f->by = snap->place->signer || file_size(f->path) <= PROVENANCE_SMALL ? PROVENANCE_SHA256 : otherwise;
}

/* The part of a path after its last slash, and what is before it. */
static const char *split_path(struct arena *arena, const char *path, const char **dir)
{
    const char *slash = strrchr(path, '/');
    *dir = !slash ? "." : slash == path ? "/" : arena_text(arena, path, slash - path);
    return slash ? slash + 1 : path;
}

/* --- what it is made from --------------------------------------------------------------------------------------------------- */

/* What cannot be read any more, or not as it was, is no reason to lose a result: its digest is left out. */
static enum status hash_sources(struct list *list)
{
    enum status status = provenance_hash(list->file, list->count);
    if (status == OK || status == ERR_MEMORY)
        return status;
    log_message(LOG_WARNING, "%s; provenance.json has no digest of it", status_message());
    for (int64_t i = 0; i < list->count; i++)
        if (list->file[i].status != OK)
            list->file[i].by = PROVENANCE_SIZE;
    return OK;
}

/* A file of the cache is a link to one that is called by its SHA-256, or by its git hash. */
static bool name_has_digest(const char *path, char sha256[static SHA_TEXT])
{
    char target[FILE_TARGET_SIZE];
    if (!file_link_target(path, target) || strlen(target) != SHA_TEXT - 1 || strspn(target, "0123456789abcdef") != SHA_TEXT - 1)
        return false;
    memcpy(sha256, target, SHA_TEXT);
    return true;
}

/* The numbers of a base have a digest of their own, which every checkpoint needs. */
static void choose_base_digest(const struct snapshot *snap, struct provenance_file *f)
{
    f->known = !snap->place->signer && name_has_digest(f->path, f->sha256);
    if (!f->known)
        choose_digest(snap, f, PROVENANCE_SIZE);
}

/* The files of a model directory; or a GGUF file, and the others that it was split into. */
static enum status list_model(const struct snapshot *snap, struct list *list)
{
    const char *model = snap->job->options->model_name_or_path, *dir = model, *name = NULL, **names;
    int64_t count;
    if (!file_is_directory(model))
        name = split_path(list->arena, model, &dir);
    const char *split = name ? strstr(name, "-00001-of-") : NULL;
    if (!dir)
        return ERR_MEMORY;
    TRY(directory_list(list->arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++)
        if (!name ? model_is_file(names[i])
                  : !strcmp(names[i], name) || (split && !strncmp(names[i], name, (size_t)(split - name)) &&
                                                strstr(names[i], "-of-") && name_ends_with(names[i], ".gguf")))
            TRY(origin_add_file(list, dir, names[i]));
    for (int64_t i = 0; i < list->count; i++)
        choose_base_digest(snap, &list->file[i]);
    return OK;
}

/* Folders are nobody's business: only the last part of a path is kept. */
static void set_name(json_t *tree, const char *path)
{
    int64_t end = (int64_t)strlen(path), begin;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';)
        begin--;
    char name[256];
    size_t size = end - begin < (int64_t)sizeof name ? (size_t)(end - begin) : sizeof name - 1;
    memcpy(name, path + begin, size);
    name[size] = 0;
    json_object_set_new(tree, "name", json_lossy(name));
}

static enum status describe_model(const struct snapshot *snap, struct list *list, json_t *tree)
{
    const struct options *o = snap->job->options;
    TRY(list_model(snap, list));
    TRY(hash_sources(list));
    if (o->hub_name)
        json_object_set_new(tree, "name", json_string(o->hub_name));
    else
        set_name(tree, o->model_name_or_path);
    if (o->hub_commit)
        json_object_set_new(tree, "commit", json_string(o->hub_commit));
    json_object_set_new(tree, "weights_xxh128", json_string(snap->identity.base));
    json_object_set_new(tree, "config_xxh128", json_string(snap->identity.config));
    return OK;
}

static enum status origin_describe_adapter(const struct snapshot *snap, struct list *list, json_t *tree)
{
    const char *dir = snap->job->options->init_adapter;
    TRY(origin_add_file(list, dir, ADAPTER_CONFIG));
    TRY(origin_add_file(list, dir, ADAPTER_WEIGHTS));
    TRY(hash_sources(list));
    set_name(tree, dir);
    json_object_set_new(tree, "weights_xxh128", json_string(snap->identity.init_adapter));
    return OK;
}

/* The rows were read when the run began: a file that is another one by now did not make the result. */
static enum status describe_data(const struct snapshot *snap, const struct data *data, const char *rows, struct list *list,
                                 json_t *tree)
{
    for (int64_t f = 0; f < data->file_count; f++) {
        const char *dir, *name = split_path(list->arena, data->files[f].path, &dir);
        if (!dir)
            return ERR_MEMORY;
        TRY(origin_add_file(list, dir, name));
        choose_digest(snap, &list->file[f], PROVENANCE_XXH128);
    }
    TRY(hash_sources(list));
    for (int64_t f = 0; f < data->file_count; f++) {
        struct provenance_file *file = &list->file[f];
        if (!data->files[f].hashed || digest_equal(data->files[f].digest, file->digest))
            continue;
        if (*file->sha256)
            log_message(LOG_WARNING, "%s: was changed since the run read it; provenance.json has no digest of it", file->path);
        *file->sha256 = 0;
    }
    json_object_set_new(tree, "rows_xxh128", json_string(rows));
    return OK;
}

enum part { MODEL, INIT_ADAPTER, DATA, EVAL_DATA, PARTS };
static const char *const part_keys[PARTS] = {"model", "init_adapter", "data", "eval_data"};

static bool has_part(const struct snapshot *snap, enum part part)
{
    return part == MODEL || (part == INIT_ADAPTER && snap->job->options->init_adapter) ||
           (part == DATA && snap->rows->data.row_count) || (part == EVAL_DATA && snap->rows->eval_data.row_count);
}

static enum status describe_part(const struct snapshot *snap, enum part part, struct list *list, json_t *tree)
{
    switch (part) {
    case MODEL: return describe_model(snap, list, tree);
    case INIT_ADAPTER: return origin_describe_adapter(snap, list, tree);
    case DATA: return describe_data(snap, &snap->rows->data, snap->identity.data, list, tree);
    default: return describe_data(snap, &snap->rows->eval_data, snap->identity.eval_data, list, tree);
    }
}

/* Data keeps the order in which it was given, which decides the order of rows. */
static enum status add_part(const struct snapshot *snap, enum part part, json_t *origin)
{
    struct arena arena = {0};
    struct list list = {.arena = &arena};
    json_t *tree = json_object();
    enum status status = tree ? describe_part(snap, part, &list, tree) : fail(ERR_MEMORY, "out of memory: a run's origin");
    if (status == OK)
        json_object_set_new(tree, "files", provenance_json(list.file, list.count));
    json_object_set_new(origin, part_keys[part], tree);
    memory_free(list.file);
    arena_free(&arena);
    return status;
}

static enum status origin_describe(struct snapshot *snap, json_t *origin)
{
    TRY(identity_hash(&snap->identity, &snap->build->session.model, snap->build->session.tuning.lora, &snap->rows->data,
                      &snap->rows->eval_data));
    for (enum part part = 0; part < PARTS; part++)
        if (has_part(snap, part))
            TRY(add_part(snap, part, origin));
    if (json_object_set_new(origin, "settings", fingerprint_settings(snap)) != 0)
        return fail(ERR_MEMORY, "out of memory, or a setting that is not UTF-8: the origin of a run");
    json_object_set_new(origin, "dtype", json_string(session_dtype(&snap->build->session)));
    json_object_set_new(origin, "device", json_string(snap->build->session.device->class->name));
    json_object_set_new(origin, "ranks", json_integer(group_size(snap->build->group)));
    return OK;
}

/* Once for a process: the files are read, and do not change while a run uses them. */
static enum status describe_once(struct snapshot *snap)
{
    if (snap->origin)
        return OK;
    json_t *origin = json_object();
    enum status status = origin ? origin_describe(snap, origin) : fail(ERR_MEMORY, "out of memory: a run's origin");
    if (status == OK)
        snap->origin = origin;
    else
        json_decref(origin);
    return status;
}

/* --- writing ---------------------------------------------------------------------------------------------------------------- */

static enum status origin_write_record(struct snapshot *snap, struct list *list, const char *dir, int64_t step)
{
    provenance_sort(list->file, list->count);
    TRY(provenance_hash(list->file, list->count));
    TRY(describe_once(snap));
    return provenance_write(dir,
                            json_pack("{s:s, s:I, s:O, s:o}", "made_by", "train", "step", (json_int_t)step, "made_from",
                                      snap->origin, "files", provenance_json(list->file, list->count)),
                            snap->place->signer);
}

struct copied {
    struct list *list;
    const char *dir;
};

static enum status add_copied(void *context, const char *name, int64_t bytes)
{
    const struct copied *to = context;
    (void)bytes;
    return origin_add_file(to->list, to->dir, name);
}

static enum status list_result(struct snapshot *snap, struct list *list, const char *dir)
{
    struct copied to = {list, dir};
    if (snap->build->session.tuning.lora) {
        TRY(origin_add_file(list, dir, ADAPTER_CONFIG));
        return origin_add_file(list, dir, ADAPTER_WEIGHTS);
    }
    TRY(origin_add_file(list, dir, MODEL_FILE));
    return model_copy_list(snap->job->options->model_name_or_path, session_dtype(&snap->build->session), add_copied, &to);
}

enum status origin_write_result(struct snapshot *snap, const char *dir, int64_t step)
{
    struct arena arena = {0};
    struct list list = {.arena = &arena};
    enum status status = list_result(snap, &list, dir);
    for (int64_t i = 0; i < list.count; i++)
        choose_digest(snap, &list.file[i], PROVENANCE_XXH128);
    if (status == OK)
        status = origin_write_record(snap, &list, dir, step);
    memory_free(list.file);
    arena_free(&arena);
    return status;
}

/* Large ones have an xxh128 in the list of checksums that is written next. */
static enum status list_all(const struct snapshot *snap, struct list *list, const char *dir)
{
    const char **names;
    int64_t count;
    TRY(directory_list(list->arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        TRY(origin_add_file(list, dir, names[i]));
        choose_digest(snap, &list->file[i], PROVENANCE_SIZE);
    }
    return OK;
}

enum status origin_write_checkpoint(struct snapshot *snap, const char *dir)
{
    struct arena arena = {0};
    struct list list = {.arena = &arena};
    enum status status = list_all(snap, &list, dir);
    if (status == OK)
        status = origin_write_record(snap, &list, dir, snap->state.step);
    memory_free(list.file);
    arena_free(&arena);
    return status;
}

static enum status check_signed(const struct snapshot *snap, const char *dir, const char *const *names)
{
    const struct minisign_public key = minisign_public_of(snap->place->signer);
    json_t *record;
    TRY(provenance_open_signed(&record, dir, &key));
    while (*names && provenance_lists(record, *names))
        names++;
    json_decref(record);
    return *names ? fail(ERR_FORMAT, "%s/" PROVENANCE_FILE ": does not list %s, so that its signature does not cover it", dir,
                         *names)
                  : OK;
}

enum status origin_check_signed(const struct snapshot *snap, const char *dir, const char *const *names)
{
    char cause[STATUS_MESSAGE_SIZE];
    enum status status = snap->place->signer ? check_signed(snap, dir, names) : OK;
    if (status != ERR_FORMAT && status != ERR_IO)
        return status;
    snprintf(cause, sizeof cause, "%s", status_message());
    return fail(ERR_FORMAT,
                "%s. With --sign a run takes only what the same key signed: resume without --sign, or start over "
                "(--resume none)",
                cause);
}
