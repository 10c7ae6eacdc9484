/* How much memory this process may still take, and what sets the limit: the machine's free memory, a control group of the system
 * (cgroup, version 1 or 2), or a limit of the shell (ulimit). */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

#include <stdint.h>

enum { LIMIT_NAME_SIZE = 192 };

struct memory_room {
    int64_t allocate;            /* bytes, by the smallest of all limits; 0: the system does not tell */
    char limit[LIMIT_NAME_SIZE]; /* what that is: "free memory", "ulimit -v" */
    int64_t resident;            /* allocated memory and the page cache of mapped files together: no limit of the shell */
    int64_t addresses;           /* the same by ulimit -v, where pages count that are not there; INT64_MAX: no limit */
};

/* `root` is "" but in tests, which have a proc and a sys of their own below it. */
void limits_memory(struct memory_room *room, const char *root);

#endif
