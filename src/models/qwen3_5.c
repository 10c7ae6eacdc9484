/* The layers of Qwen3.5, and reading its config.json. */
#include "models/qwen3_5.h"

#include <string.h>

/* q_proj gives each head's query and gate side by side. */
static struct value *full_attention(struct net *n, struct value *h, int64_t l)
{
    const struct model_config *c = n->config;
    struct program *p = &n->program;
    int64_t H = c->heads, K = c->kv_heads, D = c->head_size;
    struct value *both = net_linear(n, h, 2 * H * D, c->qkv_bias, "self_attn.q_proj", l);
    struct value *q = split(p, program_view(p, both, 2, n->T * H, 2 * D), D);
    if (!q)
        return NULL;
    struct value *gate = program_view(p, q->producer->out[1], 2, n->T, H * D);
    struct value *k = net_heads(n, net_linear(n, h, K * D, c->qkv_bias, "self_attn.k_proj", l), K);
    struct value *v = net_heads(n, net_linear(n, h, K * D, c->qkv_bias, "self_attn.v_proj", l), K);
    q = net_rope_query(n, net_head_norm(n, program_view(p, q, 3, n->T, H, D), "self_attn.q_norm", l), false);
    k = net_rope(n, net_head_norm(n, k, "self_attn.k_norm", l), false);
    struct value *a = sigmoid_gate(p, net_attention(n, q, k, v, NULL, false, l), gate);
    return net_linear(n, a, c->channels, c->output_bias, "self_attn.o_proj", l);
}

/* Queries, keys and values go through a short convolution together; the result through a norm of each head and a gate. */
static struct value *linear_attention(struct net *n, struct value *h, int64_t l)
{
    const struct delta_config *c = &n->config->delta;
    struct program *p = &n->program;
    int64_t values = c->value_heads * c->value_size, mixed = 2 * c->key_heads * c->key_size + values;
    struct value *x = net_linear(n, h, mixed, false, "linear_attn.in_proj_qkv", l);
    struct value *z = net_linear(n, h, values, false, "linear_attn.in_proj_z", l);
    struct value *b = net_linear(n, h, c->value_heads, false, "linear_attn.in_proj_b", l);
    struct value *a = net_linear(n, h, c->value_heads, false, "linear_attn.in_proj_a", l);
    struct value *w = net_parameter(n, "linear_attn.conv1d.weight", l, false, 3, (int64_t[]){mixed, 1, c->taps});
    struct value *rate = net_parameter(n, "linear_attn.A_log", l, false, 1, &c->value_heads);
    struct value *dt = net_parameter(n, "linear_attn.dt_bias", l, false, 1, &c->value_heads);
    struct value *last = net_state(n, "conv", l, ROLE_ACTIVATION, 2, (int64_t[]){c->taps - 1, mixed});
    struct value *state = net_state(n, "delta", l, ROLE_STATISTIC, 3, (int64_t[]){c->value_heads, c->key_size, c->value_size});
    x = causal_conv(p, x, program_view(p, w, 2, mixed, c->taps), n->first, n->last, n->until, n->slots, last);
    struct value *y =
        gated_delta(p, x, delta_gates(p, a, b, rate, dt), n->first, n->last, n->slots, state, c->key_heads, c->key_size);
    struct value *g = net_parameter(n, "linear_attn.norm.weight", l, true, 1, &c->value_size);
    y = rmsnorm(p, program_view(p, y, 2, n->T * c->value_heads, c->value_size), g, n->config->eps);
    y = net_swiglu(n, program_view(p, z, 2, n->T * c->value_heads, c->value_size), y);
    return net_linear(n, program_view(p, y, 2, n->T, values), n->config->channels, false, "linear_attn.out_proj", l);
}

static struct value *qwen3_5_layer(struct net *n, struct value *x, int64_t l)
{
    const struct model_config *c = n->config;
    struct decoder_layer with = {.attention = c->delta.is_linear[l] ? linear_attention : full_attention,
                                 .experts = c->experts > 0};
    return decoder_layer(n, x, &with, l);
}

struct value *qwen3_5_forward(struct net *n)
{
    return decoder_forward_by(n, qwen3_5_layer);
}

/* By "layer_types", or else every layer but the last of so many. */
static enum status qwen3_5_read_layers(const struct hf_config *hf, struct model_config *config)
{
    const json_t *types = json_object_get(hf->tree, "layer_types");
    bool named = types && !json_is_null(types);
    int64_t interval = 4;
    TRY(hf_config_size(hf, "full_attention_interval", &interval));
    if (named && (int64_t)json_array_size(types) != config->layers)
        return fail(ERR_FORMAT, "%s: \"layer_types\" must be a list with a name for each of the %lld layers", hf->path,
                    (long long)config->layers);
    for (int64_t l = 0; l < config->layers; l++) {
        const char *type = named ? json_string_value(json_array_get(types, (size_t)l)) : NULL;
        config->delta.is_linear[l] = named ? type && !strcmp(type, "linear_attention") : (l + 1) % interval != 0;
        if (named && !config->delta.is_linear[l] && (!type || strcmp(type, "full_attention")))
            return fail(ERR_UNSUPPORTED, "%s: \"layer_types\" has \"%s\"; a %s has \"linear_attention\" and \"full_attention\"",
                        hf->path, type ? type : "no name", hf->model_type);
    }
    return OK;
}

enum status qwen3_5_finish(const struct hf_config *hf, struct model_config *config)
{
    const struct delta_config *d = &config->delta;
    TRY(decoder_check_silu(hf));
    config->norm_offset = 1;
    config->rope.part = 0.25;
    TRY(hf_config_real(hf, "partial_rotary_factor", &config->rope.part));
    TRY(hf_config_rope_real(hf, "partial_rotary_factor", &config->rope.part));
    if (d->value_heads % d->key_heads)
        return fail(ERR_FORMAT, "%s: %lld value heads of linear attention cannot share %lld key heads", hf->path,
                    (long long)d->value_heads, (long long)d->key_heads);
    return qwen3_5_read_layers(hf, config);
}
