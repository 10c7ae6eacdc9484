/* train/schedule: rates by hand, and options that do not belong together. tests/oracle/schedule.py compares every schedule with
 * transformers'. */
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "job/schedule.h"

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static enum status make(struct schedule *s, int64_t steps, const char *const *settings)
{
    struct arena arena = {0};
    struct options options;
    options_init(&options, &arena);
    for (const char *const *at = settings; *at; at += 2) {
        char flag[64];
        snprintf(flag, sizeof flag, "--%s", at[0]);
        assert_ok(options_set(&options, COMMAND_TRAIN, at[0], at[1], flag));
    }
    enum status status = schedule_init(s, &options, steps);
    arena_free(&arena);
    return status;
}

static void assert_rates(const char *const *settings, int64_t steps, const double *rates, int count)
{
    struct schedule s;
    assert_ok(make(&s, steps, settings));
    for (int i = 0; i < count; i++)
        if (!(fabs(schedule_rate(&s, 1 + i) - rates[i]) < 1e-12))
            fail_msg("%s, step %d: %.17g and not %.17g", settings[1], 1 + i, schedule_rate(&s, 1 + i), rates[i]);
}

#define RATES(...) (const double[]){__VA_ARGS__}, (int)(sizeof(double[]){__VA_ARGS__} / sizeof(double))
#define KIND(kind, ...) SETTINGS("lr_scheduler_type", kind, "learning_rate", "2", __VA_ARGS__)

/* The last rate is that of a step after the run's end. */
static void schedules_warm_up_and_go_down(void **state)
{
    (void)state;
    const double half = sqrt(0.5);
    assert_rates(KIND("constant", "warmup_steps", "4"), 8, RATES(0.5, 1.0, 1.5, 2.0, 2, 2, 2, 2, 2));
    assert_rates(KIND("constant_with_warmup", "warmup_steps", "2"), 4, RATES(1, 2, 2, 2, 2));
    assert_rates(KIND("linear", "warmup_steps", "4"), 8, RATES(0.5, 1.0, 1.5, 2.0, 2, 1.5, 1, 0.5, 0));
    assert_rates(KIND("cosine", "warmup_steps", "4"), 8, RATES(0.5, 1.0, 1.5, 2.0, 2, 1 + half, 1, 1 - half, 0));
    assert_rates(KIND("cosine", "warmup_steps", "4", "num_cycles", "1"), 8, RATES(0.5, 1.0, 1.5, 2.0, 2, 1, 0, 1, 2));
    assert_rates(KIND("cosine_with_restarts", "warmup_ratio", "0", "num_cycles", "2"), 4, RATES(2, 1, 2, 1, 0));
    assert_rates(KIND("cosine_with_min_lr", "warmup_ratio", "0", "min_lr", "1"), 2, RATES(2, 1.5, 1));
    assert_rates(KIND("cosine_with_min_lr", "warmup_ratio", "0", "min_lr_rate", "0.25"), 2, RATES(2, 1.25, 0.5));
    assert_rates(KIND("polynomial", "warmup_ratio", "0", "power", "2", "lr_end", "0.4"), 2, RATES(2, 0.8, 0.4));
    assert_rates(
        KIND("warmup_stable_decay", "warmup_steps", "2", "num_decay_steps", "2", "min_lr_ratio", "0.5", "decay_type", "linear"),
        6, RATES(1.5, 2, 2, 2, 2, 1.5, 1));
    assert_rates(KIND("warmup_stable_decay", "warmup_ratio", "0", "num_decay_steps", "4", "decay_type", "1-sqrt"), 4,
                 RATES(2, 1, 2 - 2 * half, 2 - sqrt(3), 0));
    assert_rates(KIND("warmup_stable_decay", "warmup_ratio", "0"), 20, /* a tenth of the steps go down */
                 RATES(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 0));
}

/* A trainer without data knows no number of steps: the rate stays, whatever the schedule. */
static void without_an_end_the_rate_stays(void **state)
{
    (void)state;
    const char *word;
    for (int kind = 0; (word = options_word(OPTION_lr_scheduler_type, kind)); kind++) {
        struct schedule s;
        bool needs = kind == CHOICE_lr_scheduler_type_cosine_with_min_lr;
        assert_ok(make(&s, SCHEDULE_ENDLESS, KIND(word, needs ? "min_lr" : "warmup_ratio", "0")));
        assert_true(schedule_rate(&s, 1) == 2 && schedule_rate(&s, 99) == 2);
    }
}

/* An option that does nothing would be believed. */
static void options_of_other_schedules_are_refused(void **state)
{
    (void)state;
    struct schedule s;
    assert_fails(make(&s, 10, KIND("cosine", "power", "2")), ERR_ARGUMENT,
                 "--power is for --lr-scheduler-type polynomial: this run has cosine");
    assert_fails(make(&s, 10, KIND("linear", "num_cycles", "3")), ERR_ARGUMENT,
                 "--num_cycles is for --lr-scheduler-type cosine, cosine_with_restarts, cosine_with_min_lr, warmup_stable_decay");
    assert_fails(make(&s, 10, KIND("polynomial", "min_lr", "1")), ERR_ARGUMENT, "cosine_with_min_lr");
    assert_fails(make(&s, 10, KIND("cosine", "decay_type", "linear")), ERR_ARGUMENT, "warmup_stable_decay");
    assert_fails(make(&s, 10, KIND("cosine_with_min_lr", "warmup_ratio", "0")), ERR_ARGUMENT, "needs one of --min-lr");
    assert_fails(make(&s, 10, KIND("cosine_with_min_lr", "min_lr", "1", "min_lr_rate", "0.1")), ERR_ARGUMENT, "only one of");
    assert_fails(make(&s, 10, KIND("cosine_with_min_lr", "min_lr", "2")), ERR_ARGUMENT,
                 "--min-lr 2 must be below --learning-rate 2");
    assert_fails(make(&s, 10, SETTINGS("lr_scheduler_type", "polynomial", "learning_rate", "1e-8")), ERR_ARGUMENT,
                 "--lr-end 1e-07 must be below --learning-rate 1e-08");
    assert_fails(make(&s, 10, KIND("warmup_stable_decay", "num_decay_steps", "9", "warmup_steps", "2")), ERR_ARGUMENT,
                 "2 steps of warm-up, 0 stable and 9 of decay are more than the 10 steps");
    assert_fails(make(&s, 10, KIND("warmup_stable_decay", "num_stable_steps", "9223372036854775807")), ERR_ARGUMENT,
                 "are more than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_warm_up_and_go_down),
        cmocka_unit_test(without_an_end_the_rate_stays),
        cmocka_unit_test(options_of_other_schedules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
