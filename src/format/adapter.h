/* adapter_config.json of PEFT's LoRA adapters: which modules have a pair of matrices, of which rank and scale.
 *
 * Modules have the names of transformers ("model.layers.0.self_attn.q_proj"). Which name in the file means which module follows
 * PEFT 0.21 to the letter, where three lists match in three ways:
 *
 *     target_modules              a whole name, or its end at a dot; letter by letter
 *     target_parameters           the same, for parameters that are no module's weight
 *     rank_pattern, alpha_pattern the same, but a dot stands for any character, a leading '^' asks for the whole name, and the
 *                                 first of the list that matches wins
 *     modules_to_save             any end of a name, dot or not: "norm" means "input_layernorm" too
 *
 * Tensors in adapter_model.safetensors are named ADAPTER_PREFIX + module + ".lora_A.weight" [rank, in] and ".lora_B.weight"
 * [out, rank], and ADAPTER_PREFIX + module + ".weight" for every module that modules_to_save means: PEFT fails if one is missing.
 */
#ifndef FORMAT_ADAPTER_H
#define FORMAT_ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ADAPTER_PREFIX "base_model.model."

enum {
    ADAPTER_RANK_MAX = 65536,
    ADAPTER_SAVED_MAX = 1024,
    ADAPTER_SAVED_TOLD = 16
}; /* names of modules_to_save; of which some are named in messages */

struct adapter_pattern {
    const char *module; /* letters, digits and "_.-", perhaps after a '^' */
    double value;
};

struct adapter_config {
    struct arena arena;     /* owns the texts and lists that were read */
    const char *base_model; /* or NULL */
    int64_t rank;
    double alpha, dropout;
    bool rslora;
    bool all_linear; /* "all-linear": every module but the head; then there are no targets */
    bool whole;      /* target_modules is one text, not a list: a pattern of the whole name */
    bool nested;     /* the model is the text part of a larger one, and modules are named as there */
    const char **targets;
    int64_t target_count;
    const char **parameters; /* target_parameters: the matrices of all experts of a layer, which share one pair */
    int64_t parameter_count;
    struct adapter_pattern *rank_pattern, *alpha_pattern;
    int64_t rank_patterns, alpha_patterns;
    const char **saved; /* modules_to_save */
    int64_t saved_count;
};

/* The error for a path that is no adapter: what it is instead. */
enum status adapter_lost(struct arena *arena, const char *path);
/* The same for one that has only adapter_config.json. */
enum status fail_no_adapter_weights(struct arena *arena, const char *dir);

/* Reads dir/adapter_config.json. What PEFT supports and hone does not is ERR_UNSUPPORTED with the key's name; unknown keys are a
 * warning. A missing key has PEFT's default. */
enum status adapter_config_open(struct adapter_config *config, const char *dir);
void adapter_config_free(struct adapter_config *config);

/* Of that file only the base's name, in the arena; NULL if it has none. */
enum status adapter_read_base(struct arena *arena, const char *dir, const char **base);

/* Writes dir/adapter_config.json, whole or not at all. Patterns keep their order, since the first match wins. */
enum status adapter_config_write(const struct adapter_config *config, const char *dir);

/* Checks that ranks are whole numbers from 1 to ADAPTER_RANK_MAX, alphas finite in float32, the dropout in [0, 1), and a module
 * targeted. For a config made from options; open and write check it too. Fails with `code`, the message beginning with `where`.
 */
enum status adapter_config_check(const struct adapter_config *config, enum status code, const char *where);

/* Whether a linear module has a LoRA pair; `head` is the name of the model's head. One that modules_to_save names, or that is
 * inside such a module, has none. */
bool adapter_targets(const struct adapter_config *config, const char *module, const char *head);

/* The same for a parameter, by its module's name, a dot and its own; and whether one name means it. */
bool adapter_targets_parameter(const struct adapter_config *config, const char *parameter);
bool adapter_names(const struct adapter_config *config, const char *target, const char *module);
bool adapter_pattern_names(const struct adapter_config *config, const struct adapter_pattern *pattern, const char *module);

/* Whether a module is stored whole, because modules_to_save names it; and whether a weight is, by its own name, because that
 * names its module or one around it. */
bool adapter_saves(const struct adapter_config *config, const char *module);
bool adapter_saves_weight(const struct adapter_config *config, const char *weight);

/* The same by one of the names of modules_to_save. */
bool adapter_saves_by(const struct adapter_config *config, int64_t saved, const char *weight);

int64_t adapter_rank(const struct adapter_config *config, const char *module);
double adapter_scale(const struct adapter_config *config, const char *module); /* alpha / r, or alpha / sqrt(r) with rsLoRA */

/* "q_proj=8,layers.0.mlp.up_proj=4", in the arena. ERR_ARGUMENT names the option and the piece. */
enum status adapter_parse_patterns(struct arena *arena, const char *text, const char *option, struct adapter_pattern **out,
                                   int64_t *count);

/* "all-linear" in any case, or names separated by commas: sets the targets, in the config's arena. */
enum status adapter_parse_targets(struct adapter_config *config, const char *text, const char *option);

/* Names of parameters separated by commas, or "". */
enum status adapter_parse_parameters(struct adapter_config *config, const char *text, const char *option);

/* Whether an adapter's directory has a file of this name. */
bool adapter_is_file(const char *name);

#endif
