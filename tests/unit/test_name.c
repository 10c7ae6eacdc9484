/* Names and the numbers in them. */
#include "test.h"

#include "base/name.h"

static void numbers_stand_where_the_format_says(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    assert_string_equal(name_fill(name, "lm_head", 3, 4, ".weight"), "lm_head.weight");
    assert_string_equal(name_fill(name, "model.layers.%d.mlp.up_proj", 31, 7, ""), "model.layers.31.mlp.up_proj");
    assert_string_equal(name_fill(name, "model.layers.%d.mlp.experts.%d.up_proj", 31, 7, ".bias"),
                        "model.layers.31.mlp.experts.7.up_proj.bias");
}

static void a_name_that_is_too_long_is_cut(void **state)
{
    (void)state;
    char name[NAME_SIZE], format[4 * NAME_SIZE];
    for (size_t length = NAME_SIZE - 8; length < NAME_SIZE + 8; length++) {
        memset(format, 'x', length);
        strcpy(format + length, "%d.%d");
        assert_int_equal(strlen(name_fill(name, format, 12, 34, "y")), length + 6 < NAME_SIZE ? length + 6 : NAME_SIZE - 1);
    }
}

static void the_end_of_a_name_is_known(void **state)
{
    (void)state;
    assert_true(name_ends_with("a.weight", ".weight") && name_ends_with(".weight", ".weight") && name_ends_with("a", ""));
    assert_false(name_ends_with("weight", ".weight") || name_ends_with("a.weights", ".weight"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_stand_where_the_format_says),
        cmocka_unit_test(a_name_that_is_too_long_is_cut),
        cmocka_unit_test(the_end_of_a_name_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
