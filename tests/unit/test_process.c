/* base/process: commands of the shell. */
#include "test.h"

#include <signal.h>

#include "base/process.h"
#include "failing.h"

/* Variables come from the caller and from the environment, and the caller's replace those of the same name. */
static void a_command_has_its_variables(void **state)
{
    (void)state;
    int code;
    const char *const variables[] = {"HONE_TEST=a b", "HONE_OTHER=", NULL};
    setenv("HONE_TEST", "not this", 1);
    setenv("HONE_TEST_TOO", "kept", 1);
    assert_ok(
        process_shell("test \"$HONE_TEST\" = 'a b' && test \"${HONE_OTHER-missing}\" = '' && test \"$HONE_TEST_TOO\" = kept && "
                      "test \"$(env | grep -c ^HONE_TEST=)\" = 1",
                      variables, &code));
    assert_int_equal(code, 0);
    unsetenv("HONE_TEST");
    unsetenv("HONE_TEST_TOO");
}

/* A child would inherit them, and could not be ended by Ctrl-C or by a closed pipe. */
static void signals_that_are_blocked_or_ignored_here_are_not_there(void **state)
{
    (void)state;
    static const char *const none[] = {NULL};
    int code;
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    signal(SIGPIPE, SIG_IGN);
    assert_ok(process_shell("kill -TERM $$; exit 0", none, &code));
    assert_int_equal(code, 128 + SIGTERM);
    assert_ok(process_shell("kill -PIPE $$; exit 0", none, &code));
    assert_int_equal(code, 128 + SIGPIPE);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    assert_ok(process_shell("exit 7", none, &code));
    assert_int_equal(code, 7);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    const char *const variables[] = {"A=b", NULL};
    while (failing_next(&f)) {
        int code;
        failing_begin(&f);
        enum status status = process_shell("true", variables, &code);
        failing_end(&f, status);
    }
    assert_true(f.failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_has_its_variables),
        cmocka_unit_test(signals_that_are_blocked_or_ignored_here_are_not_there),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
