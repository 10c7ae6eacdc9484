/* base: the distance between words. */
#include "test.h"

#include "base/edit_distance.h"

static void words_are_compared_by_their_edits(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int distance;
    } cases[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "", 3},
        {"abc", "abc", 0},
        {"ab", "ba", 1},
        {"abcd", "acbd", 1},
        {"abcd", "abd", 1},
        {"kitten", "sitting", 3},
        {"max-length", "max_length", 0},
        {"max_lenght", "max_length", 1},
        {"ca", "abc", 3},
        {"badc", "abcd", 2},
        {"badcfe", "abcdef", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int limit = -1; limit < 8; limit++) {
            int64_t a = (int64_t)strlen(cases[i].a), b = (int64_t)strlen(cases[i].b);
            int distance = edit_distance(cases[i].a, a, cases[i].b, b, limit);
            if (cases[i].distance <= limit)
                assert_int_equal(distance, cases[i].distance);
            else
                assert_true(distance > limit);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_compared_by_their_edits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
