/* The loader. */
#include "base/library.h"

#include <dlfcn.h>
#include <stddef.h>

void *library_open(const char *const *names, const char **why)
{
    for (; *names; names++) {
        void *library = dlopen(*names, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library)
            return library;
        *why = dlerror();
    }
    return NULL;
}

void *library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

const char *library_file(const void *function)
{
    Dl_info info;
    return dladdr(function, &info) ? info.dli_fname : NULL;
}
