/* A list of notes, newest first. A mutex guards changes and checks; a handler reads without it, because the thread that it
 * interrupted may hold it, and sees whole notes: each is complete before it is in the list. */
#include "base/mapped.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

struct note {
    struct note *_Atomic next;
    const char *data;
    int64_t size;
    struct stat was; /* when it was mapped */
    int64_t holders;
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

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* The note of a map of the same file with the same content; with the guard. Any program can set the time of the last change of
 * the content, and tools that copy files do: only with the other one, which the system sets, are two files of a name told apart.
 * That one also changes with a file's mode, and then the same content is mapped once more. */
static struct note *mapped_find_same(const struct stat *st, int64_t size)
{
    struct note *n = atomic_load(&notes);
    while (n &&
           !(n->size == size && n->was.st_dev == st->st_dev && n->was.st_ino == st->st_ino && n->was.st_size == st->st_size &&
             same_time(&n->was.st_mtim, &st->st_mtim) && same_time(&n->was.st_ctim, &st->st_ctim)))
        n = atomic_load(&n->next);
    return n;
}

/* With the guard: NULL if the system refused. */
static struct note *mapped_add(struct note *n)
{
    void *data = mmap(NULL, (size_t)n->size, PROT_READ, MAP_PRIVATE, n->fd, 0);
    if (data == MAP_FAILED)
        return NULL;
    n->data = data;
    atomic_store(&n->next, atomic_load(&notes));
    atomic_store(&notes, n);
    return n;
}

enum status mapped_open(const void **data, int fd, int64_t size, const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    size_t length = strlen(path) + 1;
    *data = NULL;
    pthread_once(&once, mapped_watch_forks);
    struct note *n = memory_alloc((int64_t)(sizeof *n + length));
    if (!n)
        return ERR_MEMORY;
    *n = (struct note){.size = size, .fd = fd};
    bool known = fstat(fd, &n->was) == 0;
    snprintf(n->link, sizeof n->link, "/proc/self/fd/%d", fd);
    memcpy(n->path, path, length);
    pthread_mutex_lock(&guard);
    struct note *same = known ? mapped_find_same(&n->was, size) : NULL, *at = same ? same : mapped_add(n);
    int cause = errno;
    if (at) {
        at->holders++;
        *data = at->data;
    }
    pthread_mutex_unlock(&guard);
    if (same)
        close(fd);
    if (at != n)
        memory_free(n);
    errno = cause;
    return OK;
}

void mapped_close(const void *data)
{
    pthread_mutex_lock(&guard);
    struct note *_Atomic *at = &notes;
    while (*at && (*at)->data != data)
        at = &(*at)->next;
    struct note *n = *at;
    bool last = n && --n->holders == 0;
    if (last)
        atomic_store(at, atomic_load(&n->next));
    pthread_mutex_unlock(&guard);
    if (!last)
        return;
    munmap((void *)n->data, (size_t)n->size);
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
    return *size != n->size || !same_time(&st.st_mtim, &n->was.st_mtim);
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
