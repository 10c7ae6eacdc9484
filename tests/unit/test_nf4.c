/* NF4: quantising, and what is refused. test_weight.c has the ops on it. */
#include "test.h"

#include <math.h>

#include "nf4_rig.h"

static void quantised_values_stay_near(void **state)
{
    (void)state;
    int64_t count = 64 * 700 - 27;
    float *w = random_numbers(1, count, 0.02f), *back = test_malloc((size_t)count * sizeof *back), map[NF4_MAP];
    struct nf4 nf4;
    nf4_map(map);
    for (int i = 1; i < NF4_MAP; i++)
        assert_true(map[i] > map[i - 1]);
    make_nf4(&nf4, w, count);
    weight_types[WEIGHT_nf4]->expand((const void *const[]){nf4.packed, nf4.codes, nf4.scales, map}, 1, count, back);
    double error = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        error += (double)(w[i] - back[i]) * (double)(w[i] - back[i]);
        size += (double)w[i] * (double)w[i];
    }
    assert_true(error / size < 0.01); /* four bits of a normal distribution: 0.0087 */
    free_weight(&nf4);
    test_free(w);
    test_free(back);
}

static void what_cannot_be_quantised_is_refused(void **state)
{
    (void)state;
    float w[128] = {0}, absmax[2] = {0};
    int32_t packed[16] = {0};
    w[77] = NAN;
    assert_fails(nf4_quantise(w, DTYPE_F32, 128, packed, absmax), ERR_DATA, "77");
}

/* With double quantisation: 4 bits a value, one byte for 64, a float for 16,384 and one for all. */
static void a_large_weight_takes_at_most_4_13_bits(void **state)
{
    (void)state;
    int64_t words = 0, count = 576 * 576;
    for (int i = 0; i < weight_parts(WEIGHT_nf4); i++)
        words += weight_types[WEIGHT_nf4]->part[i].shared ? 0 : weight_words(WEIGHT_nf4, i, 1, count);
    assert_true(32.0 * (double)words / (double)count <= 4.13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_values_stay_near),
        cmocka_unit_test(what_cannot_be_quantised_is_refused),
        cmocka_unit_test(a_large_weight_takes_at_most_4_13_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
