/* There is one standard error, so the text of its last line is kept here. */
#include "cli/progress.h"

#include <stdarg.h>
#include <stdatomic.h>

#include "cli/cli.h"

static char line[256];     /* the last progress */
static atomic_bool shown;  /* it is on the terminal, and the next one replaces it */
static double told = -1e9; /* when, in seconds of the work */

bool progress_due(double seconds)
{
    if (seconds - told < (cli_terminal() ? 0.1 : 10))
        return false;
    told = seconds;
    return true;
}

void progress_clear(void)
{
    if (shown)
        fputs("\r\033[K", stderr);
    shown = false;
}

bool progress_shown(void)
{
    return shown;
}

void progress_again(void)
{
    /* A line that is too long must not wrap: only its last row could be overwritten. */
    shown = cli_terminal() && line[0];
    if (shown)
        fprintf(stderr, "\r\033[?7l%s\033[K\033[?7h", line);
}

void progress_tell(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (cli_terminal())
        progress_again();
    else
        fprintf(stderr, "%s\n", line);
}

void progress_say(const char *format, ...)
{
    va_list values;
    bool again = shown;
    progress_clear();
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputs("\n", stderr);
    if (again)
        progress_again();
}

const char *progress_time(char text[static 32], double seconds)
{
    long long all = seconds > 0 && seconds < 1e15 ? (long long)(seconds + 0.5) : 0;
    if (all < 3600)
        snprintf(text, 32, "%lld:%02lld", all / 60, all % 60);
    else
        snprintf(text, 32, "%lld:%02lld:%02lld", all / 3600, all / 60 % 60, all % 60);
    return text;
}
