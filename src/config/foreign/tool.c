/* What follows from several keys of a tool: the type of the run, the method, the scale of an adapter, how steps are counted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "config/foreign/state.h"

enum { LAYERS_MAX = 10000 };

static enum status set_at(struct foreign *f, enum option option, const char *text, const char *key)
{
    return foreign_set(f, option, text, foreign_find(f, key), key);
}

/* --- what transformers' users share -------------------------------------------------------------------------------------- */

/* Its schedule "constant" has no warm-up, whatever the other keys say. */
static enum status drop_warmup(struct foreign *f, const char *key)
{
    if (strcmp(foreign_text(f, key, ""), "constant") != 0)
        return OK;
    static const char *const given[] = {"warmup_ratio", "warmup_steps"};
    for (int i = 0; i < 2; i++)
        if (foreign_find(f, given[i]) && !foreign_is_off(foreign_find(f, given[i])))
            TRY(foreign_say(f, given[i], foreign_text(f, given[i], ""),
                            "not used: constant has no warm-up, constant_with_warmup has"));
    f->values[OPTION_warmup_steps].text = NULL;
    return set_at(f, OPTION_warmup_ratio, "0", key);
}

/* The type of the first key that is true. */
static enum status set_type(struct foreign *f, const char *const keys[], const char *type)
{
    for (int i = 0; keys[i]; i++)
        if (foreign_is_true(f, keys[i]))
            return set_at(f, OPTION_dtype, type, keys[i]);
    return OK;
}

/* --- Axolotl ------------------------------------------------------------------------------------------------------------- */

static enum status axolotl_type(struct foreign *f)
{
    static const char *const half[] = {"fp16", "float16", NULL}, *const brain[] = {"bf16", "bfloat16", NULL};
    const char *bf16 = foreign_text(f, "bf16", "auto");
    bool given = foreign_find(f, "bf16") || foreign_find(f, "fp16") || foreign_find(f, "float32");
    if (given && !foreign_in_words("auto", bf16))
        TRY(set_at(f, OPTION_dtype, "float32", foreign_find(f, "bf16") ? "bf16" : "fp16"));
    TRY(set_type(f, half, "float16"));
    TRY(set_type(f, brain, "bfloat16"));
    if (foreign_in_words("full", bf16))
        TRY(set_at(f, OPTION_dtype, "bfloat16", "bf16"));
    if (foreign_find(f, "bf16") && foreign_in_words("auto", bf16) && !f->values[OPTION_dtype].text)
        TRY(set_at(f, OPTION_dtype, "auto", "bf16"));
    return foreign_is_true(f, "float32") ? set_at(f, OPTION_dtype, "float32", "float32") : OK;
}

static enum status axolotl_adapter(struct foreign *f)
{
    const struct yaml_node *adapter = foreign_find(f, "adapter");
    if (!adapter)
        return OK;
    if (!foreign_in_words("lora,qlora", adapter->text))
        return foreign_refuse(f, adapter, "adapter", "hone has lora and qlora, and without an adapter all weights");
    TRY(foreign_set(f, OPTION_finetuning_type, adapter->text, adapter, "adapter"));
    if (!f->values[OPTION_init_adapter].text && (!f->values[OPTION_lora_r].text || !f->values[OPTION_lora_alpha].text))
        TRY(foreign_refuse(f, adapter, "adapter", "lora_r and lora_alpha are needed with it: Axolotl has no defaults for them"));
    if (foreign_is_true(f, "lora_target_linear"))
        return set_at(f, OPTION_lora_target_modules, "all-linear", "lora_target_linear");
    return OK;
}

static enum status axolotl_batch(struct foreign *f)
{
    double all = foreign_number(f, "batch_size", 0), micro = foreign_number(f, "micro_batch_size", 1);
    if (!(all > 0) || foreign_find(f, "gradient_accumulation_steps"))
        return OK;
    if (!(micro > 0) || floor(all / micro) != all / micro)
        return foreign_refuse(f, foreign_find(f, "batch_size"), "batch_size", "micro_batch_size must divide it");
    return foreign_set_real(f, OPTION_gradient_accumulation_steps, all / micro, foreign_find(f, "batch_size"), "batch_size");
}

