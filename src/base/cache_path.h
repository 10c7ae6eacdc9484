/* Where caches are kept. */
#ifndef BASE_CACHE_PATH_H
#define BASE_CACHE_PATH_H

#include "base/memory.h"

/* The directory for caches: asked, or $HONE_CACHE, or $XDG_CACHE_HOME/hone, or $HOME/.cache/hone, or NULL. In the arena, or
 * the caller's or the environment's own text. */
const char *cache_directory(struct arena *arena, const char *asked);

#endif
