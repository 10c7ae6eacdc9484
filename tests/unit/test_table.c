/* Tables that may be larger than memory. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/table.h"

static void a_large_table_keeps_what_is_written_and_rests(void **state)
{
    (void)state;
    enum { COUNT = 8 << 20 };
    struct table table;
    int64_t full, rested, peak;
    assert_ok(table_open(&table, NULL, COUNT, 8));
    assert_true(table.in_file);
    int64_t *numbers = table.data;
    for (int64_t i = 0; i < COUNT; i++) {
        assert_int_equal(numbers[i], 0);
        numbers[i] = i * 3;
    }
    process_memory(&full, &peak);
    table_rest(&table);
    process_memory(&rested, &peak);
    assert_true(full - rested > 7 * COUNT);
    for (int64_t i = 0; i < COUNT; i++)
        assert_int_equal(numbers[i], i * 3);
    table_close(&table);
    assert_null(table.data);
    table_close(&table);
}

static int interrupts;

int posix_fallocate(int fd, off_t offset, off_t bytes) /* in place of the C library's, which gives it to its callers */
{
    return interrupts-- > 0 ? EINTR : ftruncate(fd, offset + bytes) ? errno : 0;
}

/* A signal's handler ended a run whose data needs a table in a file. */
static void a_signal_does_not_keep_a_table_from_its_room(void **state)
{
    (void)state;
    struct table table;
    interrupts = 3;
    assert_ok(table_open(&table, NULL, 4 << 20, 8));
    assert_true(table.in_file && interrupts < 0);
    table_close(&table);
}

static void a_small_table_is_in_memory(void **state)
{
    (void)state;
    struct table table;
    assert_ok(table_open(&table, "/no/such/directory", 1000, 8));
    assert_false(table.in_file);
    assert_int_equal(((int64_t *)table.data)[999], 0);
    table_close(&table);
    memory_fail_after(0);
    assert_int_equal(table_open(&table, NULL, 1000, 8), ERR_MEMORY);
    memory_fail_after(-1);
}

static void what_cannot_be_is_an_error(void **state)
{
    (void)state;
    struct table table;
    assert_fails(table_open(&table, "/no/such/directory", 4 << 20, 8), ERR_IO, "/no/such/directory");
    assert_fails(table_open(&table, NULL, INT64_MAX / 4, 8), ERR_MEMORY, "a table of");
    assert_fails(table_open(&table, NULL, -1, 8), ERR_MEMORY, "a table of");
}

/* The files have no name, so that nothing remains however the process ends. */
static void nothing_is_left_in_the_directory(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct table table;
    const char *dir, **names;
    int64_t count;
    assert_ok(directory_make_temporary(&arena, &dir));
    assert_ok(table_open(&table, dir, 4 << 20, 8));
    assert_ok(directory_list(&arena, dir, &names, &count));
    assert_int_equal(count, 0);
    table_close(&table);
    assert_ok(directory_remove(dir));
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_table_keeps_what_is_written_and_rests),
        cmocka_unit_test(a_signal_does_not_keep_a_table_from_its_room),
        cmocka_unit_test(a_small_table_is_in_memory),
        cmocka_unit_test(what_cannot_be_is_an_error),
        cmocka_unit_test(nothing_is_left_in_the_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
