/* There is one standard error, so its last report is kept here. The lock of its stream guards the report as well. */
#include "cli/view/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "cli/view/out.h"
#include "cli/view/terminal.h"

enum { LABEL = 12, HANGING = 4 }; /* columns before the text of a labelled line; before what continues another line */

static struct screen last; /* the last report */
static bool known;         /* there is one */
static bool silent;        /* nothing is shown */
static double known_at;
static atomic_bool shown;     /* it is on the terminal, and the next one replaces it */
static double printed = -1e9; /* when, in seconds of the work */

void progress_silence(void)
{
    silent = true;
}

bool progress_due(double seconds)
{
    if (silent || seconds - printed < (cli_terminal() ? 0.1 : 10))
        return false;
    printed = seconds;
    return true;
}

void progress_clear(void)
{
    flockfile(stderr);
    if (shown)
        out_paint(stderr, PROGRESS_CLEAR);
    shown = false;
    funlockfile(stderr);
}

bool progress_shown(void)
{
    return shown;
}

/* In one call, so that no other output comes between. Lines that are too long must not wrap: the size may change meanwhile. */
static void progress_draw(void)
{
    char lines[SCREEN_SIZE], text[SCREEN_SIZE + 128];
    struct screen now = last;
    struct look look = {.colour = cli_colour(stderr), .unicode = cli_unicode()};
    double passed = clock_seconds() - known_at;
    now.seconds += passed;
    now.left = fmax(now.left - passed, isnan(now.left) ? NAN : 0);
    look.columns = cli_columns(&look.rows);
    int count = screen_draw(&now, look, lines);
    char *second = strchr(lines, '\n');
    if (second)
        *second++ = 0;
    int n = snprintf(text, sizeof text, "\r\033[?7l%s\033[K%s%s\033[J%s\r\033[?7h", lines, second ? "\n" : "",
                     second ? second : "", count > 1 ? "\033[A" : "");
    out_raw(stderr, text, (size_t)n);
    shown = true;
}

void progress_again(void)
{
    flockfile(stderr);
    if (cli_terminal() && known && !silent)
        progress_draw();
    funlockfile(stderr);
}

void progress_tick(void)
{
    if (ftrylockfile(stderr) != 0) /* something is being written there already */
        return;
    if (shown)
        progress_draw();
    funlockfile(stderr);
}

void progress_tell(const struct screen *screen)
{
    char line[SCREEN_SIZE];
    if (silent)
        return;
    flockfile(stderr);
    last = *screen;
    known = true;
    known_at = clock_seconds();
    funlockfile(stderr);
    if (cli_terminal()) {
        progress_again();
    } else {
        screen_line(screen, line);
        out_error("%s\n", line);
    }
}

/* The columns that a text takes, if each of its characters takes one. */
static int columns_of(const char *text, size_t length)
{
    int count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Breaks a line at blanks. What continues a line with a label ("model       134.5 million...") stands below its text. */
static void progress_print_wrapped(const char *text, int columns)
{
    size_t label = strspn(text, " ");
    label += strcspn(text + label, " ");
    label += strspn(text + label, " ");
    int indent = label == LABEL && columns > 2 * LABEL ? LABEL : HANGING, at = 0;
    while (*text) {
        size_t blanks = strspn(text, " "), word = strcspn(text + blanks, " ");
        int width = columns_of(text, blanks + word);
        if (at > indent && at + width > columns) {
            out_error("\n%*s", indent, "");
            at = indent;
            width -= (int)blanks;
            text += blanks;
            blanks = 0;
        }
        out_error("%.*s", (int)(blanks + word), text);
        at += width;
        text += blanks + word;
    }
}

void progress_say(const char *format, ...)
{
    struct buffer line = {0};
    va_list values;
    if (silent)
        return;
    va_start(values, format);
    (void)out_format(&line, NULL, format, values); /* without memory, what there is of it is better than nothing */
    va_end(values);
    const char *text = line.data ? line.data : "";
    flockfile(stderr);
    bool again = shown;
    progress_clear();
    if (cli_terminal()) {
        progress_print_wrapped(text, cli_columns(NULL));
        out_error("\n");
    } else {
        out_error("%s\n", text);
    }
    if (again)
        progress_again();
    funlockfile(stderr);
    buffer_free(&line);
}
