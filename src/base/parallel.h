/* Loops over all cores. The only file that knows a thread runtime: libgomp, which oneDNN brings too, so that the
 * process has one pool of threads whatever compiler built it.
 *
 * Blocks are cut from the loop's size alone, never from the number of threads, and a block is run by one thread:
 * sums inside a block have the same order on every machine.
 */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H

#include <stdint.h>

typedef void parallel_body(void *context, int64_t begin, int64_t end);

/* Calls body for [0, block), [block, 2 block), ... up to count, blocks dealt to threads as they become free. */
void parallel_for(int64_t count, int64_t block, parallel_body *body, void *context);

int parallel_threads(void);             /* how many threads a loop may use */
void parallel_set_threads(int threads); /* for the calling thread's loops; 0: as it is */

#endif
