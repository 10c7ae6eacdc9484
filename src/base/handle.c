/* The list of handles. */
#include "base/handle.h"

#include <stddef.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;
static uintptr_t last; /* the highest number; they are odd, as no pointer is */

static const struct {
    const char *name, *opened_by, *a;
} kinds[] = {[HANDLE_OPTIONS] = {"hone_options", "hone_options_create", "options"},
             [HANDLE_MODEL] = {"hone_model", "hone_model_open", "a model"},
             [HANDLE_TRAINER] = {"hone_trainer", "hone_trainer_open", "a trainer"}};

/* A child that is forked while another thread has the lock would never get it. */
static void handle_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void handle_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void handle_watch_forks(void)
{
    pthread_atfork(handle_before_fork, handle_after_fork, handle_after_fork);
}

void *handle_add(struct handle *h, enum handle_kind kind)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, handle_watch_forks);
    *h = (struct handle){.kind = kind, .process = (int)getpid()};
    pthread_mutex_lock(&lock);
    h->number = last = last ? last + 2 : 1;
    h->after = handles;
    handles = h;
    pthread_mutex_unlock(&lock);
    return (void *)h->number;
}

/* With the lock. NULL: not on the list. */
static struct handle *handle_find(const void *given)
{
    struct handle *h = handles;
    while (h && h->number != (uintptr_t)given)
        h = h->after;
    return h;
}

/* With the lock. */
static enum status handle_check(const struct handle *h, const void *given, enum handle_kind kind, const char *call, bool may_nest)
{
    if (!given)
        return fail(ERR_ARGUMENT, "%s: the %s is NULL: open one with %s, and look at its status", call, kinds[kind].name,
                    kinds[kind].opened_by);
    if (!h || h->released)
        return fail(ERR_ARGUMENT, "%s: this is no open %s: it was released before, or never opened", call, kinds[kind].name);
    if (h->kind != kind)
        return fail(ERR_ARGUMENT, "%s: this is %s, and not %s", call, kinds[h->kind].a, kinds[kind].a);
    if (h->process != (int)getpid())
        return fail(ERR_ARGUMENT, "%s: this %s was opened before a fork, in process %d: open one in this process", call,
                    kinds[kind].name, h->process);
    if (!h->call)
        return OK;
    if (!pthread_equal(h->caller, pthread_self()))
        return fail(ERR_ARGUMENT, "%s: another thread is inside %s with this %s: one thread at a time, or a handle for each",
                    call, h->call, kinds[kind].name);
    if (may_nest && h->listens && !h->nested)
        return OK;
    return fail(ERR_ARGUMENT, "%s cannot be called from inside a callback of %s: call it after that has returned", call,
                h->nested ? h->nested : h->call);
}

static enum status enter(struct handle **out, const void *given, enum handle_kind kind, const char *call, bool may_nest)
{
    pthread_mutex_lock(&lock);
    struct handle *h = *out = handle_find(given);
    enum status status = handle_check(h, given, kind, call, may_nest);
    if (status == OK && h->call)
        h->nested = call;
    else if (status == OK) {
        h->call = call;
        h->caller = pthread_self();
    }
    pthread_mutex_unlock(&lock);
    return status;
}

enum status handle_enter(struct handle **h, const void *given, enum handle_kind kind, const char *call)
{
    return enter(h, given, kind, call, false);
}

enum status handle_enter_nested(struct handle **h, const void *given, enum handle_kind kind, const char *call)
{
    return enter(h, given, kind, call, true);
}

void handle_listen(struct handle *h, bool listens)
{
    pthread_mutex_lock(&lock);
    h->listens = listens;
    pthread_mutex_unlock(&lock);
}

/* With the lock. */
static void unlink_handle(const struct handle *h)
{
    struct handle **link = &handles;
    while (*link != h)
        link = &(*link)->after;
    *link = h->after;
}

bool handle_leave(struct handle *h)
{
    pthread_mutex_lock(&lock);
    if (h->nested)
        h->nested = NULL;
    else
        h->call = NULL;
    bool gone = h->released && !h->call;
    if (gone)
        unlink_handle(h);
    pthread_mutex_unlock(&lock);
    return gone;
}

struct handle *handle_release(const void *given, enum handle_kind kind)
{
    pthread_mutex_lock(&lock);
    struct handle *h = handle_find(given);
    bool ours = h && h->kind == kind && h->process == (int)getpid(), now = ours && !h->call;
    if (now)
        unlink_handle(h);
    else if (ours)
        h->released = true;
    pthread_mutex_unlock(&lock);
    return now ? h : NULL;
}
