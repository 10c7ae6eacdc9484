/* A child that is a launcher, and signals for what it started. */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/code.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/process.h"
#include "cli/signals.h"

enum { DEPTH_MAX = 64 }; /* of processes between a started program and the launcher */

/* The words of this process's command line, after those that are given. The program is named by its path: a launcher would look
 * for the name that it was started by once more, and find another. */
static enum status add_command_line(struct arena *arena, const char *const *given, const char ***words)
{
    struct buffer own = {0};
    int64_t count = 0, at = 0;
    char program[PROCESS_PATH];
    process_program(program);
    TRY(file_read(&own, "/proc/self/cmdline", 16 << 20));
    while (given[count])
        count++;
    *words = arena_array(arena, count + own.size + 1, (int64_t)sizeof **words);
    const char *text = arena_text(arena, own.data, own.size);
    for (int64_t i = 0; i < count && *words; i++)
        (*words)[i] = given[i];
    if (*program && *words && text) {
        (*words)[count++] = arena_text(arena, program, (int64_t)strlen(program));
        at = (int64_t)strlen(text) + 1;
    }
    for (; at < own.size && *words && text; at += (int64_t)strlen(text + at) + 1)
        (*words)[count++] = text + at;
    buffer_free(&own);
    return *words && text ? OK : ERR_MEMORY;
}

static enum status set_variables(struct arena *arena, const char *const *variables)
{
    for (; *variables; variables++) {
        char *name = arena_text(arena, *variables, (int64_t)strcspn(*variables, "="));
        if (!name)
            return ERR_MEMORY;
        setenv(name, *variables + strlen(name) + 1, 0);
    }
    return OK;
}

/* --- the child ------------------------------------------------------------------------------------------------------------ */

/* Never returns. A process group of its own may not read from a terminal, and hone's ranks read nothing. */
static void become(const char *path, const char *const *words, pid_t parent, const sigset_t *mask, int errors)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* which has ended before that was said */
        _exit(1);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    sigprocmask(SIG_SETMASK, mask, NULL);
    code_execute(path, words);
    int error = errno;
    if (write(errors, &error, sizeof error) < 0)
        _exit(2);
    _exit(1);
}

/* An exec that works closes the pipe; one that does not says why. */
static enum status launch_start(const char *path, const char *const *words, const sigset_t *mask, pid_t *child)
{
    pid_t parent = getpid();
    int ends[2], error = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fail(ERR_IO, "%s cannot be started: %s", words[0], strerror(errno));
    *child = fork();
    if (!*child)
        become(path, words, parent, mask, ends[1]);
    if (*child < 0)
        error = errno;
    close(ends[1]);
    if (*child > 0 && read(ends[0], &error, sizeof error) > 0)
        waitpid(*child, NULL, 0);
    close(ends[0]);
    return error ? fail(ERR_IO, "%s cannot be started: %s", words[0], strerror(error)) : OK;
}

/* --- what it started ------------------------------------------------------------------------------------------------------ */

static pid_t parent_of(pid_t process)
{
    char path[64], text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r");
    const char *line = file ? fgets(text, sizeof text, file) : NULL, *name = line ? strrchr(line, ')') : NULL;
    if (file)
        fclose(file);
    return name && sscanf(name + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

static bool is_below(pid_t process, pid_t launcher)
{
    for (int i = 0; i < DEPTH_MAX && process > 1; i++) {
        process = parent_of(process);
        if (process == launcher)
            return true;
    }
    return false;
}

/* Whether a process runs the same program as this one. */
static bool launch_is_own(pid_t process)
{
    struct stat here, there;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)process);
    return stat("/proc/self/exe", &here) == 0 && stat(path, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

/* To all that the launcher started; to itself as long as there is none. */
static void launch_pass_on(int number, pid_t launcher)
{
    struct arena arena = {0};
    const char **names;
    int64_t count = 0, reached = 0;
    if (directory_list(&arena, "/proc", &names, &count) != OK)
        count = 0;
    for (int64_t i = 0; i < count; i++) {
        pid_t process = (pid_t)strtol(names[i], NULL, 10);
        if (process > 1 && launch_is_own(process) && is_below(process, launcher))
            reached += kill(process, number) == 0;
    }
    arena_free(&arena);
    if (!reached)
        kill(launcher, number);
}

static void pause_with(pid_t launcher)
{
    kill(launcher, SIGTSTP);
    kill(getpid(), SIGSTOP);
    kill(launcher, SIGCONT);
}

/* Open MPI's launcher says by its own exit code that a rank was ended by a signal that nobody asked for: that rank is gone.
 * (MPICH's ends with the number of the signal, which may be a code of hone's.) */
static int launch_code(int how, bool asked)
{
    int code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    return WIFEXITED(how) && code > 128 && code < 128 + SIGRTMAX && !asked ? (int)ERR_RANK : code;
}

static enum status stand_in(pid_t child, const sigset_t *watched, int *code, bool *asked)
{
    *asked = false;
    for (int how = 0;;) {
        pid_t ended = waitpid(child, &how, WNOHANG);
        if (ended == child) {
            *code = launch_code(how, *asked);
            return OK;
        }
        if (ended < 0 && errno != EINTR)
            return fail(ERR_IO, "the end of the launcher is not known: %s", strerror(errno));
        int number = sigwaitinfo(watched, NULL);
        if (number == SIGTSTP)
            pause_with(child);
        else if (number > 0 && number != SIGCHLD) {
            *asked = true;
            launch_pass_on(number, child);
        }
    }
}

static enum status launch(const char *path, const char *const *words, int *code, bool *asked)
{
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGTSTP};
    sigset_t watched, before;
    pid_t child = 0;
    sigemptyset(&watched);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!signals_ignored(numbers[i])) /* one that is blocked and waited for comes even if it is ignored */
            sigaddset(&watched, numbers[i]);
    sigprocmask(SIG_BLOCK, &watched, &before);
    enum status status = launch_start(path, words, &before, &child);
    if (status == OK)
        status = stand_in(child, &watched, code, asked);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

enum status launch_again(const char *const *arguments, const char *const *variables, int *code, bool *asked)
{
    struct arena arena = {0};
    const char **words, *path;
    enum status status = code_find_program(&arena, arguments[0], &path);
    if (status == OK)
        status = add_command_line(&arena, arguments, &words);
    if (status == OK)
        status = set_variables(&arena, variables);
    if (status == OK)
        status = launch(path, words, code, asked);
    arena_free(&arena);
    return status;
}
