/* Files in pieces, through POSIX calls. */
#include "base/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/heartbeat.h"

enum status reader_open(struct reader *reader, const char *path)
{
    int64_t size;
    int fd;
    *reader = (struct reader){path, -1, 0};
    TRY(file_open(path, O_RDONLY, &fd, &size));
    if (size < 0) {
        close(fd);
        return fail(ERR_IO, "%s: not a regular file but a pipe; what is read more than once must be a file", path);
    }
    reader->fd = fd;
    reader->size = size;
    posix_fadvise(reader->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return OK;
}

enum status reader_read(struct reader *reader, void *bytes, int64_t max_bytes, int64_t *got)
{
    for (*got = 0; *got < max_bytes;) {
        ssize_t n = read(reader->fd, (char *)bytes + *got, (size_t)(max_bytes - *got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_fail(reader->path, "read");
        if (n == 0)
            break;
        heartbeat_made();
        *got += n;
    }
    return OK;
}

enum status reader_read_at(const struct reader *reader, int64_t offset, void *bytes, int64_t count)
{
    for (int64_t got = 0; got < count;) {
        ssize_t n = pread(reader->fd, (char *)bytes + got, (size_t)(count - got), (off_t)(offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_fail(reader->path, "read");
        if (n == 0)
            return fail(ERR_IO, "%s: the file became shorter while it was read", reader->path);
        heartbeat_made();
        got += n;
    }
    return OK;
}

void reader_close(struct reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
}
