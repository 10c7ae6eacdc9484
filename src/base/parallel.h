/* Loops over all processors that the process may use, by a pool of threads of its own. The only file that makes threads.
 *
 * Blocks are cut only from the loop's size, never from the number of threads, and a block is run by one thread: sums inside a
 * block have the same order on every machine.
 */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H

#include <stdint.h>

typedef void parallel_body(void *context, int64_t begin, int64_t end);

/* Calls body for [0, block), [block, 2 block), ... up to count, blocks dealt to threads as they become free; the calling thread
 * takes blocks too. Returns when all are done, and what they wrote is seen. Any thread may call it, also several at once; a loop
 * inside a body runs only on the body's thread. */
void parallel_for(int64_t count, int64_t block, parallel_body *body, void *context);

enum { PARALLEL_THREADS_MAX = 1024 };

int parallel_threads(void);             /* how many threads a loop of the calling thread may use */
void parallel_set_threads(int threads); /* for the calling thread's loops; 0: as it is */

/* Ends the pool's threads, once they have finished what they are at; the next loop makes new ones. At the process's end, and
 * before the library is unloaded, it happens by itself. */
void parallel_stop(void);

#endif
