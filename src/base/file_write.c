/* Writing, replacing, copying and renaming files through POSIX calls. A rename is durable only once its directory is. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/heartbeat.h"

enum { COPY_CHUNK = 256 * 1024 };

enum status file_write(int fd, const char *path, const void *bytes, int64_t n)
{
    for (const char *at = bytes; n > 0;) {
        ssize_t done = write(fd, at, (size_t)n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return file_fail(path, "write");
        heartbeat_made();
        at += done;
        n -= done;
    }
    return OK;
}

/* A rename would put a file in the place of a device or a pipe. */
static enum status file_write_check_replaced(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode) || S_ISDIR(info.st_mode))
        return OK; /* what is wrong with a directory is said when it is replaced */
    return fail(ERR_IO, "%s: a device or a pipe, not a file: name a file", path);
}

enum status file_writer_open(struct file_writer *writer, const char *path)
{
    TRY(file_write_check_replaced(path));
    int64_t n = (int64_t)strlen(path) + 32;
    *writer = (struct file_writer){.path = path, .part = memory_alloc(n), .fd = -1};
    if (!writer->part)
        return ERR_MEMORY;
    snprintf(writer->part, (size_t)n, "%s.%016llx.part", path, file_draw());
    writer->fd = file_above(open(writer->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (writer->fd >= 0)
        return OK;
    enum status status = file_fail(writer->path, "create");
    memory_free(writer->part);
    return status;
}

enum status file_writer_append(struct file_writer *writer, const void *bytes, int64_t count)
{
    return file_write(writer->fd, writer->part, bytes, count);
}

enum status file_writer_commit(struct file_writer *writer)
{
    enum status status = fsync(writer->fd) == 0 ? OK : file_fail(writer->part, "sync");
    if (close(writer->fd) != 0 && status == OK)
        status = file_fail(writer->part, "close");
    if (status == OK && rename(writer->part, writer->path) != 0)
        status = file_fail(writer->path, "replace");
    if (status == OK)
        status = directory_sync_parent(writer->path);
    else
        unlink(writer->part);
    memory_free(writer->part);
    return status;
}

void file_writer_abort(struct file_writer *writer)
{
    close(writer->fd);
    unlink(writer->part);
    memory_free(writer->part);
}

enum status file_rename(const char *from, const char *to)
{
    return rename(from, to) == 0 ? directory_sync_parent(to) : file_fail(to, "replace");
}

/* Not every file system, nor every kernel, has a rename that replaces nothing: then a file gets a second name, which replaces
 * nothing either, and loses its first. A directory takes the place of no other that has files in it. */
static int rename_to_new(const char *from, const char *to)
{
    struct stat st;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (link(from, to) == 0) {
        unlink(from);
        return 0;
    }
    if (errno == EEXIST || lstat(to, &st) == 0) {
        errno = EEXIST;
        return -1;
    }
    return rename(from, to);
}

enum status file_publish(const char *from, const char *to, bool *taken)
{
    *taken = false;
    if (rename_to_new(from, to) == 0)
        return directory_sync_parent(to);
    *taken = errno == EEXIST || errno == ENOTEMPTY;
    return *taken ? OK : file_fail(to, "write");
}

void file_remove(const char *path)
{
    unlink(path);
}

enum status file_link(const char *target, const char *path)
{
    struct arena arena = {0};
    char *part = file_sibling(&arena, path, ".part");
    enum status status = part ? OK : ERR_MEMORY;
    if (status == OK && (symlink(target, part) != 0 || rename(part, path) != 0)) {
        status = file_fail(path, "make a link");
        unlink(part);
    }
    arena_free(&arena);
    return status;
}

enum status file_replace(const char *path, const void *bytes, int64_t count)
{
    struct file_writer writer;
    TRY(file_writer_open(&writer, path));
    enum status status = file_writer_append(&writer, bytes, count);
    if (status == OK)
        return file_writer_commit(&writer);
    file_writer_abort(&writer);
    return status;
}

static enum status file_write_new(int fd, const char *path, const void *bytes, int64_t count)
{
    enum status status = file_write(fd, path, bytes, count);
    if (close(fd) != 0 && status == OK)
        status = file_fail(path, "write");
    if (status != OK)
        unlink(path);
    return status;
}

enum status file_create(const char *path, const void *bytes, int64_t count)
{
    int fd;
    int64_t size;
    TRY(file_open(path, O_WRONLY | O_CREAT | O_EXCL, &fd, &size));
    return file_write_new(fd, path, bytes, count);
}

/* Not every file system has files without a name: there one has a name for a moment. */
enum status file_open_unnamed(const char *dir, int *fd)
{
    *fd = file_above(open(dir, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    if (*fd >= 0)
        return OK;
    struct arena arena = {0};
    char *stem = file_join(&arena, dir, "unnamed"), *path = stem ? file_sibling(&arena, stem, ".part") : NULL;
    enum status status = path ? OK : ERR_MEMORY;
    if (path)
        *fd = file_above(open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (path && *fd < 0)
        status = file_fail(dir, "make a file in");
    else if (path)
        unlink(path);
    arena_free(&arena);
    return status;
}

static enum status copy_bytes(struct file_writer *writer, int fd, const char *from, char *chunk)
{
    for (;;) {
        ssize_t n = read(fd, chunk, COPY_CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? OK : file_fail(from, "read");
        TRY(file_writer_append(writer, chunk, n));
    }
}

enum status file_copy(const char *from, const char *to)
{
    int fd;
    int64_t size;
    struct file_writer writer;
    TRY(file_open(from, O_RDONLY, &fd, &size));
    char *chunk = memory_alloc(COPY_CHUNK);
    enum status status = chunk ? file_writer_open(&writer, to) : ERR_MEMORY;
    if (status == OK) {
        status = copy_bytes(&writer, fd, from, chunk);
        if (status == OK)
            status = file_writer_commit(&writer);
        else
            file_writer_abort(&writer);
    }
    memory_free(chunk);
    close(fd);
    return status;
}

enum status file_append(const char *path, const void *bytes, int64_t count)
{
    int fd;
    int64_t size;
    TRY(file_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, &fd, &size));
    enum status status = file_write(fd, path, bytes, count);
    if (close(fd) != 0 && status == OK)
        status = file_fail(path, "write");
    return status;
}

enum status file_cut(const char *path, int64_t size)
{
    if (file_size(path) < size)
        return fail(ERR_FORMAT, "%s: shorter than the %lld bytes that it should have", path, (long long)size);
    int fd = file_above(open(path, O_WRONLY | O_CLOEXEC));
    enum status status = fd >= 0 && ftruncate(fd, (off_t)size) == 0 ? OK : file_fail(path, "shorten");
    if (fd >= 0)
        close(fd);
    return status;
}

enum status file_sync(const char *path)
{
    int fd;
    int64_t size;
    TRY(file_open(path, O_RDONLY, &fd, &size));
    enum status status = fsync(fd) == 0 ? OK : file_fail(path, "sync");
    close(fd);
    return status;
}
