/* Micro-batches of a trainer: their sizes and programs for given data, and that dividing a step changes nothing. */
#include "test.h"

#include <stddef.h>

#include "train/micro.h"
#include "trainer_rig.h"

/* How often programs of this many slots have run; 0: all of them. */
static int64_t runs_of(const struct session *s, int64_t T)
{
    int64_t runs = 0;
    for (int64_t i = 0; i < s->net_count; i++)
        if (s->nets[i] && s->nets[i]->goal == NET_TRAIN && (!T || s->nets[i]->T == T))
            runs += s->engine.programs[i].runs;
    return runs;
}

static int64_t largest(const struct session *s)
{
    int64_t T = 0;
    for (int64_t i = 0; i < s->net_count; i++)
        if (s->nets[i] && s->nets[i]->goal == NET_TRAIN && s->nets[i]->T > T)
            T = s->nets[i]->T;
    return T;
}

static void the_largest_holds_what_is_asked_for_and_the_longest_row(void **state)
{
    (void)state;
    static const struct {
        const char *asked;
        int64_t slots;
    } expected[] = {{"1", 64}, {"64", 64}, {"65", 128}, {"200", 256}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct rig r;
        open_rig(&r, &tied, 0, SETTINGS("micro_batch_tokens", expected[i].asked));
        assert_int_equal(largest(&r.t.build.session), expected[i].slots);
        close_rig(&r);
    }
    struct rig r;
    open_rig(&r, &tied, 0, SETTINGS("data", data_path, "micro_batch_tokens", "1"));
    assert_true(largest(&r.t.build.session) >= r.t.rows.data.longest);
    close_rig(&r);
}

/* Four sizes of slots: 64, 48, 32 and 16 tokens, without data all of them. */
static void the_smallest_program_that_holds_the_tokens_is_taken(void **state)
{
    (void)state;
    static const int64_t tokens[] = {2, 16, 17, 32, 33, 48, 49, 64}, slots[] = {16, 16, 32, 32, 48, 48, 64, 64};
    struct rig r;
    int32_t ids[64];
    open_rig(&r, &tied, 0, methods[0]);
    for (int i = 0; i < 64; i++)
        ids[i] = i;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        struct sequence one = {.ids = ids, .count = tokens[i]};
        double sum, weight;
        int64_t before = runs_of(&r.t.build.session, slots[i]), all = runs_of(&r.t.build.session, 0);
        assert_ok(stepper_add(&r.t.stepper, &one, 1, &sum, &weight));
        assert_int_equal(runs_of(&r.t.build.session, slots[i]), before + 1);
        assert_int_equal(runs_of(&r.t.build.session, 0), all + 1);
    }
    close_rig(&r);
}

/* 20, 13, 9 and 17 tokens are one micro-batch of 64 slots; 40 of them, as they come, are as many as their tokens need. */
static void sequences_go_together_as_they_come_while_they_fit(void **state)
{
    (void)state;
    enum { MANY = 40 };
    struct rig r;
    struct sequence list[MANY];
    double sum, weight;
    int64_t expected = 1, used = 0;
    open_rig(&r, &tied, 0, methods[0]);
    add_all(&r.t);
    assert_int_equal(runs_of(&r.t.build.session, 0), 1);
    for (int i = 0; i < MANY; i++) {
        list[i] = sequences()[i % 3];
        if (used + list[i].count > 64) {
            expected++;
            used = 0;
        }
        used += list[i].count;
    }
    assert_ok(stepper_add(&r.t.stepper, list, MANY, &sum, &weight));
    assert_int_equal(runs_of(&r.t.build.session, 0), 1 + expected);
    close_rig(&r);
}

