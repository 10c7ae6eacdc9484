/* NF4: quantising, and what is refused. test_weight.c has the ops on it. */
#include "test.h"

#include <math.h>

#include "failing.h"
#include "nf4_rig.h"

static void quantised_values_stay_near(void **state)
{
    (void)state;
    int64_t count = 64 * 700;
    float *w = random_numbers(1, count, 0.02f), *back = test_malloc((size_t)count * sizeof *back), map[NF4_MAP];
    struct nf4 nf4;
    nf4_map(map);
    for (int i = 1; i < NF4_MAP; i++)
        assert_true(map[i] > map[i - 1]);
    assert_ok(nf4_quantise(w, count, &nf4));
    nf4_dequantise(nf4.packed, nf4.codes, nf4.scales, map, count, back);
    double error = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        error += (double)(w[i] - back[i]) * (double)(w[i] - back[i]);
        size += (double)w[i] * (double)w[i];
    }
    assert_true(error / size < 0.01); /* four bits of a normal distribution: 0.0087 */
    nf4_free(&nf4);
    test_free(w);
    test_free(back);
}

static void what_cannot_be_quantised_is_refused(void **state)
{
    (void)state;
    float w[128] = {0};
    struct nf4 nf4;
    assert_fails(nf4_quantise(w, 100, &nf4), ERR_ARGUMENT, "64");
    w[77] = NAN;
    assert_fails(nf4_quantise(w, 128, &nf4), ERR_DATA, "77");
    w[77] = 1;
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = nf4_quantise(w, 128, &nf4);
        failing_end(&f, status);
        if (status == OK)
            nf4_free(&nf4);
    }
    assert_int_equal(f.failed, 4);
}

static void rows_of_no_whole_blocks_are_refused(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct value *x = program_input(&r.program, "x", ROLE_ACTIVATION, 2, (int64_t)2, (int64_t)96);
    linear(&r.program, x, weight(&r, 4, 96));
    assert_int_equal(program_status(&r.program), ERR_UNSUPPORTED);
    assert_non_null(strstr(status_message(), "rows of 96 are no multiple"));
    program_free(&r.program);
    store_free(&r.store);
    device_close(r.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_values_stay_near),
        cmocka_unit_test(what_cannot_be_quantised_is_refused),
        cmocka_unit_test(rows_of_no_whole_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
