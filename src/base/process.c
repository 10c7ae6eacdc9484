/* Memory of this process, from /proc, its stack, and the system's random numbers. */
#include "base/process.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>

void process_memory(int64_t *now, int64_t *peak)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long long kib;
    *now = *peak = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmRSS: %lld kB", &kib) == 1)
            *now = (int64_t)kib * 1024;
        if (sscanf(line, "VmHWM: %lld kB", &kib) == 1)
            *peak = (int64_t)kib * 1024;
    }
    if (file)
        fclose(file);
}

void process_trim(void)
{
    malloc_trim(0);
}

enum { STACK = 2 << 20 }; /* the backward pass of attention takes 1.2 MB */

/* One page is enough: the system then has the addresses down to it. */
static __attribute__((noinline)) void touch_stack(void)
{
    volatile char deep[STACK];
    (void)(deep[0] = 0);
}

enum status process_grow_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < (rlim_t)2 * STACK)
        return OK;
    void *room = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return fail(ERR_MEMORY, "out of memory: no room for a stack of %d bytes; free some, or raise the limit (ulimit -v)",
                    STACK);
    munmap(room, STACK);
    touch_stack();
    return OK;
}

enum status process_unique(uint64_t *number)
{
    ssize_t got;
    do
        got = getrandom(number, sizeof *number, 0);
    while (got < 0 && errno == EINTR);
    return got == sizeof *number ? OK : fail(ERR_IO, "the system gives no random numbers: %s", strerror(errno));
}
