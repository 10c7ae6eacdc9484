/* cli/view/screen and cli/view/eta: the lines of a run's progress at every width, and how long the rest will take. */
#include "test.h"

#include <math.h>

#include "cli/view/eta.c"
#include "cli/view/quantities.c"
#include "cli/view/screen.c"

static struct screen usual(void)
{
    struct screen s = {.what = "step",
                       .done = 120,
                       .total = 200,
                       .epoch = 0.24,
                       .loss = 1.5432,
                       .eval_loss = 1.5491,
                       .tokens_per_second = 1234,
                       .seconds = 72,
                       .left = 48,
                       .engine_share = 0.714,
                       .memory_bytes = 1090000000};
    for (int i = 0; i < 120; i++)
        curve_add(&s.losses, 3 - 0.01 * i);
    return s;
}

/* Columns of the widest line: each character of the screen takes one, sequences of a terminal none. */
static int widest(const char *text)
{
    int max = 0, at = 0;
    for (; *text; text++) {
        if (*text == '\033') {
            while (*text != 'm')
                text++;
            continue;
        }
        at = *text == '\n' ? 0 : at + (((unsigned char)*text & 0xc0) != 0x80);
        max = at > max ? at : max;
    }
    return max;
}

/* Without the room for blanks between parts in choose(), lines are too wide by one or two at some widths. */
static void no_line_is_wider_than_the_terminal(void **state)
{
    (void)state;
    char text[SCREEN_SIZE];
    struct screen large = usual();
    large.total = large.done = 1234567890123;
    large.loss = 123456.7;
    large.left = large.seconds = 1e9;
    large.activity = "validating";
    large.part = 17;
    large.parts = 1000;
    const struct screen screens[] = {usual(), large, {.what = "step", .epoch = NAN, .loss = NAN, .eval_loss = NAN, .left = NAN}};
    for (int s = 0; s < 3; s++)
        for (int columns = 1; columns <= 400; columns++)
            for (int kind = 0; kind < 4; kind++) {
                int lines = screen_draw(&screens[s], (struct look){columns, 24, kind & 1, kind & 2}, text);
                assert_true(widest(text) < columns || !*text);
                assert_int_equal(lines, 1 + (strchr(text, '\n') != NULL));
                if (!(kind & 1))
                    assert_null(strchr(text, '\033'));
            }
}

/* Without is_starting() it is "step 0/0 ... ETA ?". */
static void of_a_run_that_starts_only_that_is_said(void **state)
{
    (void)state;
    char text[SCREEN_SIZE];
    struct screen s = {.what = "step", .epoch = NAN, .loss = NAN, .eval_loss = NAN, .left = NAN, .activity = "starting"};
    assert_int_equal(screen_draw(&s, (struct look){80, 24, false, false}, text), 1);
    assert_string_equal(text, "starting");
    screen_line(&s, text);
    assert_string_equal(text, "starting");
}

static void what_matters_less_goes_first(void **state)
{
    (void)state;
    char text[SCREEN_SIZE];
    struct screen s = usual();
    screen_draw(&s, (struct look){40, 24, false, false}, text);
    assert_non_null(strstr(text, "step 120/200"));
    assert_non_null(strstr(text, "ETA 0:48\nloss 1.5432"));
    assert_non_null(strstr(text, "1234 tok/s"));
    assert_null(strstr(text, "mem "));
    screen_draw(&s, (struct look){200, 24, false, false}, text);
    for (const char *const *part =
             (const char *const[]){"60%", "1:12", "mean of 10 steps", "val 1.5491", "mem 1.09 GB", "1234 tok/s  engine 71%",
                                   "epoch 0.24", "####", "....", "ETA 0:48", NULL};
         *part; part++)
        assert_non_null(strstr(text, *part));
    assert_int_equal(screen_draw(&s, (struct look){80, 2, false, false}, text), 1); /* rows */
}

/* However many steps there are. */
static void a_curve_keeps_its_course(void **state)
{
    (void)state;
    struct curve c = {0};
    for (int i = 0; i < 100000; i++) {
        curve_add(&c, i);
        if (i == 5)
            curve_add(&c, NAN);
    }
    assert_true(c.count >= SCREEN_POINTS / 2 && c.count <= SCREEN_POINTS && c.each == 512);
    for (int i = 1; i < c.count; i++)
        assert_true(fabs(c.point[i] - c.point[i - 1] - 512) < 1e-6);
}

/* Only steps: 80 s. Without the validations or the saves the rest is too short. */
static void the_rest_counts_validations_and_saves(void **state)
{
    (void)state;
    struct eta eta = {.evaluates = {.steps = 50}, .saves = {.steps = 100}, .eval_tokens = 600};
    assert_true(isnan(eta_left(&eta, 120, 200, 100)));
    mean_add(&eta.step, 1);
    assert_true(fabs(eta_left(&eta, 120, 200, 100) - (80 + 2 * 2)) < 1e-9); /* 600 tokens, 300 a second; after 150 and 200 */
    eta_eval(&eta, 10, 0, true);
    assert_true(fabs(eta_left(&eta, 120, 200, 100) - (80 + 2 * 10)) < 1e-9);
    mean_add(&eta.save, 3);
    assert_true(fabs(eta_left(&eta, 120, 200, 100) - (80 + 20 + 3)) < 1e-9);
    eta_eval(&eta, 10, 50, true); /* each was the best so far, and saved */
    assert_true(fabs(eta_left(&eta, 120, 200, 100) - (80 + 20 + 2 * 3)) < 1e-9);
    assert_true(fabs(eta_left(&eta, 200, 200, 100)) < 1e-9);
    eta.evaluates.steps = 0;
    assert_true(fabs(eta_left(&eta, 0, 200, 100) - (200 + 10 + 2 * 3)) < 1e-9);
    eta.eval_tokens = 0;
    assert_true(fabs(eta_left(&eta, 0, 200, 100) - (200 + 2 * 3)) < 1e-9);
}

static void times_and_logs_are_plain(void **state)
{
    (void)state;
    char text[SCREEN_SIZE], time[32];
    struct screen s = usual();
    screen_line(&s, text);
    assert_string_equal(text, "step 120/200, epoch 0.24, loss 1.5432 (mean of 10 steps), 1234 tok/s, engine 71%, 1:12, ETA 0:48");
    s.activity = "validating";
    s.part = 3;
    s.parts = 17;
    screen_line(&s, text);
    assert_non_null(strstr(text, ", validating 3/17, "));
    assert_string_equal(screen_time(time, 3723), "1:02:03");
    assert_string_equal(screen_time(time, NAN), "?");
    assert_string_equal(screen_time(time, -1), "0:00");
    assert_string_equal(screen_time(time, INFINITY), "0:00");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_line_is_wider_than_the_terminal),     cmocka_unit_test(what_matters_less_goes_first),
        cmocka_unit_test(of_a_run_that_starts_only_that_is_said), cmocka_unit_test(a_curve_keeps_its_course),
        cmocka_unit_test(the_rest_counts_validations_and_saves),  cmocka_unit_test(times_and_logs_are_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
