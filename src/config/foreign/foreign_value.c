/* The values of other tools in hone's words: one function for each `how` of foreign.def. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/foreign/state.h"
#include "config/option_table.h"

static bool foreign_value_is_true(const char *text)
{
    return foreign_in_words("true,yes,on,1", text);
}

static enum status set_bool(struct foreign *f, enum option option, bool value, const struct yaml_node *node, const char *key)
{
    return foreign_set(f, option, value ? "true" : "false", node, key);
}

enum status value_inverse(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    return set_bool(f, row->option, !foreign_value_is_true(node->text), node, key);
}

enum status value_mask(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    if (foreign_value_is_true(node->text))
        TRY(foreign_say(f, key, node->text, "of a chat all answers are trained, not only the last"));
    return value_inverse(f, row, node, key);
}

enum status value_truth(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    return set_bool(f, row->option, foreign_value_is_true(node->text), node, key);
}

enum status value_cpu(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    return foreign_value_is_true(node->text) ? foreign_set(f, row->option, "cpu", node, key) : OK;
}

enum status value_excess(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    bool raise = foreign_in_words("raise", node->text);
    return foreign_set(f, row->option, raise ? "error" : node->text, node, key);
}

enum status value_packing(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    if (!foreign_is_true(f, "packing") || foreign_in_words("bfd", node->text))
        return OK;
    if (foreign_in_words("bfd_split,bfd-requeue", node->text))
        return foreign_set(f, row->option, "split", node, key);
    return foreign_refuse(f, node, key, "hone packs whole rows, as bfd does, and cuts none in the middle");
}

enum status value_method(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    if (f->tool->tool == MLX && foreign_in_words("full", node->text))
        TRY(foreign_say(f, key, node->text, "the embeddings, the last norm and the head are trained too"));
    if (foreign_in_words("lora,full", node->text))
        return foreign_set(f, row->option, node->text, node, key);
    return foreign_refuse(f, node, key, "hone has lora and full");
}

enum status value_targets(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    const char *names;
    TRY(foreign_joined(f, node, &names));
    if (!names)
        return foreign_refuse(f, node, key, "names are needed");
    return foreign_set(f, row->option, strcmp(names, "all") == 0 ? "all-linear" : names, node, key);
}

/* What is exact here is rounded there; the trained model is that of the exact one. */
static const char exact[] = "exact, its state is not rounded to fewer bits: more memory";
static const char corrected[] = "with the bias correction that MLX-LM leaves out";

enum status value_optimizer(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    static const struct {
        const char *words, *optim, *said;
    } known[] = {
        {"adamw,adamw_torch,adamw_torch_fused,adamw_torch_xla,adamw_torch_npu_fused,adamw_hf,adamw_apex_fused,paged_adamw,"
         "paged_adamw_32bit",
         "adamw", NULL},
        {"adamw_8bit,adamw_bnb_8bit,paged_adamw_8bit,adamw_torch_8bit,adamw_torch_4bit", "adamw", exact},
        {"lion,lion_32bit,lion_pytorch,paged_lion,paged_lion_32bit", "lion", NULL},
        {"lion_8bit,paged_lion_8bit", "lion", exact},
    };
    bool mlx = f->tool->tool == MLX;
    if (mlx && foreign_in_words("adam,adamw", node->text)) {
        TRY(foreign_say(f, key, node->text, corrected));
        return foreign_set(f, row->option, "adamw", node, key);
    }
    for (size_t i = 0; !mlx && i < sizeof known / sizeof *known; i++)
        if (foreign_in_words(known[i].words, node->text)) {
            if (known[i].said)
                TRY(foreign_say(f, key, node->text, known[i].said));
            return foreign_set(f, row->option, known[i].optim, node, key);
        }
    return foreign_refuse(f, node, key, "hone has adamw and lion");
}

/* Words that hone has are taken, so a schedule that it learns is known here at once. */
enum status value_scheduler(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    char why[WORDS_SIZE + 16], takes[WORDS_SIZE];
    if (foreign_in_words("constant_with_warmup", node->text))
        return foreign_set(f, row->option, "constant", node, key);
    if (options_choice(row->option, node->text) >= 0)
        return foreign_set(f, row->option, node->text, node, key);
    table_takes(&option_table[row->option], takes);
    snprintf(why, sizeof why, "hone has %s", takes);
    return foreign_refuse(f, node, key, why);
}

static bool is_fraction(const char *text)
{
    char *end;
    double x = strtod(text, &end);
    return end != text && !*end && x > 0 && x < 1;
}

enum status value_warmup(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    return foreign_set(f, is_fraction(node->text) ? OPTION_warmup_ratio : row->option, node->text, node, key);
}

