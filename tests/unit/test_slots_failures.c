/* Slots on a device that fails: what has failed in one is in no other one, and none is lost. On the CPU. */
#include "test.h"

#include "base/clock.h"
#include "slots_rig.h"
#include "train/slot_image.h"

/* --- a device that fails ---------------------------------------------------------------------------------------------------- */

static const struct device_class *sound;
static struct device_class unsound;
static int writes_left, runs_left; /* the first that fails is this one; -1: none does */
static bool once;                  /* no other one fails after it */

static bool fails_now(int *left)
{
    if (*left > 0)
        --*left;
    bool now = *left == 0;
    if (now && once)
        *left = -1;
    return now;
}

static enum status run_unsound(struct device *device, struct prepared *prepared)
{
    return fails_now(&runs_left) ? fail(ERR_DEVICE, "the device is lost") : sound->run(device, prepared);
}

static enum status write_unsound(struct device *device, struct operand to, enum dtype to_type, const void *from,
                                 enum dtype from_type, int64_t count)
{
    return fails_now(&writes_left) ? fail(ERR_DEVICE, "the device is lost")
                                   : sound->write(device, to, to_type, from, from_type, count);
}

static void break_device(struct trainer *t, int writes, int runs)
{
    struct device *device = t->build.session.device;
    sound = device->class;
    unsound = *sound;
    unsound.run = run_unsound;
    unsound.write = write_unsound;
    writes_left = writes;
    runs_left = runs;
    once = false;
    device->class = &unsound;
}

static void mend_device(struct trainer *t)
{
    t->build.session.device->class = sound;
}

/* --- gradients -------------------------------------------------------------------------------------------------------------- */

/* A run's step of two micro-batches, in which this program was the first that failed. */
static void fail_a_step(struct trainer *t, int runs)
{
    struct sequence many[2 * SEQUENCES];
    for (int i = 0; i < 2 * SEQUENCES; i++)
        many[i] = sequences()[i % SEQUENCES];
    break_device(t, -1, runs);
    assert_fails(stepper_queue(&t->stepper, many, 2 * SEQUENCES, -1), ERR_DEVICE, "the device is lost");
    mend_device(t);
    stepper_settle(&t->stepper);
}

/* Seen to fail: the next step had the gradients of the one that had failed, and in a slot that was made then too. Where steps are
 * computed twice it is the program between the two that fails, which clears the sums. */
static void gradients_of_a_step_that_failed_are_in_no_other(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig r, same;
        bool with_slot = i % 2, twice = i / 2;
        const char *const *settings = twice ? SETTINGS("verify_every", "1") : SETTINGS("lora_r", "4");
        open_rig(&r, &tied, 0, settings);
        open_rig(&same, &tied, 0, settings);
        fail_a_step(&r.t, 2 + twice);
        if (with_slot) {
            create(&r.t, r.options.seed, NULL);
            assert_same_state(&r.t, &same.t);
            add_half(&r.t, 0, 0);
            add_half(&same.t, 0, 0);
            assert_ok(slots_select(&r.t, 0)); /* which has none that wait */
            assert_ok(slots_select(&r.t, 1));
        } else {
            assert_ok(stepper_clear_stale(&r.t.stepper));
            assert_same_state(&r.t, &same.t);
            fail_a_step(&r.t, 2 + twice);
            add_half(&r.t, 0, 0);
            add_half(&same.t, 0, 0);
        }
        assert_same_state(&r.t, &same.t);
        add_half(&r.t, 0, 1);
        add_half(&same.t, 0, 1);
        step_user(&r.t, 0);
        step_user(&same.t, 0);
        assert_same_state(&r.t, &same.t);
        close_rig(&same);
        close_rig(&r);
    }
}

/* Gradients that waited when a run began, and failed before its first step. */
static void a_run_that_failed_forgets_what_waited(void **state)
{
    (void)state;
    struct rig r, same;
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    open_rig(&same, &tied, 0, SETTINGS("lora_r", "4"));
    add_half(&r.t, 1, 0);
    stepper_settle(&r.t.stepper);
    assert_int_equal(facts_of(&r.t, -1).waiting, 0);
    train_round(&r.t, 0);
    train_round(&same.t, 0);
    assert_same_state(&r.t, &same.t);
    close_rig(&same);
    close_rig(&r);
}

/* Seen to fail: gradients that were cleared were said to wait. */
static void a_state_that_fails_to_load_leaves_no_gradients(void **state)
{
    (void)state;
    struct rig r, same;
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    train_round(&r.t, 0);
    assert_ok(trainer_save_state(&r.t, path_in("state")));
    for (int writes = 1; writes < 5; writes++) {
        add_half(&r.t, 0, 0);
        assert_fails(trainer_load_state(&r.t, path_in("nowhere")), ERR_IO, "nowhere");
        assert_int_equal(facts_of(&r.t, 0).waiting, 2);
        break_device(&r.t, writes, -1);
        assert_fails(trainer_load_state(&r.t, path_in("state")), ERR_DEVICE, "the device is lost");
        mend_device(&r.t);
        assert_int_equal(facts_of(&r.t, 0).waiting, 0);
    }
    assert_ok(trainer_load_state(&r.t, path_in("state")));
    open_rig(&same, &tied, 0, SETTINGS("lora_r", "4"));
    train_round(&same.t, 0);
    train_round(&r.t, 0);
    train_round(&same.t, 0);
    assert_same_state(&r.t, &same.t);
    close_rig(&same);
    close_rig(&r);
}

