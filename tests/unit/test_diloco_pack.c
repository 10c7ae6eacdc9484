/* What ranks exchange in 8 bits. */
#include "dist/diloco_pack.h"
#include "test.h"

#include <math.h>

enum { ELEMENTS = 3 * DILOCO_BLOCK };

static void fill(float *x, uint32_t seed)
{
    for (int i = 0; i < ELEMENTS; i++) {
        seed = seed * 1664525U + 1013904223U;
        x[i] = ((float)(seed >> 8) / 8388608.0F - 1) * (i < DILOCO_BLOCK ? 1e-6F : 10.0F);
    }
}

/* With one scale for all blocks the small one would be lost. */
static void a_block_is_rounded_by_its_own_scale(void **state)
{
    (void)state;
    float x[ELEMENTS], lost[ELEMENTS] = {0}, back[ELEMENTS] = {0};
    int8_t packed[ELEMENTS + 3 * 4];
    fill(x, 1);
    diloco_pack(x, lost, ELEMENTS, packed);
    diloco_unpack_add(packed, ELEMENTS, back);
    for (int i = 0; i < ELEMENTS; i++) {
        assert_true(fabsf(back[i] - x[i]) <= (i < DILOCO_BLOCK ? 1e-6F : 10.0F) / 127);
        assert_true(fabsf(back[i] + lost[i] - x[i]) <= 1e-6F * fabsf(x[i]) + 1e-12F);
    }
}

/* Without the sum of what was lost, a hundred small moves next to a large one would be nothing. */
static void what_rounding_loses_comes_with_a_later_exchange(void **state)
{
    (void)state;
    float x[ELEMENTS] = {0}, lost[ELEMENTS] = {0}, sum[ELEMENTS] = {0};
    int8_t packed[ELEMENTS + 3 * 4];
    x[0] = 1;
    x[1] = 0.001F;
    for (int i = 0; i < 100; i++) {
        diloco_pack(x, lost, ELEMENTS, packed);
        diloco_unpack_add(packed, ELEMENTS, sum);
    }
    assert_true(fabsf(sum[0] - 100) < 0.01F);
    assert_true(fabsf(sum[1] - 0.1F) < 0.008F);
}

static void zeros_stay_zeros(void **state)
{
    (void)state;
    float x[ELEMENTS] = {0}, lost[ELEMENTS] = {0}, back[ELEMENTS] = {0};
    int8_t packed[ELEMENTS + 3 * 4];
    diloco_pack(x, lost, ELEMENTS, packed);
    diloco_unpack_add(packed, ELEMENTS, back);
    for (int i = 0; i < ELEMENTS; i++)
        assert_true(back[i] == 0 && lost[i] == 0);
}

/* The smallest numbers have few digits, and so has their scale. Seen to fail without the limit: 178 becomes -78. */
static void numbers_that_are_nearly_zero_keep_their_sign(void **state)
{
    (void)state;
    float x[ELEMENTS] = {0}, lost[ELEMENTS] = {0};
    int8_t packed[ELEMENTS + 3 * 4];
    x[0] = 178 * 0x1p-149F;
    diloco_pack(x, lost, ELEMENTS, packed);
    assert_int_equal(packed[3 * 4], 127);
    assert_true(lost[0] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_rounded_by_its_own_scale),
        cmocka_unit_test(what_rounding_loses_comes_with_a_later_exchange),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(numbers_that_are_nearly_zero_keep_their_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
