/* Code that is not hone's own: the libraries that it opens, the programs that it starts, and the variables that name them. One
 * policy holds for all of it, and nothing becomes code in another way (tests/doors.py lists the places):
 *
 *     a path is absolute, so that the working directory never decides what is executed;
 *     the file and every directory and link on the way to it belong to root, to the user, or to the owner of hone's own file;
 *     nobody else can write to any of them. */
#ifndef BASE_CODE_H
#define BASE_CODE_H

#include "base/memory.h"

/* The value of a variable that names code, or NULL if it is unset or empty. */
const char *code_variable(const char *name);

/* The values of the variables HONE_..._LIBRARY, one after the other from 0; NULL after the last. */
const char *code_library(int index);

/* Whether the file or directory at `path` may become code, as above; the message says why not. ERR_IO: it is not there. */
enum status code_trust(const char *path);

/* The path of a program, in the arena: the first that the absolute parts of PATH have, or the name itself if it is a path. It may
 * be executed, by the policy. */
enum status code_find_program(struct arena *arena, const char *name, const char **path);

/* Replaces this process by a program that code_find_program gave; returns only if that fails, with errno. */
void code_execute(const char *path, const char *const *words);

/* OK: what the system's loader finds by a library's plain name is not in the working directory. An empty or relative part of
 * LD_LIBRARY_PATH lets it look there. */
enum status code_check_loader(void);

/* The absolute path of hone's own file: of the library, or of the program that it is linked into; "" where the system does not
 * tell. Its text ends with the process. */
const char *code_own_file(void);

#endif
