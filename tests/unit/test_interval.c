/* base: how often a run validates and saves. */
#include "base/interval.h"
#include "test.h"

/* Fails if a time is missed or done twice, or the end of an epoch is not one of them. */
static void times_an_epoch_are_at_equal_distances_and_at_its_end(void **state)
{
    (void)state;
    for (int64_t epoch = 1; epoch < 20; epoch++)
        for (int64_t times = 1; times < 25; times++) {
            struct interval i = {.steps = 3, .per_epoch = times, .epoch = epoch};
            int64_t found = 0, last = 0;
            for (int64_t step = 1; step <= 3 * epoch; step++) {
                bool falls = interval_falls_on(i, step);
                found += falls;
                assert_int_equal(found, interval_count(i, step));
                if (falls)
                    assert_true(step - last <= epoch / min(times, epoch) + 1);
                last = falls ? step : last;
                if (step % epoch == 0) {
                    assert_true(falls);
                    assert_int_equal(found, step / epoch * min(times, epoch));
                }
            }
        }
    struct interval four = {.per_epoch = 4, .epoch = 10};
    assert_true(interval_falls_on(four, 3) && interval_falls_on(four, 5) && interval_falls_on(four, 8) &&
                !interval_falls_on(four, 4));
}

static void the_last_step_counts_always(void **state)
{
    (void)state;
    struct interval every = {.steps = 4}, never = {0}, empty = {.per_epoch = 2};
    assert_true(interval_falls_on(every, 8) && !interval_falls_on(every, 0) && !interval_falls_on(every, 9));
    assert_int_equal(interval_left(every, 0, 8), 2);
    assert_int_equal(interval_left(every, 0, 9), 3);
    assert_int_equal(interval_left(every, 4, 9), 2);
    assert_int_equal(interval_left(every, 9, 9), 0);
    assert_int_equal(interval_left(never, 0, 9), 1);
    assert_int_equal(interval_left(empty, 0, 9), 1);
    assert_int_equal(interval_left((struct interval){.per_epoch = 2, .epoch = 6}, 3, 15), 4);
}

/* Fails if a step times a number of times is taken for a number of 64 bits. */
static void numbers_of_any_size_are_counted(void **state)
{
    (void)state;
    int64_t large = INT64_MAX / 4;
    struct interval each = {.per_epoch = INT64_MAX, .epoch = large}, half = {.per_epoch = large / 2, .epoch = large - 1};
    assert_int_equal(interval_count(each, large - 1), large - 1);
    assert_int_equal(interval_left(each, 0, large), large);
    assert_int_equal(interval_count(half, 2 * (large - 1)), 2 * (large / 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_an_epoch_are_at_equal_distances_and_at_its_end),
        cmocka_unit_test(the_last_step_counts_always),
        cmocka_unit_test(numbers_of_any_size_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
