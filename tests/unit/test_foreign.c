/* config: the configurations of other tools, and options written as YAML. */
#include "foreign_rig.h"

#include <stdlib.h>

#include "failing.h"

/* The value of an option as text. */
static const char *value(enum option option)
{
    static char text[512];
    struct buffer got = {0};
    assert_ok(options_get(&options, option, &got));
    snprintf(text, sizeof text, "%s", got.data ? got.data : "");
    buffer_free(&got);
    return text;
}

#define assert_option(name, text) assert_string_equal(value(OPTION_##name), text)

/* Fails if the tool with most keys is not taken, or one foreign key is enough. */
static void a_tool_is_told_by_its_keys(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {AXOLOTL_FEW, "an Axolotl config"},
        {FACTORY_FEW, "a LLaMA-Factory config"},
        {TRL_FEW, "a TRL config"},
        {MLX_FEW, "an MLX-LM config"},
        {"model: m\ndata: d\nlora_r: 3\n", NULL},
        {"", NULL},
        {"model_name_or_path: m\ndataset_name: d\nlearning_rate: 1\n", "a TRL config"},
        {"model: m\ndata: d\nnum_layers: -1\n", "an MLX-LM config"},
        {"model: m\ndata: d\noutput: o\n", NULL},
        {"{}", NULL},
        {"dtype: float32\nval_set_size: 0.1\npacking: true\n", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(load(cases[i].text));
        if (!cases[i].says)
            assert_null(options.notes);
        else if (!options.notes || !strstr(options.notes, cases[i].says))
            fail_msg("%s is not read as %s", cases[i].text, cases[i].says);
    }
    assert_fails(
        load("model: m\ndataset_name: x\n"), ERR_ARGUMENT,
        ":2: 'dataset_name' is not an option of hone train: data are files: download the set and name its file with --data FILE; "
        "for a config of TRL, add --config-format trl");
    fresh();
    put("config.yaml", "dataset_name: x\n");
    options.config_format = CHOICE_config_format_trl;
    assert_ok(options_load_yaml(&options, COMMAND_TRAIN, path));
    assert_option(max_length, "1024");
    /* hone's own words for model, data or output */
    assert_ok(load("model: m\ndata: d\noutput: o\niters: 3\nsave_every: 4\n"));
    assert_null(options.notes);
    assert_fails(load("model: m\ndata: d\noutput: o\nlora_parameters: 3\nsave_every: 4\n"), ERR_ARGUMENT,
                 ":4: unknown key 'lora_parameters'");
    options.config_format = CHOICE_config_format_hone;
    put("config.yaml", AXOLOTL_FEW);
    assert_fails(options_load_yaml(&options, COMMAND_TRAIN, path), ERR_ARGUMENT, ":2: 'datasets' is not an option of hone train");
}

