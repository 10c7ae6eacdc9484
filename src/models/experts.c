/* Routing, and the products of tokens with their experts. */
#include "models/experts.h"

#include "base/name.h"
#include "models/lora.h"

static struct value *project(struct net *n, struct value *x, struct value *sorted, const char *parameter, int64_t outputs,
                             struct experts_part part, int64_t layer)
{
    char module[NAME_SIZE];
    struct value *a = NULL, *b = NULL;
    double scale = 1;
    if (!x)
        return NULL;
    net_module(n, module, "mlp.experts", layer);
    struct value *w = net_experts_weight(n, module, parameter, outputs, x->shape[1]);
    lora_experts(n, module, parameter, n->config->experts, x->shape[1], outputs, &a, &b, &scale);
    return expert_linear(&n->program, x, w, EXPERTS_OUT_IN, NULL, a, b, sorted, part, scale);
}

struct value *experts_forward(struct net *n, struct value *x, int64_t layer)
{
    struct program *p = &n->program;
    const struct model_config *c = n->config;
    int64_t k = c->experts_chosen, F = c->expert_feed_forward;
    struct value *logits = net_router(n, x, EXPERTS_ROUTER, layer);
    struct value *weights = route(p, logits, k, c->experts_normalised);
    struct value *sorted = group_slots(p, weights ? weights->producer->out[1] : NULL, c->experts);
    struct value *h = spread_rows(p, x, NULL, sorted, k);
    struct value *gate = project(n, h, sorted, "gate_up_proj", 2 * F, (struct experts_part){0, F, 1}, layer);
    struct value *up = project(n, h, sorted, "gate_up_proj", 2 * F, (struct experts_part){F, F, 1}, layer);
    struct value *y =
        project(n, net_swiglu(n, gate, up), sorted, "down_proj", c->channels, (struct experts_part){0, c->channels, 1}, layer);
    return combine_rows(p, y, weights, sorted, k);
}
