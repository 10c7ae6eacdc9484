/* Files through POSIX calls: opening, mapping and reading them, and what the system says of them. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/confined.h"
#include "base/heartbeat.h"
#include "base/mapped.h"
#include "base/number.h"

enum { PIPEFS = 0x50495045, NUMBER_DIGITS = 16 };
static const double LEASE_SECONDS = 60, LEASE_PAUSE = 0.01;

/* Whether the system would let this user do it: then it was --confine that did not. */
static bool is_permitted(const char *path, bool only_read)
{
    char folder[PATH_MAX];
    if (access(path, F_OK) == 0)
        return access(path, only_read ? R_OK : R_OK | W_OK) == 0;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    return access(slash ? folder : ".", W_OK | X_OK) == 0;
}

static const char *remedy_of(int cause, const char *path, bool only_read)
{
    if (cause != EACCES && cause != EXDEV)
        return "";
    if (confined_files() && is_permitted(path, only_read))
        return ": it is none of the files that the options name, which hone confines itself to; name it, or give --confine off "
               "(docs/confinement.md)";
    return cause == EACCES ? ": it belongs to another user, or its mode forbids it (ls -ld, chmod)" : "";
}

enum status file_fail(const char *path, const char *what)
{
    int cause = errno;
    const char *remedy = remedy_of(cause, path, !strcmp(what, "open") || !strcmp(what, "read") || !strcmp(what, "map"));
    errno = cause;
    return fail(errno == ENOMEM ? ERR_MEMORY : ERR_IO, "%s: cannot %s: %s%s", path, what, strerror(errno), remedy);
}

int file_above(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), cause = errno;
    close(fd);
    errno = cause;
    return moved;
}

/* A pipe without a name, as a shell makes it: its writer is there. */
static bool is_nameless_pipe(int fd, const struct stat *st)
{
    struct statfs fs;
    return S_ISFIFO(st->st_mode) && fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS;
}

/* A named pipe would be waited for without O_NONBLOCK. With it a file that a server has leased to its clients (NFS, Samba) is not
 * opened, but asked back, and the system ends leases after 45 seconds. */
int file_open_now(const char *path, int flags)
{
    double until = clock_seconds() + LEASE_SECONDS;
    int fd;
    while ((fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666)) < 0 && errno == EWOULDBLOCK && clock_seconds() < until)
        clock_wait(LEASE_PAUSE);
    return file_above(fd);
}

enum status file_open(const char *path, int flags, int *fd, int64_t *size)
{
    *fd = file_open_now(path, flags);
    if (*fd < 0)
        return file_fail(path, "open");
    struct stat st;
    enum status status = OK;
    *size = -1;
    if (fstat(*fd, &st) != 0)
        status = file_fail(path, "read");
    else if (S_ISREG(st.st_mode))
        *size = (int64_t)st.st_size;
    else if (S_ISDIR(st.st_mode))
        status = fail(ERR_IO, "%s: is a directory, a file is needed", path);
    else if (!is_nameless_pipe(*fd, &st))
        status = fail(ERR_IO, "%s: not a regular file but a named pipe, a socket or a device", path);
    else if (fcntl(*fd, F_SETFL, 0) != 0) /* what its writer has not written yet is waited for */
        status = file_fail(path, "read");
    if (status != OK)
        close(*fd);
    return status;
}

static enum status file_too_large(const char *path, int64_t size, int64_t max_bytes)
{
    return fail(ERR_FORMAT, "%s: %lld bytes, more than the %lld that such a file may have", path, (long long)size,
                (long long)max_bytes);
}

enum status file_map(struct file_map *map, const char *path)
{
    return file_map_within(map, path, INT64_MAX);
}

enum status file_map_within(struct file_map *map, const char *path, int64_t max_bytes)
{
    int fd;
    int64_t size;
    *map = (struct file_map){0};
    TRY(file_open(path, O_RDONLY, &fd, &size));
    enum status status = OK;
    if (size < 0)
        status = fail(ERR_IO, "%s: not a regular file, it cannot be mapped", path);
    else if (size > max_bytes)
        status = file_too_large(path, size, max_bytes);
    else if (size > 0) {
        const void *data;
        status = mapped_open(&data, fd, size, path);
        if (status == OK && !data)
            status = file_fail(path, "map");
        if (status == OK) {
            *map = (struct file_map){data, size};
            return OK; /* the map keeps the descriptor */
        }
    }
    close(fd);
    return status;
}

void file_unmap(struct file_map *map)
{
    if (map->size)
        mapped_close(map->data);
    *map = (struct file_map){0};
}

enum status file_map_check(const struct file_map *map)
{
    return map->size ? mapped_check(map->data) : OK;
}

void file_map_drop(const struct file_map *map, int64_t offset, int64_t bytes)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    int64_t begin = round_up(offset, page), end = (offset + bytes) / page * page;
    if (begin < end && end <= map->size)
        madvise((void *)(map->data + begin), (size_t)(end - begin), MADV_DONTNEED);
    heartbeat_made(); /* it has been read so far */
}

