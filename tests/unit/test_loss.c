/* Losses in a trainer: those of losses.def against plain formulas in double, and what they refuse. That gradients are the slopes
 * of every loss is in test_trainer.c. */
#include "test.h"

#include "base/checksums.h"
#include "device/kernel_list.h"
#include "processor.h"
#include "state/checkpoint.h"
#include "trainer_rig.h"

enum { TOKENS = 32 };

/* The log-probability of each token, by a trainer of cross entropy that is asked for one at a time. */
static void find_logprobs(struct trainer *t, const struct sequence *s, double logprob[TOKENS])
{
    for (int64_t i = 1; i < s->count; i++) {
        float weights[TOKENS] = {0};
        struct sequence one = *s;
        double sum, weight;
        weights[i] = 1;
        one.weights = weights;
        assert_ok(stepper_add(&t->stepper, &one, 1, &sum, &weight));
        logprob[i] = -sum / weight;
    }
}

static double clipped(double ratio, double advantage, double below, double above)
{
    double limited = ratio < 1 - below ? 1 - below : ratio > 1 + above ? 1 + above : ratio;
    return -fmin(ratio * advantage, limited * advantage);
}

/* Σ weight · loss of a sequence, and how many of its losses are clipped. */
static double expect(const struct sequence *s, const double logprob[TOKENS], bool by_sequence, double below, double above,
                     int *clips)
{
    double mean = 0, sum = 0;
    int64_t count = 0;
    for (int64_t i = 1; i < s->count; i++)
        if (sequence_weight(s, i) != 0) {
            mean += logprob[i] - (double)s->old_logprobs[i];
            count++;
        }
    for (int64_t i = 1; i < s->count; i++) {
        double ratio = exp(by_sequence ? mean / (double)count : logprob[i] - (double)s->old_logprobs[i]);
        double advantage = (double)s->advantages[i], loss = clipped(ratio, advantage, below, above);
        *clips += sequence_weight(s, i) != 0 && loss != -ratio * advantage;
        sum += (double)sequence_weight(s, i) * loss;
    }
    return sum;
}

static void check_loss(enum loss_id loss, const char *dtype, double below, double above)
{
    struct rig plain, r;
    int clips = 0;
    open_rig(&plain, &tied, 0, SETTINGS("dtype", dtype));
    open_rig_for(&r, &tied, loss, SETTINGS("dtype", dtype));
    loss_settings(&r.t, below, above);
    for (int k = 0; k < SEQUENCES; k++) {
        const struct sequence *s = &sequences()[k];
        double logprob[TOKENS], sum, weight;
        find_logprobs(&plain.t, s, logprob);
        double want = expect(s, logprob, loss_of(loss)->by_sequence, below, above, &clips);
        assert_ok(stepper_add(&r.t.stepper, s, 1, &sum, &weight));
        if (!(fabs(sum - want) < 1e-4 * weight))
            fail_msg("%s of sequence %d is %g, not %g", loss_of(loss)->name, k, sum, want);
    }
    assert_true(clips > 0);
    close_rig(&plain);
    close_rig(&r);
}

static void ppo_clips_the_ratio_of_each_token(void **state)
{
    (void)state;
    check_loss(LOSS_ppo, "float32", 0.2, 0.2);
    if (processor_has_bf16())
        check_loss(LOSS_ppo, "bfloat16", 0.2, 0.28);
}

static void gspo_clips_the_ratio_of_a_sequence(void **state)
{
    (void)state;
    check_loss(LOSS_gspo, "float32", 3e-3, 4e-3);
    if (processor_has_bf16())
        check_loss(LOSS_gspo, "bfloat16", 3e-3, 4e-3);
}

static void sapo_gates_the_ratio_of_each_token(void **state)
{
    (void)state;
    struct rig plain, r;
    open_rig(&plain, &tied, 0, SETTINGS("dtype", "float32"));
    open_rig_for(&r, &tied, LOSS_sapo, SETTINGS("dtype", "float32"));
    loss_settings(&r.t, 3, 2);
    for (int k = 0; k < SEQUENCES; k++) {
        const struct sequence *s = &sequences()[k];
        double logprob[TOKENS], sum, weight, want = 0;
        find_logprobs(&plain.t, s, logprob);
        for (int64_t i = 1; i < s->count; i++) {
            double t = s->advantages[i] > 0 ? 2 : 3, ratio = exp(logprob[i] - (double)s->old_logprobs[i]);
            want -= (double)sequence_weight(s, i) * 4 / t / (1 + exp(-t * (ratio - 1))) * (double)s->advantages[i];
        }
        assert_ok(stepper_add(&r.t.stepper, s, 1, &sum, &weight));
        if (!(fabs(sum - want) < 1e-4 * weight))
            fail_msg("sapo of sequence %d is %g, not %g", k, sum, want);
    }
    close_rig(&plain);
    close_rig(&r);
}

