/* hone inspect adapter and checkpoint: what an adapter and what a checkpoint is, only from its files: no model is opened. Both
 * may come from somewhere else, so of their JSON only known keys are taken, and only plain values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksums.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/name.h"
#include "base/number.h"
#include "commands/commands.h"
#include "format/adapter.h"
#include "format/safetensors.h"
#include "models/verify_files.h"
#include "state/checkpoint.h"

enum { RUN_BYTES_MAX = 1 << 24 };

/* --- tensors -------------------------------------------------------------------------------------------------------------- */

struct tensors {
    int64_t count, pairs, parameters, bytes, not_finite;
    bool changes; /* a B is not 0: the adapter does something */
    json_t *modules, *dtypes;
};

/* The bits of a number's exponent, all of which are set if it is not finite; 0: of a type that is not looked into. */
static uint32_t exponent_of(enum safetensors_dtype dtype)
{
    return dtype == SAFETENSORS_F32 ? 0x7f800000 : dtype == SAFETENSORS_F16 ? 0x7c00 : dtype == SAFETENSORS_BF16 ? 0x7f80 : 0;
}

static void inspect_adapter_look(struct tensors *all, const struct safetensors_tensor *t, bool b)
{
    uint32_t exponent = exponent_of(t->dtype);
    int64_t size = safetensors_dtype_bits(t->dtype) / 8;
    for (int64_t at = 0; exponent && at + size <= t->bytes; at += size) {
        uint32_t bits = 0;
        memcpy(&bits, t->data + at, (size_t)size); /* little-endian, at any address */
        all->not_finite += (bits & exponent) == exponent;
        all->changes |= b && bits;
    }
    file_map_drop(t->map, t->offset, t->bytes);
}

static void count_in(json_t *object, const char *key)
{
    json_object_set_new(object, key, json_integer(json_integer_value(json_object_get(object, key)) + 1));
}

/* "q_proj" of "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". */
static void count_module(json_t *modules, const char *name, size_t end)
{
    size_t begin = end;
    char last[NAME_SIZE];
    while (begin && name[begin - 1] != '.')
        begin--;
    snprintf(last, sizeof last, "%.*s", (int)(end - begin), name + begin);
    count_in(modules, last);
}

static const char a_part[] = ".lora_A.weight", b_part[] = ".lora_B.weight";

/* What every model would refuse. A pair of experts is left to the model, which knows how many of them share it. */
static enum status inspect_adapter_check_half(const struct adapter_config *config, const struct safetensors_tensor *t, bool b,
                                              const char *dir)
{
    char module[NAME_SIZE];
    size_t n = strlen(t->name), prefix = strncmp(t->name, ADAPTER_PREFIX, strlen(ADAPTER_PREFIX)) ? 0 : strlen(ADAPTER_PREFIX);
    snprintf(module, sizeof module, "%.*s", (int)(n - prefix - strlen(b ? b_part : a_part)), t->name + prefix);
    if (config->parameter_count && (name_ends_with(module, ".experts") || name_ends_with(module, ".base_layer")))
        return OK;
    if (!adapter_targets(config, module, ""))
        return fail(ERR_FORMAT,
                    "%s: has tensor %s, which \"target_modules\" of adapter_config.json does not name: are both of one "
                    "adapter?",
                    dir, t->name);
    int64_t rank = t->rank == 2 ? t->shape[b] : 0, wanted = adapter_rank(config, module);
    return rank == wanted
               ? OK
               : fail(ERR_FORMAT, "%s: tensor %s has rank %lld, adapter_config.json asks for %lld: are both of one adapter?", dir,
                      t->name, (long long)rank, (long long)wanted);
}

/* A model that has such a module refuses the adapter; what has none is not known here. */
static void report_not_saved(const struct safetensors *file, const struct adapter_config *config, const char *dir)
{
    for (int64_t k = 0; k < min(config->saved_count, ADAPTER_SAVED_TOLD); k++) {
        bool found = false;
        for (int64_t i = 0; i < safetensors_count(file) && !found; i++)
            found = adapter_saves_by(config, k, safetensors_at(file, i)->name);
        if (!found)
            log_message(LOG_WARNING,
                        "%s: \"modules_to_save\" names \"%s\", and no tensor is of such a module: with a model that has one the "
                        "adapter is refused",
                        dir, config->saved[k]);
    }
}

static enum status read_tensors(struct tensors *all, const struct safetensors *file, const struct adapter_config *config,
                                const char *dir)
{
    report_not_saved(file, config, dir);
    all->count = safetensors_count(file);
    for (int64_t i = 0; i < all->count; i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        int64_t elements = 1;
        for (int d = 0; d < t->rank; d++)
            elements *= t->shape[d];
        bool pair = name_ends_with(t->name, a_part), b = name_ends_with(t->name, b_part);
        if (pair || b)
            TRY(inspect_adapter_check_half(config, t, b, dir));
        all->pairs += pair;
        all->parameters += elements;
        all->bytes += t->bytes;
        count_in(all->dtypes, safetensors_dtype_name(t->dtype));
        if (pair || !b)
            count_module(all->modules, t->name, strlen(t->name) - (pair ? strlen(a_part) : strlen(".weight")));
        inspect_adapter_look(all, t, b || !pair);
    }
    if (all->not_finite)
        log_message(LOG_WARNING, "%s: %lld of the adapter's numbers are not finite: no model can be used with it", dir,
                    (long long)all->not_finite);
    return OK;
}