/* Fails if hone's own default stays where the tool has another. */
static void absent_keys_have_the_defaults_of_the_tool(void **state)
{
    (void)state;
    assert_ok(load(AXOLOTL_FEW));
    assert_option(finetuning_type, "full");
    assert_option(max_length, "512");
    assert_option(excess_length, "drop");
    assert_option(lr_scheduler_type, "cosine");
    assert_option(num_train_epochs, "1");
    assert_option(dtype, "auto");
    assert_null(options.source[OPTION_lora_target_modules]);
    assert_ok(load(FACTORY_FEW));
    assert_option(lora_r, "8");
    assert_option(lora_alpha, "16");
    assert_option(learning_rate, "5e-05");
    assert_option(lr_scheduler_type, "linear");
    assert_option(warmup_ratio, "0");
    assert_option(num_train_epochs, "3");
    assert_option(per_device_train_batch_size, "8");
    assert_option(dtype, "float32");
    assert_option(train_on_inputs, "false");
    assert_ok(load(FACTORY_FEW "lora_rank: 32\n"));
    assert_option(lora_alpha, "64");
    assert_ok(load(TRL_FEW));
    assert_option(lora_r, "16");
    assert_option(lora_alpha, "32");
    assert_option(lora_dropout, "0.05");
    assert_option(lora_target_modules, "q_proj,v_proj");
    assert_option(learning_rate, "2e-05");
    assert_option(max_length, "1024");
    assert_option(excess_length, "truncate");
    assert_option(dtype, "bfloat16");
    assert_option(train_on_inputs, "true");
    assert_option(bnb_4bit_use_double_quant, "true");
    assert_ok(load(TRL_FEW "load_in_4bit: true\n"));
    assert_option(bnb_4bit_use_double_quant, "false");
    assert_ok(load(MLX_FEW));
    assert_option(lora_r, "8");
    assert_option(lora_alpha, "160");
    assert_option(learning_rate, "1e-05");
    assert_option(lr_scheduler_type, "constant");
    assert_option(max_grad_norm, "0");
    assert_option(per_device_train_batch_size, "4");
    assert_option(max_steps, "100");
    assert_option(seed, "0");
    assert_option(train_on_inputs, "true");
    assert_non_null(strstr(options.source[OPTION_seed], "the default of MLX-LM"));
}

/* Fails if scale is taken for alpha. */
static void the_scale_of_mlx_is_alpha_divided_by_the_rank(void **state)
{
    (void)state;
    assert_ok(load(MLX_FEW "lora_parameters: {rank: 16, scale: 2.5, dropout: 0.1, keys: [self_attn.q_proj]}\n"));
    assert_true(options.lora_alpha / (double)options.lora_r == 2.5);
    assert_option(lora_dropout, "0.1");
    assert_option(lora_target_modules, "self_attn.q_proj");
}

static void mlx_counts_layers_from_the_last(void **state)
{
    (void)state;
    char text[512];
    put("config.json", "{\"num_hidden_layers\": 4}");
    const char *form = "model: %s\ndata: d\niters: 8\ntrain: true\nnum_layers: %d\nlora_parameters: {keys: [a, b]}\n";
    snprintf(text, sizeof text, form, dir, 2);
    assert_ok(load(text));
    assert_option(lora_target_modules, "layers.2.a,layers.2.b,layers.3.a,layers.3.b");
    snprintf(text, sizeof text, form, dir, 4);
    assert_ok(load(text));
    assert_option(lora_target_modules, "a,b");
    snprintf(text, sizeof text, form, "/nowhere", 2);
    assert_fails(load(text), ERR_ARGUMENT, "num_layers: 2 (line 5): it counts from the last layer");
    put("config.json", "{\"num_hidden_layers\": 1000000000}");
    snprintf(text, sizeof text, form, dir, 2);
    assert_fails(load(text), ERR_FORMAT, "a model of 1000000000 layers");
    snprintf(text, sizeof text, "%sgrad_accumulation_steps: 3\nsteps_per_eval: 30\n", MLX_FEW);
    assert_ok(load(text));
    assert_option(max_steps, "33");
    assert_option(eval_steps, "10");
}

