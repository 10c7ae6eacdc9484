/* Files read in pieces, not mapped: pages of a mapping count as the process's memory, pieces do not. */
#ifndef BASE_READER_H
#define BASE_READER_H

#include <stdint.h>

#include "base/status.h"

struct reader {
    const char *path; /* the caller's; lives as long as the reader */
    int fd;
    int64_t size; /* when it was opened */
};

/* Only regular files: a pipe can be read only once, and reading it may block. */
enum status reader_open(struct reader *reader, const char *path);
enum status reader_read(struct reader *reader, void *bytes, int64_t max_bytes, int64_t *got); /* less than `max_bytes`: the end */
/* All of these bytes, wherever reader_read stands. Fewer are an error: the caller knows the size. */
enum status reader_read_at(const struct reader *reader, int64_t offset, void *bytes, int64_t count);
void reader_close(struct reader *reader);

#endif
