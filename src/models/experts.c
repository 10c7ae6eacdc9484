/* Routing, and the products of tokens with their experts. */
#include "models/experts.h"

#include <stdio.h>

#include "base/name.h"
#include "models/lora.h"

const struct experts_form experts_plain = {.router = "mlp.gate"};

const struct stacked experts_stacked[] = {
    {"mlp.experts.gate_up_proj", {"mlp.experts.%d.gate_proj.weight", "mlp.experts.%d.up_proj.weight"}},
    {"mlp.experts.down_proj", {"mlp.experts.%d.down_proj.weight"}},
    {0},
};

static struct value *experts_project(struct net *n, struct value *x, struct value *sorted, const char *parameter, int64_t outputs,
                                     struct experts_part part, int64_t layer)
{
    char module[NAME_SIZE], bias_name[NAME_SIZE];
    struct value *a = NULL, *b = NULL;
    const struct experts_form *form = n->family->experts;
    double scale = 1;
    if (!x)
        return NULL;
    int64_t inputs = x->shape[1], E = n->config->experts;
    net_module(n, module, "mlp.experts", layer);
    snprintf(bias_name, sizeof bias_name, "%s_bias", parameter);
    struct value *w = form->by_input ? net_experts_weight(n, module, parameter, inputs, outputs)
                                     : net_experts_weight(n, module, parameter, outputs, inputs);
    struct value *bias = form->biases ? net_experts_weight(n, module, bias_name, outputs, 0) : NULL;
    lora_experts(n, module, parameter, E, inputs, outputs, &a, &b, &scale);
    return expert_linear(&n->program, x, w, form->by_input ? EXPERTS_IN_OUT : EXPERTS_OUT_IN, bias, a, b, sorted, part, scale);
}

static struct value *shared_expert(struct net *n, struct value *x, int64_t layer)
{
    const struct model_config *c = n->config;
    struct value *gate = net_linear(n, x, c->shared_feed_forward, false, "mlp.shared_expert.gate_proj", layer);
    struct value *up = net_linear(n, x, c->shared_feed_forward, false, "mlp.shared_expert.up_proj", layer);
    struct value *y = net_linear(n, net_swiglu(n, gate, up), c->channels, false, "mlp.shared_expert.down_proj", layer);
    return row_gate(&n->program, y, net_linear(n, x, 1, false, "mlp.shared_expert_gate", layer));
}

struct value *experts_forward(struct net *n, struct value *x, int64_t layer)
{
    struct program *p = &n->program;
    const struct model_config *c = n->config;
    const struct experts_form *form = n->family->experts;
    int64_t k = c->experts_chosen, F = c->expert_feed_forward, step = form->interleaved ? 2 : 1;
    struct value *logits = net_router(n, x, form->biases, form->router, layer);
    struct value *weights = route(p, logits, k, c->experts_normalised);
    struct value *sorted = group_slots(p, weights ? weights->producer->out[1] : NULL, c->experts);
    struct value *h = spread_rows(p, x, NULL, sorted, k);
    struct experts_part first = {0, F, step}, second = {form->interleaved ? 1 : F, F, step}, all = {0, c->channels, 1};
    struct value *gate = experts_project(n, h, sorted, "gate_up_proj", 2 * F, first, layer);
    struct value *up = experts_project(n, h, sorted, "gate_up_proj", 2 * F, second, layer);
    struct value *y = experts_project(n, net_swiglu(n, gate, up), sorted, "down_proj", c->channels, all, layer);
    y = combine_rows(p, y, weights, sorted, k);
    return c->shared_feed_forward ? add(p, y, shared_expert(n, x, layer)) : y;
}