/* It counts only with the cosine, which is also what is taken if no schedule is named. */
static enum status axolotl_lowest(struct foreign *f)
{
    const struct yaml_node *lowest = foreign_find(f, "cosine_min_lr_ratio");
    if (!lowest || foreign_is_off(lowest) || strcmp(foreign_text(f, "lr_scheduler", "cosine"), "cosine") != 0)
        return OK;
    if (lowest->kind != YAML_SCALAR)
        return foreign_refuse(f, lowest, "cosine_min_lr_ratio", "one value is needed");
    TRY(foreign_set(f, OPTION_lr_scheduler_type, "cosine_with_min_lr", lowest, "cosine_min_lr_ratio"));
    return foreign_set(f, OPTION_min_lr_rate, lowest->text, lowest, "cosine_min_lr_ratio");
}

enum status finish_axolotl(struct foreign *f)
{
    TRY(axolotl_type(f));
    TRY(axolotl_adapter(f));
    TRY(axolotl_batch(f));
    TRY(axolotl_lowest(f));
    TRY(drop_warmup(f, "lr_scheduler"));
    TRY(foreign_data_list(f, "datasets", OPTION_dataset_path));
    TRY(foreign_data_list(f, "test_datasets", OPTION_eval_dataset_path));
    if (!f->values[OPTION_learning_rate].text)
        return foreign_refuse(f, f->root, "learning_rate", "it is missing, and Axolotl has no default for it");
    return OK;
}

/* --- LLaMA-Factory ------------------------------------------------------------------------------------------------------- */

static enum status factory_bits(struct foreign *f)
{
    const struct yaml_node *bits = foreign_find(f, "quantization_bit");
    if (!bits)
        return OK;
    if (strcmp(bits->text, "4") == 0)
        return foreign_set(f, OPTION_load_in_4bit, "true", bits, "quantization_bit");
    if (strcmp(bits->text, "8") == 0)
        return foreign_say(f, "quantization_bit", "8", "the weights keep their own type: exact, and more memory");
    return foreign_refuse(f, bits, "quantization_bit", "hone has 4");
}

enum status finish_factory(struct foreign *f)
{
    static const char *const half[] = {"fp16", NULL}, *const brain[] = {"bf16", "pure_bf16", NULL};
    double rank = foreign_number(f, "lora_rank", 8);
    const char *packing = foreign_text(f, "packing", "false");
    if (foreign_in_words("true,yes,on", packing) && !foreign_is_true(f, "neat_packing"))
        TRY(foreign_say(f, "packing", packing, "rows of a window do not see each other, as with neat_packing"));
    if (foreign_is_true(f, "neat_packing"))
        TRY(set_at(f, OPTION_packing, "true", "neat_packing"));
    else if (strcmp(foreign_text(f, "stage", "sft"), "pt") == 0 && !foreign_find(f, "packing"))
        TRY(set_at(f, OPTION_packing, "true", "stage"));
    if (!f->values[OPTION_lora_alpha].text && !f->values[OPTION_init_adapter].text &&
        strcmp(foreign_text(f, "finetuning_type", "lora"), "lora") == 0)
        TRY(foreign_set_real(f, OPTION_lora_alpha, 2 * rank, foreign_find(f, "lora_rank"), "twice lora_rank"));
    TRY(set_type(f, half, "float16"));
    TRY(set_type(f, brain, "bfloat16"));
    TRY(factory_bits(f));
    TRY(drop_warmup(f, "lr_scheduler_type"));
    TRY(foreign_data_info(f, "dataset", OPTION_dataset_path));
    return foreign_data_info(f, "eval_dataset", OPTION_eval_dataset_path);
}

/* --- TRL ----------------------------------------------------------------------------------------------------------------- */