enum status value_steps(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    return foreign_set(f, row->option, strcmp(node->text, "-1") == 0 ? "0" : node->text, node, key);
}

/* How often a run validates and saves is free: a part of its steps, which are not known yet, is left out. */
static enum status say_interval(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    bool saves = row->option == OPTION_save_steps || row->option == OPTION_saves_per_epoch;
    return foreign_say(f, key, node->text,
                       saves ? "hone saves every --save-steps steps, or --saves-per-epoch times an epoch"
                             : "hone validates every --eval-steps steps, or --evals-per-epoch times an epoch");
}

/* With the strategy epoch, transformers does not look at the number of steps. */
enum status value_interval(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    bool saves = row->option == OPTION_save_steps;
    const char *strategy = foreign_text(f, saves ? "save_strategy" : "eval_strategy", "");
    if (!saves && !*strategy)
        strategy = foreign_text(f, "evaluation_strategy", "");
    if (foreign_in_words("epoch", strategy))
        return foreign_say(f, key, node->text, "not used: the strategy is epoch");
    if (saves && foreign_in_words("no", strategy))
        return foreign_say(f, key, node->text, "not used: the strategy is no");
    return is_fraction(node->text) ? say_interval(f, row, node, key) : foreign_set(f, row->option, node->text, node, key);
}

static bool has_validation(struct foreign *f)
{
    static const char *const keys[] = {"val_size", "val_set_size", "eval_dataset", "test_datasets"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct yaml_node *node = foreign_find(f, keys[i]);
        if (node && !foreign_is_off(node))
            return true;
    }
    return false;
}

/* Without validation data nothing is validated, and a run without checkpoints in between saves at its end. */
enum status value_strategy(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    bool saves = row->option == OPTION_saves_per_epoch;
    if (foreign_in_words("epoch", node->text))
        return foreign_set(f, row->option, "1", node, key);
    if (foreign_is_off(node) && saves)
        return foreign_set(f, OPTION_save_steps, "0", node, key);
    if (foreign_is_off(node))
        return has_validation(f) ? foreign_say(f, key, node->text, "hone validates on what there is for it: leave that out too")
                                 : OK;
    return foreign_in_words("steps", node->text) ? OK : say_interval(f, row, node, key);
}

/* A column of another name; what a key of the tool's data is called in hone's rows follows from the key. */
enum status value_column(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    bool pair = foreign_in_words("prompt_feature,completion_feature", key);
    const char *ours = strstr(key, "field_messages") || strstr(key, "chat_feature") ? "messages" : "text";
    const char *prompt = foreign_text(f, "prompt_feature", "prompt");
    const char *completion = foreign_text(f, "completion_feature", "completion");
    const char *known = pair ? "prompt,completion" : strcmp(ours, "messages") == 0 ? "messages,conversations" : ours;
    const struct yaml_node *sets = strchr(key, '[') ? foreign_find(f, "datasets") : NULL;
    if (f->given->source[OPTION_dataset_path] || foreign_in_words(known, node->text))
        return OK;
    if (sets && sets->first && sets->first->next)
        return foreign_refuse(f, node, key, "rename the column: of several data sets all have the same columns");
    const char *pairs = pair ? arena_format(f->arena, "prompt=%s,completion=%s", prompt, completion)
                             : arena_format(f->arena, "%s=%s", ours, node->text);
    return pairs ? foreign_set(f, row->option, pairs, node, key) : ERR_MEMORY;
}

static const char metrics[] =
    "every step is in metrics.jsonl, which examples/metrics_to.py sends to W&B and MLflow (docs/metrics.md)";

/* The trackers besides TensorBoard, which hone has. */
static enum status leave_trackers(struct foreign *f, const char *key, const char *names)
{
    struct foreign_list list = {0};
    for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',') {
        int64_t n = (int64_t)strcspn(at, ",");
        const char *name = arena_text(f->arena, at, n);
        if (!name)
            return ERR_MEMORY;
        if (!foreign_in_words("tensorboard,none,true", name))
            TRY(foreign_join(f, &list, name, n));
    }
    return list.text ? foreign_leave(f, key, list.text, metrics) : OK;
}

enum status value_report(struct foreign *f, const struct foreign_row *row, const struct yaml_node *node, const char *key)
{
    const char *names;
    TRY(foreign_joined(f, node, &names));
    if (!names)
        return foreign_refuse(f, node, key, "names are needed");
    if (foreign_in_words(names, "tensorboard") || foreign_value_is_true(names))
        TRY(foreign_set(f, row->option, "tensorboard", node, key));
    return foreign_is_off(node) ? OK : leave_trackers(f, key, names);
}
