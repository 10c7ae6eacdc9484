/* The helper: a fork that waits for one message, or for the end of the pipe. */
#include "cli/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/memory.h"
#include "base/process.h"

enum { MESSAGE_MAX = 1 << 16, VARIABLES_MAX = 32, EMPTY_MAX = 64 };
static const char variable[] = "HONE_";

static int to_helper = -1, from_helper = -1;
static pid_t helper;

struct answer {
    int32_t status, code;
    char text[STATUS_MESSAGE_SIZE];
};

static bool move(int fd, void *bytes, size_t count, bool writes)
{
    for (char *at = bytes; count;) {
        ssize_t n = writes ? write(fd, at, count) : read(fd, at, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

/* --- the helper's side --------------------------------------------------------------------------------------------------------
 */

/* Variables are told apart by their names: those of another name than HONE_... are not the run's to set. */
static void run_command(const char *command, char *text, size_t size, int to)
{
    const char *variables[VARIABLES_MAX + 1] = {NULL};
    struct answer answer = {.code = -1};
    int count = 0, code = -1;
    for (char *at = text; at < text + size && count < VARIABLES_MAX; at += strlen(at) + 1)
        if (!strncmp(at, variable, sizeof variable - 1) && strchr(at, '='))
            variables[count++] = at;
    answer.status = (int32_t)process_shell(command, variables, &code);
    answer.code = code;
    if (answer.status)
        snprintf(answer.text, sizeof answer.text, "%s", status_message());
    move(to, &answer, sizeof answer, true);
}

/* A message is an empty text, a directory that is to go, or the variables of the command. */
static void serve(const char *temporary, const char *command, int from, int to)
{
    static char text[MESSAGE_MAX + 1];
    static char empty[EMPTY_MAX][PATH_MAX];
    int count = 0;
    uint32_t size;
    while (move(from, &size, sizeof size, false) && size <= MESSAGE_MAX && move(from, text, size, false)) {
        text[size] = 0;
        if (!strncmp(text, variable, sizeof variable - 1) && command)
            run_command(command, text, size, to);
        else if (*text && size < PATH_MAX && count < EMPTY_MAX)
            memcpy(empty[count++], text, size + 1);
    }
    for (int i = 0; i < count; i++)
        directory_remove_empty(empty[i]);
    if (temporary)
        directory_discard(temporary);
}

/* What stops the run does not stop its helper, which ends when the run has. Files that the run was given are not kept open. */
static void become_helper(int *from, int *to, bool prints)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU, SIGPIPE, SIGTSTP, SIGXFSZ};
    prctl(PR_SET_NAME, "hone-helper");
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        signal(passed[i], SIG_IGN);
    int in = fcntl(*from, F_DUPFD_CLOEXEC, 64), out = fcntl(*to, F_DUPFD_CLOEXEC, 64),
        none = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < (prints ? STDERR_FILENO : STDERR_FILENO + 1) && none >= 0; fd++)
        dup2(none, fd);
    int first = STDERR_FILENO + 1;
    syscall(SYS_close_range, first, (in < out ? in : out) - 1, 0);
    syscall(SYS_close_range, (in < out ? out : in) + 1, ~0U, 0);
    *from = in;
    *to = out;
}

/* --- the run's side ------------------------------------------------------------------------------------------------------------
 */

enum status helper_start(const char *temporary, const char *command)
{
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) != 0)
        return fail(ERR_IO, "the helper cannot be started: %s", strerror(errno));
    if (pipe2(up, O_CLOEXEC) != 0) {
        close(down[0]);
        close(down[1]);
        return fail(ERR_IO, "the helper cannot be started: %s", strerror(errno));
    }
    helper = fork();
    if (helper == 0) {
        close(down[1]);
        close(up[0]);
        become_helper(&down[0], &up[1], command != NULL);
        serve(temporary, command, down[0], up[1]);
        _exit(0);
    }
    enum status status = helper > 0 ? OK : fail(ERR_IO, "the helper cannot be started: %s", strerror(errno));
    close(down[0]);
    close(up[1]);
    to_helper = down[1];
    from_helper = up[0];
    if (status != OK)
        helper_end();
    return status;
}

bool helper_is_there(void)
{
    return helper > 0;
}

/* A path that begins like a variable would be taken for one: a path from here is a name in this directory. */
void helper_remove_empty(const char *path)
{
    char text[PATH_MAX];
    int n = path ? snprintf(text, sizeof text, "%s%s", *path == '/' ? "" : "./", path) : -1;
    uint32_t size = (uint32_t)n;
    if (helper > 0 && n > 0 && n < PATH_MAX && move(to_helper, &size, sizeof size, true))
        move(to_helper, text, size, true);
}

enum status helper_run(const char *const *variables, int *code)
{
    struct buffer text = {0};
    struct answer answer;
    enum status status = OK;
    for (; *variables && status == OK; variables++)
        status = buffer_append(&text, *variables, (int64_t)strlen(*variables) + 1);
    uint32_t size = (uint32_t)text.size;
    if (status == OK && (text.size > MESSAGE_MAX || !move(to_helper, &size, sizeof size, true) ||
                         !move(to_helper, text.data, size, true) || !move(from_helper, &answer, sizeof answer, false)))
        status = fail(ERR_IO, "the helper that runs it has gone");
    buffer_free(&text);
    if (status != OK)
        return status;
    *code = answer.code;
    answer.text[sizeof answer.text - 1] = 0;
    return answer.status ? fail((enum status)answer.status, "%s", answer.text) : OK;
}

void helper_end(void)
{
    if (to_helper < 0)
        return;
    close(to_helper);
    close(from_helper);
    to_helper = from_helper = -1;
    while (helper > 0 && waitpid(helper, NULL, 0) < 0 && errno == EINTR)
        continue;
    helper = 0;
}
