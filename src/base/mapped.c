/* A list of notes, newest first. A mutex guards changes and checks; a handler reads without it, because the thread that it
 * interrupted may hold it, and sees whole notes: each is complete before it is in the list. */
#include "base/mapped.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

struct note {
    struct note *_Atomic next;
    const char *data;
    int64_t size;
    struct timespec time;
    int fd;
    char link[32]; /* where the system tells the file's name of today: a cache is renamed after it was mapped */
    char path[];   /* the name of then */
};

static struct note *_Atomic notes;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

/* A child that is forked while another thread has the guard would never get it. */
static void mapped_before_fork(void)
{
    pthread_mutex_lock(&guard);
}

static void mapped_after_fork(void)
{
    pthread_mutex_unlock(&guard);
}

static void mapped_watch_forks(void)
{
    pthread_atfork(mapped_before_fork, mapped_after_fork, mapped_after_fork);
}

enum status mapped_add(const void *data, int64_t size, int fd, const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct stat st;
    size_t length = strlen(path) + 1;
    pthread_once(&once, mapped_watch_forks);
    struct note *n = memory_alloc((int64_t)(sizeof *n + length));
    if (!n)
        return ERR_MEMORY;
    *n = (struct note){.data = data, .size = size, .fd = fd};
    if (fstat(fd, &st) == 0)
        n->time = st.st_mtim;
    snprintf(n->link, sizeof n->link, "/proc/self/fd/%d", fd);
    memcpy(n->path, path, length);
    pthread_mutex_lock(&guard);
    atomic_store(&n->next, atomic_load(&notes));
    atomic_store(&notes, n);
    pthread_mutex_unlock(&guard);
    return OK;
}

void mapped_remove(const void *data)
{
    pthread_mutex_lock(&guard);
    struct note *_Atomic *at = &notes;
    while (*at && (*at)->data != data)
        at = &(*at)->next;
    struct note *n = *at;
    if (n)
        atomic_store(at, atomic_load(&n->next));
    pthread_mutex_unlock(&guard);
    if (!n)
        return;
    close(n->fd);
    memory_free(n);
}

static void name(const struct note *n, char *path, size_t size)
{
    ssize_t length = readlink(n->link, path, size - 1);
    size_t copied = strlen(n->path) < size - 1 ? strlen(n->path) : size - 1;
    if (length <= 0)
        memcpy(path, n->path, copied);
    path[length <= 0 ? copied : (size_t)length] = 0;
}

bool mapped_name(const void *address, char *path, size_t size)
{
    const char *at = address;
    struct note *n = atomic_load(&notes);
    while (n && !(at >= n->data && at - n->data < n->size))
        n = atomic_load(&n->next);
    if (n)
        name(n, path, size);
    return n;
}

static bool changed(const struct note *n, int64_t *size)
{
    struct stat st;
    *size = 0;
    if (fstat(n->fd, &st) != 0)
        return true;
    *size = (int64_t)st.st_size;
    return *size != n->size || st.st_mtim.tv_sec != n->time.tv_sec || st.st_mtim.tv_nsec != n->time.tv_nsec;
}

enum status mapped_check(const void *data)
{
    char path[4096];
    int64_t was = 0, is = 0;
    pthread_mutex_lock(&guard);
    const struct note *n = atomic_load(&notes);
    while (n && n->data != data)
        n = atomic_load(&n->next);
    bool other = n && changed(n, &is);
    if (other) {
        was = n->size;
        name(n, path, sizeof path);
    }
    pthread_mutex_unlock(&guard);
    if (!other)
        return OK;
    return fail(ERR_IO,
                "%s was changed while it was in use (%lld bytes then, %lld now), so what came out of it is not kept: put "
                "the file back, and give the same command again",
                path, (long long)was, (long long)is);
}
