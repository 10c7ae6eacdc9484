/* A request to stop, which long work without a callback of its own asks for now and then. */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include "base/status.h"

/* For the whole process, before other threads use it. `asked` returns 0 to continue; NULL: nobody asks. */
typedef int cancel_request(void *context);
void cancel_set(cancel_request *asked, void *context);

/* ERR_STOPPED once the request has come. */
enum status cancel_check(void);

#endif
