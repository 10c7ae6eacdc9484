/* base: the distance between words. */
#include "test.h"

#include "base/nearest.h"

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
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(nearest_distance(cases[i].a, (int64_t)strlen(cases[i].a), cases[i].b, (int64_t)strlen(cases[i].b)),
                         cases[i].distance);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_compared_by_their_edits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
