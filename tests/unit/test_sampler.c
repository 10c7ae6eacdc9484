/* Which rows a step takes: permutations, epochs, weights, ranks. */
#include "test.h"

#include <stdio.h>

#include "base/memory.h"
#include "data/sampler.h"
#include "failing.h"

enum { ROWS = 3000, WINDOW = 1024 };

static struct token_row rows[ROWS];

/* Rows of 0 to 999 tokens, short ones more often. */
static struct data make_data(int64_t count)
{
    struct data data = {.rows = rows, .row_count = count};
    for (int64_t r = 0; r < count; r++) {
        float u = philox_uniform(philox(7, 0, (uint64_t)r).word[0]);
        rows[r] = (struct token_row){.begin = data.tokens, .line = r + 1, .count = (int32_t)(1000 * u * u), .trained = 1};
        data.tokens += rows[r].count;
    }
    return data;
}

static void check_bijection(int64_t n, uint64_t seed, uint64_t stream)
{
    uint8_t *seen = calloc(1, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = permute(i, n, seed, stream);
        assert_in_range(to, 0, n - 1);
        assert_int_equal(seen[to]++, 0);
    }
    free(seen);
}

static void permute_is_a_bijection(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 200; n++) {
        check_bijection(n, (uint64_t)n * 77, 0);
        check_bijection(n, 42, UINT64_MAX);
    }
    static const int64_t larger[] = {255, 256, 257, 1023, 1025, 4000, 4096, 4097, 65537};
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++)
        check_bijection(larger[i], 42, i);
    for (int64_t i = 0; i < 1000; i++)
        assert_in_range(permute(i, INT64_C(1) << 40, 1, 2), 0, (INT64_C(1) << 40) - 1);
}

static void permute_differs_by_seed_and_stream(void **state)
{
    (void)state;
    int same_seed = 0, same_stream = 0, fixed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t to = permute(i, 1000, 42, 0);
        assert_int_equal(to, permute(i, 1000, 42, 0));
        same_seed += to == permute(i, 1000, 42, 1);
        same_stream += to == permute(i, 1000, 43, 0);
        fixed += to == i;
    }
    assert_true(same_seed < 10 && same_stream < 10 && fixed < 10);
}

/* Each of the 24 orders of four things occurs about equally often, and so does an element of ten in each place. */
static void permute_favours_no_order(void **state)
{
    (void)state;
    enum { SEEDS = 24000 };
    int count[256] = {0}, first[10] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        int order = 0;
        for (int64_t i = 0; i < 4; i++)
            order = order * 4 + (int)permute(i, 4, seed, 0);
        count[order]++;
        first[permute(3, 10, seed, 5)]++;
    }
    double chi = 0, chi_first = 0;
    for (int i = 0; i < 256; i++)
        chi += count[i] ? (count[i] - 1000.0) * (count[i] - 1000.0) / 1000 : 0;
    for (int i = 0; i < 10; i++)
        chi_first += (first[i] - SEEDS / 10.0) * (first[i] - SEEDS / 10.0) / (SEEDS / 10.0);
    assert_true(chi < 49.7 && chi_first < 27.9); /* one in a thousand, with 23 and with 9 degrees of freedom */
}

/* Walks through two epochs; returns how many rows have another place in the second. */
static int64_t walk(const struct data *data, bool shuffle, int64_t window, int64_t units_per_step)
{
    struct sampler s;
    static int64_t order[2][ROWS];
    int64_t moved = 0;
    assert_ok(sampler_init(&s, data, 42, shuffle, window, units_per_step));
    int64_t steps = sampler_steps(&s), allocations = memory_count();
    assert_int_equal(steps, (s.units + units_per_step - 1) / units_per_step);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        static int seen[ROWS];
        int64_t total = 0;
        memset(seen, 0, sizeof seen);
        for (int64_t step = 0; step < steps; step++) {
            const int64_t *taken;
            int64_t count, tokens = 0;
            assert_ok(sampler_step(&s, epoch * steps + step, &taken, &count));
            for (int64_t i = 0; i < count; i++) {
                assert_in_range(taken[i], 0, data->row_count - 1);
                assert_int_equal(seen[taken[i]]++, 0);
                tokens += data->rows[taken[i]].count;
                order[epoch][total++] = taken[i];
                if (window && units_per_step == 1 && i)
                    assert_true(taken[i] > taken[i - 1]);
            }
            if (window)
                assert_true(tokens <= window * units_per_step);
            else
                assert_int_equal(count, step < steps - 1 ? units_per_step : data->row_count - (steps - 1) * units_per_step);
        }
        assert_int_equal(total, data->row_count);
    }
    assert_int_equal(memory_count(), allocations);
    for (int64_t i = 0; i < data->row_count; i++)
        moved += order[0][i] != order[1][i];
    sampler_free(&s);
    return moved;
}

static void an_epoch_takes_each_row_once(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= ROWS; n = n * 3 + 1) {
        struct data data = make_data(n);
        for (int64_t units = 1; units <= 64; units *= 4)
            for (int64_t window = 0; window <= 4096; window += WINDOW) {
                assert_int_equal(walk(&data, false, window, units), 0);
                int64_t moved = walk(&data, true, window, units);
                assert_true(n < 100 || window > WINDOW || moved > n * 8 / 10);
            }
        walk(&data, true, INT64_C(1) << 40, INT64_C(1) << 20);
    }
}

