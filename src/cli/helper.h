/* A process of hone's own that keeps what the confined one gives up (base/confine.h): it runs the command of --on-finish, and
 * removes what was made before and turns out to be of no use. It is started before a stranger's first byte is read, reads nothing
 * but a line from the other, and ends with it, however that ends. */
#ifndef CLI_HELPER_H
#define CLI_HELPER_H

#include <stdbool.h>

#include "base/status.h"

/* What it is for, as it was known before: each may be NULL. The texts must live as long as this process. */
struct helper_work {
    const char *temporary; /* a directory that is removed at the end with all that is in it */
    const char *command;   /* what helper_run runs */
    const char *output;    /* "HONE_OUTPUT=..." for it */
};
enum status helper_start(const struct helper_work *work);

/* At the end a directory goes if there is nothing in it, in the order of these calls. */
void helper_remove_empty(const char *path);

bool helper_is_there(void);

/* As process_shell, with the command that it was started with. */
enum status helper_run(const char *const *variables, int *code);

/* Waits for it. Without a helper this does nothing. */
void helper_end(void);

#endif
