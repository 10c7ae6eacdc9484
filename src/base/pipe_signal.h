/* SIGPIPE kept away from the process while a library writes to connections that the other side may have closed. Blocked only in
 * this thread, and in those that it makes meanwhile: how the process handles the signal is its own affair. */
#ifndef BASE_PIPE_SIGNAL_H
#define BASE_PIPE_SIGNAL_H

#include <stdbool.h>

struct pipe_signal {
    bool blocked; /* by us */
};

void pipe_signal_block(struct pipe_signal *s);
void pipe_signal_restore(struct pipe_signal *s); /* one that came in between is forgotten */

#endif
