/* Memory of this process, from /proc, its stack, its name, the system's random numbers, and commands of the shell. */
#include "base/process.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

void process_memory(int64_t *now, int64_t *peak)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long long kib;
    *now = *peak = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmRSS: %lld kB", &kib) == 1)
            *now = (int64_t)kib * 1024;
        if (sscanf(line, "VmHWM: %lld kB", &kib) == 1)
            *peak = (int64_t)kib * 1024;
    }
    if (file)
        fclose(file);
}

void process_trim(void)
{
    malloc_trim(0);
}

enum { STACK = 2 << 20 }; /* the backward pass of attention takes 1.2 MB */

/* One page is enough: the system then has the addresses down to it. */
static __attribute__((noinline)) void touch_stack(void)
{
    volatile char deep[STACK];
    (void)(deep[0] = 0);
}

enum status process_grow_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < (rlim_t)2 * STACK)
        return OK;
    void *room = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return fail(ERR_MEMORY, "out of memory: no room for a stack of %d bytes; free some, or raise the limit (ulimit -v)",
                    STACK);
    munmap(room, STACK);
    touch_stack();
    return OK;
}

void process_want_files(int64_t count)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)count)
        return;
    limit.rlim_cur = limit.rlim_max < (rlim_t)count ? limit.rlim_max : (rlim_t)count;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int64_t process_id(void)
{
    return getpid();
}

void process_host(char host[static PROCESS_HOST])
{
    memset(host, 0, PROCESS_HOST);
    if (gethostname(host, PROCESS_HOST - 1) != 0 || !*host)
        snprintf(host, PROCESS_HOST, "?");
}

/* --- other programs ------------------------------------------------------------------------------------------------------- */

static bool is_replaced(const char *variable, const char *const *by)
{
    size_t name = strcspn(variable, "=") + 1;
    for (; *by; by++)
        if (!strncmp(variable, *by, name))
            return true;
    return false;
}

static char **join_environment(struct arena *arena, const char *const *variables)
{
    int64_t count = 0, n = 0;
    for (char **old = environ; *old; old++)
        count++;
    for (const char *const *more = variables; *more; more++)
        count++;
    char **all = arena_array(arena, count + 1, sizeof *all);
    for (char **old = environ; all && *old; old++)
        if (!is_replaced(*old, variables))
            all[n++] = *old;
    for (; all && *variables; variables++)
        all[n++] = (char *)*variables;
    return all;
}

/* Signals are as the system has them at first: none is blocked or ignored because this process does so. */
static int start_shell(const char *command, char **environment, pid_t *child)
{
    char *const words[] = {"sh", "-c", (char *)command, NULL};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int error = posix_spawnattr_init(&attributes);
    if (error)
        return error;
    error = posix_spawn_file_actions_init(&files);
    if (!error) {
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setsigdefault(&attributes, &all);
        error = posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
        if (!error)
            error = posix_spawn(child, "/bin/sh", &files, &attributes, words, environment);
        posix_spawn_file_actions_destroy(&files);
    }
    posix_spawnattr_destroy(&attributes);
    return error;
}

enum status process_shell(const char *command, const char *const *variables, int *code)
{
    struct arena arena = {0};
    pid_t child, ended;
    int how = 0;
    *code = -1;
    char **environment = join_environment(&arena, variables);
    int error = environment ? start_shell(command, environment, &child) : ENOMEM;
    arena_free(&arena);
    if (error)
        return fail(error == ENOMEM ? ERR_MEMORY : ERR_IO, "the shell cannot be started: %s", strerror(error));
    do
        ended = waitpid(child, &how, 0);
    while (ended < 0 && errno == EINTR);
    if (ended < 0)
        return fail(ERR_IO, "the end of the command is not known: %s", strerror(errno));
    *code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    return OK;
}

void process_program(char path[PROCESS_PATH])
{
    ssize_t n = readlink("/proc/self/exe", path, PROCESS_PATH - 1);
    path[n > 0 ? n : 0] = 0;
}

enum status process_unique(uint64_t *number)
{
    ssize_t got;
    do
        got = getrandom(number, sizeof *number, 0);
    while (got < 0 && errno == EINTR);
    return got == sizeof *number ? OK : fail(ERR_IO, "the system gives no random numbers: %s", strerror(errno));
}