static enum status file_read_all(struct buffer *buffer, int fd, const char *path, int64_t size, int64_t max_bytes)
{
    if (size > max_bytes)
        return file_too_large(path, size, max_bytes);
    for (;;) {
        TRY(buffer_reserve(buffer, size > buffer->size ? size - buffer->size + 1 : 65536));
        ssize_t n = read(fd, buffer->data + buffer->size, (size_t)(buffer->capacity - buffer->size - 1));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_fail(path, "read");
        if (n == 0)
            break;
        heartbeat_made();
        buffer->size += n;
        if (buffer->size > max_bytes)
            return fail(ERR_FORMAT, "%s: more than the %lld bytes that such a file may have", path, (long long)max_bytes);
    }
    buffer->data[buffer->size] = 0;
    return OK;
}

enum status file_read(struct buffer *buffer, const char *path, int64_t max_bytes)
{
    int fd;
    int64_t size;
    TRY(file_open(path, O_RDONLY, &fd, &size));
    enum status status = file_read_all(buffer, fd, path, size, max_bytes);
    close(fd);
    return status;
}

/* Two threads may replace the same file, as two processes may; and a process that knows the name beforehand could put a link
 * there. */
unsigned long long file_draw(void)
{
    static unsigned draws;
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) /* a kernel without it: at least another number */
        number = (uint64_t)getpid() << 32 | __atomic_add_fetch(&draws, 1, __ATOMIC_RELAXED);
    return number;
}

char *file_sibling(struct arena *arena, const char *path, const char *end)
{
    return arena_format(arena, "%s.%0*llx%s", path, NUMBER_DIGITS, file_draw(), end);
}

int64_t file_sibling_stem(const char *name, const char *end)
{
    int64_t stem = (int64_t)strlen(name) - (int64_t)strlen(end) - NUMBER_DIGITS - 1;
    if (stem <= 0 || name[stem] != '.' || strspn(name + stem + 1, "0123456789abcdef") != NUMBER_DIGITS)
        return -1;
    return strcmp(name + stem + 1 + NUMBER_DIGITS, end) == 0 ? stem : -1;
}

/* A file system that packs may keep a small part of a file; of what somebody wrote it is not this little. */
enum status file_check_holes(const char *path)
{
    enum { BLOCK = 512, FACTOR = 100, LARGE = 1 << 30 };
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= LARGE || st.st_blocks >= st.st_size / BLOCK / FACTOR)
        return OK;
    return fail(
        ERR_FORMAT,
        "%s: of its %lld bytes only %lld are on the disk, the rest are holes: it is damaged, or made to take time: get it again",
        path, (long long)st.st_size, (long long)st.st_blocks * BLOCK);
}

int64_t file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

void file_touch(const char *path)
{
    utimensat(AT_FDCWD, path, NULL, 0);
}

double file_age(const char *path)
{
    struct stat st;
    struct timespec now;
    if (stat(path, &st) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0)
        return 0;
    return (double)(now.tv_sec - st.st_mtim.tv_sec) + (double)(now.tv_nsec - st.st_mtim.tv_nsec) * 1e-9;
}

bool file_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void print_state(const struct stat *st, char state[static FILE_STATE])
{
    snprintf(state, FILE_STATE, "%llu:%llu %lld %lld.%09ld %lld.%09ld\n", (unsigned long long)st->st_dev,
             (unsigned long long)st->st_ino, (long long)st->st_size, (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
             (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
}

bool file_state(const char *path, char state[static FILE_STATE])
{
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (there)
        print_state(&st, state);
    return there;
}

bool file_state_of(int fd, char state[static FILE_STATE])
{
    struct stat st;
    bool there = fstat(fd, &st) == 0;
    if (there)
        print_state(&st, state);
    return there;
}

enum status file_target(struct arena *arena, const char *path, const char **target)
{
    char text[PATH_MAX];
    ssize_t n = readlink(path, text, sizeof text);
    *target = NULL;
    if (n <= 0 || n == (ssize_t)sizeof text)
        return OK;
    *target = arena_text(arena, text, (int64_t)n);
    return *target ? OK : ERR_MEMORY;
}

bool file_link_target(const char *path, char target[static FILE_TARGET_SIZE])
{
    char whole[PATH_MAX];
    ssize_t length = readlink(path, whole, sizeof whole - 1);
    whole[length > 0 ? length : 0] = 0;
    const char *slash = strrchr(whole, '/');
    return length > 0 && snprintf(target, FILE_TARGET_SIZE, "%s", slash ? slash + 1 : whole) < FILE_TARGET_SIZE;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool file_is_missing(const char *path)
{
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool file_is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

bool file_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *file_join(struct arena *arena, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return arena_format(arena, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}
