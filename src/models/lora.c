/* LoRA pairs: adding, initialising and checking them. */
#include "models/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/name.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "models/experts.h"

static const char a_part[] = ".lora_A.weight", b_part[] = ".lora_B.weight";

struct value *lora_a(struct net *n, const char *module, int64_t inputs)
{
    char name[NAME_SIZE + sizeof a_part];
    snprintf(name, sizeof name, "%s%s", module, a_part);
    return net_weight(n, name, n->tuning->train, 2, adapter_rank(n->tuning->lora, module), inputs);
}

struct value *lora_b(struct net *n, const char *module, int64_t outputs)
{
    char name[NAME_SIZE + sizeof b_part];
    snprintf(name, sizeof name, "%s%s", module, b_part);
    return net_weight(n, name, n->tuning->train, 2, outputs, adapter_rank(n->tuning->lora, module));
}

struct value *lora_linear(struct net *n, struct value *x, struct value *w, struct value *bias, const char *module)
{
    struct program *p = &n->program;
    const struct adapter_config *c = n->tuning->lora;
    if (!x || !w)
        return NULL;
    struct value *a = lora_a(n, module, x->shape[1]), *b = lora_b(n, module, w->shape[0]);
    struct value *z = n->draw ? dropout(p, x, n->sequence, n->positions, n->draw, c->dropout, n->dropouts++) : x;
    return linear_lora(p, x, w, bias, z, a, b, adapter_scale(c, module));
}

/* PEFT wraps the module once for each of its parameters that is targeted, down_proj last: what is inside another is its
 * base_layer. */
bool lora_experts_pair(const struct adapter_config *config, const char *module, const char *parameter, struct lora_pair *pair)
{
    char key[2 * NAME_SIZE], last[2 * NAME_SIZE];
    snprintf(key, sizeof key, "%s.%s", module, parameter);
    snprintf(last, sizeof last, "%s.%s", module, "down_proj");
    if (!adapter_targets_parameter(config, key))
        return false;
    bool inside = strcmp(key, last) != 0 && adapter_targets_parameter(config, last);
    snprintf(pair->a, sizeof pair->a, "%s%s%s", module, inside ? ".base_layer" : "", a_part);
    snprintf(pair->b, sizeof pair->b, "%s%s%s", module, inside ? ".base_layer" : "", b_part);
    pair->rank = adapter_rank(config, key);
    pair->scale = adapter_scale(config, key);
    return true;
}

void lora_experts(struct net *n, const char *module, const char *parameter, int64_t experts, int64_t inputs, int64_t outputs,
                  struct value **a, struct value **b, double *scale)
{
    struct lora_pair pair;
    if (!n->tuning->lora || !lora_experts_pair(n->tuning->lora, module, parameter, &pair))
        return;
    *a = net_weight(n, pair.a, n->tuning->train, 2, experts * pair.rank, inputs);
    *b = net_weight(n, pair.b, n->tuning->train, 2, outputs, experts * pair.rank);
    *scale = pair.scale;
}

bool lora_owns(const struct tensor *t)
{
    return name_ends_with(t->name, a_part) || name_ends_with(t->name, b_part);
}

static bool is_of_experts(const struct tensor *t)
{
    return name_ends_with(t->name, ".experts.lora_A.weight") || name_ends_with(t->name, ".base_layer.lora_A.weight");
}

const char *lora_module_end(const struct tensor *t)
{
    return name_ends_with(t->name, a_part) && !is_of_experts(t) ? t->name + strlen(t->name) - strlen(a_part) : NULL;
}

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
static void draw(float *to, const struct tensor *t, uint64_t seed)
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
        if (name_ends_with(t->name, a_part))
            draw(values, t, seed);
        enum status status = engine_upload(e, t, values, DTYPE_F32);
        if (status == OK && t->master)
            status = engine_upload(e, t->master, values, DTYPE_F32);
        memory_free(values);
        TRY(status);
    }
    return OK;
}

/* Whether a pair was added to a module because of this target. */
static bool is_target(const struct adapter_config *config, const struct tensor *t, const char *target)
{
    const char *end = lora_module_end(t);
    char module[NAME_SIZE];
    snprintf(module, sizeof module, "%.*s", end ? (int)(end - t->name) : 0, t->name);
    return end && adapter_names(config, target, module);
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

static bool is_in_files(const struct model *m, const struct adapter_config *config, const char *target)
{
    static const char part[] = ".weight";
    for (int64_t i = 0; i < m->weights.count; i++) {
        const char *name = m->weights.list[i].name;
        char module[NAME_SIZE];
        if (!family_in_layer(m->family, name) || !name_ends_with(name, part))
            continue;
        snprintf(module, sizeof module, "%.*s", (int)(strlen(name) - strlen(part)), name);
        if (adapter_names(config, target, module))
            return true;
    }
    return false;
}

bool lora_in_files(const struct model *m, const struct adapter_config *config)
{
    bool found = true;
    for (int64_t k = 0; m->weights.listed && k < config->target_count && found; k++)
        found = is_in_files(m, config, config->targets[k]);
    return found;
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
