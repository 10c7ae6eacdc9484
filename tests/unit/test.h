/* What every unit test includes: cmocka, and a check of statuses that prints the message. */
#ifndef TESTS_UNIT_TEST_H
#define TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#undef fail /* cmocka's macro hides our function */
#undef fail_msg
#define fail_msg(...) (print_error("ERROR: " __VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

#include "base/status.h"

#define assert_ok(call)                                                                                                          \
    do {                                                                                                                         \
        enum status assert_status = (call);                                                                                      \
        if (assert_status != OK)                                                                                                 \
            fail_msg("%s: %s", #call, status_message());                                                                         \
    } while (0)

/* The call fails with this code, and its message contains the text. */
#define assert_fails(call, code, text)                                                                                           \
    do {                                                                                                                         \
        enum status assert_status = (call);                                                                                      \
        if (assert_status != (code) || !strstr(status_message(), (text)))                                                        \
            fail_msg("%s: status %d, message: %s", #call, assert_status, status_message());                                      \
    } while (0)

#endif
