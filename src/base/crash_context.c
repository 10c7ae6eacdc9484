/* One pointer for each thread. */
#include "base/crash_context.h"

static _Thread_local const char *volatile now;

void inside(const char *what)
{
    now = what;
}

const char *crash_context_what(void)
{
    return now;
}