static void a_sequence_that_does_not_fit_is_refused_and_nothing_is_added(void **state)
{
    (void)state;
    struct rig r;
    int32_t ids[65] = {0};
    struct sequence list[2] = {sequences()[0], {.ids = ids, .count = 65}};
    struct step step;
    double sum, weight;
    open_rig(&r, &tied, 0, methods[0]);
    assert_fails(stepper_add(&r.t.stepper, list, 2, &sum, &weight), ERR_ARGUMENT,
                 "a sequence of 65 tokens, a micro-batch holds 1 to 64");
    assert_int_equal(runs_of(&r.t.build.session, 0), 0);
    assert_fails(stepper_step(&r.t.stepper, 0.01, &step), ERR_ARGUMENT, "nothing was added");
    close_rig(&r);
}

/* The size of a micro-batch also follows the device's largest allocation. */
static void micro_batches_respect_the_largest_allocation(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct options options;
    int64_t max_block = INT64_MAX;
    options_init(&options, &arena);
    for (int pass = 0; pass < 2; pass++) {
        struct job job = {.options = &options};
        struct rows rows = {.data = {0}};
        struct build b = {.job = &job, .rows = &rows};
        struct session_options opened = {.dir = untied.dir, .device = "cpu", .run = RUN_FLOAT32, .weights = true};
        assert_ok(session_open(&b.session, &opened));
        b.session.tuning.train = true;
        b.session.info.max_block = max_block;
        assert_ok(micro_size(&b, 0));
        int64_t activations = b.session.engine.programs[b.micro.program[0][0][0]].bytes[LIFE_ACTIVATIONS];
        if (pass == 0) {
            assert_int_equal(b.slots, 1024);
            max_block = activations / 5;
        } else
            assert_true(activations <= max_block && activations > 0 && (b.slots < 1024 || b.session.tuning.recompute));
        session_close(&b.session);
    }
    arena_free(&arena);
}

static void sequences_one_by_one_add_up_to_all_at_once(void **state)
{
    (void)state;
    for (int method = 0; method < METHODS; method++) {
        struct rig at_once, one_by_one;
        double sum = 0, weight;
        open_rig(&at_once, &tied, 0, methods[method]);
        open_rig(&one_by_one, &tied, 0, methods[method]);
        double all = add_all(&at_once.t);
        for (int i = 0; i < SEQUENCES; i++) {
            double each;
            assert_ok(stepper_add(&one_by_one.t.stepper, &sequences()[i], 1, &each, &weight));
            sum += each;
        }
        assert_true(fabs(sum - all) < 1e-6 * all);
        assert_true(fabs(at_once.t.stepper.sums.weight - one_by_one.t.stepper.sums.weight) < 1e-9);
        float *a = download(&at_once.t, at_once.t.build.optimizer.gradients);
        float *b = download(&one_by_one.t, one_by_one.t.build.optimizer.gradients);
        double error = 0, size = 0;
        for (int64_t i = 0; i < at_once.t.build.optimizer.elements; i++) {
            error += pow((double)a[i] - (double)b[i], 2);
            size += pow((double)a[i], 2);
        }
        assert_true(size > 0 && error < 1e-12 * size);
        test_free(a);
        test_free(b);
        close_rig(&at_once);
        close_rig(&one_by_one);
    }
}

/* --- failures --------------------------------------------------------------------------------------------------------------- */

static const struct device_class *sound;
static int64_t runs_before;

static enum status fail_later(struct device *device, struct prepared *prepared)
{
    return runs_before-- == 0 ? fail(ERR_DEVICE, "the test's device fails") : sound->run(device, prepared);
}

/* A device of which the run after so many more fails. */
static void fail_after(struct rig *r, struct device_class *failing, int64_t runs)
{
    sound = r->t.build.session.device->class;
    *failing = *sound;
    failing->run = fail_later;
    runs_before = runs;
    r->t.build.session.device->class = failing;
}