static void values_are_converted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum option option;
        const char *value;
    } cases[] = {
        {AXOLOTL_FEW "optimizer: paged_adamw_32bit\n", OPTION_optim, "adamw"},
        {AXOLOTL_FEW "optimizer: adamw_8bit\n", OPTION_optim, "adamw"},
        {AXOLOTL_FEW "optimizer: lion_8bit\n", OPTION_optim, "lion"},
        {AXOLOTL_FEW "bf16: true\n", OPTION_dtype, "bfloat16"},
        {AXOLOTL_FEW "bf16: auto\n", OPTION_dtype, "auto"},
        {AXOLOTL_FEW "bf16: false\nfp16: true\n", OPTION_dtype, "float16"},
        {AXOLOTL_FEW "bf16: no\n", OPTION_dtype, "float32"},
        {AXOLOTL_FEW "float32: true\n", OPTION_dtype, "float32"},
        {AXOLOTL_FEW "excess_length_strategy: raise\n", OPTION_excess_length, "error"},
        {AXOLOTL_FEW "warmup_steps: 10\n", OPTION_warmup_steps, "10"},
        {AXOLOTL_FEW "max_steps: -1\n", OPTION_max_steps, "0"},
        {AXOLOTL_FEW "sample_packing: yes\n", OPTION_packing, "true"},
        {AXOLOTL_FEW "batch_size: 8\n", OPTION_gradient_accumulation_steps, "4"},
        {AXOLOTL_FEW "adapter: qlora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n", OPTION_lora_target_modules,
         "all-linear"},
        {AXOLOTL_FEW "adapter: lora\nlora_r: 4\nlora_alpha: 8\n", OPTION_lora_target_modules, "q_proj,v_proj"},
        {AXOLOTL_FEW "lr_scheduler: constant\nwarmup_steps: 9\n", OPTION_warmup_steps, "0"},
        {AXOLOTL_FEW "device: cpu\n", OPTION_device, "cpu"},
        {FACTORY_FEW "quantization_bit: 4\n", OPTION_load_in_4bit, "true"},
        {FACTORY_FEW "quantization_bit: 8\n", OPTION_load_in_4bit, "false"},
        {FACTORY_FEW "bf16: true\n", OPTION_dtype, "bfloat16"},
        {FACTORY_FEW "lora_target: all\n", OPTION_lora_target_modules, "all-linear"},
        {FACTORY_FEW "lora_target: [a, b]\n", OPTION_lora_target_modules, "a,b"},
        {FACTORY_FEW "disable_shuffling: true\n", OPTION_shuffle, "false"},
        {FACTORY_FEW "lr_scheduler_type: constant_with_warmup\nwarmup_ratio: 0.1\n", OPTION_warmup_ratio, "0.1"},
        {FACTORY_FEW "warmup_steps: 0.25\n", OPTION_warmup_ratio, "0.25"},
        {FACTORY_FEW "max_samples: 10\n", OPTION_max_samples, "10"},
        {TRL_FEW "max_length: null\n", OPTION_max_length, "0"},
        {TRL_FEW "bf16: false\n", OPTION_dtype, "float32"},
        {TRL_FEW "bf16: false\ntorch_dtype: bfloat16\n", OPTION_dtype, "bfloat16"},
        {TRL_FEW "dtype: float32\n", OPTION_dtype, "float32"},
        {TRL_FEW "torch_dtype: float16\n", OPTION_dtype, "float16"},
        {TRL_FEW "dtype: auto\n", OPTION_dtype, "bfloat16"},
        {TRL_FEW "bf16: true\ndtype: float32\n", OPTION_dtype, "bfloat16"},
        {TRL_FEW "train_on_inputs: false\n", OPTION_train_on_inputs, "false"},
        {FACTORY_FEW "early_stopping_steps: 3\n", OPTION_early_stopping_patience, "3"},
        {TRL_FEW "load_best_model_at_end: true\n", OPTION_load_best_model_at_end, "true"},
        {TRL_FEW "lr_scheduler_kwargs: {min_lr_ratio: 0.1}\n", OPTION_min_lr_rate, "0.1"},
        {TRL_FEW "report_to: [wandb, tensorboard]\n", OPTION_report_to, "tensorboard"},
        {TRL_FEW "report_to: none\n", OPTION_report_to, "none"},
        {AXOLOTL_FEW "use_tensorboard: true\n", OPTION_report_to, "tensorboard"},
        {AXOLOTL_FEW "cosine_min_lr_ratio: 0.1\n", OPTION_min_lr_rate, "0.1"},
        {AXOLOTL_FEW "cosine_min_lr_ratio: 0.1\n", OPTION_lr_scheduler_type, "cosine_with_min_lr"},
        {AXOLOTL_FEW "lr_scheduler: linear\ncosine_min_lr_ratio: 0.1\n", OPTION_lr_scheduler_type, "linear"},
        {TRL_FEW "dataset_text_field: content\n", OPTION_column_mapping, "text=content"},
        {TRL_FEW "dataset_text_field: text\n", OPTION_column_mapping, ""},
        {MLX_FEW "prompt_feature: question\n", OPTION_column_mapping, "prompt=question,completion=completion"},
        {MLX_FEW "chat_feature: chat\n", OPTION_column_mapping, "messages=chat"},
        {"base_model: m\nlearning_rate: 1\nsequence_len: 9\ndatasets: [{path: a, field_messages: chat}]\n", OPTION_column_mapping,
         "messages=chat"},
        {"model: m\ndata: d\ntrain: true\nval_batches: 1\nmax_steps: 7\nlora_target_modules: [q_proj]\n", OPTION_max_steps, "7"},
        {"model: m\ndata: d\ntrain: true\nval_batches: 1\nlora_target_modules: [q_proj]\n", OPTION_lora_target_modules, "q_proj"},
        {TRL_FEW "fp16: true\n", OPTION_dtype, "float16"},
        {TRL_FEW "assistant_only_loss: true\n", OPTION_train_on_inputs, "false"},
        {TRL_FEW "eval_steps: 0.1\n", OPTION_eval_steps, "100"},
        {TRL_FEW "eval_strategy: epoch\ntest_split_size: 0.1\n", OPTION_evals_per_epoch, "1"},
        {TRL_FEW "eval_strategy: steps\ntest_split_size: 0.1\n", OPTION_evals_per_epoch, "0"},
        {TRL_FEW "save_strategy: epoch\nsave_steps: 500\n", OPTION_saves_per_epoch, "1"},
        {TRL_FEW "save_strategy: epoch\nsave_steps: 500\n", OPTION_save_steps, "100"},
        {TRL_FEW "save_strategy: no\n", OPTION_save_steps, "0"},
        {TRL_FEW "save_strategy: no\nsave_steps: 500\n", OPTION_save_steps, "0"},
        {FACTORY_FEW "eval_strategy: epoch\neval_steps: 500\n", OPTION_evals_per_epoch, "1"},
        {FACTORY_FEW "evaluation_strategy: epoch\neval_steps: 500\n", OPTION_eval_steps, "100"},
        {AXOLOTL_FEW "evals_per_epoch: 4\n", OPTION_evals_per_epoch, "4"},
        {AXOLOTL_FEW "saves_per_epoch: 2\n", OPTION_saves_per_epoch, "2"},
        {TRL_FEW "packing: true\npacking_strategy: bfd_split\n", OPTION_excess_length, "split"},
        {MLX_FEW "mask_prompt: true\n", OPTION_train_on_inputs, "false"},
        {MLX_FEW "optimizer: adamw\n", OPTION_weight_decay, "0.01"},
        {MLX_FEW "optimizer: adamw\noptimizer_config: {adamw: {weight_decay: 0.2}, sgd: {x: 1}}\n", OPTION_weight_decay, "0.2"},
        {MLX_FEW "optimizer: adam\noptimizer_config: {adam: {betas: [0.8, 0.95]}}\n", OPTION_adam_beta2, "0.95"},
        {MLX_FEW "lr_schedule: {name: linear_schedule, arguments: [3e-4, 0, 100]}\n", OPTION_lr_scheduler_type, "linear"},
        {MLX_FEW "lr_schedule: {name: cosine_decay, warmup: 10, arguments: [3e-4, 90]}\n", OPTION_learning_rate, "0.0003"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (load(cases[i].text) != OK)
            fail_msg("%s\n%s", cases[i].text, status_message());
        if (strcmp(value(cases[i].option), cases[i].value) != 0)
            fail_msg("%s gives %s: %s, not %s", cases[i].text, options_name(cases[i].option), value(cases[i].option),
                     cases[i].value);
    }
}

