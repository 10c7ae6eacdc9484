/* The program and the terminal: what standard error or output is, and how wide. */
#include "cli/view/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_DEFAULT = 80, ROWS_DEFAULT = 24 };

bool cli_input_terminal(void)
{
    return isatty(STDIN_FILENO) != 0;
}

static bool is_dumb(void)
{
    const char *term = getenv("TERM");
    return term && !strcmp(term, "dumb");
}

bool cli_terminal(void)
{
    return isatty(STDERR_FILENO) && !is_dumb();
}

bool cli_is_terminal(FILE *to)
{
    return isatty(fileno(to)) != 0;
}

bool cli_colour(FILE *to)
{
    const char *never = getenv("NO_COLOR");
    return isatty(fileno(to)) && !(never && *never) && !is_dumb();
}

bool cli_unicode(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *locale = getenv(names[i]);
        if (locale && *locale)
            return strcasestr(locale, "utf-8") || strcasestr(locale, "utf8");
    }
    return false;
}

int cli_columns(int *rows)
{
    struct winsize size = {0};
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0;
    if (rows)
        *rows = known && size.ws_row ? size.ws_row : ROWS_DEFAULT;
    return known && size.ws_col ? size.ws_col : COLUMNS_DEFAULT;
}
