/* A process of hone's own that keeps what the confined one gives up (base/confine.h): it runs the command of --on-finish, and
 * removes what was made before and turns out to be of no use. It is started before a stranger's first byte is read, reads nothing
 * but the pipe from the other, and ends with it, however that ends. */
#ifndef CLI_HELPER_H
#define CLI_HELPER_H

#include <stdbool.h>

#include "base/status.h"

/* From now on until the end: `empty` (NULL after the last) are directories that are removed if there is nothing in them, in this
 * order, and `temporary`, if given, one that is removed with all that is in it. `command`, if given, is what helper_run runs. */
enum status helper_start(const char *const *empty, const char *temporary, const char *command);

bool helper_is_there(void);

/* As process_shell, with the command that it was started with. */
enum status helper_run(const char *const *variables, int *code);

/* Waits for it. Without a helper this does nothing. */
void helper_end(void);

#endif