/* By default TRL computes in bfloat16, whatever type the weights are loaded in; a file with only that type means the run's. */
static enum status trl_type(struct foreign *f)
{
    const char *loaded = foreign_find(f, "dtype") ? "dtype" : "torch_dtype";
    if (foreign_is_true(f, "fp16"))
        return set_at(f, OPTION_dtype, "float16", "fp16");
    if (foreign_is_true(f, "bf16"))
        return set_at(f, OPTION_dtype, "bfloat16", "bf16");
    if (!foreign_find(f, "bf16") && foreign_in_words("auto", foreign_text(f, loaded, "auto")))
        return OK;
    return set_at(f, OPTION_dtype, foreign_text(f, loaded, "float32"), foreign_find(f, loaded) ? loaded : "bf16");
}

static enum status trl_length(struct foreign *f)
{
    const char *names[] = {"max_seq_length", "max_length"};
    for (int i = 0; i < 2; i++) {
        const struct yaml_node *node = yaml_member(f->root, names[i]);
        if (node)
            TRY(foreign_set(f, OPTION_max_length, node->kind == YAML_NULL ? "0" : node->text, node, names[i]));
    }
    return OK;
}

/* The loss of a row with a completion is that of the completion, unless it is asked for all of it. Strings are joined. */
static enum status trl_loss(struct foreign *f)
{
    static const char *const keys[] = {"completion_only_loss", "assistant_only_loss"};
    const char *paths = f->given->dataset_path ? f->given->dataset_path : f->values[OPTION_dataset_path].text;
    enum foreign_completion completion = COMPLETION_NONE;
    if (paths)
        TRY(foreign_find_completion(f, paths, &completion));
    if (completion == COMPLETION_STRING)
        TRY(foreign_set(f, OPTION_raw, "true", NULL, "it joins prompts and completions that are strings"));
    for (int i = 0; i < 2; i++)
        if (foreign_is_true(f, keys[i]))
            return set_at(f, OPTION_train_on_inputs, "false", keys[i]);
    bool only = completion && !foreign_find(f, keys[0]);
    return only ? foreign_set(f, OPTION_train_on_inputs, "false", NULL, "its rows have completions") : OK;
}

/* The split of a directory to validate on. */
static enum status trl_validation(struct foreign *f)
{
    const char *dir = f->values[OPTION_dataset_path].text, *strategy = foreign_text(f, "eval_strategy", "no");
    bool has = f->values[OPTION_val_set_size].text || f->values[OPTION_eval_dataset_path].text || f->given->eval_dataset_path;
    if ((!dir && !has) || foreign_in_words("no", strategy))
        return OK;
    const char *path = has ? "" : arena_format(f->arena, "%s/%s.jsonl", dir, foreign_text(f, "dataset_test_split", "test"));
    if (!path)
        return ERR_MEMORY;
    if (!has && !(file_is_directory(dir) && file_exists(path)))
        return foreign_say(f, "eval_strategy", strategy,
                           "the data has no file for it: --eval-data names one, --val-set-size holds rows back");
    if (!has)
        TRY(set_at(f, OPTION_eval_dataset_path, path,
                   foreign_find(f, "dataset_test_split") ? "dataset_test_split" : "eval_strategy"));
    return foreign_in_words("epoch", strategy) ? set_at(f, OPTION_evals_per_epoch, "1", "eval_strategy") : OK;
}

enum status finish_trl(struct foreign *f)
{
    if (foreign_find(f, "dataset_name"))
        TRY(set_at(f, OPTION_dataset_path, foreign_text(f, "dataset_name", ""), "dataset_name"));
    TRY(foreign_data_list(f, "datasets", OPTION_dataset_path));
    if (foreign_find(f, "use_peft"))
        TRY(set_at(f, OPTION_finetuning_type, foreign_is_true(f, "use_peft") ? "lora" : "full", "use_peft"));
    TRY(trl_type(f));
    TRY(trl_length(f));
    TRY(trl_loss(f));
    TRY(trl_validation(f));
    return drop_warmup(f, "lr_scheduler_type");
}

/* --- MLX-LM -------------------------------------------------------------------------------------------------------------- */

