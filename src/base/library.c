/* Opening libraries, by the policy for code. */
#include "base/library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/code.h"
#include "base/file.h"
#include "base/log.h"

/* The message of a refusal, or NULL. What is not there is the loader's to say. */
static const char *refusal(const char *name)
{
    static _Thread_local char why[STATUS_MESSAGE_SIZE];
    if (strchr(name, '/') && name[0] == '/' && !file_exists(name))
        return NULL;
    if ((strchr(name, '/') ? code_trust(name) : code_check_loader()) == OK)
        return NULL;
    snprintf(why, sizeof why, "%s", status_message());
    return why;
}

void *library_open(const char *const *names, const char **why)
{
    const char *refused = NULL;
    for (; *names; names++) {
        const char *now = refusal(*names);
        void *library = now ? NULL : dlopen(*names, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library)
            return library;
        if (now && (names[1] || refused))
            log_message(LOG_WARNING, "%s", now); /* another may be taken in its place */
        refused = now ? now : refused;
        *why = refused ? refused : dlerror();
    }
    return NULL;
}

void *library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}
