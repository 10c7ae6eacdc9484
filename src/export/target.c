/* Publishing an export. */
#include "export/target.h"

#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/lost.h"
#include "base/mapped.h"
#include "base/name.h"

static const char *parent(struct arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? "." : slash == path ? "/" : arena_text(arena, path, slash - path);
}

static enum status refuse_existing(const char *path)
{
    return fail(ERR_ARGUMENT, "%s: exists; name another --output, or replace it with --overwrite", path);
}

static enum status refuse_other(const char *path)
{
    return fail(ERR_ARGUMENT, "%s: exists and is not what this export writes; remove it, or name another --output", path);
}

static bool is_written(const char *name)
{
    static const char *const ends[] = {".json", ".safetensors", ".jinja", "tokenizer.model", "merges.txt"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (name_ends_with(name, ends[i]))
            return true;
    return false;
}

/* Only what such an export has written may be replaced: a directory has the file `known`, and nothing of another kind, such as
 * checkpoints, or the adapter that is read. */
static enum status check_directory(struct target *t, const char *known)
{
    const char *inside = file_join(&t->arena, t->output, known), **names;
    int64_t count;
    if (!inside)
        return ERR_MEMORY;
    if (!file_exists(inside))
        return refuse_other(t->output);
    TRY(directory_list(&t->arena, t->output, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        const char *path = file_join(&t->arena, t->output, names[i]);
        if (!path)
            return ERR_MEMORY;
        if (!is_written(names[i]) || file_is_directory(path))
            return fail(ERR_ARGUMENT,
                        "%s: is not what this export writes, and --overwrite would remove it: name another --output", path);
    }
    return OK;
}

static enum status check_output(struct target *t, const struct export_options *o, const char *known)
{
    if (file_same(t->output, o->model) || (o->adapter && file_same(t->output, o->adapter)))
        return fail(ERR_ARGUMENT, "%s: --output must not be what is read", t->output);
    if (!t->gguf)
        TRY(lost_output(t->output));
    if (file_exists(t->output) && !o->overwrite)
        return refuse_existing(t->output);
    if (t->modelfile && file_exists(t->modelfile) && !o->overwrite)
        return refuse_existing(t->modelfile);
    if (!file_exists(t->output))
        return OK;
    if (file_is_directory(t->output) == t->gguf)
        return refuse_other(t->output);
    return t->gguf ? OK : check_directory(t, known);
}

static enum status begin(struct target *t, const struct export_options *o, const char *known, bool modelfile)
{
    size_t n = strlen(o->output);
    while (n > 1 && o->output[n - 1] == '/')
        n--;
    t->output = arena_text(&t->arena, o->output, (int64_t)n);
    if (!t->output)
        return ERR_MEMORY;
    t->gguf = name_ends_with(t->output, ".gguf");
    const char *stem = arena_text(&t->arena, t->output, (int64_t)(n - (t->gguf ? strlen(".gguf") : 0)));
    t->part = stem ? file_beside(&t->arena, stem, t->gguf ? ".part.gguf" : ".part") : NULL;
    const char *dir = parent(&t->arena, t->output);
    if (t->gguf && modelfile && stem)
        t->modelfile = arena_format(&t->arena, "%s.Modelfile", stem);
    if (!t->part || !dir || (t->gguf && modelfile && !t->modelfile))
        return ERR_MEMORY;
    TRY(check_output(t, o, known));
    TRY(directory_make(dir));
    return t->gguf ? OK : directory_make(t->part);
}

enum status target_open(struct target *t, const struct export_options *o, const char *known, bool modelfile)
{
    *t = (struct target){0};
    enum status status = begin(t, o, known, modelfile);
    if (status != OK)
        arena_free(&t->arena);
    return status;
}

enum status target_close(struct target *t, enum status status)
{
    if (status == OK)
        status = mapped_check();
    if (status == OK)
        status = t->gguf ? file_rename(t->part, t->output) : directory_replace(t->part, t->output);
    if (status != OK && t->gguf)
        file_remove(t->part);
    else if (status != OK)
        directory_remove(t->part);
    arena_free(&t->arena);
    return status;
}
