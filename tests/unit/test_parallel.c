/* The pool of threads, and how many it has. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/processors.h"

#ifdef HONE_SANITIZED
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
enum { COUNT = 1001 };

static void add_range(void *context, int64_t begin, int64_t end)
{
    int *seen = context;
    for (int64_t i = begin; i < end; i++)
        seen[i]++;
}

/* Whether a loop has visited each index once. */
static bool loop_is_whole(void)
{
    int seen[COUNT] = {0};
    bool good = true;
    parallel_for(COUNT, 7, add_range, seen);
    for (int i = 0; i < COUNT; i++)
        good = good && seen[i] == 1;
    return good;
}

static int threads_of_process(void)
{
    char line[256];
    int count = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Threads: %d", &count) == 1)
            break;
    if (file)
        fclose(file);
    return count;
}

/* A thread that was joined may be counted for a moment longer. */
static bool threads_become(int count)
{
    struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 5000 && threads_of_process() > count; i++)
        nanosleep(&pause, NULL);
    return threads_of_process() == count;
}

static int alone; /* threads of the process without the pool's: a sanitizer has one of its own, from the first loop on */

static int set_up(void **state)
{
    (void)state;
    struct timespec pause = {.tv_nsec = 1000000};
    parallel_set_threads(2);
    bool good = loop_is_whole();
    alone = threads_of_process();
    parallel_stop();
    for (int i = 0; i < 50; i++) {
        int now = threads_of_process();
        alone = now < alone ? now : alone;
        nanosleep(&pause, NULL);
    }
    return good ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    parallel_stop();
    return threads_become(alone) ? 0 : -1;
}

/* Also with many more threads than processors, and in loops that follow each other at once. Fails without the wait in withdraw.
 */
static void loops_are_whole_for_any_number_of_threads(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 64, 2};
    for (int t = 0; t < 5; t++) {
        parallel_set_threads(threads[t]);
        assert_int_equal(parallel_threads(), threads[t]);
        for (int i = 0; i < 200; i++)
            assert_true(loop_is_whole());
    }
    parallel_for(0, 7, add_range, NULL);
    parallel_set_threads(PARALLEL_THREADS_MAX + 1);
    assert_int_equal(parallel_threads(), PARALLEL_THREADS_MAX);
}

struct nested {
    pthread_t thread;
    _Atomic int inner, strayed;
};

static void inner_body(void *context, int64_t begin, int64_t end)
{
    struct nested *n = context;
    n->inner += (int)(end - begin);
    n->strayed += !pthread_equal(n->thread, pthread_self());
}

static void outer_body(void *context, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        struct nested *n = (struct nested *)context + i;
        n->thread = pthread_self();
        parallel_for(100, 1, inner_body, n);
    }
}

/* Fails if `inside` is not asked. */
static void a_loop_in_a_loop_stays_on_its_thread(void **state)
{
    (void)state;
    static struct nested nested[40];
    parallel_set_threads(4);
    parallel_for(40, 1, outer_body, nested);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(nested[i].inner, 100);
        assert_int_equal(nested[i].strayed, 0);
    }
}

static void *call_loops(void *good)
{
    parallel_set_threads(3);
    for (int i = 0; i < 200; i++)
        *(bool *)good = *(bool *)good && loop_is_whole();
    return NULL;
}

/* Each has its own number of threads. Fails if the list has room for one loop. */
static void several_threads_run_loops_at_once(void **state)
{
    (void)state;
    pthread_t callers[4];
    bool good[4] = {true, true, true, true};
    parallel_set_threads(2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_loops, &good[i]), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(callers[i], NULL), 0);
        assert_true(good[i]);
    }
    assert_int_equal(parallel_threads(), 2);
    assert_true(threads_become(alone + 2)); /* two of the pool served all of them */
}

static void the_pool_ends_and_starts_again(void **state)
{
    (void)state;
    parallel_set_threads(4);
    for (int i = 0; i < 5; i++) {
        assert_true(loop_is_whole());
        assert_int_equal(threads_of_process(), alone + 3);
        parallel_stop();
        assert_true(threads_become(alone));
    }
    parallel_stop();
}

/* How a child process ends that calls this. */
static int status_of_child(int (*child)(void))
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60); /* a loop that waits for threads of the parent would wait for ever */
        _exit(child());
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return status;
}

static int loop_in_child(void)
{
    int before = threads_of_process();
    return loop_is_whole() && threads_of_process() == before + 3 ? 0 : 1;
}

/* Fails without after_fork_in_child. */
static void a_forked_child_has_a_pool_of_its_own(void **state)
{
    (void)state;
    parallel_set_threads(4);
    assert_true(loop_is_whole());
    for (int i = 0; i < 5; i++)
        assert_int_equal(status_of_child(loop_in_child), 0);
    assert_true(loop_is_whole());
}

static int warnings;

