/* What the system says about this process. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdint.h>

#include "base/status.h"

/* Resident bytes now and at the worst moment so far; 0 where the system does not tell. */
void process_memory(int64_t *now, int64_t *peak);

/* Returns freed memory to the system, so that what is resident is what is used. */
void process_trim(void);

/* Grows the main thread's stack, which calls this, to what computing needs. The system grows it when it is used, and where it
 * then has no room (ulimit -v) it can only end the process; here it is an error. A smaller limit of the stack itself (ulimit -s)
 * stays. */
enum status process_grow_stack(void);

/* A number that no other process draws. */
enum status process_unique(uint64_t *number);

#endif
