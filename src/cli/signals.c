/* Requests to stop are blocked in all threads but one, which waits for them: it answers at once, though a step may take minutes,
 * and no handler runs on a thread that computes: oneDNN's compiled kernels keep data below the end of the stack, which a
 * handler's frame would overwrite. The same thread draws the progress again, every second and when the terminal's size changes.
 */
#include "cli/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crash_context.h"
#include "base/heartbeat.h"
#include "base/mapped.h"
#include "base/status.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/view/progress.h"

/* `twice`: a second one ends the program. The others come from machines, which may repeat them: both the kernel and the shell say
 * that a terminal is gone, and batch systems that the time is nearly up. */
static const struct request {
    int number;
    const char *name;
    bool twice;
} requests[] = {
    {SIGINT, "SIGINT", true},    {SIGTERM, "SIGTERM", true},  {SIGHUP, "SIGHUP", false},
    {SIGUSR1, "SIGUSR1", false}, {SIGUSR2, "SIGUSR2", false}, {SIGXCPU, "SIGXCPU", false},
};
enum { REQUESTS = sizeof requests / sizeof requests[0], PATH_SIZE = 4096, REFUSALS_MAX = 8 };

static sigset_t caught;
static const char *_Atomic first_text; /* NULL: a request ends the program, as nothing would be lost */
static const char *_Atomic second_text;
static const char *_Atomic end_text;       /* NULL: it says nothing then */
static const char *_Atomic interrupt_text; /* NULL: Ctrl-C is a request as others are */
static atomic_int asked, interrupted, faults;

/* Breaks a line at blanks, where it would go beyond the edge of a terminal. */
static void wrap(char *text, int columns)
{
    char *blank = NULL, *start = text;
    for (; *text; text++) {
        if (*text == ' ')
            blank = text;
        if (blank && blank > start && text - start >= columns) {
            *blank = '\n';
            start = blank + 1;
            blank = NULL;
        }
    }
}

/* By calls that are safe in a handler. What `start` does to a terminal takes no columns there. */
static void write_line(const char *start, const char *const *parts)
{
    char line[PATH_SIZE + 512];
    size_t n = strlen(start), from = n;
    memcpy(line, start, n);
    for (; *parts; parts++) {
        size_t length = strlen(*parts), room = sizeof line - 1 - n;
        memcpy(line + n, *parts, length < room ? length : room);
        n += length < room ? length : room;
    }
    line[n] = 0;
    utf8_clean_line(line + from); /* the path of a mapped file may be anything */
    if (isatty(STDERR_FILENO))
        wrap(line + from, cli_columns(NULL));
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0)
        return; /* there is no one to tell */
}

/* --- requests ------------------------------------------------------------------------------------------------------------- */

/* Ends the program as the signal does, so that the exit code tells of it. */
static void end_by(int number)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    signal(number, SIG_DFL);
    raise(number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    _exit(128 + number); /* the first process of a container is not ended by signals */
}

static void *wait_for_requests(void *unused)
{
    (void)unused;
    for (bool by_hand = false;;) {
        static const struct timespec tick = {.tv_sec = 1};
        int number = sigtimedwait(&caught, NULL, cli_terminal() ? &tick : NULL);
        if (number < 0 || number == SIGWINCH) {
            progress_tick();
            continue;
        }
        if (number == SIGINT && interrupt_text) {
            interrupted = 1;
            if (write(STDERR_FILENO, interrupt_text, strlen(interrupt_text)) < 0)
                end_by(SIGHUP); /* the terminal is gone */
            continue;
        }
        const struct request *r = requests;
        while (r->number != number)
            r++;
        const char *start = progress_shown() ? PROGRESS_CLEAR : isatty(STDERR_FILENO) ? "\n" : "", *first = first_text;
        if (first && r->twice && by_hand)
            write_line(start, (const char *const[]){"hone: ", r->name, " again: ", second_text, NULL});
        if (!first && end_text)
            write_line(start, (const char *const[]){"hone: ", r->name, ": ", end_text, NULL});
        if (!first || (r->twice && by_hand))
            end_by(number);
        if (!asked || r->twice)
            write_line(start, (const char *const[]){"hone: ", r->name, ": ", first, NULL});
        by_hand |= r->twice;
        asked = 1;
        progress_tick();
    }
    return NULL;
}

