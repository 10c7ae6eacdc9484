/* The pool: threads that wait for loops, and a list of the loops that want help.
 *
 * A thread that calls parallel_for puts its loop on the list, takes blocks of it as every thread does, takes it off the list once
 * no block is left, and waits for the threads that still have one. So a loop never depends on the pool: without threads, after a
 * fork or at the process's end, its caller does all of it.
 *
 * Waiting is a short spin, for loops follow each other within microseconds, and then sleep: a thread that has nothing to do
 * leaves its processor to others. Where there are more threads than processors, nothing spins.
 */
#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/number.h"
#include "base/processors.h"
#include "base/thread.h"

enum { SPIN_NANOSECONDS = 200000, PAUSES = 32 }; /* about what waking a thread and a tile too many cost */

struct loop {
    parallel_body *body;
    void *context;
    int64_t count, block;
    _Atomic int64_t next;
    int wanted;         /* threads of the pool that may still come */
    _Atomic int inside; /* those that are at it */
    struct loop *after; /* on the list */
};

static struct {
    pthread_mutex_t lock;      /* of all that is not atomic */
    pthread_cond_t work, left; /* a loop was added; a loop's last thread left it */
    _Atomic unsigned added;    /* loops so far: what a waiting thread looks at while it spins */
    struct loop *loops;        /* newest first */
    pthread_t threads[PARALLEL_THREADS_MAX];
    int count, sleeping;
    bool full, ending; /* the system gives no more threads; those that there are shall end */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

static _Thread_local int chosen;  /* 0: nothing was */
static _Thread_local bool inside; /* a body */

/* Only the caller of the loop makes progress (base/heartbeat.h): other threads would share the number's cache line with it. */
static void take_blocks(struct loop *loop, bool calls)
{
    bool before = inside;
    inside = true;
    for (;;) {
        int64_t begin = atomic_fetch_add(&loop->next, loop->block);
        if (begin >= loop->count)
            break;
        loop->body(loop->context, begin, begin + min(loop->count - begin, loop->block));
        if (calls)
            heartbeat_made();
    }
    inside = before;
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_briefly(void)
{
    for (int i = 0; i < PAUSES; i++)
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* --- the pool's threads --- */

static struct loop *loop_to_help(void)
{
    struct loop *loop = pool.loops;
    while (loop && (!loop->wanted || atomic_load(&loop->next) >= loop->count))
        loop = loop->after;
    return loop;
}

/* Called with the lock, and returns with it; has waited for a short time, or until a loop was added. */
static void wait_for_work(bool *spun)
{
    if (!*spun && pool.count < processors_usable()) {
        unsigned seen = atomic_load(&pool.added);
        pthread_mutex_unlock(&pool.lock);
        for (int64_t end = nanoseconds() + SPIN_NANOSECONDS; atomic_load(&pool.added) == seen && nanoseconds() < end;)
            pause_briefly();
        pthread_mutex_lock(&pool.lock);
        *spun = atomic_load(&pool.added) == seen;
        return;
    }
    pool.sleeping++;
    pthread_cond_wait(&pool.work, &pool.lock);
    pool.sleeping--;
    *spun = false;
}

static void *parallel_help(void *unused)
{
    bool spun = false;
    pthread_mutex_lock(&pool.lock);
    while (!pool.ending) {
        struct loop *loop = loop_to_help();
        if (!loop) {
            wait_for_work(&spun);
            continue;
        }
        spun = false;
        loop->wanted--;
        atomic_fetch_add(&loop->inside, 1);
        pthread_mutex_unlock(&pool.lock);
        take_blocks(loop, false);
        pthread_mutex_lock(&pool.lock);
        if (atomic_fetch_sub(&loop->inside, 1) == 1) /* the loop may be gone from here on */
            pthread_cond_broadcast(&pool.left);
    }
    pthread_mutex_unlock(&pool.lock);
    return unused;
}

/* Fork copies one thread: the child's pool is empty. */
static void parallel_before_fork(void)
{
    pthread_mutex_lock(&pool.lock);
}

static void parallel_after_fork(void)
{
    pthread_mutex_unlock(&pool.lock);
}

static void after_fork_in_child(void)
{
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.work = pool.left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.loops = NULL;
    pool.count = pool.sleeping = 0;
    pool.full = pool.ending = false;
}

static void parallel_watch_forks(void)
{
    pthread_atfork(parallel_before_fork, parallel_after_fork, after_fork_in_child);
}

/* Called with the lock. */
static void make_threads(int count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (pool.count >= count || pool.full || pool.ending)
        return;
    pthread_once(&once, parallel_watch_forks);
    int error = 0;
    while (pool.count < count && !error) {
        error = thread_start(&pool.threads[pool.count], parallel_help, NULL);
        pool.count += !error;
    }
    if (error) {
        pool.full = true;
        log_message(LOG_WARNING, "the system gives no more than %d of %d threads (%s): the rest of the work is theirs",
                    pool.count + 1, count + 1, strerror(error));
    }
}

__attribute__((destructor)) void parallel_stop(void)
{
    pthread_mutex_lock(&pool.lock);
    int count = pool.count;
    pool.ending = count > 0;
    atomic_fetch_add(&pool.added, 1);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < count; i++)
        if (!pthread_equal(pool.threads[i], pthread_self()))
            pthread_join(pool.threads[i], NULL);
    pthread_mutex_lock(&pool.lock);
    pool.count = 0;
    pool.full = pool.ending = false;
    pthread_mutex_unlock(&pool.lock);
}

/* --- a loop --- */

static void post(struct loop *loop)
{
    pthread_mutex_lock(&pool.lock);
    make_threads(loop->wanted);
    loop->after = pool.loops;
    pool.loops = loop;
    atomic_fetch_add(&pool.added, 1);
    for (int i = 0; i < loop->wanted && i < pool.sleeping; i++)
        pthread_cond_signal(&pool.work);
    pthread_mutex_unlock(&pool.lock);
}

/* Nobody comes to the loop any more; waits for those who are there. */
static void withdraw(struct loop *loop)
{
    pthread_mutex_lock(&pool.lock);
    struct loop **link = &pool.loops;
    while (*link != loop)
        link = &(*link)->after;
    *link = loop->after;
    bool spin = pool.count < processors_usable();
    pthread_mutex_unlock(&pool.lock);
    for (int64_t end = spin ? nanoseconds() + SPIN_NANOSECONDS : 0; atomic_load(&loop->inside) && nanoseconds() < end;)
        pause_briefly();
    if (!atomic_load(&loop->inside))
        return;
    pthread_mutex_lock(&pool.lock);
    while (atomic_load(&loop->inside))
        pthread_cond_wait(&pool.left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void parallel_for(int64_t count, int64_t block, parallel_body *body, void *context)
{
    if (count <= 0)
        return;
    struct loop loop = {.body = body, .context = context, .count = count, .block = max(block, 1)};
    loop.wanted = (int)min(parallel_threads(), divide_up(count, loop.block)) - 1;
    if (loop.wanted == 0 || inside) {
        take_blocks(&loop, !inside);
        return;
    }
    post(&loop);
    take_blocks(&loop, true);
    withdraw(&loop);
}

int parallel_threads(void)
{
    return chosen ? chosen : processors_usable();
}

void parallel_set_threads(int threads)
{
    if (threads > 0)
        chosen = (int)min(threads, PARALLEL_THREADS_MAX);
}
