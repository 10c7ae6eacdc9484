/* A list under one lock. */
#include "base/shared.h"

#include <pthread.h>
#include <unistd.h>

#include "base/memory.h"

struct shared {
    struct shared *next;
    struct digest key;
    int process;
    int64_t holders;
    const void *filler; /* the holder that is to fill it; NULL: none, or it is filled */
    bool filled;
    void *thing;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct shared *all;

/* A child that is forked while another thread has the lock would never get it. */
static void shared_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void shared_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* Those who wait are the parent's threads. */
static void shared_after_fork_in_child(void)
{
    pthread_cond_init(&changed, NULL);
    pthread_mutex_unlock(&lock);
}

static void shared_watch_forks(void)
{
    pthread_atfork(shared_before_fork, shared_after_fork, shared_after_fork_in_child);
}

/* With the lock. NULL: there is none. */
static struct shared *shared_find(struct digest key)
{
    struct shared *s = all;
    while (s && !(digest_equal(s->key, key) && s->process == (int)getpid()))
        s = s->next;
    return s;
}

/* With the lock. */
static enum status shared_add(struct shared **out, struct digest key, shared_make *make, void *context)
{
    struct shared *s = memory_alloc(sizeof *s);
    if (!s)
        return ERR_MEMORY;
    *s = (struct shared){.next = all, .key = key, .process = (int)getpid()};
    enum status status = make(context, &s->thing);
    if (status != OK) {
        memory_free(s);
        return status;
    }
    *out = all = s;
    return OK;
}

enum status shared_take(struct shared **out, struct digest key, const void *holder, shared_make *make, void *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, shared_watch_forks);
    pthread_mutex_lock(&lock);
    struct shared *s = shared_find(key);
    enum status status = s ? OK : shared_add(&s, key, make, context);
    if (status == OK) {
        s->holders++;
        if (!s->filled && !s->filler)
            s->filler = holder;
        *out = s;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void *shared_thing(const struct shared *shared)
{
    return shared->thing;
}

bool shared_fills(const struct shared *shared, const void *holder)
{
    pthread_mutex_lock(&lock);
    bool fills = shared->filler == holder;
    pthread_mutex_unlock(&lock);
    return fills;
}

/* With the lock. */
static void shared_end_filling(struct shared *s, const void *holder, bool filled)
{
    if (s->filler != holder)
        return;
    s->filler = NULL;
    s->filled = filled;
    pthread_cond_broadcast(&changed);
}

void shared_filled(struct shared *shared, const void *holder)
{
    pthread_mutex_lock(&lock);
    shared_end_filling(shared, holder, true);
    pthread_mutex_unlock(&lock);
}

bool shared_await(struct shared *shared, const void *holder)
{
    pthread_mutex_lock(&lock);
    while (shared->filler && shared->filler != holder)
        pthread_cond_wait(&changed, &lock);
    bool filled = shared->filled;
    if (!filled)
        shared->filler = holder;
    pthread_mutex_unlock(&lock);
    return filled;
}

bool shared_give(struct shared *shared, const void *holder, void **thing)
{
    pthread_mutex_lock(&lock);
    shared_end_filling(shared, holder, false);
    bool last = --shared->holders == 0;
    struct shared **at = &all;
    while (last && *at != shared)
        at = &(*at)->next;
    if (last)
        *at = shared->next;
    pthread_mutex_unlock(&lock);
    *thing = last ? shared->thing : NULL;
    if (last)
        memory_free(shared);
    return last;
}

bool shared_has(struct digest key)
{
    pthread_mutex_lock(&lock);
    bool has = shared_find(key) != NULL;
    pthread_mutex_unlock(&lock);
    return has;
}
