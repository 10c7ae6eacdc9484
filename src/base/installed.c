/* The loader knows the file of a library, and has no name for the program's own; the system knows that one. */
#include "base/installed.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#ifndef HONE_LIBDIR
#define HONE_LIBDIR "lib" /* the library folder, from the prefix */
#endif

/* `path` up to the given number of slashes from its end; NULL: it has fewer. */
static const char *above(struct arena *arena, const char *path, int levels)
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
    static const char here;
    Dl_info info;
    struct link_map *file = NULL;
    char program[PATH_MAX];
    if (!dladdr1(&here, &info, (void **)&file, RTLD_DL_LINKMAP) || !file)
        return NULL;
    if (file->l_name && *file->l_name) {
        const char *libraries = above(arena, file->l_name, 1);
        return libraries ? arena_format(arena, "%s/hone", libraries) : NULL;
    }
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return NULL;
    program[length] = 0;
    const char *prefix = above(arena, program, 2);
    return prefix ? arena_format(arena, "%s/%s/hone", prefix, HONE_LIBDIR) : NULL;
}
