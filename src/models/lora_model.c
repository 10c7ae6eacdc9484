/* LoRA pairs of a model: initialising and checking them. */
#include "models/lora_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/name.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "models/experts.h"
#include "models/lora.h"

/* Numbers are made by all processors: an adapter of a small model already has millions, and a run waits for them. */
enum { DRAW_BLOCK = 4096 };

struct drawing {
    float *to, limit;
    uint64_t seed, stream;
};

static void draw_block(void *context, int64_t begin, int64_t end)
{
    const struct drawing *d = context;
    for (int64_t i = begin; i < end; i++)
        d->to[i] = (2 * philox_uniform(philox_inline(d->seed, d->stream, (uint64_t)i).word[0]) - 1) * d->limit;
}

/* The stream depends on the name, so a seed gives the same adapter whatever the order or subset of tensors. */
static void lora_model_draw(float *to, const struct tensor *t, uint64_t seed)
{
    struct drawing d = {
        .to = to, .limit = 1 / sqrtf((float)t->shape[1]), .seed = seed, .stream = hash_of(t->name, (int64_t)strlen(t->name)).low};
    parallel_for(tensor_elements(t), DRAW_BLOCK, draw_block, &d);
}

enum status lora_start(const struct model *m, struct engine *e, uint64_t seed)
{
    for (int64_t i = 0; i < m->store.count; i++) {
        const struct tensor *t = m->store.tensor[i];
        if (t->lifetime != LIFE_TRAINABLE || !lora_owns(t) || model_source(m, t))
            continue;
        float *values = memory_alloc(tensor_elements(t) * (int64_t)sizeof *values); /* B begins at 0 */
        if (!values)
            return ERR_MEMORY;
        if (lora_is_a(t))
            lora_model_draw(values, t, seed);
        enum status status = engine_upload(e, t, values, DTYPE_F32);
        if (status == OK && t->master)
            status = engine_upload(e, t->master, values, DTYPE_F32);
        memory_free(values);
        TRY(status);
    }
    return OK;
}

/* The module that a pair was added to; false: the tensor is of none. */
static bool module_of(const struct tensor *t, char module[static NAME_SIZE])
{
    const char *end = lora_module_end(t);
    snprintf(module, NAME_SIZE, "%.*s", end ? (int)(end - t->name) : 0, t->name);
    return end;
}

/* Whether a pair was added to a module because of this target. */
static bool is_target(const struct adapter_config *config, const struct tensor *t, const char *target)
{
    char module[NAME_SIZE];
    return module_of(t, module) && adapter_names(config, target, module);
}

static bool is_router(const struct model *m, const char *weight)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, ".%s.weight", m->family->experts ? m->family->experts->router : "");
    return m->family->experts && name_ends_with(weight, name);
}

/* Adds the last part of a linear layer's name, from that of its weight: "q_proj". */
static void add_linear(const struct model *m, const char *weight, char *text, size_t size)
{
    char last[NAME_SIZE];
    if (!family_in_layer(m->family, weight) || !name_ends_with(weight, ".weight") || is_router(m, weight))
        return;
    snprintf(last, sizeof last, "%.*s", (int)(strlen(weight) - strlen(".weight")), weight);
    const char *dot = strrchr(last, '.');
    size_t used = strlen(text);
    if (dot && !strstr(text, dot + 1))
        snprintf(text + used, size - used, "%s%s", used ? ", " : "", dot + 1);
}

/* The last parts of the names of linear layers, each once: "q_proj, k_proj, ...". */
static void list_linear(const struct model *m, char *text, size_t size)
{
    *text = 0;
    for (int64_t i = 0; i < m->store.count; i++)
        if (m->store.tensor[i]->rank == 2 && !lora_owns(m->store.tensor[i]))
            add_linear(m, m->store.tensor[i]->name, text, size);
    for (int64_t i = 0; i < m->weights.parted_count; i++)
        add_linear(m, m->weights.parted[i].name, text, size);
}

static enum status check_parameters(const struct model *m, const struct adapter_config *config)
{
    if (config->parameter_count && !m->config.experts)
        return fail(ERR_ARGUMENT, "%s: has no experts, whose parameters --lora-target-parameters names: leave it out",
                    m->hf.path);
    for (int64_t k = 0; k < config->parameter_count; k++) {
        bool found = false;
        for (int64_t i = 0; i < m->store.count && !found; i++)
            found = m->store.tensor[i]->rank == 3 && adapter_names(config, config->parameters[k], m->store.tensor[i]->name);
        if (!found)
            return fail(ERR_ARGUMENT,
                        "\"%s\" is not a parameter that LoRA can adapt; models with experts have mlp.experts.gate_up_proj and "
                        "mlp.experts.down_proj (--lora-target-parameters)",
                        config->parameters[k]);
    }
    return OK;
}

static enum status check_patterns(const struct model *m, const struct adapter_config *config, const char *option,
                                  const struct adapter_pattern *patterns, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        bool found = false;
        char module[NAME_SIZE];
        for (int64_t i = 0; i < m->store.count && !found; i++)
            found = module_of(m->store.tensor[i], module) && adapter_pattern_names(config, &patterns[k], module);
        if (!found)
            return fail(ERR_ARGUMENT,
                        "%s: \"%s\" is the end of no module that gets an adapter; names are as in q_proj or layers.0.mlp.up_proj",
                        option, patterns[k].module);
    }
    return OK;
}

enum status lora_check_patterns(const struct model *m, const struct adapter_config *config)
{
    TRY(check_patterns(m, config, "--rank-pattern", config->rank_pattern, config->rank_patterns));
    return check_patterns(m, config, "--alpha-pattern", config->alpha_pattern, config->alpha_patterns);
}

enum status lora_check(const struct model *m, const struct adapter_config *config)
{
    TRY(check_parameters(m, config));
    for (int64_t k = 0; k < config->target_count; k++) {
        bool found = false;
        for (int64_t i = 0; i < m->store.count && !found; i++)
            found = is_target(config, m->store.tensor[i], config->targets[k]);
        char known[512];
        list_linear(m, known, sizeof known);
        if (!found)
            return fail(ERR_ARGUMENT,
                        "\"%s\" is not a linear layer that LoRA can adapt; this model has %s (--lora-target-modules)",
                        config->targets[k], known);
    }
    return OK;
}