/* Tokens of positive advantage become likelier, the others less likely. */
static void a_step_moves_probabilities_by_advantages(void **state)
{
    (void)state;
    for (int loss = LOSS_ppo; loss < LOSS_COUNT; loss++) {
        struct rig r;
        struct step step;
        double before = 0, after = 0, weight;
        open_rig_for(&r, &tied, (enum loss_id)loss, SETTINGS("finetuning_type", "full"));
        if (loss_of((enum loss_id)loss)->op == OP_clipped_ratio)
            loss_settings(&r.t, 0.9, 9);
        for (int i = 0; i < 5; i++) {
            assert_ok(stepper_add(&r.t.stepper, sequences(), SEQUENCES, &after, &weight));
            assert_ok(stepper_step(&r.t.stepper, 0.001, &step));
            assert_true(step.applied && step.norm > 0);
            before = i == 0 ? after : before;
        }
        assert_true(after < before);
        close_rig(&r);
    }
}

static void a_sequence_without_advantages_is_refused(void **state)
{
    (void)state;
    struct rig r;
    struct sequence s = sequences()[0];
    double sum, weight;
    open_rig_for(&r, &tied, LOSS_ppo, SETTINGS("lora_r", "4"));
    s.advantages = NULL;
    assert_fails(stepper_add(&r.t.stepper, &s, 1, &sum, &weight), ERR_ARGUMENT, "advantage");
    s.old_logprobs = NULL;
    assert_fails(stepper_queue(&r.t.stepper, &s, 1, -1), ERR_ARGUMENT, "log-probability");
    assert_fails(stepper_queue(&r.t.stepper, &s, 0, -1), ERR_ARGUMENT, "without sequences");
    close_rig(&r);
}

/* The list of kernels is that of the loss that a trainer is opened for. */
static void the_list_of_kernels_has_those_of_the_loss(void **state)
{
    (void)state;
    for (int i = 0; i < LOSS_COUNT; i++) {
        struct rig r;
        enum loss_id loss = (enum loss_id)i;
        set_options(&r, &tied, SETTINGS("device", "kernels"));
        assert_ok(trainer_list_kernels(&r.t, &r.options, &(struct trainer_uses){.losses = LOSS_BIT(loss)}));
        assert_ok(engine_prepare(&r.t.build.session.engine));
        const struct kernel_list *list = kernel_list_of(r.t.build.session.device);
        bool found = false;
        for (int64_t k = 0; k < list->count; k++)
            found = found || !strcmp(list->need[k].kernel->name, "clipped_ratio");
        assert_int_equal(found, loss_of(loss)->op == OP_clipped_ratio);
        close_rig(&r);
    }
}

/* A run's loss is one of its settings; by hand each call gives its own. */
static void a_run_of_another_loss_does_not_go_on(void **state)
{
    (void)state;
    struct rig saved, other;
    struct buffer place = {0};
    char path[160];
    open_rig_for(&saved, &tied, LOSS_ppo, SETTINGS("lora_r", "4"));
    step_once(&saved.t, 0.01);
    assert_ok(directory_make(output_dir));
    assert_ok(trainer_save_state(&saved.t, checkpoint_dir));
    assert_ok(trainer_load_state(&saved.t, checkpoint_dir));
    for (int i = 0; i < LOSS_COUNT; i++) {
        if (i == LOSS_ppo)
            continue;
        open_rig_for(&other, &tied, (enum loss_id)i, SETTINGS("lora_r", "4"));
        assert_fails(checkpoint_open(&other.t.snap, checkpoint_dir), ERR_ARGUMENT, "loss ppo, this one has");
        assert_ok(trainer_load_state(&other.t, checkpoint_dir));
        close_rig(&other);
    }
    set_options(&other, &tied, SETTINGS("lora_r", "4", "output", output_dir));
    assert_fails(trainer_open(&other.t, &other.options, 0), ERR_ARGUMENT, "loss ppo, this one has cross_entropy");
    arena_free(&other.arena);
    snprintf(path, sizeof path, "%s/trainer_state.json", checkpoint_dir);
    assert_ok(file_read(&place, path, 1 << 20));
    char *key = strstr(place.data, "\"loss\"");
    assert_non_null(key);
    memcpy(key, "\"less\"", 6);
    assert_ok(file_replace(path, place.data, place.size));
    assert_ok(checksums_write(checkpoint_dir));
    assert_fails(trainer_load_state(&saved.t, checkpoint_dir), ERR_FORMAT, "\"loss\" is missing");
    buffer_free(&place);
    close_rig(&saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ppo_clips_the_ratio_of_each_token),        cmocka_unit_test(gspo_clips_the_ratio_of_a_sequence),
        cmocka_unit_test(sapo_gates_the_ratio_of_each_token),       cmocka_unit_test(a_step_moves_probabilities_by_advantages),
        cmocka_unit_test(a_sequence_without_advantages_is_refused), cmocka_unit_test(the_list_of_kernels_has_those_of_the_loss),
        cmocka_unit_test(a_run_of_another_loss_does_not_go_on),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
