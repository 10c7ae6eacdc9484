/* Which files may become code: the policy of base/code.h on paths that are made for it. */
#include "test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/code.h"
#include "base/directory.h"
#include "base/file.h"
#include "failing.h"

static struct arena arena;
static const char *folder, *program;

static int setup(void **state)
{
    (void)state;
    assert_ok(directory_make_temporary(&arena, &folder));
    program = file_join(&arena, folder, "bin/tool");
    assert_ok(directory_make(file_join(&arena, folder, "bin")));
    assert_ok(file_create(program, "#!/bin/sh\n", 10));
    assert_int_equal(chmod(program, 0755), 0);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    unsetenv("LD_LIBRARY_PATH");
    assert_ok(directory_remove(folder));
    arena_free(&arena);
    return 0;
}

static const char *make_link(const char *target, const char *name)
{
    const char *path = file_join(&arena, folder, name);
    assert_ok(file_link(target, path));
    return path;
}

/* Fails if a path is judged by its text: with `..`, doubled slashes and links it names the same file. */
static void test_a_path_is_judged_by_where_it_leads(void **state)
{
    (void)state;
    assert_ok(code_trust(program));
    assert_ok(code_trust(arena_format(&arena, "%s//bin/./../bin/tool", folder)));
    assert_ok(code_trust(arena_format(&arena, "%s/tool", make_link("bin", "link"))));
    assert_ok(code_trust(make_link("link/../bin/tool", "second")));
    assert_fails(code_trust("bin/tool"), ERR_ARGUMENT, "not an absolute path");
    assert_fails(code_trust(""), ERR_ARGUMENT, "not an absolute path");
    assert_fails(code_trust(file_join(&arena, folder, "none")), ERR_IO, "none");
}

/* Fails if modes are looked at for the last part only, or for all but the last. */
static void test_what_others_can_write_is_refused(void **state)
{
    (void)state;
    const char *bin = file_join(&arena, folder, "bin");
    chmod(program, 0757);
    assert_fails(code_trust(program), ERR_ARGUMENT, "everybody can write");
    chmod(program, 0755);
    chmod(bin, 0777);
    assert_fails(code_trust(program), ERR_ARGUMENT, "everybody can write");
    assert_fails(code_trust(make_link("bin/tool", "link")), ERR_ARGUMENT, "everybody can write");
    chmod(bin, 01777);
    assert_ok(code_trust(program));
    chmod(bin, 0755);
}

/* Fails if links are followed without a count, or a long path is cut. */
static void test_circles_and_long_paths_end(void **state)
{
    (void)state;
    make_link("b", "a");
    const char *circle = make_link("a", "b");
    assert_fails(code_trust(circle), ERR_IO, "goes in circles");
    char *longer = arena_alloc(&arena, 8192);
    memset(longer, 'x', 8191);
    longer[0] = '/';
    longer[8191] = 0;
    assert_fails(code_trust(longer), ERR_IO, "too long");
}

/* Fails if relative or empty parts of PATH are searched, or the first match is not the one that is judged. */
static void test_programs_are_found_in_absolute_parts(void **state)
{
    (void)state;
    const char *found, *before = getenv("PATH");
    char *kept = arena_text(&arena, before ? before : "", before ? (int64_t)strlen(before) : 0);
    assert_int_equal(chdir(folder), 0);
    setenv("PATH", "bin::.", 1);
    assert_fails(code_find_program(&arena, "tool", &found), ERR_IO, "in no directory of PATH");
    setenv("PATH", arena_format(&arena, "bin:%s/bin", folder), 1);
    assert_ok(code_find_program(&arena, "tool", &found));
    assert_string_equal(found, program);
    assert_fails(code_find_program(&arena, "bin/tool", &found), ERR_ARGUMENT, "not an absolute path");
    unsetenv("PATH");
    assert_fails(code_find_program(&arena, "tool", &found), ERR_IO, "in no directory of PATH");
    setenv("PATH", kept, 1);
    assert_int_equal(chdir("/"), 0);
}

/* Fails if an allocation's failure is taken for a part without the program. */
static void test_memory_that_runs_out_while_searching(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct arena own = {0};
        const char *found;
        failing_begin(&f);
        enum status status = code_find_program(&own, "sh", &found);
        if (status == OK)
            status = code_check_loader();
        failing_end(&f, status);
        arena_free(&own);
    }
}

/* Fails if a part of LD_LIBRARY_PATH other than the first is not looked at, or $ORIGIN is taken for a folder. */
static void test_the_loader_does_not_look_in_the_working_directory(void **state)
{
    (void)state;
    static const char *const unsafe[] = {":", "/a:", ":/a", "/a::/b", ".", "/a;", "bin/..", "/a:./"};
    assert_int_equal(chdir(folder), 0);
    assert_ok(file_create("libx.so.1", "", 0));
    for (size_t i = 0; i < sizeof unsafe / sizeof unsafe[0]; i++) {
        setenv("LD_LIBRARY_PATH", unsafe[i], 1);
        assert_fails(code_check_loader(), ERR_ARGUMENT, "LD_LIBRARY_PATH has an empty or relative part");
    }
    setenv("LD_LIBRARY_PATH", "", 1);
    assert_ok(code_check_loader());
    setenv("LD_LIBRARY_PATH", "/a:/b", 1);
    assert_ok(code_check_loader());
    setenv("LD_LIBRARY_PATH", "$ORIGIN/../lib", 1);
    assert_ok(code_check_loader());
    setenv("LD_LIBRARY_PATH", "/a:", 1);
    file_remove("libx.so.1");
    assert_ok(code_check_loader());
    assert_int_equal(chdir("/"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_path_is_judged_by_where_it_leads, setup, clean),
        cmocka_unit_test_setup_teardown(test_what_others_can_write_is_refused, setup, clean),
        cmocka_unit_test_setup_teardown(test_circles_and_long_paths_end, setup, clean),
        cmocka_unit_test_setup_teardown(test_programs_are_found_in_absolute_parts, setup, clean),
        cmocka_unit_test_setup_teardown(test_memory_that_runs_out_while_searching, setup, clean),
        cmocka_unit_test_setup_teardown(test_the_loader_does_not_look_in_the_working_directory, setup, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
