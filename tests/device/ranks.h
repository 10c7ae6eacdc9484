/* Ranks as processes of one machine, for tests: each has to end with 0 within seconds. What they tell each other lies in memory
 * that they share, which is a group without collectives: NCCL is opened on top of it, as on that of a launcher. */
#ifndef TESTS_DEVICE_RANKS_H
#define TESTS_DEVICE_RANKS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "device/group.h"
#include "test.h"

enum { RANKS_MAX = 4, RANKS_SECONDS = 10, SHARED_BYTES = 8192 };

struct ranks_shared {
    _Atomic int64_t arrived[RANKS_MAX], left[RANKS_MAX];
    char bytes[RANKS_MAX][SHARED_BYTES];
};

struct ranks_group {
    struct group group;
    struct ranks_shared *shared;
    int64_t number;
    enum status closed; /* what it was closed with */
};

/* In a rank's process: ends it, and so fails the test. */
#define check(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "%s:%d: process %d: not %s; %s\n", __FILE__, __LINE__, (int)getpid(), #condition, status_message()); \
            _exit(1);                                                                                                            \
        }                                                                                                                        \
    } while (0)

static inline enum status ranks_share(struct group *group, const void *mine, void *all, int64_t bytes)
{
    struct ranks_group *g = (struct ranks_group *)group;
    check(bytes <= SHARED_BYTES);
    memcpy(g->shared->bytes[group->rank], mine, (size_t)bytes);
    g->number++;
    for (int pass = 0; pass < 2; pass++) { /* all have written; all have read */
        _Atomic int64_t *at = pass ? g->shared->left : g->shared->arrived;
        at[group->rank] = g->number;
        for (double start = clock_seconds();; clock_wait(50e-6)) {
            int there = 0;
            for (int i = 0; i < group->size; i++)
                there += at[i] >= g->number;
            if (there == group->size)
                break;
            if (clock_seconds() - start > RANKS_SECONDS)
                return fail(ERR_RANK, "a rank did not come to share %lld", (long long)g->number);
        }
        for (int i = 0; i < group->size && !pass; i++)
            memcpy((char *)all + i * bytes, g->shared->bytes[i], (size_t)bytes);
    }
    return OK;
}

static inline enum status ranks_check(struct group *group)
{
    (void)group;
    return OK;
}

static inline void ranks_close(struct group *group, enum status status, const char *message)
{
    (void)message;
    ((struct ranks_group *)group)->closed = status;
}

static const struct group_class ranks_class = {
    .name = "shared memory", .share = ranks_share, .check = ranks_check, .close = ranks_close};

/* Runs the body in `count` processes. The one of rank `killed` ends by SIGKILL; -1: none. */
static inline void ranks_run(int count, int killed, void (*body)(struct group *host))
{
    pid_t child[RANKS_MAX];
    struct ranks_shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (int i = 0; i < count; i++) {
        child[i] = fork();
        if (!child[i]) {
            struct ranks_group *g = memory_alloc(sizeof *g);
            alarm(3 * RANKS_SECONDS);
            check(g);
            *g = (struct ranks_group){{.class = &ranks_class, .rank = i, .size = count, .local_rank = i}, shared, 0, OK};
            body(&g->group);
            _exit(0);
        }
    }
    for (int i = 0; i < count; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        if (i == killed)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    munmap(shared, sizeof *shared);
}

#endif
