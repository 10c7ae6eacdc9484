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

/* UTC's if the environment fixes it, else the local one. */
static bool read_date(struct tm *date)
{
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL;
    time_t now = fixed ? (time_t)strtoll(fixed, &end, 10) : time(NULL);
    if (fixed && end > fixed && *end == 0)
        return gmtime_r(&now, date);
    now = time(NULL);
    return localtime_r(&now, date);
}

int64_t clock_date(char *text, size_t size, const char *pattern)
{
    struct tm date;
    return read_date(&date) ? (int64_t)strftime(text, size, pattern, &date) : 0;
}

int64_t clock_moment(void)
{
    struct tm date;
    int64_t moment = read_date(&date) ? (int64_t)timegm(&date) : 0;
    return moment ? moment : 1;
}

int64_t clock_text(int64_t moment, char *text, size_t size, const char *pattern)
{
    struct tm date;
    time_t seconds = (time_t)(moment ? moment : clock_moment());
    if (!gmtime_r(&seconds, &date))
        return 0;
    date.tm_zone = ""; /* as Python has it for a date without a zone */
    return (int64_t)strftime(text, size, pattern, &date);
}
