/* One number for the process. */
#include "base/headway.h"

#include <stdatomic.h>

#include "base/memory.h"

static _Atomic int64_t made;
static _Atomic int waits;
static headway_end *ending;

void headway_made(void)
{
    atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
}

int64_t headway_count(void)
{
    return atomic_load_explicit(&made, memory_order_relaxed) + memory_count();
}

void headway_wait(void)
{
    atomic_fetch_add(&waits, 1);
}

void headway_go_on(void)
{
    headway_made();
    atomic_fetch_sub(&waits, 1);
}

bool headway_waits(void)
{
    return atomic_load(&waits) > 0;
}

void headway_set_end(headway_end *end)
{
    ending = end;
}

void headway_hangs(const char *why)
{
    if (ending)
        ending(why);
}
