/* LoRA pairs in a net, and their names. */
#include "models/lora.h"

#include <stdio.h>
#include <string.h>

#include "base/name.h"

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

bool lora_is_a(const struct tensor *t)
{
    return name_ends_with(t->name, a_part);
}

bool lora_owns(const struct tensor *t)
{
    return lora_is_a(t) || name_ends_with(t->name, b_part);
}

static bool is_of_experts(const struct tensor *t)
{
    return name_ends_with(t->name, ".experts.lora_A.weight") || name_ends_with(t->name, ".base_layer.lora_A.weight");
}

const char *lora_module_end(const struct tensor *t)
{
    return lora_is_a(t) && !is_of_experts(t) ? t->name + strlen(t->name) - strlen(a_part) : NULL;
}
