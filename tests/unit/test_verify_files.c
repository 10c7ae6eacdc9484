/* intact: the files of a model or an adapter are compared with the checksums next to them before they are used. */
#include "test.h"

#include <string.h>

#include "base/checksums.h"
#include "base/directory.h"
#include "failing.h"
#include "models/verify_files.h"

static struct arena arena;
static const char *dir;

static void put(const char *name, const char *text)
{
    assert_ok(file_replace(file_join(&arena, dir, name), text, (int64_t)strlen(text)));
}

static int make(void **state)
{
    (void)state;
    assert_ok(directory_make_temporary(&arena, &dir));
    put("adapter_config.json", "{}");
    put("adapter_model.safetensors", "weights");
    put("state.safetensors", "state");
    put("trainer_state.json", "{}");
    assert_ok(checksums_write(dir));
    return 0;
}

static int clean(void **state)
{
    (void)state;
    assert_ok(directory_remove(dir));
    arena_free(&arena);
    return 0;
}

/* Fails if a file is not compared, or a folder without a list is refused. */
static void test_a_file_with_other_bytes_is_refused(void **state)
{
    (void)state;
    assert_ok(verify_files_check(NULL));
    assert_ok(verify_files_check("/nowhere"));
    assert_ok(verify_files_check(dir));
    put("adapter_model.safetensors", "Weights");
    assert_fails(verify_files_check(dir), ERR_FORMAT, "adapter_model.safetensors: is damaged");
    put("adapter_model.safetensors", "weights");
    put("adapter_config.json", "[]");
    assert_fails(verify_files_check(dir), ERR_FORMAT, "adapter_config.json: is damaged");
    assert_ok(directory_remove(file_join(&arena, dir, "adapter_config.json")));
    assert_fails(verify_files_check(dir), ERR_FORMAT, "adapter_config.json: is missing, but checksums.xxh128 names it");
    put("adapter_config.json", "{}");
}

/* Fails if what only resuming reads, which may be many times the weights, is compared or asked for. */
static void test_the_state_of_a_run_does_not_matter(void **state)
{
    (void)state;
    put("trainer_state.json", "[]");
    assert_ok(directory_remove(file_join(&arena, dir, "state.safetensors")));
    assert_ok(verify_files_check(dir));
}

/* Fails if a file that came later is refused, or weights that the list has lost are taken. */
static void test_only_weights_must_be_on_the_list(void **state)
{
    (void)state;
    struct buffer list = {0};
    const char *path = file_join(&arena, dir, "checksums.xxh128");
    put("chat_template.jinja", "later");
    assert_ok(verify_files_check(dir));
    assert_ok(file_read(&list, path, 4096));
    strstr(list.data, "adapter_model")[0] = 'b';
    assert_ok(file_replace(path, list.data, list.size));
    assert_fails(verify_files_check(dir), ERR_FORMAT, "adapter_model.safetensors: checksums.xxh128 next to it does not name it");
    strstr(list.data, "bdapter_model")[0] = 'a';
    assert_ok(file_replace(path, list.data, list.size));
    buffer_free(&list);
    assert_ok(verify_files_check(dir));
}

/* This file gives EIO, as a bad sector does. Mapped, one was a signal, and the checkpoint before it was never taken. */
static void test_what_cannot_be_read_is_an_error(void **state)
{
    (void)state;
    char text[HASH_TEXT];
    assert_int_equal(checksums_file("/proc/self/mem", text), ERR_IO);
    assert_non_null(strstr(status_message(), "/proc/self/mem: cannot read"));
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = verify_files_check(dir);
        failing_end(&f, status);
    }
    assert_true(f.failed > 0);
    assert_int_equal(f.done_without, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_with_other_bytes_is_refused), cmocka_unit_test(test_the_state_of_a_run_does_not_matter),
        cmocka_unit_test(test_only_weights_must_be_on_the_list),   cmocka_unit_test(test_what_cannot_be_read_is_an_error),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
