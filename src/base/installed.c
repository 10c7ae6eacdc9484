/* From the path of hone's own file. */
#include "base/installed.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/code.h"
#include "base/library.h"

#ifndef HONE_LIBDIR
#define HONE_LIBDIR "lib" /* the library folder, from the prefix */
#endif

/* `path` up to the given number of slashes from its end; NULL: it has fewer. */
static const char *installed_above(struct arena *arena, const char *path, int levels)
{
    size_t n = strlen(path);
    for (; levels > 0; levels--) {
        while (n && path[n - 1] != '/')
            n--;
        if (!n)
            return NULL;
        n--;
    }
    return arena_text(arena, path, (int64_t)n);
}

const char *installed_directory(struct arena *arena)
{
    const char *own = code_own_file();
    bool library = library_file((const void *)(uintptr_t)installed_directory) != NULL;
    const char *above_it = installed_above(arena, own, library ? 1 : 2);
    if (!above_it)
        return NULL;
    return library ? arena_format(arena, "%s/hone", above_it) : arena_format(arena, "%s/%s/hone", above_it, HONE_LIBDIR);
}