static void without_shuffling_rows_come_in_the_order_of_the_file(void **state)
{
    (void)state;
    struct data data = make_data(100);
    struct sampler s;
    const int64_t *taken;
    int64_t count;
    assert_ok(sampler_init(&s, &data, 1, false, 0, 8));
    assert_int_equal(sampler_steps(&s), 13);
    assert_ok(sampler_step(&s, 13 + 2, &taken, &count));
    assert_int_equal(count, 8);
    for (int64_t i = 0; i < 8; i++)
        assert_int_equal(taken[i], 16 + i);
    assert_ok(sampler_step(&s, 12, &taken, &count));
    assert_int_equal(count, 4);
    sampler_free(&s);
    assert_ok(sampler_init(&s, &data, 1, false, WINDOW, 1));
    int64_t last = -1;
    for (int64_t step = 0; step < sampler_steps(&s); step++) {
        assert_ok(sampler_step(&s, step, &taken, &count));
        assert_true(taken[0] > last);
        last = taken[0];
    }
    sampler_free(&s);
}

/* Any step can be asked for on its own, from a sampler that saw no other. */
static void a_step_does_not_depend_on_those_before(void **state)
{
    (void)state;
    struct data data = make_data(1000);
    struct sampler a, b;
    assert_ok(sampler_init(&a, &data, 5, true, WINDOW, 4));
    for (int64_t step = 0; step < 3 * sampler_steps(&a); step += 7) {
        const int64_t *left, *right;
        int64_t left_count, right_count;
        assert_ok(sampler_init(&b, &data, 5, true, WINDOW, 4));
        assert_ok(sampler_step(&a, step, &left, &left_count));
        assert_ok(sampler_step(&b, step, &right, &right_count));
        assert_int_equal(left_count, right_count);
        assert_memory_equal(left, right, (size_t)left_count * sizeof *left);
        sampler_free(&b);
    }
    sampler_free(&a);
}

/* How often each row occurs in an epoch. */
static void count_epoch(struct sampler *s, int64_t epoch, int *times)
{
    memset(times, 0, ROWS * sizeof *times);
    for (int64_t step = 0; step < sampler_steps(s); step++) {
        const int64_t *taken;
        int64_t count;
        assert_ok(sampler_step(s, epoch * sampler_steps(s) + step, &taken, &count));
        assert_in_range(count, 1, s->max_rows);
        for (int64_t i = 0; i < count; i++)
            times[taken[i]]++;
    }
}

static void weights_say_how_often_rows_are_taken(void **state)
{
    (void)state;
    static int times[ROWS], next[ROWS];
    struct data_file files[] = {{.weight = 2.5, .end = 100},
                                {.weight = 1, .end = 400},
                                {.weight = 1, .end = 450},
                                {.weight = 0.25, .end = 650},
                                {.weight = 0, .end = 700}};
    struct data data = make_data(700);
    data.files = files;
    data.file_count = 5;
    for (int64_t window = 0; window <= WINDOW; window += WINDOW) {
        struct sampler s;
        assert_ok(sampler_init(&s, &data, 3, true, window, 8));
        if (!window)
            assert_int_equal(s.units, 250 + 350 + 50);
        count_epoch(&s, 0, times);
        int moved = 0, third = 0, quarter = 0;
        for (int64_t r = 0; r < 700; r++) {
            int min_times = r < 100 ? 2 : r < 450 ? 1 : 0, max_times = r < 100 ? 3 : r < 650 ? 1 : 0;
            assert_in_range(times[r], min_times, max_times);
            third += r < 100 && times[r] == 3;
            quarter += r >= 450 && r < 650 && times[r] == 1;
        }
        assert_true(window || (third == 50 && quarter == 50));
        assert_true(third > 20 && third < 80 && quarter > 25 && quarter < 75);
        count_epoch(&s, 1, next);
        for (int64_t r = 0; r < 700; r++)
            moved += times[r] != next[r];
        assert_true(moved > 20); /* others in the next epoch */
        count_epoch(&s, 0, next);
        assert_memory_equal(times, next, sizeof times);
        sampler_free(&s);
    }
    for (int f = 0; f < 5; f++)
        files[f].weight = 0;
    struct sampler s;
    assert_fails(sampler_init(&s, &data, 3, true, 0, 8), ERR_ARGUMENT, "weights");
    files[0].weight = 1e30;
    assert_fails(sampler_init(&s, &data, 3, true, 0, 8), ERR_ARGUMENT, "a weight of 1e+30");
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    struct data data = make_data(100), empty = {0};
    struct sampler s;
    const int64_t *taken;
    int64_t count;
    assert_fails(sampler_init(&s, &data, 1, true, 64, 4), ERR_DATA, "more than the 64 of a window");
    assert_fails(sampler_init(&s, &data, 1, true, 0, 0), ERR_ARGUMENT, "0 units");
    assert_fails(sampler_init(&s, &empty, 1, true, 0, 1), ERR_ARGUMENT, "0 rows");
    assert_ok(sampler_init(&s, &data, 1, true, 0, 1));
    assert_fails(sampler_step(&s, -1, &taken, &count), ERR_ARGUMENT, "step -1");
    sampler_free(&s);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct data data = make_data(ROWS);
    struct sampler s;
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = sampler_init(&s, &data, 1, true, WINDOW, 4);
        failing_end(&f, status);
        if (status == OK)
            sampler_free(&s);
    }
    assert_true(f.failed > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permute_is_a_bijection),
        cmocka_unit_test(permute_differs_by_seed_and_stream),
        cmocka_unit_test(permute_favours_no_order),
        cmocka_unit_test(an_epoch_takes_each_row_once),
        cmocka_unit_test(without_shuffling_rows_come_in_the_order_of_the_file),
        cmocka_unit_test(a_step_does_not_depend_on_those_before),
        cmocka_unit_test(weights_say_how_often_rows_are_taken),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
