/* What a job refuses, without a device and without a model's weights. */
#include "base/log.h"
#include "failing.h"
#include "test.h"
#include "trainer_rig.h"

struct refusal {
    const char *settings[9]; /* pairs, NULL after the last */
    const char *says;
};

/* The device is not there and the weights are gone: a caller that asked for them would fail with other words. */
static void set_job(struct rig *r, const char *const *settings)
{
    char weights[160];
    snprintf(weights, sizeof weights, "%s/model.safetensors", tied.dir);
    unlink(weights);
    set_options(r, &tied, settings);
    assert_ok(options_set(&r->options, COMMAND_TRAIN, "device", "cuda:9", "test"));
}

/* Fails if a check leaves job.c for a stage that needs more. */
static void what_cannot_be_is_refused_without_device_and_weights(void **state)
{
    (void)state;
    const struct refusal refusals[] = {
        {{"lora_target_modules", "nope"}, "not a linear layer that LoRA can adapt"},
        {{"rank_pattern", "nope=8"}, "--rank-pattern: \"nope\" is the end of no module that gets an adapter"},
        {{"alpha_pattern", "v_proj=8", "lora_target_modules", "q_proj"}, "--alpha-pattern: \"v_proj\" is the end of no module"},
        {{"finetuning_type", "full", "train_norms", "true"}, "--train-norms is for LoRA"},
        {{"finetuning_type", "full", "load_in_4bit", "true"}, "--load-in-4bit is for LoRA"},
        {{"finetuning_type", "qlora", "load_in_4bit", "false"}, "take lora"},
        {{"shard", "optimizer", "sync_every", "4"}, "exclude each other"},
        {{"sync_int8", "true"}, "does nothing without --sync-every"},
        {{"outer_momentum", "0.5"}, "does nothing without --sync-every"},
        {{"early_stopping_patience", "2", "data", data_path}, "needs validations"},
        {{"load_best_model_at_end", "true", "data", data_path}, "needs validations"},
        {{"early_stopping_threshold", "0.1"}, "does nothing without --early-stopping-patience"},
        {{"val_set_size", "0.5", "eval_dataset_path", "x"}, "give only one of them"},
        {{"max_length", "100000000"}, "above the model's window of"},
        {{"report_to", "wandb"}, "takes none, tensorboard, csv or all"},
        {{"output", tied.dir}, "the model's own directory"},
        {{"sample_prompts", "/nowhere/prompts"}, "/nowhere/prompts"},
        {{"per_device_train_batch_size", "9000000000000", "gradient_accumulation_steps", "9000000000000"}, "too large"},
        {{"finetuning_type", "full", "load_in_fp8", "true"}, "--load-in-fp8 is for LoRA"},
        {{"learning_rate", "auto", "optim", "lion"}, "is a rule for AdamW"},
        {{"max_restarts", "1"}, "starts the ranks of --nproc again"},
        {{"max_restarts", "1", "nproc", "2", "resume", "none"}, "--resume none says otherwise"},
        {{"eval_steps", "2", "evals_per_epoch", "2"}, "both say how often the run validates"},
        {{"save_steps", "2", "saves_per_epoch", "2"}, "both say how often the run saves"},
        {{"val_set_size", "1.5"}, "1.5"},
        {{"sample_prompt", "x", "sample_length", "100000"}, "more than the model's window of"},
        {{"num_cycles", "2", "lr_scheduler_type", "linear"}, "is for --lr-scheduler-type"},
        {{"lr_scheduler_type", "cosine_with_min_lr"}, "needs one of --min-lr"},
        {{"lr_scheduler_type", "cosine_with_min_lr", "min_lr", "1"}, "must be below --learning-rate"},
        {{"lr_scheduler_type", "warmup_stable_decay", "num_decay_steps", "99", "max_steps", "9"}, "than the 9 steps of the run"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct rig r;
        struct job j;
        set_job(&r, refusals[i].settings);
        assert_int_not_equal(job_open_run(&j, &r.options, 0), OK);
        if (!strstr(status_message(), refusals[i].says))
            fail_msg("%s: %s", refusals[i].settings[0], status_message());
        arena_free(&r.arena);
    }
}

static void a_job_decides_without_device_and_weights(void **state)
{
    struct rig r;
    struct job j;
    (void)state;
    set_job(&r, SETTINGS("output", output_dir, "gradient_accumulation_steps", "3", "per_device_train_batch_size", "2"));
    assert_ok(job_open_run(&j, &r.options, 0));
    assert_false(j.full);
    assert_int_equal(j.lora.rank, 4);
    assert_int_equal(j.step_rows, 6);
    assert_int_equal(j.vocabulary, TINY_VOCABULARY);
    assert_false(file_exists(output_dir));
    job_close(&j);
    arena_free(&r.arena);
}

static char warnings[1024];

static void keep(void *context, enum log_level level, const char *message)
{
    (void)context, (void)level;
    snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", message);
}

static void what_does_nothing_is_warned_of(void **state)
{
    static const struct {
        const char *settings[5], *says;
    } idle[] = {{{"finetuning_type", "full", "lora_alpha", "8"}, "does nothing: --finetuning-type full trains all weights"},
                {{"optim", "lion", "adam_epsilon", "1e-6"}, "does nothing: only --optim adamw"},
                {{"lora_alpha", "8", "adam_epsilon", "1e-6"}, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++) {
        struct rig r;
        struct job j;
        set_job(&r, idle[i].settings);
        warnings[0] = 0;
        log_set_sink(keep, NULL);
        assert_ok(job_open_run(&j, &r.options, 0));
        log_set_sink(NULL, NULL);
        assert_int_equal(strstr(warnings, "does nothing") != NULL, idle[i].says != NULL);
        if (idle[i].says)
            assert_non_null(strstr(warnings, idle[i].says));
        job_close(&j);
        arena_free(&r.arena);
    }
}

/* Fails if what a job has taken so far is not freed, or is used. */
static void memory_may_run_out_anywhere(void **state)
{
    struct rig r;
    struct job j;
    struct failing f = {0};
    (void)state;
    set_job(&r, SETTINGS("output", output_dir, "rank_pattern", "q_proj=8", "lora_target_modules", "q_proj,v_proj"));
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = job_open_run(&j, &r.options, 0);
        if (status == OK)
            job_close(&j);
        failing_end(&f, status);
    }
    assert_true(f.failed > 20);
    arena_free(&r.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_refused_without_device_and_weights),
        cmocka_unit_test(a_job_decides_without_device_and_weights),
        cmocka_unit_test(what_does_nothing_is_warned_of),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
