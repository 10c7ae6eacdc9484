/* A file that is not complete, under a name that others can know: a later process goes on with it.
 *
 *     TRY(part_open(&part, "blobs/HASH.incomplete", &size));      size: what an earlier process left
 *     TRY(part_append(&part, bytes, count));                      any number of times
 *     TRY(part_commit(&part, "blobs/HASH", true, &taken));
 *     part_close(&part);                                          always; what is not committed stays, unless it is empty
 *
 * Somebody who can write to the directory could have put something there: a link, or a file that is still written to. Only a
 * regular file of this user with no other name is gone on with; anything else of the name is removed, and what it leads to stays
 * as it is.
 */
#ifndef BASE_PART_H
#define BASE_PART_H

#include "base/file.h"

struct part {
    const char *path; /* the caller's */
    int fd;           /* -1: closed */
    bool committed;
};

enum status part_open(struct part *part, const char *path, int64_t *size);
enum status part_append(struct part *part, const void *bytes, int64_t count);

/* Reads `count` bytes of what is there from an offset on. */
enum status part_read(const struct part *part, int64_t offset, void *bytes, int64_t count);

/* Forgets what is there. */
enum status part_empty(struct part *part);

/* Gives it its name once it is on the disk. Without `replace` nothing gives way: *taken if something has the name. */
enum status part_commit(struct part *part, const char *path, bool replace, bool *taken);

/* file_state of what was written, also if another file has its name by now. */
enum status part_state(const struct part *part, char state[static FILE_STATE]);

void part_close(struct part *part);

#endif
