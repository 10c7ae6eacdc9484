/* A feed-forward of experts: a router sends each token to some of them, and the sum of their results is weighted.
 *
 * The matrices of all experts of a layer are one tensor each, named as transformers names its parameters, so that PEFT's
 * target_parameters names them too: mlp.experts.gate_up_proj (E, 2F, C) and mlp.experts.down_proj (E, C, F), or in another form.
 */
#ifndef MODELS_EXPERTS_H
#define MODELS_EXPERTS_H

#include "models/net.h"

struct experts_form {
    const char *router; /* its module's name in a layer */
    bool by_input;      /* matrices are (E, in, out) */
    bool interleaved;   /* gate and up are in turn the outputs of gate_up_proj, not its halves */
    bool biases;        /* of the router, and of experts: gate_up_proj_bias and down_proj_bias (E, out) */
};

extern const struct experts_form experts_plain; /* the router is mlp.gate */

/* The pieces in files that have gate_proj, up_proj and down_proj of each expert. */
extern const struct stacked experts_stacked[];

/* (T, C) from the norm's result x, by family->experts, config->experts, config->experts_chosen and config->expert_feed_forward;
 * with a shared_feed_forward also what the shared expert gives, times its gate. */
struct value *experts_forward(struct net *n, struct value *x, int64_t layer);

#endif
