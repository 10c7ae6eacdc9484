/* base/part, and directories below a root: what others can put under a name that they know is neither written to nor gone
 * through. */
#include "failing.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/part.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/hone-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return directory_remove(root) == OK ? 0 : -1;
}

/* root/name; the last eight stay. */
static const char *at(const char *name)
{
    static char texts[8][256];
    static int next;
    char *text = texts[next++ % 8];
    snprintf(text, sizeof *texts, "%s/%s", root, name);
    return text;
}

static void assert_content(const char *name, const char *text)
{
    struct buffer b = {0};
    assert_ok(file_read(&b, at(name), 1 << 20));
    assert_string_equal(b.data, text);
    buffer_free(&b);
}

/* Fails if what an earlier process wrote is lost, or what is empty stays. */
static void a_part_is_gone_on_with(void **state)
{
    (void)state;
    struct part part;
    int64_t size;
    char bytes[4] = "", first[FILE_STATE], last[FILE_STATE];
    bool taken;
    const char *path = at("a.incomplete"), *whole = at("a");
    assert_ok(part_open(&part, path, &size));
    assert_int_equal(size, 0);
    part_close(&part);
    assert_false(file_exists(path));
    assert_ok(part_open(&part, path, &size));
    assert_ok(part_append(&part, "abc", 3));
    part_close(&part);
    part_close(&part);
    assert_ok(part_open(&part, path, &size));
    assert_int_equal(size, 3);
    assert_ok(part_append(&part, "def", 3));
    assert_ok(part_read(&part, 2, bytes, 3));
    assert_string_equal(bytes, "cde");
    assert_fails(part_read(&part, 4, bytes, 3), ERR_IO, "became shorter");
    assert_ok(part_state(&part, first));
    assert_ok(part_commit(&part, whole, false, &taken));
    assert_false(taken);
    assert_ok(part_state(&part, last));
    part_close(&part);
    assert_content("a", "abcdef");
    assert_false(file_exists(path));
    assert_true(file_state(whole, first));
    assert_string_equal(first, last); /* what was written has the name */
    assert_ok(file_append(whole, "", 0));
    assert_ok(part_open(&part, path, &size));
    assert_ok(part_append(&part, "other", 5));
    assert_ok(part_empty(&part));
    assert_ok(part_append(&part, "new", 3));
    assert_ok(part_commit(&part, whole, false, &taken));
    assert_true(taken);
    assert_content("a", "abcdef");
    assert_ok(part_commit(&part, whole, true, &taken));
    part_close(&part);
    assert_content("a", "new");
    assert_true(file_state(whole, last) && strcmp(first, last) != 0);
}

/* Fails if a planted name leads hone to write into somebody's file. */
static void what_others_put_in_its_place_is_not_written_to(void **state)
{
    (void)state;
    assert_ok(file_replace(at("victim"), "mine", 4));
    for (int kind = 0; kind < 4; kind++) {
        struct part part;
        struct stat st;
        int64_t size = -1;
        const char *path = at("b.incomplete");
        assert_int_equal(kind == 0   ? symlink("victim", path)
                         : kind == 1 ? link(at("victim"), path)
                         : kind == 2 ? mkfifo(path, 0600)
                                     : symlink("nowhere", path),
                         0);
        assert_ok(part_open(&part, path, &size));
        assert_int_equal(size, 0);
        assert_ok(part_append(&part, "EVIL", 4));
        part_close(&part);
        assert_content("victim", "mine");
        assert_int_equal(lstat(path, &st), 0);
        assert_true(S_ISREG(st.st_mode) && st.st_nlink == 1);
        assert_false(file_exists(at("nowhere")));
        file_remove(path);
    }
    struct part part;
    int64_t size;
    assert_ok(directory_make(at("c.incomplete")));
    assert_fails(part_open(&part, at("c.incomplete"), &size), ERR_IO, "remove it");
    part_close(&part);
}

/* Fails if a state stays the same after a file was written to, also if its time was set back. */
static void a_state_changes_with_its_file(void **state)
{
    (void)state;
    char before[FILE_STATE], after[FILE_STATE];
    struct stat st;
    const char *path = at("state");
    assert_false(file_state(path, before));
    assert_ok(file_replace(path, "abc", 3));
    assert_true(file_state(path, before) && file_state(path, after));
    assert_string_equal(before, after);
    assert_int_equal(stat(path, &st), 0);
    usleep(20000); /* the clock of a file system is coarse */
    int fd = open(path, O_WRONLY);
    assert_int_equal(write(fd, "abd", 3), 3);
    close(fd);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
    assert_true(file_state(path, after));
    assert_string_not_equal(before, after);
}

/* Fails if a link below the root is gone through, or the root itself may not be one. */
static void directories_below_a_root_are_no_links(void **state)
{
    (void)state;
    struct arena arena = {0};
    const char *target;
    assert_ok(directory_make(at("real/inner")));
    assert_int_equal(symlink("real", at("root")), 0);
    assert_int_equal(symlink("inner", at("real/link")), 0);
    assert_ok(directory_make_below(at("root"), at("root/inner/a/b")));
    assert_true(file_is_directory(at("real/inner/a/b")));
    assert_ok(directory_make_below(at("root"), at("root")));
    assert_ok(directory_make_below(at("root/"), at("root/x//y/")));
    assert_fails(directory_make_below(at("root"), at("root/link")), ERR_IO, "root/link: is a link");
    assert_fails(directory_make_below(at("root"), at("root/link/c")), ERR_IO, "is a link");
    assert_false(file_exists(at("real/inner/c")));
    assert_ok(file_replace(at("real/file"), "", 0));
    assert_fails(directory_make_below(at("root"), at("root/file/c")), ERR_IO, "there is a file");
    assert_ok(file_target(&arena, at("real/link"), &target));
    assert_string_equal(target, "inner");
    assert_ok(file_target(&arena, at("real/file"), &target));
    assert_null(target);
    struct failing f = {0};
    while (failing_next(&f)) {
        struct arena own = {0};
        failing_begin(&f);
        enum status status = directory_make_below(at("root"), at("root/inner/d"));
        if (status == OK)
            status = file_target(&own, at("real/link"), &target);
        failing_end(&f, status);
        arena_free(&own);
    }
    assert_true(f.failed >= 2);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_gone_on_with),
        cmocka_unit_test(what_others_put_in_its_place_is_not_written_to),
        cmocka_unit_test(a_state_changes_with_its_file),
        cmocka_unit_test(directories_below_a_root_are_no_links),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
