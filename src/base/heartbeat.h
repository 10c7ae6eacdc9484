/* Whether this process gets on, for those that wait for it.
 *
 * Whatever takes long makes progress as it goes: a command of a device, a block of a parallel loop, a piece of a file, an
 * allocation. A thread that watches (dist/watch.c) sees the number stand still when the process hangs, in an endless loop or in a
 * read that never returns, however much of its time one step may take.
 */
#ifndef BASE_HEARTBEAT_H
#define BASE_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

void heartbeat_made(void);

/* Another number than before, if anything was done in between. */
int64_t heartbeat_count(void);

/* Around a wait for other processes, which is not this one's fault; waits may be nested. */
void heartbeat_wait(void);
void heartbeat_go_on(void);
bool heartbeat_waits(void);

/* What a program does when its main thread hangs and nobody needs it any more: it ends. The library itself never does; without
 * such a function, nothing happens. */
typedef void heartbeat_end(const char *why);
void heartbeat_set_end(heartbeat_end *end); /* for the whole process, before other threads use it */
void heartbeat_hangs(const char *why);

#endif
