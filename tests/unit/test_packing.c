/* Packing: windows are full and never overfull, every row is in one, and equal rows give equal windows. */
#include "test.h"

#include "base/rng.h"
#include "data/packing.h"
#include "failing.h"

enum { ROWS = 3000 };

static struct token_row rows[ROWS];
static int64_t taken[ROWS];

static struct data make_data(int64_t count, int32_t (*length)(int64_t row))
{
    struct data data = {.rows = rows, .row_count = count};
    for (int64_t r = 0; r < count; r++) {
        rows[r] = (struct token_row){.begin = data.tokens, .line = r + 1, .count = length(r)};
        data.tokens += rows[r].count;
    }
    return data;
}

/* The tokens of a window, whose rows come ascending. */
static int64_t window_tokens(const struct packing *p, int64_t window, int64_t *count)
{
    int64_t tokens = 0;
    packing_window(p, window, taken, count);
    assert_true(*count > 0);
    for (int64_t i = 0; i < *count; i++) {
        assert_true(i == 0 || taken[i] > taken[i - 1]);
        tokens += rows[taken[i]].count;
    }
    return tokens;
}

/* 0 to 999 tokens, short ones more often. */
static int32_t usual(int64_t row)
{
    float u = philox_uniform(philox(7, 0, (uint64_t)row).word[0]);
    return (int32_t)(1000 * u * u);
}

static void windows_are_full(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1024, 2048, 8192};
    struct data data = make_data(ROWS, usual);
    for (int i = 0; i < 3; i++) {
        struct packing p;
        assert_ok(packing_init(&p, &data, 0, ROWS, sizes[i], false));
        assert_true((double)data.tokens > 0.99 * (double)((p.windows - 1) * sizes[i]));
        packing_free(&p);
    }
}

static int32_t six_to_three(int64_t row)
{
    return 6 - (int32_t)(row % 4);
}

static int32_t five_to_two(int64_t row)
{
    return 5 - (int32_t)(row % 4);
}

/* 6 + 4 and 5 + 5 fill windows of 10. Of 11, the longest that fits after a 5 is another 5, but 4 + 2 leave nothing free. */
static void windows_are_filled_exactly_where_two_rows_do(void **state)
{
    (void)state;
    enum { EACH = 40 };
    struct packing p;
    int64_t count;
    struct data data = make_data(4 * EACH, six_to_three);
    assert_ok(packing_init(&p, &data, 0, data.row_count, 10, false));
    assert_int_equal(p.windows, EACH + EACH / 2 + (EACH + 2) / 3);
    assert_int_equal(window_tokens(&p, 0, &count), 10);
    assert_int_equal(count, 2);
    packing_free(&p);
    data = make_data(4 * EACH, five_to_two);
    assert_ok(packing_init(&p, &data, 0, data.row_count, 11, false));
    for (int64_t w = 0; w < EACH; w++)
        assert_int_equal(window_tokens(&p, w, &count), 11);
    packing_free(&p);
}

/* Random lengths, windows and parts of a data set. */
static void every_row_is_in_one_window_and_none_is_overfull(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 60; trial++) {
        struct philox r = philox(trial, 1, 2);
        int64_t n = 1 + r.word[0] % ROWS, window = 1 + r.word[1] % 300, first = (int64_t)(r.word[2] % (uint64_t)n), count;
        static int seen[ROWS];
        struct data data = {.rows = rows, .row_count = n};
        for (int64_t i = 0; i < n; i++)
            rows[i] = (struct token_row){.count = (int32_t)(philox(trial, 2, (uint64_t)i).word[0] % (uint64_t)(window + 1))};
        struct packing p;
        assert_ok(packing_init(&p, &data, first, n - first, window, false));
        memset(seen, 0, sizeof seen);
        for (int64_t w = 0; w < p.windows; w++) {
            assert_true(window_tokens(&p, w, &count) <= window);
            assert_in_range(count, 1, p.max_rows);
            for (int64_t i = 0; i < count; i++)
                seen[taken[i]]++;
        }
        for (int64_t i = 0; i < ROWS; i++)
            assert_int_equal(seen[i], i >= first && i < n);
        packing_free(&p);
    }
}

/* The same windows as without order, in the order of their first rows. */
static void windows_in_order_begin_with_ascending_rows(void **state)
{
    (void)state;
    struct data data = make_data(ROWS, usual);
    struct packing ordered, anyhow;
    static int64_t by_first[ROWS][2]; /* of a window's first row: how many rows and tokens */
    int64_t count, before = -1;
    assert_ok(packing_init(&ordered, &data, 0, ROWS, 1024, true));
    assert_ok(packing_init(&anyhow, &data, 0, ROWS, 1024, false));
    assert_int_equal(ordered.windows, anyhow.windows);
    for (int64_t w = 0; w < anyhow.windows; w++) {
        int64_t tokens = window_tokens(&anyhow, w, &count);
        by_first[taken[0]][0] = count;
        by_first[taken[0]][1] = tokens;
    }
    for (int64_t w = 0; w < ordered.windows; w++) {
        int64_t tokens = window_tokens(&ordered, w, &count);
        assert_true(taken[0] > before);
        before = taken[0];
        assert_int_equal(by_first[before][0], count);
        assert_int_equal(by_first[before][1], tokens);
    }
    packing_free(&ordered);
    packing_free(&anyhow);
}

/* The same result twice, and windows can be asked for in any order without an allocation. */
static void equal_rows_give_equal_windows(void **state)
{
    (void)state;
    struct data data = make_data(ROWS, usual);
    struct packing a, b;
    assert_ok(packing_init(&a, &data, 0, ROWS, 1024, false));
    assert_ok(packing_init(&b, &data, 0, ROWS, 1024, false));
    assert_int_equal(a.windows, b.windows);
    int64_t allocations = memory_count();
    for (int64_t i = 0; i < a.windows; i++) {
        int64_t w = permute(i, a.windows, 5, 0), count, again;
        static int64_t other[ROWS];
        packing_window(&a, w, taken, &count);
        packing_window(&b, w, other, &again);
        assert_int_equal(count, again);
        assert_memory_equal(taken, other, (size_t)count * sizeof *taken);
    }
    assert_int_equal(memory_count(), allocations);
    packing_free(&a);
    packing_free(&b);
}

static void a_row_longer_than_the_window_is_refused(void **state)
{
    (void)state;
    struct data data = make_data(40, six_to_three);
    struct packing p;
    assert_fails(packing_init(&p, &data, 0, 40, 5, false), ERR_DATA, "a row has 6 tokens, more than the 5 of a window");
    assert_ok(packing_init(&p, &data, 1, 3, 5, false)); /* 5, 4 and 3: the 6 is not among them */
    assert_int_equal(p.windows, 3);
    packing_free(&p);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct data data = make_data(ROWS, usual);
    struct packing p;
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = packing_init(&p, &data, 0, ROWS, 1024, true);
        failing_end(&f, status);
        assert_true(status == OK || !p.groups); /* nothing is left to be freed */
        if (status == OK)
            packing_free(&p);
    }
    assert_true(f.failed > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_full),
        cmocka_unit_test(windows_are_filled_exactly_where_two_rows_do),
        cmocka_unit_test(every_row_is_in_one_window_and_none_is_overfull),
        cmocka_unit_test(windows_in_order_begin_with_ascending_rows),
        cmocka_unit_test(equal_rows_give_equal_windows),
        cmocka_unit_test(a_row_longer_than_the_window_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
