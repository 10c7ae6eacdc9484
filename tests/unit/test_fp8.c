/* FP8: rounding, quantising, and what is refused. test_weight.c has the ops on it, oracle/fp8.py compares it with PyTorch. */
#include "test.h"

#include <math.h>

#include "format/fp8_matrix.h"
#include "ops/weights/weight.h"

/* Seen to fail with 0x7f read as 480, and with subnormal numbers left out of fp8_to_f32. */
static void every_byte_is_the_number_of_its_bits(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        int exponent = code >> 3 & 15, mantissa = code & 7;
        double number = exponent ? ldexp(1 + mantissa / 8.0, exponent - 7) : ldexp(mantissa / 8.0, -6);
        float got = fp8_to_f32((uint8_t)code);
        if ((code & 127) == 127) {
            assert_true(isnan(got));
            continue;
        }
        assert_true((double)got == (code & 128 ? -number : number) && !!signbit(got) == code >> 7);
        assert_int_equal(fp8_from_f32(got), code);
    }
    assert_true(fp8_to_f32(0x7e) == FP8_MAX);
}

/* Between any two neighbours: what is nearer to one becomes that one, and the middle the even one. Seen to fail with the tie left
 * to the upper one, and with subnormal numbers cut off instead of rounded. */
static void numbers_are_rounded_to_the_nearest(void **state)
{
    (void)state;
    for (int code = 0; code < 0x7e; code++) {
        float low = fp8_to_f32((uint8_t)code), high = fp8_to_f32((uint8_t)(code + 1)), middle = (low + high) / 2;
        assert_int_equal(fp8_from_f32(middle), code % 2 ? code + 1 : code);
        assert_int_equal(fp8_from_f32(nextafterf(middle, 0)), code);
        assert_int_equal(fp8_from_f32(-nextafterf(middle, 1000)), (code + 1) | 128);
    }
}

static void what_is_too_large_becomes_the_largest(void **state)
{
    (void)state;
    assert_int_equal(fp8_from_f32(449), 0x7e);
    assert_int_equal(fp8_from_f32(-1e30f), 0xfe);
    assert_int_equal(fp8_from_f32(INFINITY), 0x7e);
    assert_int_equal(fp8_from_f32(NAN) & 127, 127);
}

/* A row's largest number is 448 times its scale, and no other row matters. A row that is too small for a scale becomes zeros.
 * Seen to fail with one scale for all rows. */
static void a_row_has_its_own_scale(void **state)
{
    (void)state;
    float w[4][3] = {{1, -2, 0.5f}, {0, 0, 0}, {1e-30f, 0, 3e-30f}, {1e-44f, 0, 0}}, scales[4], back[4][3];
    uint8_t codes[12];
    assert_ok(fp8_quantise(w, DTYPE_F32, 4, 3, codes, scales));
    assert_true(scales[0] == 2 / 448.0f && scales[1] == 1 && scales[2] == 3e-30f / 448);
    assert_int_equal(codes[1], 0xfe);
    assert_int_equal(codes[8], 0x7e);
    fp8_dequantise(codes, scales, 4, 3, 1, FP8_ROW, &back[0][0]);
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 3; i++)
            assert_true(fabsf(back[r][i] - w[r][i]) <= fabsf(w[r][i]) / 16);
    assert_true(scales[3] == 1 && back[3][0] == 0);
}

static void what_cannot_be_quantised_is_refused(void **state)
{
    (void)state;
    float w[2][40] = {{0}}, scales[2];
    uint8_t codes[80];
    w[1][37] = NAN;
    assert_fails(fp8_quantise(w, DTYPE_F32, 2, 40, codes, scales), ERR_DATA, "77");
}

/* Scales by tile: the last ones may be smaller. Seen to fail with the scales of a row of tiles counted by whole tiles. */
static void a_tile_has_its_own_scale(void **state)
{
    (void)state;
    enum { ROWS = FP8_TILE + 2, COLUMNS = 2 * FP8_TILE + 3 };
    uint8_t codes[ROWS * COLUMNS];
    float scales[6] = {1, 2, 3, 4, 5, 6}, back[ROWS * COLUMNS];
    memset(codes, 0x38, sizeof codes); /* 1 */
    assert_int_equal(weight_words(WEIGHT_fp8_block, 1, ROWS, COLUMNS), 6);
    assert_int_equal(weight_words(WEIGHT_fp8, 1, ROWS, COLUMNS), ROWS);
    assert_int_equal(weight_words(WEIGHT_fp8, 0, ROWS, COLUMNS), (ROWS * COLUMNS + 3) / 4);
    fp8_dequantise(codes, scales, ROWS, COLUMNS, FP8_TILE, FP8_TILE, back);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < COLUMNS; i++)
            assert_true(back[r * COLUMNS + i] == (float)(1 + r / FP8_TILE * 3 + i / FP8_TILE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_the_number_of_its_bits),  cmocka_unit_test(numbers_are_rounded_to_the_nearest),
        cmocka_unit_test(what_is_too_large_becomes_the_largest), cmocka_unit_test(a_row_has_its_own_scale),
        cmocka_unit_test(what_cannot_be_quantised_is_refused),   cmocka_unit_test(a_tile_has_its_own_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
