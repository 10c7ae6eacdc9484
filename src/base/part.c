/* Parts by one descriptor, so that what is checked is what is written. */
#include "base/part.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens what is there if it can only be this user's own; -1 if not. */
static int open_own(const char *path, int64_t *size)
{
    struct stat st;
    int fd = file_open_now(path, O_RDWR | O_APPEND | O_NOFOLLOW);
    if (fd < 0)
        return -1;
    bool own = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1;
    *size = own ? (int64_t)st.st_size : 0;
    if (own)
        return fd;
    close(fd);
    return -1;
}

enum status part_open(struct part *part, const char *path, int64_t *size)
{
    *size = 0;
    *part = (struct part){.path = path, .fd = open_own(path, size)};
    if (part->fd >= 0)
        return OK;
    file_remove(path);
    part->fd = file_open_now(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (part->fd >= 0)
        return OK;
    if (errno == EEXIST)
        return fail(ERR_IO, "%s: is not a file of yours, and hone cannot remove it to write its own: remove it", path);
    return file_fail(path, "create");
}

enum status part_append(struct part *part, const void *bytes, int64_t count)
{
    return file_write(part->fd, part->path, bytes, count);
}

enum status part_read(const struct part *part, int64_t offset, void *bytes, int64_t count)
{
    for (char *at = bytes; count > 0;) {
        ssize_t n = pread(part->fd, at, (size_t)count, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_fail(part->path, "read");
        if (n == 0)
            return fail(ERR_IO, "%s: became shorter while it was read", part->path);
        at += n;
        offset += n;
        count -= n;
    }
    return OK;
}

enum status part_empty(struct part *part)
{
    return ftruncate(part->fd, 0) == 0 ? OK : file_fail(part->path, "shorten");
}

enum status part_commit(struct part *part, const char *path, bool replace, bool *taken)
{
    *taken = false;
    if (fsync(part->fd) != 0)
        return file_fail(part->path, "sync");
    TRY(replace ? file_rename(part->path, path) : file_publish(part->path, path, taken));
    part->committed = !*taken;
    return OK;
}

enum status part_state(const struct part *part, char state[static FILE_STATE])
{
    return file_state_of(part->fd, state) ? OK : file_fail(part->path, "read");
}

void part_close(struct part *part)
{
    struct stat st;
    if (part->fd < 0)
        return;
    if (!part->committed && fstat(part->fd, &st) == 0 && st.st_size == 0)
        file_remove(part->path);
    close(part->fd);
    part->fd = -1;
}
