/* The program and the terminal. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/visible.h"

bool cli_input_terminal(void)
{
    return isatty(STDIN_FILENO) != 0;
}

bool cli_terminal(void)
{
    return isatty(STDERR_FILENO) != 0;
}

bool cli_colour(void)
{
    const char *never = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(never && *never) && !(term && !strcmp(term, "dumb"));
}

static enum status to_file(void *file, const char *text, int64_t length)
{
    fwrite(text, 1, (size_t)length, file);
    return OK;
}

void cli_answer(FILE *to, const char *text, size_t length)
{
    if (isatty(fileno(to)))
        (void)visible_text(text, (int64_t)length, to_file, to);
    else
        fwrite(text, 1, length, to);
}