/* The program's parent may have decided that it ignores a signal: nohup does, and a shell for its background jobs. */
bool signals_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) != 0 || action.sa_handler == SIG_IGN;
}

hone_status signals_watch(void)
{
    pthread_t thread;
    sigemptyset(&caught);
    for (int i = 0; i < REQUESTS; i++)
        if (!signals_ignored(requests[i].number))
            sigaddset(&caught, requests[i].number);
    sigaddset(&caught, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &caught, NULL);
    if (pthread_create(&thread, NULL, wait_for_requests, NULL) != 0)
        return (hone_status)fail(ERR_MEMORY, "out of memory: the system has no thread left to wait for signals");
    pthread_detach(thread);
    return HONE_OK;
}

void signals_end(const char *words)
{
    end_text = words;
}

void signals_stop(const char *first, const char *second)
{
    second_text = second;
    first_text = first;
}

bool signals_stopped(void)
{
    return asked;
}

void signals_interrupts(const char *text)
{
    interrupt_text = text;
}

bool signals_interrupted(void)
{
    return atomic_exchange(&interrupted, 0);
}

void signals_tell_children(void)
{
    signal(SIGCHLD, SIG_DFL);
}

void signals_survive(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* A few are enough: what asks once may ask again and again. */
void signals_tell_refusal(const char *call)
{
    static atomic_int printed;
    if (atomic_fetch_add(&printed, 1) < REFUSALS_MAX)
        write_line(
            progress_shown() ? PROGRESS_CLEAR : "",
            (const char *const[]){"hone: refused: ", call,
                                  ", a system call that this command does not need: a library asked for it, or a file that "
                                  "is an attack (docs/confinement.md)",
                                  NULL});
}

/* --- faults --------------------------------------------------------------------------------------------------------------- */

#define TRUNCATED                                                                                                                \
    ": truncated, or no longer readable, while it was in use: put the whole file back, and give the same command again"

#define CRASHED                                                                                                                  \
    ": it crashed, as it does when memory runs out; free some, or take less: --per-device-train-batch-size 1, --max-length"

static const int numbers[] = {SIGBUS, SIGSEGV, SIGABRT};
enum { FAULTS = sizeof numbers / sizeof numbers[0] };
static struct sigaction before[FAULTS];

static void end_with(const char *what, const char *how, hone_status code)
{
    while (atomic_fetch_add(&faults, 1) > 0) /* other threads read the file too */
        pause();
    write_line(progress_shown() ? PROGRESS_CLEAR : "", (const char *const[]){"hone: ", what, how, NULL});
    _exit((int)code);
}

/* Any other fault happens again, and ends the program as it would have. What another process sent is none, and is sent again. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    char path[PATH_SIZE];
    bool sent = info->si_code <= 0, by_another = sent && info->si_pid != getpid(); /* abort() sends it too */
    (void)context;
    if (!by_another && number == SIGBUS && mapped_name(info->si_addr, path, sizeof path))
        end_with(path, TRUNCATED, HONE_ERR_IO);
    if (!by_another && number != SIGBUS && crash_context_what())
        end_with(crash_context_what(), CRASHED, HONE_ERR_MEMORY);
    for (int i = 0; i < FAULTS; i++)
        sigaction(numbers[i], &before[i], NULL);
    if (sent)
        raise(number);
}

/* A library may also exit. */
static void on_end(void)
{
    if (crash_context_what())
        end_with(crash_context_what(), CRASHED, HONE_ERR_MEMORY);
}

void signals_name_faults(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    for (int i = 0; i < FAULTS; i++)
        sigaction(numbers[i], &action, &before[i]);
    atexit(on_end);
}

static void on_hanging(const char *why)
{
    end_with(why, "", HONE_ERR_RANK);
}

void signals_end_hanging(void)
{
    heartbeat_set_end(on_hanging);
}
