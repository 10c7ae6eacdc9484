/* Locks between processes: on a file, held until released or until the process ends, however it ends.
 *
 * The file is created if missing; a link, or what is not a regular file, is refused. The exclusive holder may remove it, or move
 * it with its directory; a process that waited is then told that it has gone, and looks again.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <stdbool.h>

#include "base/status.h"

struct lock {
    int fd; /* -1: not held */
};

enum lock_kind { LOCK_ALONE, LOCK_SHARED };

/* Takes it at once or not at all, or after `wait`ing for other holders. *taken is false if others hold it, or it has gone.
 * ERR_UNSUPPORTED: the file system has no locks. */
enum status lock_take(struct lock *lock, const char *path, enum lock_kind kind, bool wait, bool *taken);

/* Whether another process holds it exclusively; neither takes nor creates it. ERR_UNSUPPORTED as above. */
enum status lock_is_held(const char *path, bool *held);

/* Whether the path no longer names the file that is held: it was removed or moved, or another took its place. Nothing held
 * cannot be lost. */
bool lock_is_lost(const struct lock *lock, const char *path);

/* Writes "PID HOST" into the file: the exclusive holder's. ERR_ARGUMENT if it is somebody's file that has the name of a lock. */
enum status lock_sign(const struct lock *lock, const char *path);

/* Whether that would be refused, found out without locking it. */
enum status lock_may_sign(const char *path);

/* From exclusive to shared. */
void lock_share(struct lock *lock);

void lock_release(struct lock *lock);

#endif
