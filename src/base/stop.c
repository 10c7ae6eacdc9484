/* The request that the process set. */
#include "base/stop.h"

#include <stddef.h>

static stop_request *current;
static void *current_context;

void stop_set(stop_request *asked, void *context)
{
    current = asked;
    current_context = context;
}

enum status stop_check(void)
{
    return current && current(current_context) ? fail(ERR_STOPPED, "stopped on request; what was written so far was removed")
                                               : OK;
}
