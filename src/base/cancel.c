/* The request that the process set. */
#include "base/cancel.h"

#include <stddef.h>

static cancel_request *current;
static void *current_context;

void cancel_set(cancel_request *asked, void *context)
{
    current = asked;
    current_context = context;
}

enum status cancel_check(void)
{
    return current && current(current_context) ? fail(ERR_STOPPED, "stopped on request; what was written so far was removed")
                                               : OK;
}
