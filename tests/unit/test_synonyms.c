/* config: words of other tools, each with the option and the value that the other tool's user meant. */
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "config/foreign/foreign.h"
#include "failing.h"

static struct arena arena;
static struct options options;

static int clean(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* Parses a line whose words are separated by blanks, into fresh options. */
static enum status parse(enum user_command command, const char *line)
{
    static char copy[512];
    static char *words[16];
    struct arguments arguments;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        words[n++] = word;
    arena_free(&arena);
    options_init(&options, &arena);
    TRY(options_parse(&options, command, n, words, &arguments));
    return arguments.count ? options_stray(command, arguments.text[0]) : OK;
}

#define TRAIN COMMAND_TRAIN
#define EVAL COMMAND_EVAL
#define GENERATE COMMAND_GENERATE
#define MERGE COMMAND_MERGE
#define QUANTIZE COMMAND_QUANTIZE

/* What is typed with the tool, and the option of hone with its value: as the tools' own documentation has it. */
static const struct {
    const char *tool;
    enum user_command command;
    const char *typed, *option, *value;
} taken[] = {
    {"TRL", TRAIN, "--model_name_or_path dir", "model_name_or_path", "dir"},
    {"torchrun", TRAIN, "--nproc_per_node 2", "nproc", "2"},
    {"accelerate", TRAIN, "--num_processes 4", "nproc", "4"},
    {"TRL", TRAIN, "--learning_rate 2.0e-5", "learning_rate", "2e-05"},
    {"TRL", TRAIN, "--num_train_epochs 3", "num_train_epochs", "3"},
    {"TRL", TRAIN, "--per_device_train_batch_size 2", "per_device_train_batch_size", "2"},
    {"TRL", TRAIN, "--gradient_accumulation_steps 8", "gradient_accumulation_steps", "8"},
    {"TRL", TRAIN, "--gradient_checkpointing", "recompute", "full"},
    {"TRL", TRAIN, "--gradient_checkpointing False", "recompute", "none"},
    {"TRL", TRAIN, "--no_gradient_checkpointing", "recompute", "none"},
    {"TRL", TRAIN, "--use_peft", "finetuning_type", "lora"},
    {"TRL", TRAIN, "--use_peft false", "finetuning_type", "full"},
    {"TRL", TRAIN, "--lora_r 32", "lora_r", "32"},
    {"TRL", TRAIN, "--lora_target_modules all-linear", "lora_target_modules", "all-linear"},
    {"TRL", TRAIN, "--max_seq_length 1024", "max_length", "1024"},
    {"TRL", TRAIN, "--max_length 1024", "max_length", "1024"},
    {"TRL", TRAIN, "--assistant_only_loss", "train_on_inputs", "false"},
    {"TRL", TRAIN, "--completion_only_loss False", "train_on_inputs", "true"},
    {"TRL", TRAIN, "--load_in_4bit", "load_in_4bit", "true"},
    {"TRL", TRAIN, "--use_bnb_nested_quant", "bnb_4bit_use_double_quant", "true"},
    {"TRL", TRAIN, "--dtype bfloat16", "dtype", "bfloat16"},
    {"transformers", TRAIN, "--torch_dtype float32", "dtype", "float32"},
    {"transformers", TRAIN, "--bf16", "dtype", "bfloat16"},
    {"transformers", TRAIN, "--bf16 True", "dtype", "bfloat16"},
    {"transformers", TRAIN, "--optim adamw_torch", "optim", "adamw"},
    {"transformers", TRAIN, "--optim adamw_torch_fused", "optim", "adamw"},
    {"transformers", TRAIN, "--optim adamw_hf", "optim", "adamw"},
    {"transformers", TRAIN, "--optim paged_adamw_32bit", "optim", "adamw"},
    {"transformers", TRAIN, "--optim lion_32bit", "optim", "lion"},
    {"transformers", TRAIN, "--optim adamw_8bit", "optim", "adamw"},
    {"transformers", TRAIN, "--optim paged_adamw_8bit", "optim", "adamw"},
    {"transformers", TRAIN, "--bf16 True --fp16 False", "dtype", "bfloat16"},
    {"transformers", TRAIN, "--bf16 yes", "dtype", "bfloat16"},
    {"many", TRAIN, "--packing yes", "packing", "true"},
    {"many", TRAIN, "--shuffle off", "shuffle", "false"},
    {"many", TRAIN, "--packing=1", "packing", "true"},
    {"transformers", TRAIN, "--resume_from_checkpoint out/checkpoint-50", "resume", "out/checkpoint-50"},
    {"transformers", TRAIN, "--resume_from_checkpoint True", "resume", "auto"},
    {"transformers", TRAIN, "--resume_from_checkpoint False", "resume", "none"},
    {"transformers", TRAIN, "--max_steps -1", "max_steps", "0"},
    {"transformers", TRAIN, "--train_file a.jsonl", "dataset_path", "a.jsonl"},
    {"transformers", TRAIN, "--validation_file b.jsonl", "eval_dataset_path", "b.jsonl"},
    {"transformers", TRAIN, "--block_size 512", "max_length", "512"},
    {"transformers", TRAIN, "--use_cpu", "device", "cpu"},
    {"transformers", TRAIN, "--no_cuda", "device", "cpu"},
    {"transformers", GENERATE, "--max_new_tokens 64", "max_new_tokens", "64"},
    {"transformers", GENERATE, "--stop_strings User:", "stop", "User:"},
    {"transformers", GENERATE, "--do_sample false", "temperature", "0"},
    {"accelerate", TRAIN, "--mixed_precision bf16", "dtype", "bfloat16"},
    {"accelerate", TRAIN, "--max_train_steps 100", "max_steps", "100"},
    {"accelerate", TRAIN, "--num_warmup_steps 10", "warmup_steps", "10"},
    {"Axolotl", TRAIN, "--base-model dir", "model_name_or_path", "dir"},
    {"Axolotl", TRAIN, "--adapter lora", "finetuning_type", "lora"},
    {"Axolotl", TRAIN, "--adapter qlora", "finetuning_type", "qlora"},
    {"Axolotl", TRAIN, "--sequence-len 4096", "max_length", "4096"},
    {"Axolotl", TRAIN, "--micro-batch-size 2", "per_device_train_batch_size", "2"},
    {"Axolotl", TRAIN, "--num-epochs 4", "num_train_epochs", "4"},
    {"Axolotl", TRAIN, "--optimizer adamw_torch_fused", "optim", "adamw"},
    {"Axolotl", TRAIN, "--lr-scheduler cosine", "lr_scheduler_type", "cosine"},
    {"Axolotl", TRAIN, "--sample-packing", "packing", "true"},
    {"Axolotl", TRAIN, "--no-sample-packing", "packing", "false"},
    {"Axolotl", TRAIN, "--lora-target-linear true", "lora_target_modules", "all-linear"},
    {"Axolotl", TRAIN, "--bf16 auto", "dtype", "auto"},
    {"Axolotl", TRAIN, "--val-set-size 0.05", "val_set_size", "0.05"},
    {"Axolotl", TRAIN, "--dataset-prepared-path cache", "cache_dir", "cache"},
    {"Axolotl", TRAIN, "--auto-resume-from-checkpoints", "resume", "auto"},
    {"Axolotl", TRAIN, "--lora-model-dir old", "init_adapter", "old"},
    {"Axolotl", MERGE, "--lora-model-dir old", "adapter", "old"},
    {"Axolotl", TRAIN, "--train-on-inputs", "train_on_inputs", "true"},
    {"LLaMA-Factory", TRAIN, "--finetuning_type lora", "finetuning_type", "lora"},
    {"LLaMA-Factory", TRAIN, "--dataset a.jsonl", "dataset_path", "a.jsonl"},
    {"LLaMA-Factory", TRAIN, "--cutoff_len 2048", "max_length", "2048"},
    {"LLaMA-Factory", TRAIN, "--lora_rank 8", "lora_r", "8"},
    {"LLaMA-Factory", TRAIN, "--lora_target all", "lora_target_modules", "all-linear"},
    {"LLaMA-Factory", TRAIN, "--lora_target q_proj,v_proj", "lora_target_modules", "q_proj,v_proj"},
    {"LLaMA-Factory", TRAIN, "--quantization_bit 4", "load_in_4bit", "true"},
    {"LLaMA-Factory", TRAIN, "--double_quantization false", "bnb_4bit_use_double_quant", "false"},
    {"LLaMA-Factory", TRAIN, "--val_size 0.1", "val_set_size", "0.1"},
    {"LLaMA-Factory", TRAIN, "--train_on_prompt true", "train_on_inputs", "true"},
    {"LLaMA-Factory", TRAIN, "--disable_shuffling", "shuffle", "false"},
    {"LLaMA-Factory", TRAIN, "--adapter_name_or_path old", "init_adapter", "old"},
    {"LLaMA-Factory", MERGE, "--adapter_name_or_path old", "adapter", "old"},
    {"LLaMA-Factory", MERGE, "--export_dir whole", "output_dir", "whole"},
    {"LLaMA-Factory", TRAIN, "--eval_dataset b.jsonl", "eval_dataset_path", "b.jsonl"},
    {"MLX-LM", TRAIN, "--iters 600", "max_steps", "600"},
    {"MLX-LM", TRAIN, "--batch-size 4", "per_device_train_batch_size", "4"},
    {"MLX-LM", TRAIN, "--fine-tune-type full", "finetuning_type", "full"},
    {"MLX-LM", TRAIN, "--mask-prompt", "train_on_inputs", "false"},
    {"MLX-LM", TRAIN, "--no-mask-prompt", "train_on_inputs", "true"},
    {"MLX-LM", TRAIN, "--optimizer adamw", "optim", "adamw"},
    {"MLX-LM", TRAIN, "--steps-per-eval 200", "eval_steps", "200"},
    {"MLX-LM", TRAIN, "--save-every 100", "save_steps", "100"},
    {"TRL", TRAIN, "--eval_strategy epoch", "evals_per_epoch", "1"},
    {"TRL", TRAIN, "--save_strategy epoch", "saves_per_epoch", "1"},
    {"Axolotl", TRAIN, "--saves-per-epoch 2", "saves_per_epoch", "2"},
    {"MLX-LM", TRAIN, "--adapter-path adapters", "output_dir", "adapters"},
    {"MLX-LM", TRAIN, "--max-seq-length 2048", "max_length", "2048"},
    {"MLX-LM", TRAIN, "--grad-checkpoint", "recompute", "full"},
    {"MLX-LM", GENERATE, "--adapter-path adapters", "adapter", "adapters"},
    {"MLX-LM", GENERATE, "--max-tokens 100", "max_new_tokens", "100"},
    {"MLX-LM", GENERATE, "--temp 0.7", "temperature", "0.7"},
    {"MLX-LM", GENERATE, "--system-prompt Brief.", "system", "Brief."},
    {"MLX-LM", GENERATE, "--ignore-chat-template", "raw", "true"},
    {"MLX-LM", MERGE, "--save-path fused", "output_dir", "fused"},
    {"MLX-LM", MERGE, "--gguf-path a.gguf", "output_dir", "a.gguf"},
    {"Unsloth", TRAIN, "--model_name dir", "model_name_or_path", "dir"},
    {"Unsloth", TRAIN, "-r 64", "lora_r", "64"},
    {"Unsloth", TRAIN, "--use_gradient_checkpointing unsloth", "recompute", "full"},
    {"Unsloth", TRAIN, "--random_state 3407", "seed", "3407"},
    {"Unsloth", TRAIN, "--full_finetuning", "finetuning_type", "full"},
    {"Unsloth", TRAIN, "--load_in_fp8", "load_in_fp8", "true"},
    {"Unsloth", TRAIN, "--target_modules q_proj", "lora_target_modules", "q_proj"},
    {"Unsloth", TRAIN, "--use_rslora", "use_rslora", "true"},
    {"Unsloth", QUANTIZE, "--quantization_method q4_k_m", "output_type", "q4_k_m"},
    {"Unsloth", MERGE, "--quantization q8_0", "output_type", "q8_0"},
    {"torchtune", TRAIN, "--epochs 1", "num_train_epochs", "1"},
    {"torchtune", TRAIN, "--batch_size=2", "per_device_train_batch_size", "2"},
    {"torchtune", TRAIN, "--enable_activation_checkpointing True", "recompute", "full"},
    {"torchtune", TRAIN, "--dtype bf16", "dtype", "bfloat16"},
    {"torchtune", TRAIN, "--dtype fp32", "dtype", "float32"},
    {"torchtune", TRAIN, "--clip_grad_norm 1.0", "max_grad_norm", "1"},
    {"torchtune", TRAIN, "--optimizer torch.optim.AdamW", "optim", "adamw"},
    {"torchtune", TRAIN, "--packed True", "packing", "true"},
    {"torchtune", TRAIN, "--train_on_input False", "train_on_inputs", "false"},
    {"torchtune", TRAIN, "--lr 3e-4", "learning_rate", "0.0003"},
    {"llama.cpp", GENERATE, "-m a.gguf", "model_name_or_path", "a.gguf"},
    {"llama.cpp", GENERATE, "-p Hello", "prompt", "Hello"},
    {"llama.cpp", GENERATE, "-n 32", "max_new_tokens", "32"},
    {"llama.cpp", GENERATE, "--repeat-penalty 1.1", "repetition_penalty", "1.1"},
    {"OpenAI", GENERATE, "--top_logprobs 3", "logprobs", "3"},
    {"llama.cpp", GENERATE, "--n-predict 32", "max_new_tokens", "32"},
    {"llama.cpp", GENERATE, "--temp 0", "temperature", "0"},
    {"llama.cpp", GENERATE, "-t 4", "threads", "4"},
    {"llama.cpp", GENERATE, "-s 7", "seed", "7"},
    {"llama.cpp", QUANTIZE, "--outtype f16", "output_type", "f16"},
    {"llama.cpp", QUANTIZE, "--outtype bf16", "output_type", "bf16"},
    {"llama.cpp", QUANTIZE, "--outfile a.gguf", "output_dir", "a.gguf"},
    {"llama.cpp", QUANTIZE, "--type Q4_K_M", "output_type", "q4_k_m"},
    {"llama.cpp", QUANTIZE, "--type F16", "output_type", "f16"},
    {"llama.cpp", TRAIN, "--val-split 0.05", "val_set_size", "0.05"},
    {"Ollama", GENERATE, "--num-predict 20", "max_new_tokens", "20"},
    {"Axolotl", TRAIN, "--excess-length-strategy raise", "excess_length", "error"},
    {"Axolotl", TRAIN, "--excess-length-strategy drop", "excess_length", "drop"},
    {"LLaMA-Factory", TRAIN, "--neat_packing", "packing", "true"},
    {"LLaMA-Factory", TRAIN, "--disable_gradient_checkpointing", "recompute", "none"},
    {"LLaMA-Factory", GENERATE, "--infer_dtype float32", "dtype", "float32"},
    {"TRL", TRAIN, "--shuffle_dataset", "shuffle", "true"},
    {"many", TRAIN, "--wd 0.1", "weight_decay", "0.1"},
    {"many", TRAIN, "--grad-accum 4", "gradient_accumulation_steps", "4"},
    {"many", TRAIN, "--rank 8", "lora_r", "8"},
    {"many", TRAIN, "--alpha 16", "lora_alpha", "16"},
    {"many", TRAIN, "--dropout 0.1", "lora_dropout", "0.1"},
    {"many", TRAIN, "--no-shuffle", "shuffle", "false"},
    {"many", TRAIN, "--no-resume", "resume", "none"},
    {"many", TRAIN, "--qlora", "finetuning_type", "qlora"},
    {"many", TRAIN, "--use-4bit", "load_in_4bit", "true"},
    {"many", TRAIN, "--warmup-fraction 0.1", "warmup_ratio", "0.1"},
    {"many", TRAIN, "--eval-every 10", "eval_steps", "10"},
    {"many", TRAIN, "--val-split 5%", "val_set_size", "0.05"},
    {"llama.cpp", TRAIN, "-t -1", "threads", "0"},
    {"many", TRAIN, "--cpu", "device", "cpu"},
    {"many", EVAL, "--num-threads 2", "threads", "2"},
    {"many", MERGE, "--dtype bfloat16", "output_type", "bf16"},
    {"many", MERGE, "--force", "overwrite_output_dir", "true"},
};

/* What the answer to a word must name. */
static const struct {
    const char *tool;
    enum user_command command;
    const char *typed, *names;
} answered[] = {
    {"TRL", TRAIN, "--fp16", "--dtype float16"},
    {"TRL", TRAIN, "--fp16 True", "--dtype bfloat16"},
    {"TRL", TRAIN, "--load_in_8bit", "--load-in-4bit"},
    {"TRL", TRAIN, "--dataset_name trl-lib/Capybara", "--data FILE"},
    {"TRL", TRAIN, "--attn_implementation flash_attention_2", "leave it out"},
    {"TRL", TRAIN, "--eval_strategy no", "--eval-data"},
    {"TRL", TRAIN, "--save_strategy no", "--save-steps 0"},
    {"TRL", TRAIN, "--logging_steps 10", "metrics.jsonl"},
    {"TRL", TRAIN, "--push_to_hub", "huggingface-cli upload"},
    {"TRL", TRAIN, "--use_dora", "--use-rslora"},
    {"TRL", TRAIN, "--lora_modules_to_save lm_head", "--train-norms"},
    {"TRL", TRAIN, "--per_device_eval_batch_size 8", "--micro-batch-tokens"},
    {"transformers", TRAIN, "--deepspeed zero3.json", "--shard optimizer"},
    {"transformers", TRAIN, "--overwrite_output_dir", "--resume none"},
    {"transformers", TRAIN, "--optim sgd", "adamw or lion"},
    {"transformers", TRAIN, "--fp16 --seed 1", "--dtype float16"},
    {"transformers", TRAIN, "--no_bf16", "--dtype float32"},
    {"transformers", TRAIN, "--dataloader_num_workers 4", "leave it out"},
    {"transformers", TRAIN, "--validation_split_percentage 5", "--val-set-size 0.05"},
    {"Axolotl", TRAIN, "--adapter out", "--init-adapter"},
    {"Axolotl", TRAIN, "--flash-attention", "leave it out"},
    {"Axolotl", TRAIN, "--wandb-project x", "metrics.jsonl"},
    {"Axolotl", TRAIN, "--pad-to-sequence-len", "without padding"},
    {"LLaMA-Factory", TRAIN, "--stage sft", "supervised"},
    {"LLaMA-Factory", TRAIN, "--do_train", "leave it out"},
    {"LLaMA-Factory", TRAIN, "--template qwen", "own chat template"},
    {"LLaMA-Factory", TRAIN, "--quantization_bit 8", "--load-in-4bit"},
    {"LLaMA-Factory", TRAIN, "--plot_loss", "metrics.jsonl"},
    {"LLaMA-Factory", GENERATE, "--length_penalty 1", "--top-p"},
    {"MLX-LM", TRAIN, "--train", "leave it out"},
    {"MLX-LM", TRAIN, "--num-layers 16", "--rank-pattern"},
    {"MLX-LM", TRAIN, "--resume-adapter-file adapters.safetensors", "--init-adapter DIR"},
    {"MLX-LM", TRAIN, "--optimizer adam", "write adamw"},
    {"MLX-LM", MERGE, "--export-gguf", "--output FILE.gguf"},
    {"Unsloth", TRAIN, "--save_method merged_16bit", "hone merge"},
    {"torchtune", TRAIN, "--max_steps_per_epoch 10", "--max-steps"},
    {"torchtune", TRAIN, "batch_size=4", "write --batch_size=4"},
    {"torchtune", TRAIN, "model.lora_rank=8", "write --lora_rank=8"},
    {"torchtune", TRAIN, "optimizer.lr=1e-4", "write --lr=1e-4"},
    {"torchtune", TRAIN, "--compile", "leave it out"},
    {"transformers", TRAIN, "--ddp_backend x", "--nproc COUNT"},
    {"transformers", TRAIN, "--hub_token x", "huggingface-cli"},
    {"transformers", TRAIN, "--dataloader_drop_last", "leave it out"},
    {"transformers", TRAIN, "--full_determinism", "the same bytes"},
    {"transformers", TRAIN, "--eval_accumulation_steps 2", "validation"},
    {"Axolotl", TRAIN, "--rl dpo", "supervised"},
    {"Axolotl", TRAIN, "--adam_beta3 0.9", "--optim adamw or lion"},
    {"Axolotl", TRAIN, "--relora true", "--optim adamw or lion"},
    {"LLaMA-Factory", TRAIN, "--use_galore", "--optim adamw or lion"},
    {"LLaMA-Factory", TRAIN, "--pure_bf16", "--dtype bfloat16"},
    {"LLaMA-Factory", TRAIN, "--image_max_pixels 1", "text"},
    {"MLX-LM", GENERATE, "--draft-model x", "leave it out"},
    {"llama.cpp", GENERATE, "-ngl 99", "--device"},
    {"llama.cpp", GENERATE, "-c 4096", "--max-new-tokens"},
    {"llama.cpp", GENERATE, "-f prompt.txt", "--prompt -"},
    {"llama.cpp", GENERATE, "--lora a.gguf", "--adapter DIR"},
    {"llama.cpp", GENERATE, "-n -1", "whole number"},
    {"llama.cpp", QUANTIZE, "--type q6_k", "q8_0"},
    {"many", TRAIN, "--wandb", "metrics.jsonl"},
    {"many", TRAIN, "--warmup 100", "--warmup-steps 100"},
    {"transformers", TRAIN, "--warmup_steps 0.1", "--warmup-ratio"},
    {"many", TRAIN, "--device mps", "cpu, opencl, cuda"},
    {"many", TRAIN, "--gpu 0", "--device cuda"},
    {"many", TRAIN, "--num-gpus 2", "--nproc 2 --device cuda"},
    {"torchrun", TRAIN, "--nnodes 2", "mpirun, srun or torchrun"},
    {"Axolotl", TRAIN, "--tensor_parallel_size 2", "--shard weights"},
    {"many", TRAIN, "--cpu-offload", "--resident-layers"},
    {"many", EVAL, "--batch-size 8", "leave it out"},
    {"many", EVAL, "--lr 1", "it belongs to hone train"},
};

static void words_of_other_tools_mean_what_their_users_meant(void **state)
{
    (void)state;
    _Static_assert(sizeof taken / sizeof *taken >= 100, "a table of 100 synonyms");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        enum option option;
        struct buffer text = {0};
        if (parse(taken[i].command, taken[i].typed) != OK)
            fail_msg("%s: %s: %s", taken[i].tool, taken[i].typed, status_message());
        assert_ok(options_find(taken[i].option, &option));
        assert_ok(options_get(&options, option, &text));
        if (strcmp(text.data, taken[i].value) != 0 || !options.source[option])
            fail_msg("%s: %s gives %s %s", taken[i].tool, taken[i].typed, taken[i].option, text.data);
        for (int o = 0; o < OPTIONS; o++)
            if (o != (int)option && options.source[o])
                fail_msg("%s: %s also sets %s", taken[i].tool, taken[i].typed, options_name((enum option)o));
        buffer_free(&text);
    }
}

