/* --confine: what a command is to write into is made, a helper keeps what the run gives up, and the library does the rest. */
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/helper.h"
#include "cli/signals.h"

enum { MADE_MAX = 64 };

struct made {
    const char *paths[MADE_MAX + 1]; /* the last one made first */
    int count;
};

/* Makes a directory, and notes it and those above it that were not there. One that cannot be made is the command's to tell of. */
static void make(struct made *m, struct arena *arena, const char *path)
{
    char *above = path && *path ? arena_text(arena, path, (int64_t)strlen(path)) : NULL;
    int first = m->count;
    for (char *slash = above; slash && !file_exists(above) && m->count < MADE_MAX;) {
        m->paths[m->count] = arena_text(arena, above, (int64_t)strlen(above));
        m->count += m->paths[m->count] != NULL;
        slash = strrchr(above, '/');
        while (slash && slash > above && slash[-1] == '/')
            slash--;
        if (slash)
            *slash = 0;
        if (!*above)
            break;
    }
    if (m->count == first || directory_make(path) != OK)
        m->count = first;
}

static const char *option(hone_options *options, const char *key)
{
    const char *value;
    return hone_options_get(options, key, &value) == HONE_OK && *value ? value : NULL;
}

/* The directory that a file or a directory is in; NULL: the working directory. */
static const char *parent(struct arena *arena, const char *path)
{
    char *folder = arena_text(arena, path, (int64_t)strlen(path));
    for (size_t n = folder ? strlen(folder) : 0; n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = 0;
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        *slash = 0;
    return slash ? folder : NULL;
}

static hone_status start_helper(hone_options *options, int uses, struct arena *arena)
{
    struct made made = {.count = 0};
    const char *temporary = NULL, *command = option(options, "on_finish");
    const char *output = cli_flag(options, "dry_run") ? NULL : option(options, "output");
    if (output && uses & CLI_MAKES_OUTPUT)
        make(&made, arena, output);
    if (output && uses & CLI_MAKES_PARENT)
        make(&made, arena, parent(arena, output));
    if (uses & CLI_CACHES)
        make(&made, arena, cache_directory(arena, option(options, "cache_dir")));
    if (uses & CLI_CACHES && directory_make_temporary(arena, &temporary) != OK)
        temporary = NULL;
    enum status status = made.count || temporary || command ? helper_start(made.paths, temporary, command) : OK;
    if (status == OK && temporary)
        setenv("TMPDIR", temporary, 1); /* now, for the command of --on-finish has that of the user */
    return (hone_status)status;
}

hone_status cli_confine(hone_options *options, int uses)
{
    struct arena arena = {0};
    const char *asked = option(options, "confine");
    if (asked && !strcmp(asked, "off"))
        return HONE_OK;
    hone_status status = start_helper(options, hone_ranks() > 1 ? 0 : uses, &arena); /* files of ranks are not kept back */
    if (status == HONE_OK)
        status = hone_confine(options, signals_tell_refusal);
    arena_free(&arena);
    return status;
}
