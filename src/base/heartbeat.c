/* One number for the process. */
#include "base/heartbeat.h"

#include <stdatomic.h>

#include "base/memory.h"

static _Atomic int64_t made;
static _Atomic int waits;
static heartbeat_end *ending;

void heartbeat_made(void)
{
    atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
}

int64_t heartbeat_count(void)
{
    return atomic_load_explicit(&made, memory_order_relaxed) + memory_count();
}

void heartbeat_wait(void)
{
    atomic_fetch_add(&waits, 1);
}

void heartbeat_go_on(void)
{
    heartbeat_made();
    atomic_fetch_sub(&waits, 1);
}

bool heartbeat_waits(void)
{
    return atomic_load(&waits) > 0;
}

void heartbeat_set_end(heartbeat_end *end)
{
    ending = end;
}

void heartbeat_hangs(const char *why)
{
    if (ending)
        ending(why);
}
