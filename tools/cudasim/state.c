/* See state.h. */
#include "state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char message[1024];
static CUresult sticky;
static long long instructions;

static struct {
    const char *name;
    long long value;
} counters[] = {
    {"launches", 0},        {"copies_h2d", 0}, {"copies_d2h", 0}, {"copies_d2d", 0},     {"bytes_h2d", 0}, {"bytes_d2h", 0},
    {"memsets", 0},         {"allocs", 0},     {"frees", 0},      {"pinned_allocs", 0},  {"modules", 0},   {"modules_jit", 0},
    {"modules_pending", 0}, {"syncs", 0},      {"queries", 0},    {"graph_launches", 0}, {"captures", 0},  {"gemms", 0},
    {"events", 0},          {"cubins", 0},     {"spins", 0},      {"faults", 0},         {"calls", 0},     {"collectives", 0},
};

static void start(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

void state_lock(void)
{
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
}

void state_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

long long state_option(const char *name, long long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 0) : otherwise;
}

CUresult state_report(CUresult result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    state_count("faults", 1);
    if (state_option("CUDASIM_QUIET", 0) == 0)
        fprintf(stderr, "cudasim: %s\n", message);
    if (state_option("CUDASIM_ABORT", 0))
        abort();
    return result;
}

CUresult state_sticky(void)
{
    return sticky;
}

void state_set_sticky(CUresult result)
{
    sticky = sticky ? sticky : result;
}

void state_count(const char *what, long long by)
{
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (!strcmp(counters[i].name, what))
            counters[i].value += by;
}

void state_add_instructions(long long lanes)
{
    instructions += lanes;
}

void state_clear(void)
{
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        counters[i].value = 0;
    message[0] = 0;
    sticky = CUDA_SUCCESS;
    instructions = 0;
}

int state_capability(void)
{
    const char *text = getenv("CUDASIM_CC");
    int major, minor;
    return text && sscanf(text, "%d.%d", &major, &minor) == 2 ? major * 10 + minor : 89;
}

int state_driver_version(void)
{
    return (int)state_option("CUDASIM_DRIVER", 13000);
}

const char *cudasim_last_error(void)
{
    return message;
}

long long cudasim_count(const char *what)
{
    long long value = -1;
    state_lock();
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (!strcmp(counters[i].name, what))
            value = counters[i].value;
    state_unlock();
    return value;
}

void cudasim_add(const char *what, long long by)
{
    state_lock();
    state_count(what, by);
    state_unlock();
}

long long cudasim_lane_instructions(void)
{
    return instructions;
}
