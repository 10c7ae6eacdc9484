/* The log of a cache of tokens, on a disk that cannot be read everywhere. tests/unit/test_token_cache.c has the other damage. */
#include "test.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/directory.h"
#include "data/token_log.h"
#include "failing.h"

static struct arena arena;
static const char *dir;
static struct token_files files;
static const struct digest key = {1, 2};

static int unreadable = -1; /* pieces until one lies in a bad sector; -1: none does */

ssize_t pread(int fd, void *bytes, size_t count, off_t offset) /* in place of the C library's */
{
    if (unreadable < 0 || unreadable-- > 0)
        return syscall(SYS_pread64, fd, bytes, count, offset);
    errno = EIO;
    return -1;
}

/* Two blocks of a row each, and the end. */
static int make(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 6, 7};
    struct token_block block = {0};
    struct token_totals totals = {0};
    struct source_position next = {0};
    assert_ok(directory_make_temporary(&arena, &dir));
    assert_ok(token_files_name(&files, &arena, dir));
    for (int i = 0; i < 2; i++) {
        token_block_clear(&block);
        assert_ok(token_block_add(&block, ids, NULL, 3, 0, i + 1, 0, 0));
        assert_ok(token_block_skip(&block, 0, i + 2, "a cause"));
        assert_ok(token_log_append(&files, key, &block, &next, &totals));
    }
    assert_ok(token_log_append(&files, key, NULL, &next, &totals));
    token_block_free(&block);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    assert_ok(directory_remove(dir));
    arena_free(&arena);
    return 0;
}

/* Fails if a file is mapped to be checked: a sector that cannot be read is a signal then, and ends the run. */
static void what_cannot_be_read_is_damage(void **state)
{
    (void)state;
    struct token_log_state found;
    assert_ok(token_log_check(&files, key, 1, true, &found));
    assert_true(found.complete && !found.damage && found.blocks == 2);
    for (int piece = 0; piece < 9; piece++) { /* of each block the record, the rows, the list and the tokens; the last record */
        unreadable = piece;
        assert_ok(token_log_check(&files, key, 1, true, &found));
        assert_int_equal(unreadable, -1);
        assert_non_null(found.damage);
        assert_string_equal(found.damage, "a part of it cannot be read");
        assert_true(!found.complete && found.blocks == piece / 4 && found.totals.rows == piece / 4);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct token_log_state found;
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = token_log_check(&files, key, 1, true, &found);
        failing_end(&f, status);
        assert_true(status != OK || found.complete);
    }
    assert_true(f.failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_read_is_damage),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
