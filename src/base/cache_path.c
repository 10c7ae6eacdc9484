/* The cache directory, from the environment. */
#include "base/cache_path.h"

#include <stdlib.h>

#include "base/file.h"

const char *cache_directory(struct arena *arena, const char *asked)
{
    const char *own = getenv("HONE_CACHE"), *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (asked)
        return asked;
    if (own && *own)
        return own;
    if (caches && *caches == '/') /* the XDG rule: a relative path is as good as none */
        return file_join(arena, caches, "hone");
    return home && *home ? file_join(arena, home, ".cache/hone") : NULL;
}