/* --- changing places -------------------------------------------------------------------------------------------------------- */

/* Fails at each of the copies of a selection: if not even the one that has left can be put back, none is selected, and all are
 * kept. */
static void a_selection_that_fails_loses_no_slot(void **state)
{
    (void)state;
    struct rig r, same;
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    open_rig(&same, &tied, 0, SETTINGS("lora_r", "4", "seed", "3"));
    create(&r.t, 3, NULL);
    train_round(&r.t, 0);
    train_round(&same.t, 0);
    add_half(&r.t, 0, 0);
    add_half(&same.t, 0, 0);
    int lost = 0;
    for (int i = 0; i < 16; i++) {
        struct slot_facts facts;
        break_device(&r.t, 1 + i / 2, -1);
        once = i % 2;
        enum status status = slots_select(&r.t, 0);
        mend_device(&r.t);
        if (status == OK)
            assert_ok(slots_select(&r.t, 1));
        if (slots_facts(&r.t, -1, &facts) != OK) {
            lost++;
            assert_false(i % 2);
            assert_fails(slots_check_selected(&r.t), ERR_ARGUMENT, "no slot is selected");
            assert_true(facts_of(&r.t, 1).host_bytes > 0 && facts_of(&r.t, 1).waiting == 2);
            assert_ok(slots_select(&r.t, i / 2 % 2));
            assert_ok(slots_select(&r.t, 1));
        }
        assert_same_state(&r.t, &same.t);
    }
    assert_true(lost > 2);
    add_half(&r.t, 0, 1);
    add_half(&same.t, 0, 1);
    step_user(&r.t, 0);
    step_user(&same.t, 0);
    assert_same_state(&r.t, &same.t);
    close_rig(&same);
    close_rig(&r);
}

/* One that cannot be loaded gives way to the one before it. */
static void a_slot_that_fails_to_load_is_not_there(void **state)
{
    (void)state;
    struct rig r;
    int64_t number;
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    train_round(&r.t, 0);
    assert_ok(trainer_save_state(&r.t, path_in("saved")));
    add_half(&r.t, 0, 0);
    for (int writes = 1; writes < 12; writes++) {
        break_device(&r.t, writes, -1);
        enum status status = slots_load(&r.t, path_in("saved"), &number);
        mend_device(&r.t);
        if (status == OK) {
            assert_ok(slots_close(&r.t, number));
            continue;
        }
        assert_int_equal(slots_count(&r.t), 1);
        assert_ok(slots_select(&r.t, 0));
        assert_int_equal(facts_of(&r.t, -1).waiting, 2);
    }
    add_half(&r.t, 0, 1);
    step_user(&r.t, 0);
    struct rig same;
    open_rig(&same, &tied, 0, SETTINGS("lora_r", "4"));
    train_round(&same.t, 0);
    train_round(&same.t, 0);
    assert_same_state(&r.t, &same.t);
    close_rig(&same);
    close_rig(&r);
}

/* Fails if a slot that is closed is copied to host memory first. */
static void a_slot_that_is_closed_is_not_copied(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    create(&r.t, 3, NULL);
    const struct device_counters before = r.t.build.session.device->counters;
    assert_ok(slots_close(&r.t, 1));
    int64_t sums, bytes = slot_image_bytes(&r.t.build, &sums);
    assert_true(r.t.build.session.device->counters.read - before.read < bytes / 2);
    assert_int_equal(facts_of(&r.t, -1).number, 0);
    close_rig(&r);
}

/* --- time ------------------------------------------------------------------------------------------------------------------- */

/* Seen to fail: a step had the time and the matmuls of all slots since its first sequence. */
static void a_step_has_the_time_of_its_own_slot(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    train_round(&r.t, 0);
    add_half(&r.t, 0, 0);
    add_half(&r.t, 0, 1);
    struct step alone = step_user(&r.t, 0);
    create(&r.t, 3, NULL);
    add_half(&r.t, 0, 0);
    assert_ok(slots_select(&r.t, 0));
    for (int i = 0; i < 4; i++)
        train_round(&r.t, 0);
    clock_wait(2);
    assert_ok(slots_select(&r.t, 1));
    add_half(&r.t, 0, 1);
    struct step step = step_user(&r.t, 0);
    assert_true(step.seconds > 0 && step.seconds < 2);
    assert_true(step.engine_seconds > 0 && step.engine_seconds < 2 * alone.engine_seconds); /* not that of five */
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_a_step_that_failed_are_in_no_other),
        cmocka_unit_test(a_run_that_failed_forgets_what_waited),
        cmocka_unit_test(a_state_that_fails_to_load_leaves_no_gradients),
        cmocka_unit_test(a_selection_that_fails_loses_no_slot),
        cmocka_unit_test(a_slot_that_fails_to_load_is_not_there),
        cmocka_unit_test(a_slot_that_is_closed_is_not_copied),
        cmocka_unit_test(a_step_has_the_time_of_its_own_slot),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
