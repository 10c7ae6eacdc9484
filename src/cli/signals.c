/* Signals. A request to stop is answered at once, by the handler itself, since a step may take minutes. Handlers only make calls
 * that are safe in one: they join texts that were there before, and write the line by a single call. */
#include "cli/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "cli/progress.h"

/* Requests to stop. `twice`: a second one ends the program. The others come from machines, which may repeat them: both the kernel
 * and the shell say that a terminal is gone, and batch systems that the time is nearly up. */
static const struct request {
    int number;
    const char *name;
    bool twice;
} requests[] = {
    {SIGINT, "SIGINT", true},    {SIGTERM, "SIGTERM", true},  {SIGHUP, "SIGHUP", false},
    {SIGUSR1, "SIGUSR1", false}, {SIGUSR2, "SIGUSR2", false}, {SIGXCPU, "SIGXCPU", false},
};
enum { REQUESTS = sizeof requests / sizeof requests[0] };

static const char *first_text, *second_text;
static const char *line_end; /* of what is on the terminal */
static atomic_int asked, asked_by_hand;

static void write_line(const char *const *parts)
{
    char line[512];
    size_t n = 0;
    for (; *parts; parts++) {
        size_t length = strlen(*parts), room = sizeof line - 1 - n;
        memcpy(line + n, *parts, length < room ? length : room);
        n += length < room ? length : room;
    }
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0)
        return; /* there is no one to tell */
}

static void set(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(number, &action, NULL);
}

static void on_request(int number)
{
    int before = errno;
    const struct request *r = requests;
    while (r->number != number)
        r++;
    bool again = r->twice && atomic_fetch_add(&asked_by_hand, 1) > 0;
    const char *start = progress_shown() ? "\r\033[K" : line_end;
    if (again) {
        write_line((const char *const[]){start, "hone: ", r->name, " again: ", second_text, NULL});
        set(number, SIG_DFL); /* so that the exit code tells of the signal */
        raise(number);
    } else if (!atomic_fetch_add(&asked, 1) || r->twice)
        write_line((const char *const[]){start, "hone: ", r->name, ": ", first_text, NULL});
    errno = before;
}

static void on_nothing(int number)
{
    (void)number;
}

/* Whoever started the program may have decided that it ignores a signal: nohup does, and a shell for its background jobs. */
static void catch_unless_ignored(int number, void (*handler)(int))
{
    struct sigaction before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        set(number, handler);
}

void signals_stop(const char *first, const char *second)
{
    first_text = first;
    second_text = second;
    line_end = isatty(STDERR_FILENO) ? "\n" : "";
    for (int i = 0; i < REQUESTS; i++)
        catch_unless_ignored(requests[i].number, on_request);
}

bool signals_stopped(void)
{
    return atomic_load(&asked) != 0;
}

void signals_survive(void)
{
    catch_unless_ignored(SIGPIPE, on_nothing);
    catch_unless_ignored(SIGXFSZ, on_nothing);
}
