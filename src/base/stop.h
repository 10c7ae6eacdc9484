/* A request to stop, which long work without a callback of its own asks for now and then. */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include "base/status.h"

/* For the whole process, before other threads use it. `asked` returns 0 to continue; NULL: nobody asks. */
typedef int stop_request(void *context);
void stop_set(stop_request *asked, void *context);

/* ERR_STOPPED once the request has come. */
enum status stop_check(void);

#endif
