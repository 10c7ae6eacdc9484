/* A layer under the file functions of a program, loaded before libc: it keeps a journal of what the program does to the files
 * below one directory, and can let one call fail.
 *
 *     STORAGE_ROOT       the directory
 *     STORAGE_JOURNAL    gets a line for each call that changed something; the bytes of a write follow its line
 *     STORAGE_FAIL       "N ERRNO": the N-th call from 1 fails with this number; "N+ ERRNO": all calls from there on
 *     STORAGE_COUNT      a file that gets the number of calls, when the program ends
 *
 * Lines: open FD EXISTED PATH, opendir FD PATH, write FD OFFSET COUNT, cut FD SIZE, shorten SIZE PATH, sync FD, rename FROM TO,
 * exchange ONE OTHER, unlink PATH, rmdir PATH, mkdir PATH. Paths have no spaces and are below the root.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILES = 4096, LINE_SIZE = 8192 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool below[FILES]; /* descriptors of files below the root */
static long calls;

static const char *root(void)
{
    const char *path = getenv("STORAGE_ROOT");
    return path ? path : "//";
}

static bool is_below(const char *path)
{
    size_t n = strlen(root());
    return !strncmp(path, root(), n) && (path[n] == '/' || !path[n]);
}

/* Whether this call is to fail: errno is set then. */
static bool fails(void)
{
    const char *text = getenv("STORAGE_FAIL");
    char *end;
    long now = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (!text)
        return false;
    long at = strtol(text, &end, 10);
    bool on = *end == '+';
    errno = atoi(end + on);
    return now == at || (on && now > at);
}

static void note(const void *bytes, size_t count, const char *format, ...)
{
    char line[LINE_SIZE];
    const char *path = getenv("STORAGE_JOURNAL");
    int saved = errno;
    va_list list;
    if (!path)
        return;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || syscall(SYS_write, fd, line, n) != n || (count && syscall(SYS_write, fd, bytes, count) != (long)count))
        abort();
    syscall(SYS_close, fd);
    errno = saved;
}

#define LOCKED(statement)                                                                                                        \
    do {                                                                                                                         \
        pthread_mutex_lock(&lock);                                                                                               \
        statement;                                                                                                               \
        pthread_mutex_unlock(&lock);                                                                                             \
    } while (0)

static int open_any(int at, const char *path, int flags, mode_t mode)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY, there = faccessat(AT_FDCWD, path, F_OK, 0) == 0;
    bool ours = at == AT_FDCWD && is_below(path) && (writes || flags & O_DIRECTORY);
    if (ours && writes && !there && fails())
        return -1;
    int fd = (int)syscall(SYS_openat, at, path, flags, mode);
    if (fd >= 0 && fd < FILES)
        below[fd] = ours;
    if (fd >= 0 && ours && flags & O_DIRECTORY)
        note(NULL, 0, "opendir %d %s\n", fd, path);
    if (fd >= 0 && ours && writes)
        note(NULL, 0, "open %d %d %s\n", fd, there && !(flags & O_TRUNC), path);
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    int fd;
    LOCKED(fd = open_any(AT_FDCWD, path, flags, mode));
    return fd;
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

static bool ours(int fd)
{
    return fd >= 0 && fd < FILES && below[fd];
}

int close(int fd)
{
    if (ours(fd))
        LOCKED(below[fd] = false);
    return (int)syscall(SYS_close, fd);
}

static ssize_t write_any(int fd, const void *bytes, size_t count, off_t at)
{
    if (fails())
        return -1;
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    off_t from = at >= 0 ? at : flags & O_APPEND && fstat(fd, &st) == 0 ? st.st_size : lseek(fd, 0, SEEK_CUR);
    ssize_t n = at >= 0 ? syscall(SYS_pwrite64, fd, bytes, count, at) : syscall(SYS_write, fd, bytes, count);
    if (n > 0)
        note(bytes, (size_t)n, "write %d %lld %lld\n", fd, (long long)from, (long long)n);
    return n;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    if (!ours(fd))
        return syscall(SYS_write, fd, bytes, count);
    ssize_t n;
    LOCKED(n = write_any(fd, bytes, count, -1));
    return n;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    if (!ours(fd))
        return syscall(SYS_pwrite64, fd, bytes, count, at);
    ssize_t n;
    LOCKED(n = write_any(fd, bytes, count, at));
    return n;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at)
{
    return pwrite(fd, bytes, count, at);
}

/* The rest: a call that may fail, and a line if it did not. */
#define NOTED(result, call, ...) LOCKED(result = fails() ? -1 : (int)(call); if (result == 0) note(NULL, 0, __VA_ARGS__))

int fsync(int fd)
{
    if (!ours(fd))
        return (int)syscall(SYS_fsync, fd);
    int result;
    NOTED(result, 0, "sync %d\n", fd); /* the disk of a test need not turn */
    return result;
}

int ftruncate(int fd, off_t size)
{
    if (!ours(fd))
        return (int)syscall(SYS_ftruncate, fd, size);
    int result;
    NOTED(result, syscall(SYS_ftruncate, fd, size), "cut %d %lld\n", fd, (long long)size);
    return result;
}

int truncate(const char *path, off_t size)
{
    if (!is_below(path))
        return (int)syscall(SYS_truncate, path, size);
    int result;
    NOTED(result, syscall(SYS_truncate, path, size), "shorten %lld %s\n", (long long)size, path);
    return result;
}

int rename(const char *from, const char *to)
{
    if (!is_below(to))
        return (int)syscall(SYS_rename, from, to);
    int result;
    NOTED(result, syscall(SYS_rename, from, to), "rename %s %s\n", from, to);
    return result;
}

/* Only as two names are exchanged. */
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (!is_below(to))
        return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    int result;
    NOTED(result, syscall(SYS_renameat2, from_dir, from, to_dir, to, flags), "exchange %s %s\n", from, to);
    return result;
}

/* A full or failing disk still forgets. */
static int forget(const char *path, long call, const char *kind)
{
    int result;
    LOCKED(result = (int)syscall(call, path); if (result == 0 && is_below(path)) note(NULL, 0, "%s %s\n", kind, path));
    return result;
}

int unlink(const char *path)
{
    return forget(path, SYS_unlink, "unlink");
}

int rmdir(const char *path)
{
    return forget(path, SYS_rmdir, "rmdir");
}

int remove(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) ? rmdir(path) : unlink(path);
}

int mkdir(const char *path, mode_t mode)
{
    if (!is_below(path) || faccessat(AT_FDCWD, path, F_OK, 0) == 0)
        return (int)syscall(SYS_mkdir, path, mode);
    int result;
    NOTED(result, syscall(SYS_mkdir, path, mode), "mkdir %s\n", path);
    return result;
}

__attribute__((destructor)) static void tell_count(void)
{
    const char *path = getenv("STORAGE_COUNT");
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", calls),
        fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd >= 0 && syscall(SYS_write, fd, text, n) == n)
        syscall(SYS_close, fd);
}
