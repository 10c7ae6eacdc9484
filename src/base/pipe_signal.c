/* A signal that is blocked waits, so it is taken off the queue before it is let through again; one that waited from before the
 * block is not ours to take. */
#include "base/pipe_signal.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>

static void pipe_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGPIPE);
}

void pipe_signal_block(struct pipe_signal *s)
{
    sigset_t waiting, pipe, before;
    pipe_set(&pipe);
    sigemptyset(&waiting);
    sigpending(&waiting);
    s->blocked =
        !sigismember(&waiting, SIGPIPE) && pthread_sigmask(SIG_BLOCK, &pipe, &before) == 0 && !sigismember(&before, SIGPIPE);
}

void pipe_signal_restore(struct pipe_signal *s)
{
    const struct timespec at_once = {0};
    sigset_t pipe;
    if (!s->blocked)
        return;
    pipe_set(&pipe);
    sigtimedwait(&pipe, NULL, &at_once);
    pthread_sigmask(SIG_UNBLOCK, &pipe, NULL);
    s->blocked = false;
}
