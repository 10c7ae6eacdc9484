/* Tables through mmap. The file's blocks are allocated before it is mapped: a full disk is then an error and not a signal. */
#include "base/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"

enum { IN_MEMORY = 16 << 20 };

static enum status open_nameless(const char *dir, int64_t bytes, int *fd)
{
    struct arena arena = {0};
    char *path = file_join(&arena, dir ? dir : directory_for_temporary(), "hone-table-XXXXXX");
    *fd = path ? file_above(mkostemp(path, O_CLOEXEC)) : -1;
    enum status status = !path ? ERR_MEMORY : *fd < 0 ? file_fail(path, "create") : OK;
    if (status == OK) {
        unlink(path);
        do
            errno = posix_fallocate(*fd, 0, (off_t)bytes);
        while (errno == EINTR);
        if (errno != 0) {
            status = file_fail(path, "reserve the room for a table of rows");
            close(*fd);
        }
    }
    arena_free(&arena);
    return status;
}

enum status table_open(struct table *table, const char *dir, int64_t count, int64_t size)
{
    int fd;
    *table = (struct table){0};
    if (count < 0 || __builtin_mul_overflow(count, size, &table->bytes))
        return fail(ERR_MEMORY, "out of memory: a table of %lld entries", (long long)count);
    if (table->bytes <= IN_MEMORY) {
        table->data = memory_alloc(table->bytes);
        return table->data ? OK : ERR_MEMORY;
    }
    TRY(open_nameless(dir, table->bytes, &fd));
    void *data = mmap(NULL, (size_t)table->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (data == MAP_FAILED)
        return fail(ERR_MEMORY, "out of memory: a table of %lld bytes cannot be mapped", (long long)table->bytes);
    table->data = data;
    table->in_file = true;
    return OK;
}

void table_close(struct table *table)
{
    if (table->in_file)
        munmap(table->data, (size_t)table->bytes);
    else
        memory_free(table->data);
    *table = (struct table){0};
}

void table_rest(const struct table *table)
{
    if (table->in_file)
        madvise(table->data, (size_t)table->bytes, MADV_DONTNEED);
}
