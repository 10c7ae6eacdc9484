/* The simulator's own state: one lock, options from the environment, counters, and the log of errors. */
#ifndef TOOLS_CUDASIM_STATE_H
#define TOOLS_CUDASIM_STATE_H

#include <stdbool.h>

#include "cudasim.h"

/* Every call of the API holds the lock; it may be taken again by the same thread. */
void state_lock(void);
void state_unlock(void);
/* A whole number from the environment. */
long long state_option(const char *name, long long otherwise);
/* Writes a message to stderr and keeps it for cudasim_last_error; aborts if CUDASIM_ABORT=1. Returns the result. */
CUresult state_report(CUresult result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* After a kernel's fault every call that works on the device fails with it, as on the real driver. CUDA_SUCCESS: none so far. */
CUresult state_sticky(void);
void state_set_sticky(CUresult result);
void state_count(const char *what, long long by);
void state_clear(void);
void state_add_instructions(long long lanes);
/* 89 for compute capability 8.9. */
int state_capability(void);
int state_driver_version(void);

#endif
