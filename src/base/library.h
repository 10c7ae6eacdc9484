/* Libraries that are opened at run time: a machine without them runs without them. */
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

/* The first of the names (or paths) that can be opened and that the policy for code allows (base/code.h); the list ends with
 * NULL. NULL: none, and `why` points to the reason. A library stays open until the process ends, because drivers have threads of
 * their own. */
void *library_open(const char *const *names, const char **why);

/* A function of it, or NULL. */
void *library_symbol(void *library, const char *name);

/* The absolute path of the library that has a function, as the loader found it, or NULL: it is the program's own, whose path the
 * loader does not know (it has only the name that the program was started by), or it was found by a relative path. */
const char *library_file(const void *function);

#endif