static void count_warning(void *context, enum log_level level, const char *message)
{
    (void)context;
    warnings += level == LOG_WARNING && strstr(message, "threads") != NULL;
}

static int loop_without_memory(void)
{
    struct rlimit none = {1 << 20, 1 << 20};
    log_set_sink(count_warning, NULL);
    parallel_set_threads(64);
    if (setrlimit(RLIMIT_AS, &none) != 0)
        return 1;
    for (int i = 0; i < 3; i++)
        if (!loop_is_whole())
            return 2;
    return warnings == 1 ? 0 : 3;
}

/* And it is reported once. Fails if make_threads counts a thread that it did not get. */
static void a_loop_is_whole_with_the_threads_that_there_are(void **state)
{
    (void)state;
    if (!SANITIZED) /* which needs memory of its own */
        assert_int_equal(status_of_child(loop_without_memory), 0);
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Fails if the spin of wait_for_work has no end. */
static void threads_that_wait_sleep(void **state)
{
    (void)state;
    parallel_set_threads(processors_usable());
    assert_true(loop_is_whole());
    double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    struct timespec pause = {.tv_nsec = 200000000};
    nanosleep(&pause, NULL);
    assert_true(seconds(CLOCK_PROCESS_CPUTIME_ID) - before < 0.05);
}

struct masks {
    pthread_t caller;
    _Atomic int helpers, wrong;
};

static void look_at_mask(void *context, int64_t begin, int64_t end)
{
    struct masks *m = context;
    struct timespec pause = {.tv_nsec = 1000000};
    sigset_t mask;
    (void)begin;
    (void)end;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    bool helper = !pthread_equal(m->caller, pthread_self());
    m->helpers += helper;
    m->wrong += (sigismember(&mask, SIGINT) == 1) != helper || (sigismember(&mask, SIGPROF) == 1) != helper ||
                sigismember(&mask, SIGBUS) == 1;
    nanosleep(&pause, NULL);
}

/* Fails without the mask of thread_start, with one that has SIGBUS in it, and with one that lets a profiler's SIGPROF through. */
static void signals_go_to_the_programs_own_threads(void **state)
{
    (void)state;
    struct masks m = {.caller = pthread_self()};
    parallel_set_threads(3);
    for (int i = 0; i < 100 && !m.helpers; i++)
        parallel_for(8, 1, look_at_mask, &m);
    assert_true(m.helpers > 0);
    assert_int_equal(m.wrong, 0);
}

static void put(const char *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
}

/* Fails if only the process's own group is asked, if parts of a processor are dropped, and if v1 is not known. */
static void the_quota_is_that_of_the_tightest_group(void **state)
{
    (void)state;
    char root[] = "/tmp/hone-test-XXXXXX", groups[64], none[64];
    assert_non_null(mkdtemp(root));
    snprintf(groups, sizeof groups, "%s/groups", root);
    snprintf(none, sizeof none, "%s/none", root);
    assert_int_equal(processors_quota(none, root), INT32_MAX);
    put(root, "groups", "0::/a/b\n");
    assert_int_equal(processors_quota(groups, root), INT32_MAX);
    put(root, "a/b/cpu.max", "max 100000\n");
    assert_int_equal(processors_quota(groups, root), INT32_MAX);
    put(root, "a/b/cpu.max", "400000 100000\n");
    assert_int_equal(processors_quota(groups, root), 4);
    put(root, "a/cpu.max", "150000 100000\n");
    assert_int_equal(processors_quota(groups, root), 2);
    put(root, "a/b/cpu.max", "1000 100000\n");
    assert_int_equal(processors_quota(groups, root), 1);
    put(root, "groups", "12:pids:/x\n4:cpu,cpuacct:/box/in\n");
    put(root, "cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put(root, "cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n");
    put(root, "cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    assert_int_equal(processors_quota(groups, root), 3);
    assert_ok(directory_remove(root));
    assert_true(processors_usable() >= 1 && processors_usable() <= sysconf(_SC_NPROCESSORS_CONF));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(loops_are_whole_for_any_number_of_threads, tear_down),
        cmocka_unit_test_teardown(a_loop_in_a_loop_stays_on_its_thread, tear_down),
        cmocka_unit_test_teardown(several_threads_run_loops_at_once, tear_down),
        cmocka_unit_test_teardown(the_pool_ends_and_starts_again, tear_down),
        cmocka_unit_test_teardown(a_forked_child_has_a_pool_of_its_own, tear_down),
        cmocka_unit_test_teardown(a_loop_is_whole_with_the_threads_that_there_are, tear_down),
        cmocka_unit_test_teardown(threads_that_wait_sleep, tear_down),
        cmocka_unit_test_teardown(signals_go_to_the_programs_own_threads, tear_down),
        cmocka_unit_test(the_quota_is_that_of_the_tightest_group),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
