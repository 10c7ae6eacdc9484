/* The program and the system: terminals, its own start. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

bool cli_terminal(void)
{
    return isatty(STDERR_FILENO) != 0;
}

bool cli_colour(void)
{
    const char *never = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(never && *never) && !(term && !strcmp(term, "dumb"));
}

/* The thread runtime's waiting threads spin for milliseconds, which on a machine with other work costs more than it saves, and
 * its setting is read only when the process starts: so the program restarts with a better one. A setting of the user is kept. */
void cli_calm_threads(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || setenv("GOMP_SPINCOUNT", "10000", 1) != 0)
        return;
    execv("/proc/self/exe", argv);
}
