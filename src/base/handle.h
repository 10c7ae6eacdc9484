/* Handles that the library has given out, and the calls that are at them.
 *
 * What a caller has is a number in place of a pointer, which is never given again; all are on one list. So one that is NULL, was
 * released, is of another kind or of the process before a fork is recognised, and so is a call on a handle at which another call
 * still is: from its callback, or from another thread. A handle that its own callback releases lives until the call has returned.
 */
#ifndef BASE_HANDLE_H
#define BASE_HANDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum handle_kind { HANDLE_OPTIONS, HANDLE_MODEL, HANDLE_TRAINER };

/* The first member of what it belongs to. */
struct handle {
    enum handle_kind kind;
    uintptr_t number;
    int process;
    const char *call, *nested; /* the calls that are at it, the second from the first one's callback; NULL: none */
    pthread_t caller;
    bool listens; /* the call's callback may make calls that are allowed to be nested */
    bool released;
    struct handle *after;
};

/* Returns what the caller gets. */
void *handle_add(struct handle *h, enum handle_kind kind);

/* Begins a call with what the caller has, and gives the handle; ERR_ARGUMENT if it cannot. handle_enter_nested: the call may also
 * be made while the handle listens. */
enum status handle_enter(struct handle **h, const void *given, enum handle_kind kind, const char *call);
enum status handle_enter_nested(struct handle **h, const void *given, enum handle_kind kind, const char *call);

/* While the callback of the call runs, those that may be nested can be made. */
void handle_listen(struct handle *h, bool listens);

/* Ends a call. True: the handle was released meanwhile, and what it belongs to is to be freed now. */
bool handle_leave(struct handle *h);

/* The handle, which is off the list: what it belongs to is to be freed. NULL: it was none, or it will be when the call at it
 * ends.
 */
struct handle *handle_release(const void *given, enum handle_kind kind);

#endif