/* --- adapters ------------------------------------------------------------------------------------------------------------- */

static json_t *names_json(const char *const *names, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_lossy(names[i]));
    return list;
}

static json_t *patterns_json(const struct adapter_pattern *pattern, int64_t count)
{
    json_t *object = json_object();
    for (int64_t i = 0; i < count; i++)
        json_object_set_new(object, pattern[i].module, json_real(pattern[i].value));
    return object;
}

static json_t *inspect_adapter_config_json(const struct adapter_config *c)
{
    json_t *tree =
        json_pack("{s:o?, s:I, s:f, s:f, s:b, s:o}", "base", c->base_model ? json_lossy(c->base_model) : NULL, "rank",
                  (json_int_t)c->rank, "alpha", c->alpha, "dropout", c->dropout, "rslora", (int)c->rslora, "target_modules",
                  c->all_linear ? json_string("all-linear") : names_json(c->targets, c->target_count));
    if (c->parameter_count)
        json_object_set_new(tree, "target_parameters", names_json(c->parameters, c->parameter_count));
    if (c->rank_patterns)
        json_object_set_new(tree, "rank_pattern", patterns_json(c->rank_pattern, c->rank_patterns));
    if (c->alpha_patterns)
        json_object_set_new(tree, "alpha_pattern", patterns_json(c->alpha_pattern, c->alpha_patterns));
    if (c->saved_count)
        json_object_set_new(tree, "modules_to_save", names_json(c->saved, c->saved_count));
    return tree;
}

static enum status open_tensors(struct arena *arena, const char *dir, struct safetensors **file)
{
    const char *path = file_join(arena, dir, "adapter_model.safetensors");
    if (!path)
        return ERR_MEMORY;
    return file_exists(path) ? safetensors_open(file, path) : fail_no_adapter_weights(arena, dir);
}

/* Sets the keys of an adapter in a tree. */
static enum status inspect_adapter_describe(struct arena *arena, const char *dir, json_t *tree)
{
    struct adapter_config config;
    struct safetensors *file = NULL;
    TRY(adapter_config_open(&config, dir));
    struct tensors all = {.modules = json_object(), .dtypes = json_object()};
    json_t *keys = inspect_adapter_config_json(&config);
    enum status status = open_tensors(arena, dir, &file);
    if (status == OK)
        status = read_tensors(&all, file, &config, dir);
    if (status == OK) {
        json_object_update(tree, keys);
        json_t *found =
            json_pack("{s:O, s:I, s:I, s:I, s:I, s:O, s:b, s:b}", "modules", all.modules, "pairs", (json_int_t)all.pairs,
                      "tensors", (json_int_t)all.count, "parameters", (json_int_t)all.parameters, "bytes", (json_int_t)all.bytes,
                      "dtypes", all.dtypes, "finite", all.not_finite == 0, "changes_the_model", (int)all.changes);
        json_object_update(tree, found);
        json_decref(found);
    }
    json_decref(keys);
    json_decref(all.modules);
    json_decref(all.dtypes);
    safetensors_close(file);
    adapter_config_free(&config);
    return status;
}

/* --- runs ----------------------------------------------------------------------------------------------------------------- */

/* Copies the plain values of these keys (NULL after the last). */
static void inspect_adapter_take(json_t *to, const json_t *from, const char *const *keys)
{
    for (; *keys; keys++) {
        json_t *value = json_object_get(from, *keys);
        if (value && !json_is_object(value) && !json_is_array(value))
            json_object_set(to, *keys, value);
    }
}

/* What run.json next to a result says of its run. */
static enum status add_run(struct arena *arena, const char *dir, json_t *tree)
{
    static const char *const of_run[] = {"hone", "model", "method", "dtype", "device", "steps", NULL};
    static const char *const of_piece[] = {"how", "step", "ended", NULL};
    const char *path = file_join(arena, dir, RUN_FILE);
    json_t *file = NULL, *run = json_object();
    if (!path)
        return ERR_MEMORY;
    if (file_exists(path) && json_parse_file(&file, path, RUN_BYTES_MAX) == OK) {
        const json_t *pieces = json_object_get(file, "pieces");
        inspect_adapter_take(run, file, of_run);
        inspect_adapter_take(run, json_array_get(pieces, json_array_size(pieces) - 1), of_piece);
        json_object_set(tree, "run", run);
    }
    json_decref(file);
    json_decref(run);
    return OK;
}

/* Whether the files are those that were written, as `sound` says. */
static void add_damage(json_t *tree, enum status sound)
{
    json_object_set_new(tree, "whole", json_boolean(sound == OK));
    if (sound != OK)
        json_object_set_new(tree, "damage", json_lossy(status_message()));
}