static void words_that_mean_something_else_are_answered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof answered / sizeof *answered; i++) {
        enum status status = parse(answered[i].command, answered[i].typed);
        if (status != ERR_ARGUMENT || !strstr(status_message(), answered[i].names))
            fail_msg("%s: %s: status %d, %s", answered[i].tool, answered[i].typed, status, status == OK ? "" : status_message());
    }
}

/* Every option that an answer names with two dashes is one of the command that it answers. */
static void check_names(const char *text, unsigned commands)
{
    static const char *const others[] = {"hone quantize", "hone merge", "hone eval", "hone inspect", "hone plan", "hone --"};
    for (const char *p = strstr(text, "--"); p; p = strstr(p + 2, "--")) {
        char name[64] = "";
        size_t n = strspn(p + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
        snprintf(name, sizeof name, "%.*s", (int)n, p + 2);
        const struct option_row *row = table_find(name, (int64_t)strlen(name));
        bool elsewhere = false; /* a whole command line of another command is given */
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            elsewhere |= strstr(text, others[i]) && strstr(text, others[i]) < p;
        if (!elsewhere && (!row || (commands && (row->commands & commands) == 0)))
            fail_msg("'%s' names --%s, which its commands do not have", text, name);
    }
}

static void answers_name_options_that_there_are(void **state)
{
    (void)state;
#undef TRAIN
#undef EVAL
#undef GENERATE
#undef MERGE
#undef QUANTIZE
#define ANSWER(commands, words, text) check_names(text, (unsigned)(commands));
#define VALUE_ANSWER(option, words, text) check_names(text, option_table[OPTION_##option].commands);
#include "config/foreign/synonyms.def"
}

/* Every word, with every command: its own option, the one that its row names, or the answer. */
static void every_word_is_found(void **state)
{
    (void)state;
    for (int c = 0; c < COMMANDS; c++) {
        struct word word;
#define LOOK(has, list, right)                                                                                                   \
    for (const char *w = (has) ? (list) : ""; *w; w += strcspn(w, " "), w += *w == ' ') {                                        \
        const struct option_row *own = table_find(w, (int64_t)strcspn(w, " *"));                                                 \
        synonym_find(&word, w, (int64_t)strcspn(w, " *"), (enum user_command)c);                                                 \
        if (own && table_has(own, (enum user_command)c) ? word.row != own : !(right))                                            \
            fail_msg("hone %s: %.*s", options_command_name((enum user_command)c), (int)strcspn(w, " "), w);                      \
    }
#define SAME(option, list) LOOK(table_has(&option_table[OPTION_##option], (enum user_command)c), list, word.row || word.answer)
#define TAKES(option, value, given, list) LOOK(table_has(&option_table[OPTION_##option], (enum user_command)c), list, word.takes)
#define ANSWER(commands, list, text) LOOK((unsigned)(commands) >> c & 1, list, word.answer)
#include "config/foreign/synonyms.def"
    }
}

static void values_are_those_of_their_options(void **state)
{
    (void)state;
    arena_free(&arena);
    options_init(&options, &arena);
#define VALUE(option, value, words) assert_ok(table_store(&options, &option_table[OPTION_##option], value, "a test", true));
#define VALUE_SAID(option, value, words, text) VALUE(option, value, words)
#define TAKES(option, value, given, words)                                                                                       \
    if (*(value))                                                                                                                \
    VALUE(option, value, words)
#include "config/foreign/synonyms.def"
}

static char logged[256];

static void keep(void *context, enum log_level level, const char *text)
{
    (void)context, (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

/* Fails if an optimizer of 8 bits becomes the exact one in silence, or a type that is not asked for sets one. */
static void what_is_taken_as_something_else_is_said(void **state)
{
    (void)state;
    log_set_sink(keep, NULL);
    assert_ok(parse(COMMAND_TRAIN, "--optim adamw_8bit"));
    assert_string_equal(logged,
                        "--optim adamw_8bit is adamw: exact, its state is not rounded to 8 bits: 6 bytes more a trained weight");
    logged[0] = 0;
    assert_ok(parse(COMMAND_TRAIN, "--bf16 False --fp16 False --optim adamw"));
    assert_string_equal(logged, "");
    assert_null(options.source[OPTION_dtype]);
    log_set_sink(NULL, NULL);
}

static void commands_of_other_tools_are_answered(void **state)
{
    (void)state;
    static const struct {
        const char *typed, *names;
    } cases[] = {
        {"finetune", "hone train"},  {"fine-tune", "hone train"},        {"sft", "hone train"},
        {"lora", "hone train"},      {"run", "hone generate"},           {"infer", "hone generate"},
        {"evaluate", "hone eval"},   {"merge-lora", "hone merge"},       {"merge_lora", "hone merge"},
        {"fuse", "hone merge"},      {"convert", "hone config convert"}, {"serve", "hone merge"},
        {"benchmark", "hone bench"}, {"estimate", "hone plan"},          {"preprocess", "hone inspect data"},
        {"push", "huggingface-cli"}, {"show", "hone inspect model"},     {"create", "hone merge"},
    };
    enum user_command command;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(options_command(&command, cases[i].typed), ERR_ARGUMENT, cases[i].names);
#define COMMAND_ANSWER(words, text)                                                                                              \
    for (const char *w = words; *w; w += strcspn(w, " "), w += *w == ' ') {                                                      \
        char name[64];                                                                                                           \
        snprintf(name, sizeof name, "%.*s", (int)strcspn(w, " "), w);                                                            \
        if (options_command(&command, name) != OK)                                                                               \
            assert_fails(options_command(&command, name), ERR_ARGUMENT, text);                                                   \
    }
#include "config/foreign/synonyms.def"
    assert_fails(options_command(&command, "--model"), ERR_ARGUMENT, "a command comes first");
    assert_fails(options_command(&command, "zebra"), ERR_ARGUMENT, "unknown command 'zebra': hone --help lists all");
}

/* Suggestions are of the same command, and none is better than nonsense. */
static void suggestions_are_near_or_none(void **state)
{
    (void)state;
    static const struct {
        enum user_command command;
        const char *typed, *says;
    } cases[] = {
        {COMMAND_TRAIN, "--learning-rat 1", "did you mean '--learning-rate'?"},
        {COMMAND_TRAIN, "--epohcs 1", "did you mean '--epochs'?"},
        {COMMAND_TRAIN, "--lora-rnak 8", "did you mean '--lora-rank'?"},
        {COMMAND_TRAIN, "--train-batch 8", "did you mean '--per-device-train-batch-size'?"},
        {COMMAND_TRAIN, "--lora-scheduler x", "did you mean '--lr-scheduler'?"},
        {COMMAND_TRAIN, "--beta1x 1", "did you mean '--beta1'?"},
        {COMMAND_TRAIN, "--zig", "unknown option '--zig' ("},
        {COMMAND_TRAIN, "--fro x", "unknown option '--fro' ("},
        {COMMAND_EVAL, "--sed 1", "unknown option '--sed' ("},
        {COMMAND_EVAL, "--max-new-token 1", "unknown option '--max-new-token' ("},
        {COMMAND_DEVICES, "--jsn", "did you mean '--json'?"},
        {COMMAND_TRAIN, "-lr 1", "did you mean '--lr'?"},
        {COMMAND_TRAIN, "--r 8", "a single letter has one dash, as in -r"},
        {COMMAND_TRAIN, "--no-shuffle=true", "--no-shuffle takes no value"},
        {COMMAND_TRAIN, "--no-lr", "unknown option '--no-lr'"},
        {COMMAND_TRAIN, "--packing=maybe", "--packing cannot be 'maybe': it takes true or false"},
        {COMMAND_TRAIN, "--gradient-checkpointing=maybe", "it takes true, false or unsloth"},
        {COMMAND_TRAIN, "--resume", "--resume needs a value: --resume WHICH, what to resume from: auto"},
        {COMMAND_TRAIN, "lr 1", "if that is the option, write --lr"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(parse(cases[i].command, cases[i].typed), ERR_ARGUMENT, cases[i].says);
}

static void the_library_takes_the_same_words(void **state)
{
    (void)state;
    arena_free(&arena);
    options_init(&options, &arena);
    assert_ok(options_set(&options, COMMAND_TRAIN, "lr", "1e-3", "a test"));
    assert_true(options.learning_rate == 1e-3);
    assert_ok(options_set(&options, COMMAND_TRAIN, "bf16", "true", "a test"));
    assert_int_equal(options.dtype, CHOICE_dtype_bfloat16);
    assert_fails(options_set(&options, COMMAND_TRAIN, "bf16", "maybe", "a test"), ERR_ARGUMENT, "a test: bf16 cannot be 'maybe'");
    assert_fails(options_set(&options, COMMAND_TRAIN, "wandb", "true", "a test"), ERR_ARGUMENT, "metrics.jsonl");
    assert_fails(options_set(&options, COMMAND_TRAIN, "no_shuffle", "true", "a test"), ERR_ARGUMENT,
                 "did you mean 'shuffle: false'?");
}

/* A file's keys are read one after the other: a key must not be needed after the next one is read. */
static void files_take_the_same_words(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/hone-synonyms-%ld.yaml", (long)getpid());
    static const char good[] = "lr: 1e-3\nbf16: true\nadapter: qlora\nmask_prompt: false\nrank: 4\noptim: adamw_torch\n";
    assert_ok(file_replace(path, good, sizeof good - 1));
    arena_free(&arena);
    options_init(&options, &arena);
    assert_ok(options_load_yaml(&options, COMMAND_TRAIN, path));
    assert_true(options.learning_rate == 1e-3 && options.train_on_inputs && options.lora_r == 4);
    assert_int_equal(options.dtype, CHOICE_dtype_bfloat16);
    assert_int_equal(options.finetuning_type, CHOICE_finetuning_type_qlora);
    static const char lists[] =
        "fp16: false\nbf16: true\nshuffle: no\nlora_target_modules: [q_proj, v_proj]\ndata:\n  - a\n  - b:2\n";
    assert_ok(file_replace(path, lists, sizeof lists - 1));
    arena_free(&arena);
    options_init(&options, &arena);
    assert_ok(options_load_yaml(&options, COMMAND_TRAIN, path));
    assert_int_equal(options.dtype, CHOICE_dtype_bfloat16);
    assert_false(options.shuffle);
    assert_string_equal(options.lora_target_modules, "q_proj,v_proj");
    assert_string_equal(options.dataset_path, "a,b:2");
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"seed: 1\nwandb_project: x\n", ".yaml:2: 'wandb_project' is not an option of hone train: every step"},
        {"bf16: maybe\n", ".yaml:1: bf16 cannot be 'maybe'"},
        {"fp16: true\n", ".yaml:1: fp16 cannot be 'true': hone needs no loss scaling"},
        {"model: [a, b]\n", ".yaml:1: model_name_or_path takes one value, not a list"},
        {"data: [a, [b]]\n", ".yaml:1: dataset_path takes a list of single values"},
        {"lr: 1\nlearning_rate: 2\n", ".yaml:2: learning_rate was already given in line 1"},
        {"no_shuffle: true\n", "did you mean 'shuffle: false'?"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_ok(file_replace(path, wrong[i].text, (int64_t)strlen(wrong[i].text)));
        assert_fails(options_load_yaml(&options, COMMAND_TRAIN, path), ERR_ARGUMENT, wrong[i].says);
    }
    file_remove(path);
}

static void words_survive_failing_memory(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        arena_free(&arena);
        failing_begin(&f);
        enum status status = parse(COMMAND_TRAIN, "--lr 1 --bf16 --no-shuffle --optim adamw_torch");
        failing_end(&f, status);
        if (status != OK)
            assert_fails(status, ERR_MEMORY, "out of memory");
    }
    assert_true(f.failed > 0);
    f = (struct failing){0};
    while (failing_next(&f)) {
        struct buffer text = {0};
        failing_begin(&f);
        failing_end(&f, synonym_markdown(&text));
        buffer_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(words_of_other_tools_mean_what_their_users_meant, clean),
        cmocka_unit_test_teardown(words_that_mean_something_else_are_answered, clean),
        cmocka_unit_test_teardown(answers_name_options_that_there_are, clean),
        cmocka_unit_test_teardown(every_word_is_found, clean),
        cmocka_unit_test_teardown(values_are_those_of_their_options, clean),
        cmocka_unit_test_teardown(what_is_taken_as_something_else_is_said, clean),
        cmocka_unit_test_teardown(commands_of_other_tools_are_answered, clean),
        cmocka_unit_test_teardown(suggestions_are_near_or_none, clean),
        cmocka_unit_test_teardown(the_library_takes_the_same_words, clean),
        cmocka_unit_test_teardown(files_take_the_same_words, clean),
        cmocka_unit_test_teardown(words_survive_failing_memory, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
