/* What a process has once: made by the first holder, filled by one of them, freed by the last. */
#include "test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/shared.h"
#include "failing.h"
#include "tensor/engine_shared.h"

static int made;

static enum status make_number(void *context, void **thing)
{
    int *number = memory_alloc(sizeof *number);
    if (!number)
        return ERR_MEMORY;
    *number = *(int *)context;
    *thing = number;
    made++;
    return OK;
}

static const struct digest key = {1, 2};

static enum status take(struct shared **s, const void *holder)
{
    return shared_take(s, key, holder, make_number, &(int){7});
}

/* True: it was the last. */
static bool give(struct shared *s, const void *holder)
{
    void *thing;
    bool last = shared_give(s, holder, &thing);
    memory_free(thing);
    return last;
}

/* The second holder gets what the first has made, and has not to fill it. */
static void it_is_there_once(void **state)
{
    (void)state;
    struct shared *first, *second, *third;
    char a = 0, b = 0, c = 0;
    made = 0;
    assert_false(shared_has(key));
    assert_ok(take(&first, &a));
    assert_true(shared_fills(first, &a));
    assert_ok(take(&second, &b));
    assert_false(shared_fills(second, &b));
    assert_ptr_equal(shared_thing(first), shared_thing(second));
    shared_filled(first, &a);
    assert_true(shared_await(second, &b));
    assert_false(give(first, &a));
    assert_ok(take(&third, &c));
    assert_false(shared_fills(third, &c));
    assert_true(shared_await(third, &c));
    assert_int_equal(made, 1);
    assert_false(give(second, &b));
    assert_true(give(third, &c));
    assert_false(shared_has(key));
}

struct waiter {
    struct shared *shared;
    pthread_barrier_t taken;
    bool filled;
};

static void *wait_for_it(void *context)
{
    struct waiter *w = context;
    assert_ok(take(&w->shared, w));
    pthread_barrier_wait(&w->taken);
    w->filled = shared_await(w->shared, w);
    return NULL;
}

/* One that waits goes on once the thing is filled, or has to fill it if the other gave up. Seen to fail: the wait never ended if
 * shared_give told nobody. */
static void one_that_gives_up_leaves_it_to_another(void **state)
{
    (void)state;
    for (int fills = 0; fills < 2; fills++) {
        struct shared *first;
        struct waiter w = {0};
        pthread_t thread;
        char a = 0;
        assert_int_equal(pthread_barrier_init(&w.taken, NULL, 2), 0);
        assert_ok(take(&first, &a));
        assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &w), 0);
        pthread_barrier_wait(&w.taken);
        if (fills)
            shared_filled(first, &a);
        assert_false(give(first, &a));
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(w.filled, fills);
        assert_int_equal(shared_fills(w.shared, &w), !fills);
        assert_true(give(w.shared, &w));
        pthread_barrier_destroy(&w.taken);
    }
}

/* A child of fork makes its own: who was to fill the parent's is not there. */
static void a_child_has_its_own(void **state)
{
    (void)state;
    struct shared *parents, *own;
    char a = 0, b = 0;
    int code;
    assert_ok(take(&parents, &a));
    pid_t child = fork();
    if (child == 0) {
        bool good = !shared_has(key) && take(&own, &b) == OK && shared_fills(own, &b);
        _exit(good && give(own, &b) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_true(give(parents, &a));
}

/* What the one that gave up has left is to be filled before anything else is waited for: who fills that may be waiting for this.
 * Seen to fail: it waited for the second, whose filler never comes. */
static void who_has_to_fill_one_waits_for_no_other(void **state)
{
    (void)state;
    static const struct digest other = {3, 4};
    struct device device = {.class = NULL};
    struct engine_block blocks[2] = {{.bytes = 1}, {.bytes = 1}};
    struct engine e = {.device = &device, .blocks = blocks, .block_count = 2};
    struct shared *left, *kept;
    void *thing;
    char first = 0;
    bool again = false;
    assert_ok(take(&left, &first));
    assert_ok(shared_take(&kept, other, &first, make_number, &(int){7}));
    assert_ok(take(&blocks[0].shared, &device));
    assert_ok(shared_take(&blocks[1].shared, other, &device, make_number, &(int){7}));
    assert_false(give(left, &first));
    alarm(60);
    assert_ok(engine_shared_finish(&e, &again));
    alarm(0);
    assert_true(again && shared_fills(blocks[0].shared, &device) && !shared_fills(blocks[1].shared, &device));
    assert_true(give(blocks[0].shared, &device));
    assert_false(shared_give(kept, &first, &thing));
    assert_true(give(blocks[1].shared, &device));
}

static void failed_allocations_leave_nothing(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct shared *s;
        failing_begin(&f);
        enum status status = take(&s, &f);
        failing_end(&f, status);
        assert_int_equal(shared_has(key), status == OK);
        if (status == OK)
            assert_true(give(s, &f));
    }
    assert_int_equal(f.failed, 2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_there_once),
        cmocka_unit_test(one_that_gives_up_leaves_it_to_another),
        cmocka_unit_test(a_child_has_its_own),
        cmocka_unit_test(who_has_to_fill_one_waits_for_no_other),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