/* Seen to fail with sums that are added once all micro-batches are done. */
static void micro_batches_before_a_failure_count(void **state)
{
    (void)state;
    struct rig whole, cut;
    struct device_class failing;
    struct sequence list[2 * SEQUENCES];
    double sum, weight, first;
    for (int i = 0; i < 2 * SEQUENCES; i++)
        list[i] = sequences()[i % SEQUENCES];
    open_rig(&whole, &tied, 0, methods[0]);
    first = add_all(&whole.t);
    open_rig(&cut, &tied, 0, methods[0]);
    fail_after(&cut, &failing, 1);
    assert_fails(stepper_add(&cut.t.stepper, list, 2 * SEQUENCES, &sum, &weight), ERR_DEVICE, "the test's");
    cut.t.build.session.device->class = sound;
    assert_true(sum == first && cut.t.stepper.sums.sum == first && weight == whole.t.stepper.sums.weight);
    assert_memory_equal(&cut.t.stepper.sums, &whole.t.stepper.sums, offsetof(struct micro_sums, numbered));
    assert_same_tensor(&whole.t, whole.t.build.optimizer.gradients, &cut.t, cut.t.build.optimizer.gradients);
    close_rig(&whole);
    close_rig(&cut);
}

/* Two ranks that do the same. Seen to fail with sums of all ranks that take the place of the rank's own before the optimizer
 * runs.
 */
static void a_step_that_failed_counts_once_when_it_is_taken_again(void **state)
{
    (void)state;
    struct rig r;
    struct device_class failing;
    struct group two;
    struct step step;
    open_rig(&r, &tied, 0, methods[0]);
    add_all(&r.t);
    struct micro_sums own = r.t.stepper.sums;
    group_pretend(&two, 2);
    r.t.build.group = &two;
    fail_after(&r, &failing, 0);
    assert_fails(stepper_step(&r.t.stepper, 0.01, &step), ERR_DEVICE, "the test's");
    r.t.build.session.device->class = sound;
    assert_ok(stepper_step(&r.t.stepper, 0.01, &step));
    assert_int_equal(step.tokens, 2 * own.tokens);
    assert_int_equal(step.targets, 2 * own.targets);
    assert_true(step.loss == own.sum / own.weight);
    r.t.build.group = NULL;
    close_rig(&r);
}

/* --- ranks ------------------------------------------------------------------------------------------------------------------ */

/* Seen to fail with numbers of sequences that are each rank's own: then both leave out the same. */
static void ranks_draw_dropout_of_their_own(void **state)
{
    (void)state;
    float *gradients[3];
    int64_t bytes = 0;
    for (int i = 0; i < 3; i++) { /* a single process, and two ranks */
        struct rig r;
        struct group two;
        group_pretend(&two, 2);
        two.rank = i == 2;
        open_rig(&r, &tied, 0, methods[0]);
        r.t.build.group = i ? &two : NULL;
        add_all(&r.t);
        gradients[i] = download(&r.t, r.t.build.optimizer.gradients);
        bytes = tensor_bytes(r.t.build.optimizer.gradients);
        r.t.build.group = NULL;
        close_rig(&r);
    }
    for (int i = 0; i < 3; i++)
        assert_true(memcmp(gradients[i], gradients[(i + 1) % 3], (size_t)bytes) != 0);
    for (int i = 0; i < 3; i++)
        test_free(gradients[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_holds_what_is_asked_for_and_the_longest_row),
        cmocka_unit_test(the_smallest_program_that_holds_the_tokens_is_taken),
        cmocka_unit_test(sequences_go_together_as_they_come_while_they_fit),
        cmocka_unit_test(a_sequence_that_does_not_fit_is_refused_and_nothing_is_added),
        cmocka_unit_test(micro_batches_respect_the_largest_allocation),
        cmocka_unit_test(sequences_one_by_one_add_up_to_all_at_once),
        cmocka_unit_test(micro_batches_before_a_failure_count),
        cmocka_unit_test(a_step_that_failed_counts_once_when_it_is_taken_again),
        cmocka_unit_test(ranks_draw_dropout_of_their_own),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
