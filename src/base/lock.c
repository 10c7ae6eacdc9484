/* flock, which belongs to the open file: the system releases it when the process dies. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/heartbeat.h"
#include "base/process.h"

enum { LOCK_TEXT = PROCESS_HOST + 32 };
static const double PAUSE = 0.05; /* seconds between two looks at a lock that another process has */

bool lock_is_lost(const struct lock *lock, const char *path)
{
    struct stat held, named;
    if (lock->fd < 0)
        return false;
    if (fstat(lock->fd, &held) != 0 || lstat(path, &named) != 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ESTALE; /* all else is said when something is written there */
    return held.st_dev != named.st_dev || held.st_ino != named.st_ino;
}

static enum status cannot_lock(const char *path)
{
    bool unsupported = errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK;
    enum status status = file_fail(path, "lock");
    return unsupported ? ERR_UNSUPPORTED : status;
}

/* A lock is written to: what a link leads to would be emptied. */
static int open_lock(const char *path, int flags)
{
    return file_open_now(path, flags | O_NOFOLLOW);
}

/* What open_lock gave: *fd stays -1 if there is no such file. */
static enum status check_opened(int *fd, const char *path)
{
    struct stat st;
    if (*fd < 0 && errno == ELOOP)
        return fail(ERR_IO, "%s: is a symbolic link, and a lock must be a file of its own: remove the link", path);
    if (*fd < 0)
        return errno == ENOENT ? OK : file_fail(path, "open");
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode))
        return OK;
    close(*fd);
    *fd = -1;
    return fail(ERR_IO, "%s: is not a regular file, and a lock must be one: remove it", path);
}

enum status lock_take(struct lock *lock, const char *path, enum lock_kind kind, bool wait, bool *taken)
{
    *taken = false;
    lock->fd = open_lock(path, O_RDWR | O_CREAT);
    if (lock->fd < 0 && kind == LOCK_SHARED && (errno == EACCES || errno == EROFS))
        lock->fd = open_lock(path, O_RDONLY); /* another user's file, readable */
    TRY(check_opened(&lock->fd, path));
    if (lock->fd < 0)
        return OK;
    int result;
    while ((result = flock(lock->fd, (kind == LOCK_SHARED ? LOCK_SH : LOCK_EX) | LOCK_NB)) != 0 &&
           (errno == EINTR || (wait && errno == EWOULDBLOCK))) {
        heartbeat_made(); /* another run works, and that may take as long as it likes */
        clock_wait(PAUSE);
    }
    enum status status = result == 0 || errno == EWOULDBLOCK ? OK : cannot_lock(path);
    *taken = result == 0 && !lock_is_lost(lock, path);
    if (!*taken)
        lock_release(lock);
    return status;
}

enum status lock_is_held(const char *path, bool *held)
{
    int fd = open_lock(path, O_RDONLY);
    *held = false;
    TRY(check_opened(&fd, path));
    if (fd < 0)
        return OK;
    *held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    enum status status = *held && errno != EWOULDBLOCK ? cannot_lock(path) : OK;
    *held = *held && status == OK;
    close(fd);
    return status;
}

/* A lock is written to and removed: somebody's file that has its name must not be. What a crash left may be cut off, or zeros.
 * Only through the lock's own descriptor can it be read on every file system. */
static enum status lock_check_text(int fd, const char *path)
{
    struct stat st;
    char first = 0;
    if (fstat(fd, &st) != 0 || pread(fd, &first, 1, 0) < 0)
        return file_fail(path, "read");
    if (st.st_nlink <= 1 && (!first || (first >= '0' && first <= '9')))
        return OK;
    return fail(ERR_ARGUMENT, "%s: is somebody's file, or another name of one, and a lock must be there: rename it", path);
}

enum status lock_may_sign(const char *path)
{
    int fd = open_lock(path, O_RDONLY);
    TRY(check_opened(&fd, path));
    enum status status = fd >= 0 ? lock_check_text(fd, path) : OK;
    if (fd >= 0)
        close(fd);
    return status;
}

enum status lock_sign(const struct lock *lock, const char *path)
{
    char text[LOCK_TEXT], host[PROCESS_HOST];
    TRY(lock_check_text(lock->fd, path));
    process_host(host);
    int n = snprintf(text, sizeof text, "%lld %s\n", (long long)process_id(), host);
    return ftruncate(lock->fd, 0) == 0 && pwrite(lock->fd, text, (size_t)n, 0) == n ? OK : file_fail(path, "write");
}

void lock_share(struct lock *lock)
{
    flock(lock->fd, LOCK_SH);
}

void lock_release(struct lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
}
