/* Memory of this process, from /proc, and the system's random numbers. */
#include "base/process.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

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

enum status process_unique(uint64_t *number)
{
    ssize_t got;
    do
        got = getrandom(number, sizeof *number, 0);
    while (got < 0 && errno == EINTR);
    return got == sizeof *number ? OK : fail(ERR_IO, "the system gives no random numbers: %s", strerror(errno));
}
