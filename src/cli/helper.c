/* The helper: a fork that waits for messages, or for the end of the line. */
#include "cli/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/process.h"

enum { MESSAGE_MAX = 1 << 14, EMPTY_MAX = 64 };

static int line = -1; /* to the helper */
static pid_t helper;

struct answer {
    int32_t status, code;
    char text[STATUS_MESSAGE_SIZE];
};

/* All of it, or false: the other side has gone. */
static bool helper_give(int fd, const void *bytes, size_t count)
{
    for (const char *at = bytes; count;) {
        ssize_t n = send(fd, at, count, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

static bool helper_take(int fd, void *bytes, size_t count)
{
    for (char *at = bytes; count;) {
        ssize_t n = recv(fd, at, count, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

/* --- the helper's side --------------------------------------------------------------------------------------------------- */

/* What speaks through the line may be an intruder: a variable is one of these, which no program takes for code, and each comes at
 * most once. What is not expected is passed over. */
static const char *const known[] = {"HONE_STATUS=", "HONE_EXIT_CODE=", "HONE_MESSAGE=",        "HONE_STEPS=",  "HONE_SAVED_STEP=",
                                    "HONE_LOSS=",   "HONE_EVAL_LOSS=", "HONE_BEST_EVAL_LOSS=", "HONE_SECONDS="};
enum { KNOWN = sizeof known / sizeof known[0] };

static void helper_run_command(const struct helper_work *work, char *text, size_t size, int fd)
{
    const char *variables[KNOWN + 2] = {NULL};
    struct answer answer = {.code = -1};
    int count = 0, code = -1;
    for (int i = 0; i < KNOWN; i++)
        for (char *at = text; at < text + size; at += strlen(at) + 1)
            if (!strncmp(at, known[i], strlen(known[i]))) {
                variables[count++] = at;
                break;
            }
    variables[count] = work->output; /* as it was given */
    answer.status = (int32_t)process_shell(work->command, variables, &code);
    answer.code = code;
    if (answer.status)
        snprintf(answer.text, sizeof answer.text, "%s", status_message());
    helper_give(fd, &answer, sizeof answer);
}

/* A message is a directory that is to go if it is empty, or the variables of the command, which is run once. */
static void serve(const struct helper_work *work, int fd)
{
    static char text[MESSAGE_MAX + 1];
    static char empty[EMPTY_MAX][PATH_MAX];
    bool ran = !work->command;
    int count = 0;
    uint32_t size;
    while (helper_take(fd, &size, sizeof size) && size <= MESSAGE_MAX && helper_take(fd, text, size)) {
        text[size] = 0;
        if (!strncmp(text, known[0], strlen(known[0])) && !ran) {
            ran = true;
            helper_run_command(work, text, size, fd);
        } else if ((*text == '/' || *text == '.') && size < PATH_MAX && count < EMPTY_MAX)
            memcpy(empty[count++], text, size + 1);
    }
    for (int i = 0; i < count; i++)
        directory_remove_empty(empty[i]);
    if (work->temporary)
        directory_discard_safely(work->temporary);
}

/* What stops the run does not stop its helper, which ends when the run has. Files that the run was given are not kept open. */
static void become_helper(int fd, bool prints)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU, SIGPIPE, SIGTSTP, SIGXFSZ};
    prctl(PR_SET_NAME, "hone-helper");
    prctl(PR_SET_DUMPABLE, 0); /* no other process of the user looks into it */
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        signal(passed[i], SIG_IGN);
    int none = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int to = 0; to < (prints ? STDERR_FILENO : STDERR_FILENO + 1) && none >= 0; to++)
        dup2(none, to);
    if (fd > STDERR_FILENO + 1)
        syscall(SYS_close_range, STDERR_FILENO + 1, fd - 1, 0);
    syscall(SYS_close_range, fd + 1, ~0U, 0);
}

/* --- the run's side ------------------------------------------------------------------------------------------------------ */

enum status helper_start(const struct helper_work *work)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return fail(ERR_IO, "the helper cannot be started: %s", strerror(errno));
    ends[0] = file_above(ends[0]);
    ends[1] = file_above(ends[1]);
    helper = ends[0] < 0 || ends[1] < 0 ? -1 : fork();
    if (helper == 0) {
        close(ends[1]);
        become_helper(ends[0], work->command != NULL);
        serve(work, ends[0]);
        _exit(0);
    }
    enum status status = helper > 0 ? OK : fail(ERR_IO, "the helper cannot be started: %s", strerror(errno));
    close(ends[0]);
    line = ends[1];
    if (status != OK)
        helper_end();
    return status;
}

bool helper_is_there(void)
{
    return helper > 0;
}

static bool helper_tell(const void *text, size_t count)
{
    uint32_t size = (uint32_t)count;
    return helper > 0 && count <= MESSAGE_MAX && helper_give(line, &size, sizeof size) && helper_give(line, text, count);
}

void helper_remove_empty(const char *path)
{
    char text[PATH_MAX];
    int n = path ? snprintf(text, sizeof text, "%s%s", *path == '/' ? "" : "./", path) : -1;
    if (n > 0 && n < PATH_MAX)
        helper_tell(text, (size_t)n);
}

enum status helper_run(const char *const *variables, int *code)
{
    struct buffer text = {0};
    struct answer answer;
    enum status status = OK;
    for (; *variables && status == OK; variables++)
        status = buffer_append(&text, *variables, (int64_t)strlen(*variables) + 1);
    if (status == OK && (!helper_tell(text.data, (size_t)text.size) || !helper_take(line, &answer, sizeof answer)))
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
    if (line < 0)
        return;
    close(line);
    line = -1;
    while (helper > 0 && waitpid(helper, NULL, 0) < 0 && errno == EINTR)
        continue;
    helper = 0;
}
