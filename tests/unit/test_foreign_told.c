/* config: what is told of a configuration of another tool: what hone does otherwise, what it leaves, and whose defaults hold. */
#include "foreign_rig.h"

static void what_hone_does_otherwise_is_said(void **state)
{
    (void)state;
    assert_ok(
        load(AXOLOTL_FEW "optimizer: adamw_8bit\nload_in_8bit: true\nwandb_project: x\nwandb_name:\nchat_template: chatml\n"));
    assert_non_null(strstr(options.notes, "changed: optimizer: adamw_8bit: exact"));
    assert_non_null(strstr(options.notes, "changed: load_in_8bit: true: the weights keep their own type"));
    assert_non_null(strstr(options.notes, "changed: chat_template: chatml: the chat template of the model's own files"));
    assert_non_null(strstr(options.notes, "not done: wandb_project: every step is in metrics.jsonl"));
    assert_ok(load(TRL_FEW "eval_strategy: epoch\n"));
    assert_non_null(strstr(options.notes, "changed: eval_strategy: epoch: the data has no file for it"));
    assert_ok(load(TRL_FEW "eval_strategy: steps\ntest_split_size: 0.1\n"));
    assert_null(strstr(options.notes, "changed"));
    static const struct {
        const char *text, *says;
    } cases[] = {
        {TRL_FEW "save_strategy: best\n", "save_strategy: best: hone saves every --save-steps steps, or --saves-per-epoch times"},
        {TRL_FEW "save_strategy: epoch\nsave_steps: 500\n", "save_steps: 500: not used: the strategy is epoch"},
        {TRL_FEW "eval_steps: 0.1\n", "eval_steps: 0.1: hone validates every --eval-steps"},
        {TRL_FEW "eos_token: '<|im_end|>'\n", "eos_token: <|im_end|>: the model's own end of turn"},
        {AXOLOTL_FEW "eval_strategy: no\nval_set_size: 0.1\n", "eval_strategy: no: hone validates on what there is for it"},
        {TRL_FEW "lr_scheduler_type: constant\nwarmup_ratio: 0.5\n", "warmup_ratio: 0.5: not used: constant has no warm-up"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(load(cases[i].text));
        const char *changed = strstr(options.notes, "changed: ");
        if (!changed || !strstr(changed, cases[i].says))
            fail_msg("%s\n%s", cases[i].text, options.notes);
    }
    assert_ok(load(AXOLOTL_FEW "eval_strategy: no\nsave_strategy: steps\nevals_per_epoch: 0\n"));
    assert_null(strstr(options.notes, "changed"));
    assert_ok(load(AXOLOTL_FEW "optimizer: paged_adamw_32bit\nload_in_8bit: false\nchat_template: tokenizer_default\n"));
    assert_null(strstr(options.notes, "changed"));
}

/* Fails if a wish is listed as not needed, or what is off as a wish. */
static void wishes_that_are_left_are_said_with_what_helps(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {TRL_FEW "push_to_hub: true\nhub_model_id: a/b\n",
         "not done: push_to_hub, hub_model_id: hone uploads nothing: huggingface-cli"},
        {TRL_FEW "report_to: [wandb, tensorboard, mlflow]\n",
         "not done: report_to: wandb,mlflow: every step is in metrics.jsonl"},
        {TRL_FEW "run_name: x\nreport_to: wandb\n", "not done: run_name: a run is named by its output_dir\n"},
        {TRL_FEW "env: {A: b}\n", "not done: env: set it in the shell"},
        {AXOLOTL_FEW "use_wandb: true\nwandb_name: x\n", "not done: use_wandb, wandb_name: every step is in metrics.jsonl"},
        {AXOLOTL_FEW "deepspeed: zero3.json\n", "not done: deepspeed: ranks (--nproc) divide memory with --shard"},
        {AXOLOTL_FEW "context_parallel_size: 2\n", "not done: context_parallel_size: a layer is on one device"},
        {AXOLOTL_FEW "eval_table_size: 5\n", "not done: eval_table_size: hone validates by the loss"},
        {FACTORY_FEW "plot_loss: true\n", "not done: plot_loss: hone report writes a page"},
        {FACTORY_FEW "push_to_hub: true\n", "not done: push_to_hub: hone uploads nothing"},
        {MLX_FEW "report_to: wandb\n", "not done: report_to: every step is in metrics.jsonl"},
        {MLX_FEW "test: true\n", "not done: test: hone eval"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(load(cases[i].text));
        if (!strstr(options.notes, cases[i].says))
            fail_msg("%s\n%s", cases[i].text, options.notes);
    }
    assert_ok(load(AXOLOTL_FEW "push_dataset_to_hub:\nuse_wandb: false\ntensor_parallel_size: 1\ndeepspeed:\nwandb_watch: ''\n"));
    assert_null(strstr(options.notes, "not done"));
    assert_ok(load(TRL_FEW "push_to_hub: false\nreport_to: tensorboard\n"));
    assert_null(strstr(options.notes, "not done"));
}

/* Fails if a file for DPO fails with its keys, or with one of them as an unknown word. */
static void files_of_other_methods_are_told_first(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says, *keys;
    } cases[] = {
        {AXOLOTL_FEW "rl_beta: 0.1\nrl: dpo\n", "another method of training, dpo (rl in line 6)",
         "rl_beta: 0.1 (line 5): not done, it is of DPO"},
        {AXOLOTL_FEW "rl: kto\nkto_desirable_weight: 0.2\n",
         "training, kto (rl in line 5): hone has supervised fine-tuning, which needs",
         "kto_desirable_weight: 0.2 (line 6): not done, it is of KTO"},
        {FACTORY_FEW "pref_beta: 0.1\npref_loss: sigmoid\n", "training, DPO (pref_beta in line 5)",
         "pref_loss: sigmoid (line 6): not done"},
        {TRL_FEW "beta: 0.1\nmax_prompt_length: 512\n", "training, DPO (beta in line 4)",
         "max_prompt_length: 512 (line 5): not done"},
        {TRL_FEW "beta: 0.04\nnum_generations: 8\n", "training, GRPO (num_generations in line 5)",
         "beta: 0.04 (line 4): not done"},
        {MLX_FEW "train_mode: orpo\nbeta: 0.1\n", "training, orpo (train_mode in line 5)",
         "trains the chosen answer of each preference row"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(load(cases[i].text), ERR_ARGUMENT, cases[i].says);
        const char *first = strstr(status_message(), "this is a config for"),
                   *keys = strstr(status_message(), "hone cannot follow");
        if (!first || !keys || keys < first || !strstr(status_message(), cases[i].keys))
            fail_msg("%s\n%s", cases[i].text, status_message());
    }
    assert_fails(load("model_name_or_path: m\nstage: dpo\noutput_dir: o\ncutoff_len: 64\n"), ERR_ARGUMENT,
                 "config.yaml: this is a config for another method of training, dpo (stage in line 2)");
    assert_ok(load(AXOLOTL_FEW "rl:\nrl_beta:\n"));
    assert_ok(load(MLX_FEW "train_mode: sft\n"));
}

/* Fails if a default that is hone's own, or that a flag overrides, is listed. */
static void defaults_that_are_not_those_of_hone_are_named(void **state)
{
    (void)state;
    assert_ok(load(TRL_FEW "max_length: 64\n"));
    assert_non_null(strstr(options.notes,
                           "defaults of TRL that are not hone's: output_dir trainer_output, excess_length truncate, "
                           "train_on_inputs true, lora_dropout 0.05, "));
    assert_null(strstr(options.notes, "max_length"));
    assert_ok(
        load("base_model: m\ndatasets: [{path: a}]\nlearning_rate: 1\nsequence_len: 9\nmicro_batch_size: 1\nwarmup_steps: 1\n"
             "output_dir: o\nexcess_length_strategy: raise\nadapter: qlora\nlora_r: 1\nlora_alpha: 1\n"
             "lora_target_linear: true\n"));
    assert_null(strstr(options.notes, "not hone's"));
    fresh();
    assert_ok(options_set(&options, COMMAND_TRAIN, "lora_dropout", "0", "--lora-dropout"));
    put("config.yaml", TRL_FEW);
    assert_ok(options_load_yaml(&options, COMMAND_TRAIN, path));
    assert_null(strstr(options.notes, "lora_dropout"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_hone_does_otherwise_is_said),
        cmocka_unit_test(wishes_that_are_left_are_said_with_what_helps),
        cmocka_unit_test(files_of_other_methods_are_told_first),
        cmocka_unit_test(defaults_that_are_not_those_of_hone_are_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
