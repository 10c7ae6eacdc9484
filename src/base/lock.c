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
#include "base/headway.h"
#include "base/process.h"

enum { LOCK_TEXT = PROCESS_HOST + 32 };
static const double PAUSE = 0.05; /* seconds between two looks at a lock that another process has */

/* Whether the path still leads to the file that was locked. */
static bool still_there(int fd, const char *path)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

static enum status cannot_lock(const char *path)
{
    bool unsupported = errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK;
    enum status status = file_fail(path, "lock");
    return unsupported ? ERR_UNSUPPORTED : status;
}

enum status lock_take(struct lock *lock, const char *path, enum lock_kind kind, bool wait, bool *taken)
{
    *taken = false;
    lock->fd = file_above(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (lock->fd < 0 && kind == LOCK_SHARED && (errno == EACCES || errno == EROFS))
        lock->fd = file_above(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)); /* another user's file, readable */
    if (lock->fd < 0)
        return errno == ENOENT ? OK : file_fail(path, "open");
    int result;
    while ((result = flock(lock->fd, (kind == LOCK_SHARED ? LOCK_SH : LOCK_EX) | LOCK_NB)) != 0 &&
           (errno == EINTR || (wait && errno == EWOULDBLOCK))) {
        headway_made(); /* another run works, and that may take as long as it likes */
        clock_wait(PAUSE);
    }
    enum status status = result == 0 || errno == EWOULDBLOCK ? OK : cannot_lock(path);
    *taken = result == 0 && still_there(lock->fd, path);
    if (!*taken)
        lock_release(lock);
    return status;
}

enum status lock_is_held(const char *path, bool *held)
{
    *held = false;
    int fd = file_above(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0)
        return errno == ENOENT ? OK : file_fail(path, "open");
    *held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    enum status status = *held && errno != EWOULDBLOCK ? cannot_lock(path) : OK;
    *held = *held && status == OK;
    close(fd);
    return status;
}

enum status lock_sign(const struct lock *lock, const char *path)
{
    char text[LOCK_TEXT], host[PROCESS_HOST];
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
