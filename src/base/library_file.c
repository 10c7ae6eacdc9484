/* Where the loader found a library: what decides on code asks this of hone's own. */
#include "base/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>

const char *library_file(const void *function)
{
    Dl_info info;
    struct link_map *file = NULL;
    bool known = dladdr1(function, &info, (void **)&file, RTLD_DL_LINKMAP) && file && file->l_name;
    return known && file->l_name[0] == '/' ? file->l_name : NULL;
}