/* Fails if reading ends at the first. */
static void all_that_is_refused_is_told_together(void **state)
{
    (void)state;
    assert_fails(load(AXOLOTL_FEW "rl: dpo\nneftune_noise_alpha: 5\ncutoff_len: 3\nwandb_project: x\n"), ERR_ARGUMENT,
                 "each preference row (docs/data.md); hone cannot follow 3 keys of this Axolotl config: rl: dpo (line 5): hone "
                 "has supervised fine-tuning; "
                 "neftune_noise_alpha: 5 (line 6); cutoff_len: 3 (line 7): unknown, did you mean sequence_len? (docs/configs.md");
    assert_ok(load(AXOLOTL_FEW "nobody_knows_it:\n"));
    assert_ok(load(AXOLOTL_FEW "rl:\nneftune_noise_alpha: 0\nlora_modules_to_save: []\nunfrozen_parameters: {}\n"));
    assert_fails(load(TRL_FEW "lr_scheduler_kwargs: {num_waves: 2}\n"), ERR_ARGUMENT,
                 "lr_scheduler_kwargs.num_waves: 2 (line 4)");
    assert_fails(load(TRL_FEW "lr_scheduler_kwargs: {seed: 2}\n"), ERR_ARGUMENT, "lr_scheduler_kwargs.seed: 2 (line 4)");
    assert_fails(load(AXOLOTL_FEW "micro_batch: {a: b}\n"), ERR_ARGUMENT, "did you mean micro_batch_size?");
    assert_fails(load(AXOLOTL_FEW "sequence_len: [1]\n"), ERR_ARGUMENT, "sequence_len (line 5): one value is needed");
    assert_fails(load(AXOLOTL_FEW "special_tokens: x\n"), ERR_ARGUMENT, "names with values are needed below it");
    assert_fails(load(AXOLOTL_FEW "sequence_len: many\n"), ERR_ARGUMENT,
                 "config.yaml:5 (sequence_len): max_length cannot be 'many': it takes a whole number");
    assert_fails(
        load(AXOLOTL_FEW "sequence_len: many\nlora_r: 0\n"), ERR_ARGUMENT,
        "hone cannot follow 2 keys of this Axolotl config: line 5 (sequence_len): max_length cannot be 'many': it takes a whole");
    assert_fails(load(AXOLOTL_FEW "rl: dpo\nload_in_4bit: maybe\n"), ERR_ARGUMENT,
                 "rl: dpo (line 5): hone has supervised fine-tuning; line 6 (load_in_4bit): load_in_4bit cannot be 'maybe': it "
                 "takes true");
    assert_fails(load(AXOLOTL_FEW "per_device_train_batch_size: 8\n"), ERR_ARGUMENT,
                 "micro_batch_size in line 3 says it already");
    assert_fails(load("base_model: m\ndatasets: x\nsequence_len: 4\n"), ERR_ARGUMENT,
                 "datasets: x (line 2): a list is needed, with a path for each; learning_rate (line 1): it is missing");
    assert_fails(load("base_model: m\nlearning_rate: 1\nsequence_len: 9\ndatasets: [{path: a, field: x}, {path: b}]\n"),
                 ERR_ARGUMENT, "datasets[].field: x (line 4): rename the column");
    assert_fails(load(TRL_FEW "lora_rank: 8\n"), ERR_ARGUMENT, "did you mean lora_r?");
    assert_fails(load(MLX_FEW "train: false\n"), ERR_ARGUMENT, "train: false (line 5): hone train trains");
    assert_ok(load(MLX_FEW "train: true\n"));
    assert_fails(load(MLX_FEW "lr_schedule: {name: cosine_decay, arguments: [1e-4, 50]}\n"), ERR_ARGUMENT, "end with the run");
}

