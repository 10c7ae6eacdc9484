/* Publishing an export. */
#include "export/target.h"

#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/name.h"
#include "base/path_hint.h"
#include "models/model_copy.h"

static const char *parent(struct arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? "." : slash == path ? "/" : arena_text(arena, path, slash - path);
}

static enum status refuse_existing(const char *path)
{
    return fail(ERR_ARGUMENT, "%s: exists; name another --output, or replace it with --overwrite", path);
}

static enum status target_refuse_other(const char *path)
{
    return fail(ERR_ARGUMENT, "%s: exists and is not what this export writes; remove it, or name another --output", path);
}

/* By an export of a model, or of an adapter. */
static bool target_is_written(const struct target *t, const char *name)
{
    return adapter_is_file(t->known) ? adapter_is_file(name) : model_is_file(name);
}

/* Only what such an export has written may be replaced: a directory has the file `known`, and nothing of another kind, such as
 * checkpoints, or the adapter that is read. */
static enum status check_directory(struct target *t)
{
    const char *inside = file_join(&t->arena, t->output, t->known), **names;
    int64_t count;
    if (!inside)
        return ERR_MEMORY;
    if (!file_exists(inside))
        return target_refuse_other(t->output);
    TRY(directory_list(&t->arena, t->output, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        const char *path = file_join(&t->arena, t->output, names[i]);
        if (!path)
            return ERR_MEMORY;
        if (!target_is_written(t, names[i]) || file_is_directory(path))
            return fail(ERR_ARGUMENT,
                        "%s: is not what this export writes, and --overwrite would remove it: name another --output", path);
    }
    return OK;
}

static enum status target_check_output(struct target *t, const struct export_options *o)
{
    if (file_same(t->output, o->model) || (o->adapter && file_same(t->output, o->adapter)))
        return fail(ERR_ARGUMENT, "%s: --output must not be what is read", t->output);
    if (!t->gguf)
        TRY(path_hint_output(t->output));
    if (file_exists(t->output) && !o->overwrite)
        return refuse_existing(t->output);
    if (t->modelfile && file_exists(t->modelfile) && !o->overwrite)
        return refuse_existing(t->modelfile);
    if (!file_exists(t->output))
        return OK;
    if (file_is_directory(t->output) == t->gguf)
        return target_refuse_other(t->output);
    return t->gguf ? OK : check_directory(t);
}

static enum status target_begin(struct target *t, const struct export_options *o, bool modelfile)
{
    size_t n = strlen(o->output);
    while (n > 1 && o->output[n - 1] == '/')
        n--;
    t->output = arena_text(&t->arena, o->output, (int64_t)n);
    if (!t->output)
        return ERR_MEMORY;
    t->gguf = name_ends_with(t->output, ".gguf");
    const char *stem = arena_text(&t->arena, t->output, (int64_t)(n - (t->gguf ? strlen(".gguf") : 0)));
    t->part = stem ? file_sibling(&t->arena, stem, t->gguf ? ".part.gguf" : ".part") : NULL;
    t->parent = parent(&t->arena, t->output);
    t->files = json_array();
    t->dry = o->dry;
    t->overwrite = o->overwrite;
    if (t->gguf && modelfile && stem) {
        t->modelfile = arena_format(&t->arena, "%s.Modelfile", stem);
        t->modelfile_part = file_sibling(&t->arena, stem, ".part.Modelfile");
    }
    if (!t->part || !t->parent || !t->files || (t->gguf && modelfile && (!t->modelfile || !t->modelfile_part)))
        return ERR_MEMORY;
    TRY(target_check_output(t, o));
    TRY(directory_may_make(&t->arena, t->parent, &t->there));
    t->room = directory_room(t->there);
    return OK;
}

static void target_release(struct target *t)
{
    json_decref(t->files);
    arena_free(&t->arena);
}

enum status target_open(struct target *t, const struct export_options *o, const char *known, bool modelfile)
{
    *t = (struct target){.known = known};
    enum status status = target_begin(t, o, modelfile);
    if (status != OK)
        target_release(t);
    return status;
}

enum status target_file(struct target *t, const char *name, int64_t bytes)
{
    const char *path = t->gguf ? name : file_join(&t->arena, t->output, name);
    if (!path)
        return ERR_MEMORY;
    t->bytes += bytes;
    json_t *file = json_pack("{s:o, s:I}", "name", json_lossy(path), "bytes", (json_int_t)bytes);
    return json_array_append_new(t->files, file) == 0 ? OK : fail(ERR_MEMORY, "out of memory: the list of files");
}

enum status target_start(struct target *t)
{
    if (t->room >= 0 && t->bytes > t->room)
        return fail(ERR_IO,
                    "%s: %.3f GB will be written, and %.3f GB are free on the disk of %s: make room, or name another --output",
                    t->output, (double)t->bytes * 1e-9, (double)t->room * 1e-9, t->there);
    if (t->dry)
        return OK;
    TRY(directory_make(t->parent));
    return t->gguf ? OK : directory_make(t->part);
}

enum status target_report(const struct target *t, json_t *report)
{
    json_t *disk = json_pack("{s:o, s:O, s:I, s:o, s:b, s:b}", "output", json_lossy(t->output), "files", t->files, "bytes",
                             (json_int_t)t->bytes, "disk_free_bytes", t->room < 0 ? json_null() : json_integer(t->room),
                             "replaces", (int)file_exists(t->output), "dry_run", (int)t->dry);
    int failed = report && disk ? json_object_update(report, disk) : -1;
    json_decref(disk);
    return failed ? fail(ERR_MEMORY, "out of memory: the report") : OK;
}

enum status target_compared(json_t *report, double tensor_error, double logits_difference)
{
    int failed = json_object_set_new(report, "tensor_error", json_number(tensor_error)) +
                 json_object_set_new(report, "logits_difference", json_number(logits_difference));
    return failed ? fail(ERR_MEMORY, "out of memory: the report") : OK;
}

/* Of two exports to one name the first to end has it, and writes the Modelfile next to it too. */
static enum status target_publish(struct target *t)
{
    bool taken = false;
    if (t->overwrite && !t->gguf && file_exists(t->output))
        TRY(check_directory(t)); /* a run may have begun there meanwhile */
    if (!t->overwrite)
        TRY(file_publish(t->part, t->output, &taken));
    else
        TRY(t->gguf ? file_rename(t->part, t->output) : directory_replace(t->part, t->output));
    if (taken)
        return refuse_existing(t->output);
    return t->modelfile ? file_rename(t->modelfile_part, t->modelfile) : OK;
}

enum status target_close(struct target *t, enum status status)
{
    if (status == OK && !t->dry)
        status = target_publish(t);
    if (status != OK && !t->dry) {
        directory_discard(t->part);
        if (t->modelfile)
            file_remove(t->modelfile_part);
    }
    target_release(t);
    return status;
}
