/* The limits of a group hold for the groups inside it, so every group from the process's own up to the root is asked. */
#include "base/processors.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/parallel.h"

enum { PATH_BYTES = 4096 };

/* A file's first line, or "". */
static void processors_read_line(const char *directory, const char *name, char *line, int size)
{
    char path[PATH_BYTES];
    FILE *file = snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path ? fopen(path, "re") : NULL;
    *line = 0;
    if (file) {
        if (!fgets(line, size, file))
            *line = 0;
        fclose(file);
    }
}

/* Of one group: v2 has "QUOTA PERIOD" or "max PERIOD" in one file, v1 has them in two, with -1 for no quota. */
static int64_t group_quota(const char *directory)
{
    char quota[64], period[64];
    processors_read_line(directory, "cpu.max", quota, sizeof quota);
    if (*quota) {
        const char *end = strchr(quota, ' ');
        snprintf(period, sizeof period, "%s", end ? end : "");
    } else {
        processors_read_line(directory, "cpu.cfs_quota_us", quota, sizeof quota);
        processors_read_line(directory, "cpu.cfs_period_us", period, sizeof period);
    }
    long long time = strtoll(quota, NULL, 10), each = strtoll(period, NULL, 10); /* "max" is 0 */
    return time > 0 && each > 0 && time < INT64_MAX - each ? divide_up(time, each) : INT_MAX;
}

/* A line of /proc/self/cgroup is NUMBER:CONTROLLERS:/PATH. v2 has no controllers there and its files at the root; the files of
 * v1's cpu controller are below a directory of the controllers' names. */
static int64_t line_quota(char *line, const char *root)
{
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL, directory[PATH_BYTES];
    if (!path)
        return INT_MAX;
    *path++ = 0;
    names++;
    path[strcspn(path, "\n")] = 0;
    if (*names && !strstr(names, "cpu"))
        return INT_MAX;
    int64_t count_max = INT_MAX, top = snprintf(directory, sizeof directory, "%s/%s", root, names);
    if (top >= (int64_t)sizeof directory || snprintf(directory + top, sizeof directory - (size_t)top, "%s", path) < 0)
        return INT_MAX;
    for (;;) {
        count_max = min(count_max, group_quota(directory));
        char *slash = strrchr(directory + top, '/');
        if (!slash)
            return count_max;
        *slash = 0;
    }
}

int processors_quota(const char *groups, const char *root)
{
    char line[PATH_BYTES];
    int64_t count = INT_MAX;
    FILE *file = fopen(groups, "re");
    if (!file)
        return INT_MAX;
    while (fgets(line, sizeof line, file))
        count = min(count, line_quota(line, root));
    fclose(file);
    return (int)max(count, 1);
}

/* Affinity may be longer than cpu_set_t on very large machines: then all of its processors count. */
static int64_t processors_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
}

uint64_t processors_set(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    uint64_t number = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        number = number * 1000003 + (CPU_ISSET((size_t)i, &set) ? (uint64_t)i + 1 : 0);
    return number;
}

int processors_usable(void)
{
    static _Atomic int known;
    int count = atomic_load(&known);
    if (!count) {
        int64_t limit = min(processors_allowed(), processors_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
        count = (int)max(1, min(limit, PARALLEL_THREADS_MAX));
        atomic_store(&known, count);
    }
    return count;
}