/* The reader's own limits, and that a broken file of another tool is reported as one. */
static void broken_files_are_refused(void **state)
{
    (void)state;
    struct buffer text = {0};
    assert_fails(load(AXOLOTL_FEW "a: &x 1\nb: *x\n"), ERR_FORMAT, ":6: aliases (*name) are not supported");
    assert_fails(load(AXOLOTL_FEW "a: !!int 3\n"), ERR_FORMAT, "tags (!name) are not supported");
    assert_fails(load(AXOLOTL_FEW "micro_batch_size: 3\n"), ERR_FORMAT, ":5: micro_batch_size was already given in line 3");
    assert_fails(load(AXOLOTL_FEW "? [a]\n: b\n"), ERR_FORMAT, "a key must be a name");
    assert_fails(load(AXOLOTL_FEW "a: {b\n"), ERR_FORMAT, "not valid YAML");
    assert_fails(load(AXOLOTL_FEW "---\na: b\n"), ERR_FORMAT, "only one document");
    assert_fails(load(AXOLOTL_FEW "a: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n"), ERR_FORMAT, "too deep inside each other");
    assert_ok(buffer_format(&text, AXOLOTL_FEW "a: ["));
    for (int i = 0; i < YAML_NODES_MAX; i++)
        assert_ok(buffer_append(&text, "1,", 2));
    assert_ok(buffer_format(&text, "1]\n"));
    assert_fails(load(text.data), ERR_FORMAT, "so many values");
    buffer_free(&text);
    fresh();
    options.config_format = CHOICE_config_format_mlx;
    put("config.yaml", "- a\n");
    assert_fails(options_load_yaml(&options, COMMAND_TRAIN, path), ERR_FORMAT, "a configuration is needed here");
}