/* MLX-LM counts batches, hone steps. */
static enum status mlx_steps(struct foreign *f)
{
    static const struct {
        const char *key;
        enum option option;
        double otherwise;
    } counts[] = {
        {"iters", OPTION_max_steps, 1000}, {"steps_per_eval", OPTION_eval_steps, 200}, {"save_every", OPTION_save_steps, 100}};
    double per_step = foreign_number(f, "grad_accumulation_steps", 1);
    for (int i = 0; i < 3; i++) {
        double n = floor(foreign_number(f, counts[i].key, counts[i].otherwise) / (per_step >= 1 ? per_step : 1));
        TRY(foreign_set_real(f, counts[i].option, n < 1 ? 1 : n, foreign_find(f, counts[i].key), counts[i].key));
    }
    return OK;
}

static enum status mlx_schedule(struct foreign *f)
{
    const struct yaml_node *schedule = foreign_find(f, "lr_schedule"), *name = foreign_find(f, "lr_schedule.name");
    const struct yaml_node *arguments = foreign_find(f, "lr_schedule.arguments");
    if (!schedule)
        return OK;
    bool cosine = name && strcmp(name->text, "cosine_decay") == 0, linear = name && strcmp(name->text, "linear_schedule") == 0;
    if (!cosine && !linear)
        return foreign_refuse(f, name ? name : schedule, "lr_schedule.name", "hone has cosine_decay and linear_schedule");
    const struct yaml_node *rate = arguments ? arguments->first : NULL, *second = rate ? rate->next : NULL;
    const struct yaml_node *third = second ? second->next : NULL, *steps = cosine ? second : third,
                           *end = cosine ? third : second;
    if (!rate || !steps)
        return foreign_refuse(f, schedule, "lr_schedule.arguments", "the rate and the number of steps are needed");
    const char *run = f->values[OPTION_max_steps].text;
    char left[32];
    snprintf(left, sizeof left, "%.15g", strtod(run, NULL) - foreign_number(f, "lr_schedule.warmup", 0));
    if (strcmp(steps->text, run) != 0 && strcmp(steps->text, left) != 0)
        return foreign_refuse(f, arguments, "lr_schedule.arguments",
                              "hone's schedules end with the run: the steps must be iters / grad_accumulation_steps");
    if (end && !foreign_is_off(end))
        TRY(foreign_say(f, "lr_schedule.arguments", end->text, "the rate ends at 0"));
    TRY(foreign_set(f, OPTION_learning_rate, rate->text, rate, "lr_schedule.arguments"));
    return foreign_set(f, OPTION_lr_scheduler_type, cosine ? "cosine" : "linear", name, "lr_schedule.name");
}

static enum status mlx_optimizer(struct foreign *f)
{
    const char *name = foreign_text(f, "optimizer", "adam");
    const struct yaml_node *all = foreign_find(f, "optimizer_config");
    bool decays = strcmp(name, "adamw") == 0;
    if (!foreign_find(f, "optimizer"))
        TRY(foreign_say(f, "optimizer", "adam", "with the bias correction that MLX-LM leaves out"));
    if (decays) /* MLX's default */
        TRY(set_at(f, OPTION_weight_decay, "0.01", "optimizer"));
    for (const struct yaml_node *n = yaml_member(all, name) ? yaml_member(all, name)->first : NULL; n; n = n->next) {
        const struct yaml_node *beta = n->kind == YAML_LIST ? n->first : NULL;
        if (strcmp(n->key, "betas") == 0 && beta && beta->next) {
            TRY(foreign_set(f, OPTION_adam_beta1, beta->text, n, "optimizer_config: betas"));
            TRY(foreign_set(f, OPTION_adam_beta2, beta->next->text, n, "optimizer_config: betas"));
        } else if (strcmp(n->key, "eps") == 0) {
            TRY(foreign_set(f, OPTION_adam_epsilon, n->text, n, "optimizer_config: eps"));
        } else if (strcmp(n->key, "weight_decay") == 0 && decays) {
            TRY(foreign_set(f, OPTION_weight_decay, n->text, n, "optimizer_config: weight_decay"));
        } else if (strcmp(n->key, "bias_correction") != 0) {
            TRY(foreign_refuse(f, n, n->key, "hone has betas, eps and weight_decay"));
        }
    }
    return OK;
}

