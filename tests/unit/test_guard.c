/* train/guard: which steps it finds bad, which stand out, and that steps as they usually are do neither. */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "state/guard.h"

static const double GUESS = 10;

static enum guard_finding look(struct guard *g, double loss, double norm, bool applied)
{
    double deviations;
    struct guard_step step = {loss, norm, applied, GUESS};
    return guard_look(g, &step, &deviations);
}

/* A step of a run that learns: a loss that falls, with noise that is large, as of batches of one row. */
static enum guard_finding look_usual(struct guard *g, int i)
{
    struct philox r = philox(7, 0, (uint64_t)i);
    float noise[2];
    philox_normal(r.word[0], r.word[1], noise);
    double loss = 1.5 + 2 * exp(-i / 300.0);
    return look(g, loss * exp(0.25 * (double)noise[0]), exp(0.5 * (double)noise[1]), true);
}

static void steps_that_are_broken_are_bad(void **state)
{
    (void)state;
    struct guard g = {0};
    assert_int_equal(look(&g, 2, 1, true), GUARD_FINE);
    assert_int_equal(look(&g, 2, NAN, false), GUARD_NOT_FINITE);
    assert_int_equal(look(&g, NAN, 1, true), GUARD_NOT_FINITE);
    assert_int_equal(look(&g, INFINITY, 1, true), GUARD_NOT_FINITE);
    assert_int_equal(look(&g, 2, 0, true), GUARD_DEAD);
    assert_int_equal(look(&g, 0, 0, true), GUARD_FINE); /* all is learned */
    assert_int_equal(look(&g, 1.4 * GUESS, 1, true), GUARD_FINE);
    assert_int_equal(look(&g, 1.6 * GUESS, 1, true), GUARD_WORSE);
    for (enum guard_finding f = GUARD_FINE; f <= GUARD_WORSE; f++) {
        assert_int_equal(guard_is_bad(f), f >= GUARD_NOT_FINITE);
        assert_true(f == GUARD_FINE ? !guard_name(f) : guard_name(f)[0] != 0);
    }
}

/* Without the smallest deviations a run whose loss hardly moves would be full of findings. */
static void usual_steps_are_fine(void **state)
{
    (void)state;
    struct guard g = {0}, still = {0};
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(look_usual(&g, i), GUARD_FINE);
        assert_int_equal(look(&still, 2 + (i % 97 == 96) * 0.05, 1 + (i % 89 == 88) * 0.3, true), GUARD_FINE);
    }
}

/* The second of two high losses too: the first is not taken in as it is. A low loss never. */
static void a_loss_or_norm_that_stands_out_is_found(void **state)
{
    (void)state;
    struct guard g = {0};
    for (int i = 0; i < 100; i++)
        look_usual(&g, i);
    assert_int_equal(look(&g, 14, 1, true), GUARD_LOSS);
    assert_int_equal(look(&g, 14, 1, true), GUARD_LOSS);
    assert_int_equal(look(&g, 0.01, 1, true), GUARD_FINE);
    assert_int_equal(look(&g, 2, 200, true), GUARD_NORM);
    assert_int_equal(look(&g, 2, 1e-4, true), GUARD_FINE);
    struct guard young = {0};
    for (int i = 0; i < 19; i++)
        look_usual(&young, i);
    assert_int_equal(look(&young, 9, 200, true), GUARD_FINE); /* too few steps to judge by */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_are_broken_are_bad),
        cmocka_unit_test(usual_steps_are_fine),
        cmocka_unit_test(a_loss_or_norm_that_stands_out_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