static void data_sets_become_paths(void **state)
{
    (void)state;
    char text[1024];
    assert_ok(
        load("base_model: m\nlearning_rate: 1\nsequence_len: 9\ndatasets:\n  - path: a.jsonl\n    type: chat_template\n"
             "  - {path: json, data_files: [b.jsonl, c.jsonl], ds_type: json}\ntest_datasets: [{path: e.jsonl, split: x}]\n"));
    assert_option(dataset_path, "a.jsonl,b.jsonl,c.jsonl");
    assert_option(eval_dataset_path, "e.jsonl");
    assert_fails(load("base_model: m\nlearning_rate: 1\nsequence_len: 9\ndatasets: [{path: a, type: metharme}, {type: alpaca}, "
                      "{path: b, shards: 2, split: test}, {path: c, type: {field_output: x}}]\n"),
                 ERR_ARGUMENT, "datasets[].type: metharme (line 4): hone has rows of");
    assert_non_null(strstr(status_message(), "datasets (line 4): a path is needed"));
    assert_non_null(strstr(status_message(), "datasets[].shards: 2"));
    assert_non_null(strstr(status_message(), "datasets[].split: test (line 4): put the rows"));
    assert_non_null(strstr(status_message(), "recognised by their keys"));
    assert_non_null(strstr(status_message(), "hone cannot follow 5 keys"));

    assert_ok(load("base_model: m\nlearning_rate: 1\nsequence_len: 9\ndatasets: [{path: a, split: 'train[:5%]'}, {path: b}]\n"));
    assert_option(dataset_path, "a:0.05,b");
    assert_ok(load("base_model: m\nlearning_rate: 1\nsequence_len: 9\ndatasets: [{path: a, split: 'train[:500]'}]\n"));
    assert_option(dataset_path, "a");
    assert_option(max_samples, "500");
    assert_fails(load("base_model: m\nlearning_rate: 1\nsequence_len: 9\ndatasets: [{path: a, split: 'train[:5]'}, {path: b}]\n"),
                 ERR_ARGUMENT, "datasets[].split: train[:5]");

    put("dataset_info.json",
        "{\"a\": {\"file_name\": \"a.json\"}, \"b\": {\"file_name\": \"b.json\", \"formatting\": \"sharegpt\", \"columns\": "
        "{\"messages\": \"messages\"}, \"tags\": {\"role_tag\": \"role\", \"user_tag\": \"user\"}}, \"hub\": {\"hf_hub_url\": "
        "\"x\"}, "
        "\"rank\": {\"file_name\": \"r\", \"ranking\": true}, \"odd\": {\"file_name\": \"o\", \"columns\": {\"prompt\": \"q\"}, "
        "\"tags\": {\"role_tag\": 3}}, \"xml\": {\"file_name\": \"o\", \"formatting\": \"xml\"}, "
        "\"some\": {\"file_name\": \"o\", \"num_samples\": 9}}");
    snprintf(text, sizeof text, "%sdataset_dir: %s\ndataset: a, b\n", FACTORY_FEW, dir);
    assert_ok(load(text));
    snprintf(text, sizeof text, "%s/a.json,%s/b.json", dir, dir);
    assert_option(dataset_path, text);
    snprintf(text, sizeof text, "%sdataset_dir: %s\ndataset: hub,rank,odd,xml,some,none\n", FACTORY_FEW, dir);
    assert_fails(load(text), ERR_ARGUMENT, "hone cannot follow 7 keys");
    static const char *const says[] = {"hub in dataset_info.json: it has no file_name",
                                       "rank in dataset_info.json: it is for preferences",
                                       "odd in dataset_info.json: prompt is q",
                                       "role_tag is not a name",
                                       "the formatting is none of",
                                       "num_samples: weigh the file",
                                       "none in dataset_info.json: there is no such data set"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (!strstr(status_message(), says[i]))
            fail_msg("\"%s\" is not in: %s", says[i], status_message());
    snprintf(text, sizeof text, "%sdataset_dir: /nowhere\ndataset: a\n", FACTORY_FEW);
    assert_fails(load(text), ERR_ARGUMENT, "dataset_dir has no dataset_info.json");
    put("dataset_info.json", "{");
    snprintf(text, sizeof text, "%sdataset_dir: %s\ndataset: a\n", FACTORY_FEW, dir);
    assert_fails(load(text), ERR_FORMAT, "dataset_info.json");
}

/* Fails if a value loses a character, or a comment becomes a line. */
static void options_are_written_as_yaml_that_is_read_as_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"model", "a\nb: \"c\" \\ # d"},
        {"data", "x.jsonl:2,y"},
        {"output", "null"},
        {"sample_prompt", ""},
        {"cache_dir", "-x"},
        {"init_adapter", "\xc3\xa4 \xe2\x80\xae\x01\x7f\uffff"},
        {"rank_pattern", "q_proj=4,v=2"},
        {"learning_rate", "0.1"},
        {"seed", "3"},
        {"dtype", "bfloat16"},
        {"packing", "true"},
        {"eval_data", " blanks "},
    };
    struct buffer text = {0}, again = {0};
    fresh();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_ok(options_set(&options, COMMAND_TRAIN, cases[i].key, cases[i].value, "a\nsource: 1\r2\uffff"));
    assert_ok(options_write(&options, &text));
    assert_ok(load(text.data));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum option option;
        assert_ok(options_find(cases[i].key, &option));
        assert_string_equal(value(option), cases[i].value);
    }
    assert_ok(options_write(&options, &again));
    assert_non_null(strstr(again.data, "config.yaml:1\n"));
    fresh();
    assert_ok(options_set(&options, COMMAND_TRAIN, "model", "\xff", "--model"));
    text.size = 0;
    assert_fails(options_write(&options, &text), ERR_ARGUMENT, "model_name_or_path is not UTF-8");
    buffer_free(&text);
    buffer_free(&again);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char text[1024];
    put("config.json", "{\"num_hidden_layers\": 4}");
    put("rows.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    put("dataset_info.json", "{\"a\": {\"file_name\": \"rows.jsonl\"}}");
    static const char *const forms[] = {
        AXOLOTL_FEW "wandb_name: x\noptimizer: adamw_8bit\nlora_target_modules: [a, b]\n# %s%s\n",
        FACTORY_FEW "dataset: a\ndataset_dir: %s\ntemplate: x\n# %s\n",
        "model_name_or_path: %s\ndataset_name: %s/rows.jsonl\nuse_peft: true\n",
        "model: %s\ndata: d\niters: 8\ntrain: true\nnum_layers: 1\n# %s\n",
        AXOLOTL_FEW "unknown: 1\nrl: dpo\n# %s%s\n",
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        bool refused = i == 4;
        struct failing f = {0};
        snprintf(text, sizeof text, forms[i], dir, dir);
        put("config.yaml", text);
        while (failing_next(&f)) {
            struct buffer yaml = {0};
            fresh();
            failing_begin(&f);
            enum status status = options_load_yaml(&options, i % 2 ? COMMAND_CONFIG : COMMAND_TRAIN, path);
            if (refused && status == ERR_ARGUMENT)
                status = OK;
            else if (status == OK)
                status = options_write(&options, &yaml);
            failing_end(&f, status);
            if (i == 2 && status == OK)
                assert_false(options.train_on_inputs);
            buffer_free(&yaml);
        }
        assert_true(f.failed > 5);
        assert_int_equal(f.done_without, 0);
    }
    struct failing f = {0};
    while (failing_next(&f)) {
        struct buffer page = {0};
        failing_begin(&f);
        failing_end(&f, foreign_markdown(&page));
        buffer_free(&page);
    }
}

