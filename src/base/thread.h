/* Threads that the library makes. The program's signals, and a profiler's, are for its own threads: a handler could corrupt what
 * oneDNN keeps below the end of the stack (docs/reliability.md). Those that a thread causes itself stay its own.
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* As pthread_create: 0, or the error. */
int thread_start(pthread_t *thread, void *(*body)(void *context), void *context);

#endif