/* What is damaged is reported, and not an error: the rest of it may still be seen. */
static enum status inspect_adapter(struct arena *arena, const char *dir, json_t *tree)
{
    json_object_set_new(tree, "kind", json_string("a LoRA adapter in PEFT's layout"));
    json_object_set_new(tree, "path", json_lossy(dir));
    enum status sound = verify_files_check(dir);
    if (sound == ERR_MEMORY)
        return sound;
    if (sound != OK || checksums_there(dir)) /* a checkpoint */
        add_damage(tree, sound);
    enum status status = inspect_adapter_describe(arena, dir, tree);
    if (sound != OK && status != ERR_MEMORY)
        return OK;
    return status == OK ? add_run(arena, dir, tree) : status;
}

/* --- checkpoints ---------------------------------------------------------------------------------------------------------- */

/* The directory itself, or the newest checkpoint in it. */
static enum status find_checkpoint(struct arena *arena, const char *dir, const char **found)
{
    static const char before[] = "checkpoint-";
    char run[RUN_ID_SIZE];
    const char **names, *newest = NULL;
    int64_t count, step = -1;
    *found = dir;
    if (checkpoint_dir_kind(dir, run) != CHECKPOINT_FOREIGN)
        return OK;
    if (!file_is_directory(dir))
        return fail(ERR_IO, "%s: no such directory: name a folder checkpoint-N, or the output of a run that has one", dir);
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        char *end;
        int64_t n = strncmp(names[i], before, strlen(before)) ? -1 : strtoll(names[i] + strlen(before), &end, 10);
        if (n > step && !*end) {
            step = n;
            newest = names[i];
        }
    }
    if (!newest)
        return fail(ERR_IO, "%s: no checkpoint there: name a folder checkpoint-N, or the output of a run that has one", dir);
    *found = file_join(arena, dir, newest);
    return *found ? OK : ERR_MEMORY;
}

static enum status add_state(const char *dir, json_t *tree)
{
    static const char *const of_place[] = {"version",
                                           "run",
                                           "step",
                                           "tokens",
                                           "skipped_steps",
                                           "eval_due",
                                           "best_step",
                                           "best_loss",
                                           "eval_loss",
                                           "first_loss",
                                           "first_eval_loss",
                                           "dtype",
                                           "device",
                                           "base",
                                           "micro_batch_tokens",
                                           NULL};
    static const char *const of_settings[] = {
        "finetuning_type", "learning_rate", "max_steps", "num_train_epochs", "seed", "optim", NULL};
    json_t *state = NULL, *settings = json_object();
    enum status status = checkpoint_dir_read(dir, &state);
    if (status == OK) {
        json_t *base = json_object_get(state, "base");
        inspect_adapter_take(tree, state, of_place);
        json_object_del(tree, "base");
        if (json_is_string(base))
            json_object_set(tree, "base_digest", base);
        inspect_adapter_take(settings, json_object_get(state, "settings"), of_settings);
        json_object_set(tree, "settings", settings);
    }
    json_decref(state);
    json_decref(settings);
    return status;
}

static enum status inspect_checkpoint(struct arena *arena, const char *named, json_t *tree)
{
    const char *dir;
    TRY(find_checkpoint(arena, named, &dir));
    json_object_set_new(tree, "kind", json_string("a checkpoint of hone"));
    json_object_set_new(tree, "path", json_lossy(dir));
    enum status sound = checksums_check(dir);
    if (sound == ERR_MEMORY)
        return sound;
    add_damage(tree, sound);
    const char *config = file_join(arena, dir, "adapter_config.json");
    enum status status = config ? add_state(dir, tree) : ERR_MEMORY;
    if (status == OK && file_exists(config)) {
        json_t *adapter = json_object();
        status = inspect_adapter_describe(arena, dir, adapter);
        json_object_set_new(tree, "adapter", adapter);
    }
    return sound == OK || status == ERR_MEMORY ? status : OK;
}

/* --- both ----------------------------------------------------------------------------------------------------------------- */

static enum status inspect_adapter_inspect(const struct options *o, const char *what,
                                           enum status (*look_at)(struct arena *arena, const char *dir, json_t *tree),
                                           json_t **report)
{
    const char *dir = o->run_dir ? o->run_dir : o->adapter;
    if (!dir)
        return fail(ERR_ARGUMENT, "hone inspect %s needs a directory: hone inspect %s DIR", what, what);
    struct arena arena = {0};
    json_t *tree = json_object();
    enum status status = look_at(&arena, dir, tree);
    arena_free(&arena);
    if (status == OK)
        *report = tree;
    else
        json_decref(tree);
    return status;
}

enum status command_inspect_adapter(const struct options *options, enum user_command command, json_t **report)
{
    (void)command;
    return inspect_adapter_inspect(options, "adapter", inspect_adapter, report);
}

enum status command_inspect_checkpoint(const struct options *options, enum user_command command, json_t **report)
{
    (void)command;
    return inspect_adapter_inspect(options, "checkpoint", inspect_checkpoint, report);
}