/* Fails if a row can never be reached, or the table says two things of a key. */
static void the_table_has_one_row_for_a_key_of_a_tool(void **state)
{
    (void)state;
    for (int i = 0; i < foreign_row_count; i++)
        for (int j = 0; j < i; j++)
            if (foreign_rows[i].tools & foreign_rows[j].tools && strcmp(foreign_rows[i].key, foreign_rows[j].key) == 0)
                fail_msg("two rows for %s", foreign_rows[i].key);
    for (int i = 0; i < foreign_default_count; i++) {
        const struct foreign_default *d = &foreign_defaults[i];
        fresh();
        assert_ok(table_store(&options, &option_table[d->option], d->value, "the table", false));
        for (int j = 0; j < i; j++)
            if (d->tools & foreign_defaults[j].tools && d->option == foreign_defaults[j].option)
                fail_msg("two defaults for %s", options_name(d->option));
    }
}

/* HONE_UPDATE_DOCS=1 writes the file that this compares. */
static void docs_are_those_of_the_table(void **state)
{
    (void)state;
    struct buffer made = {0}, kept = {0};
    assert_ok(foreign_markdown(&made));
    if (getenv("HONE_UPDATE_DOCS"))
        assert_ok(file_replace("docs/configs.md", made.data, made.size));
    assert_ok(file_read(&kept, "docs/configs.md", 1 << 20));
    if (strcmp(made.data, kept.data) != 0)
        fail_msg("docs/configs.md is not what foreign.def says: run make docs");
    buffer_free(&made);
    buffer_free(&kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tool_is_told_by_its_keys),
        cmocka_unit_test(absent_keys_have_the_defaults_of_the_tool),
        cmocka_unit_test(the_scale_of_mlx_is_alpha_divided_by_the_rank),
        cmocka_unit_test(mlx_counts_layers_from_the_last),
        cmocka_unit_test(values_are_converted),
        cmocka_unit_test(all_that_is_refused_is_told_together),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(data_sets_become_paths),
        cmocka_unit_test(options_are_written_as_yaml_that_is_read_as_the_same),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(the_table_has_one_row_for_a_key_of_a_tool),
        cmocka_unit_test(docs_are_those_of_the_table),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
