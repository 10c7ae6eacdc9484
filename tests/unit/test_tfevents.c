/* format/tfevents: records byte by byte; tests/oracle/events.py reads whole files with TensorBoard. */
#include "test.h"

#include "failing.h"
#include "format/tfevents.h"

/* What EventFileWriter of TensorBoard begins a file with, at 1.5 seconds after 1970. */
static void the_first_record_is_that_of_tensorboard(void **state)
{
    (void)state;
    static const char want[] = "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22"
                               "\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
                               "brain.Event:2"
                               "\x2a\x28\x64\x6c";
    struct buffer file = {0};
    assert_ok(tfevents_version(&file, 1.5));
    assert_int_equal(file.size, (int64_t)sizeof want - 1);
    assert_memory_equal(file.data, want, sizeof want - 1);
    buffer_free(&file);
}

/* A varint of several bytes, two values, and lengths that must be right for a reader to find them. */
static void scalars_are_values_of_a_summary(void **state)
{
    (void)state;
    static const char want[] = "\x09\0\0\0\0\0\0\0\x40\x10\xac\x02\x2a\x1c" /* wall_time 2, step 300, summary of 28 bytes */
                               "\x0a\x0c\x0a\x05loss1\x15\0\0\x80\x3f"      /* 1 */
                               "\x0a\x0c\x0a\x05loss2\x15\0\0\0\xc0";       /* -2 */
    const struct tfevents_scalar list[] = {{"loss1", 1}, {"loss2", -2}};
    struct buffer file = {0};
    assert_ok(tfevents_scalars(&file, (struct tfevents_place){2, 300}, list, 2));
    assert_int_equal(file.size, 12 + (int64_t)sizeof want - 1 + 4);
    assert_int_equal(file.data[0], (int)sizeof want - 1);
    assert_memory_equal(file.data + 12, want, sizeof want - 1);
    buffer_free(&file);
}

static enum status write_all(struct buffer *file)
{
    const struct tfevents_scalar scalar = {"train/loss", 1};
    char text[5000];
    memset(text, 'x', sizeof text);
    TRY(tfevents_version(file, 1));
    TRY(tfevents_start(file, (struct tfevents_place){1, 7}));
    TRY(tfevents_text(file, (struct tfevents_place){1, 7}, "samples/1", text, sizeof text));
    return tfevents_scalars(file, (struct tfevents_place){1, 7}, &scalar, 1);
}

static void room_that_is_there_is_enough(void **state)
{
    (void)state;
    struct buffer file = {0};
    assert_ok(buffer_reserve(&file, 8192));
    int64_t before = memory_count();
    assert_ok(write_all(&file));
    assert_int_equal(memory_count(), before);
    buffer_free(&file);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct buffer file = {0};
        failing_begin(&f);
        enum status status = write_all(&file);
        failing_end(&f, status);
        buffer_free(&file);
    }
    assert_true(f.failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_record_is_that_of_tensorboard),
        cmocka_unit_test(scalars_are_values_of_a_summary),
        cmocka_unit_test(room_that_is_there_is_enough),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
