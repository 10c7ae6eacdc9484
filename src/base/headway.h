/* Whether this process gets on, for those that wait for it.
 *
 * Whatever takes long makes headway as it goes: a command of a device, a block of a parallel loop, a piece of a file, an
 * allocation. A thread that watches (dist/watch.c) sees the number stand still when the process hangs, in an endless loop or in a
 * read that never returns, however much of its time one step may take.
 */
#ifndef BASE_HEADWAY_H
#define BASE_HEADWAY_H

#include <stdbool.h>
#include <stdint.h>

void headway_made(void);

/* Another number than before, if anything was done in between. */
int64_t headway_count(void);

/* Around a wait for other processes, which is not this one's fault; waits may be nested. */
void headway_wait(void);
void headway_go_on(void);
bool headway_waits(void);

/* What a program does when its main thread hangs and nobody needs it any more: it ends. The library itself never does; without
 * such a function, nothing happens. */
typedef void headway_end(const char *why);
void headway_set_end(headway_end *end); /* for the whole process, before other threads use it */
void headway_hangs(const char *why);

#endif
