/* Time from the system's clocks. */
#include "base/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_seconds(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void clock_wait(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

double clock_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

/* Field 22 of /proc/self/stat: the start, in ticks since boot. 0 where the system has no such file. */
double clock_since_start(void)
{
    char line[1024] = {0};
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file)
        return 0;
    char *at = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    unsigned long long ticks = 0;
    if (!at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ticks) != 1)
        return 0;
    return read_clock(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

#pragma GCC diagnostic ignored "-Wformat-nonliteral"

int64_t clock_date(char *text, size_t size, const char *pattern)
{
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL;
    time_t now = fixed ? (time_t)strtoll(fixed, &end, 10) : time(NULL);
    bool stopped = fixed && end > fixed && *end == 0;
    if (fixed && !stopped)
        now = time(NULL);
    struct tm date;
    return (stopped ? gmtime_r(&now, &date) : localtime_r(&now, &date)) ? (int64_t)strftime(text, size, pattern, &date) : 0;
}