/* The layers of the model, from its config.json; 0: there is none. */
static enum status tool_count_layers(const struct foreign *f, const char *model, int64_t *layers)
{
    json_t *tree = NULL;
    const char *path = file_join(f->arena, model, "config.json");
    *layers = 0;
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return OK;
    TRY(json_parse_file(&tree, path, 1 << 20));
    const json_t *inner = json_member(tree, "text_config");
    enum status status = json_get_int(inner ? inner : tree, "num_hidden_layers", layers, path);
    json_decref(tree);
    if (status == OK && (*layers < 0 || *layers > LAYERS_MAX))
        return fail(ERR_FORMAT, "%s: a model of %lld layers is not one that hone knows", path, (long long)*layers);
    return status;
}

/* The names of the modules in layers [first, end), each by itself. */
static enum status name_layers(struct foreign *f, const char *names, int64_t first, int64_t end, const char **out)
{
    struct foreign_list list = {0};
    for (int64_t layer = first; layer < end; layer++) {
        char before[32];
        snprintf(before, sizeof before, "layers.%lld.", (long long)layer);
        for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',') {
            TRY(foreign_join(f, &list, before, (int64_t)strlen(before)));
            TRY(foreign_append(f, &list, at, (int64_t)strcspn(at, ",")));
        }
    }
    *out = list.text ? list.text : "";
    return OK;
}

static enum status mlx_layers(struct foreign *f)
{
    const char *key = foreign_find(f, "lora_layers") ? "lora_layers" : "num_layers";
    const struct yaml_node *node = foreign_find(f, key), *keys = foreign_find(f, "lora_parameters.keys");
    const char *model = f->given->model_name_or_path ? f->given->model_name_or_path : foreign_text(f, "model", "");
    const char *names = "all-linear";
    double asked = floor(foreign_number(f, key, 16));
    bool full = strcmp(foreign_text(f, "fine_tune_type", "lora"), "full") == 0;
    int64_t layers = 0;
    enum status status = OK;
    if (!node && !keys && f->values[OPTION_lora_target_modules].text)
        return OK;
    if (asked > 0)
        status = tool_count_layers(f, model, &layers);
    if (status != OK)
        return fail_at(status, "%s:%d (%s): ", f->path, node ? node->line : 1, key);
    if (asked > 0 && !layers)
        return foreign_refuse(
            f, node ? node : f->root, key,
            "it counts from the last layer, and the model is no directory here: give it with --model, or -1 for all");
    bool all = !(asked > 0) || asked >= (double)layers;
    if (full)
        return all ? OK : foreign_refuse(f, node ? node : f->root, key, "hone trains all layers with full: -1 means all");
    if (keys) {
        TRY(foreign_joined(f, keys, &names));
        if (!names || !*names)
            return foreign_refuse(f, keys, "lora_parameters.keys", "a list of names is needed");
    }
    if (!all)
        TRY(name_layers(f,
                        keys ? names
                             : "self_attn.q_proj,self_attn.k_proj,self_attn.v_proj,self_attn.o_proj,mlp.gate_proj,mlp.up_proj,"
                               "mlp.down_proj",
                        layers - (int64_t)asked, layers, &names));
    return foreign_set(f, OPTION_lora_target_modules, names, keys ? keys : node, keys ? "lora_parameters.keys" : key);
}

enum status finish_mlx(struct foreign *f)
{
    const struct yaml_node *scale = foreign_find(f, "lora_parameters.scale");
    if (strcmp(foreign_text(f, "fine_tune_type", "lora"), "full") != 0) {
        double alpha = foreign_number(f, "lora_parameters.scale", 20) * foreign_number(f, "lora_parameters.rank", 8);
        TRY(foreign_set_real(f, OPTION_lora_alpha, alpha, scale, "lora_parameters.scale times the rank"));
    }
    TRY(mlx_steps(f));
    TRY(mlx_optimizer(f));
    TRY(mlx_schedule(f));
    return mlx_layers(f);
}
