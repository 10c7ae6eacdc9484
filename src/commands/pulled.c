/* Writing and reading the record of a pulled folder. */
#include "commands/pulled.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "format/provenance.h"
#include "hub/hub_cache.h"

#define MADE_BY "pull"

/* The record of a folder, if it has one that hone pull wrote; else NULL. Who made it is not asked. */
static enum status read_record(struct arena *arena, const char *dir, json_t **record)
{
    struct buffer text = {0};
    const char *path = file_join(arena, dir, PROVENANCE_FILE);
    *record = NULL;
    if (!path)
        return ERR_MEMORY;
    enum status status = file_read(&text, path, PROVENANCE_BYTES_MAX);
    if (status == OK)
        status = provenance_parse(record, text.data, text.size, path);
    const char *by = json_string_value(json_object_get(*record, "made_by"));
    if (!by || strcmp(by, MADE_BY) != 0) {
        json_decref(*record);
        *record = NULL;
    }
    buffer_free(&text);
    return status == ERR_MEMORY ? status : OK;
}

/* The hub has the SHA-256 of large files; the others are hashed by git's own, and small. */
static enum status pulled_list_files(struct arena *arena, const struct pull_result *result, json_t **list)
{
    const struct hub_listing *l = &result->listing;
    struct provenance_file *files = arena_array(arena, l->count, sizeof *files);
    int64_t count = 0;
    for (int64_t i = 0; i < l->count && files; i++) {
        const struct hub_file *from = &l->files[i];
        if (!from->wanted || strchr(from->name, '/'))
            continue;
        struct provenance_file *f = &files[count++];
        f->name = from->name;
        f->path = file_join(arena, result->path, from->name);
        f->known = from->kind == SHA_256;
        if (f->known)
            memcpy(f->sha256, from->hash, SHA_TEXT);
        if (!f->path)
            return ERR_MEMORY;
    }
    if (!files)
        return ERR_MEMORY;
    provenance_sort(files, count);
    TRY(provenance_hash(files, count));
    *list = provenance_json(files, count);
    return OK;
}

static enum status pulled_write_record(const struct pull_request *request, const struct pull_result *result, struct arena *arena)
{
    json_t *list = NULL;
    TRY(pulled_list_files(arena, result, &list));
    return provenance_write(result->path,
                            json_pack("{s:s, s:{s:{s:s, s:s}}, s:o}", "made_by", MADE_BY, "made_from", "model", "name",
                                      request->name, "commit", result->listing.commit, "files", list),
                            NULL);
}

enum status pulled_write(const struct pull_request *request, const struct pull_result *result, struct arena *arena)
{
    json_t *there;
    const char *path = file_join(arena, result->path, PROVENANCE_FILE);
    if (!path)
        return ERR_MEMORY;
    TRY(read_record(arena, result->path, &there));
    bool other = !there && file_exists(path);
    json_decref(there);
    if (!other)
        return pulled_write_record(request, result, arena);
    log_message(LOG_WARNING, "%s: is not of hone pull, and stays: the commit of what was downloaded is not kept", path);
    return OK;
}

enum status pulled_find(struct options *values)
{
    json_t *record = NULL;
    if (values->hub_name || !file_is_directory(values->model_name_or_path))
        return OK;
    TRY(read_record(values->arena, values->model_name_or_path, &record));
    const json_t *model = json_object_get(json_object_get(record, "made_from"), "model");
    const char *name = json_string_value(json_object_get(model, "name")),
               *commit = json_string_value(json_object_get(model, "commit"));
    bool known = name && commit && hub_is_name(name) && hub_is_commit(commit);
    if (known) {
        values->hub_name = arena_text(values->arena, name, (int64_t)strlen(name));
        values->hub_commit = arena_text(values->arena, commit, (int64_t)strlen(commit));
    }
    json_decref(record);
    return !known || (values->hub_name && values->hub_commit) ? OK : ERR_MEMORY;
}
