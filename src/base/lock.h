/* Locks between processes: on a file, held until it is given back or the process ends, however it ends.
 *
 * The file is made if need be and may be removed, or moved with its directory, by whoever holds the lock alone; somebody who
 * waited is then told that it has gone, and looks again.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <stdbool.h>

#include "base/status.h"

struct lock {
    int fd; /* -1: not held */
};

enum lock_kind { LOCK_ALONE, LOCK_SHARED };

/* Takes it, at once or not at all, or after `wait`ing for the others. *taken is false where others hold it, or it has gone. */
enum status lock_take(struct lock *lock, const char *path, enum lock_kind kind, bool wait, bool *taken);

/* From alone to shared. */
void lock_share(struct lock *lock);

void lock_release(struct lock *lock);

#endif
