/* The program and the terminal. */
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
