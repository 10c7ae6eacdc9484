/* The shared decoder. */
#include "models/decoder.h"

#include <string.h>

#include "models/experts.h"

struct heads {
    struct value *q, *k, *v;
    bool turned; /* q and k are rotated */
};

static struct heads decoder_project(struct net *n, struct value *h, const struct decoder_layer *with, int64_t l)
{
    const struct model_config *c = n->config;
    int64_t queries = c->heads * c->head_size, keys = c->kv_heads * c->head_size;
    const struct net_layer layers[] = {{"self_attn.q_proj", queries}, {"self_attn.k_proj", keys}, {"self_attn.v_proj", keys}};
    struct heads y = {0};
    struct value *all = with->fused ? net_linear(n, h, queries + 2 * keys, c->qkv_bias, "self_attn.qkv_proj", l)
                                    : net_linears(n, h, 3, layers, c->qkv_bias, l);
    if (all) {
        y.q = net_qkv(n, all, l, with->head_norms || with->wide_norms ? NULL : &y.turned, &y.k, &y.v);
        return y;
    }
    y.q = net_heads(n, net_linear(n, h, queries, c->qkv_bias, layers[0].name, l), c->heads);
    y.k = net_heads(n, net_linear(n, h, keys, c->qkv_bias, layers[1].name, l), c->kv_heads);
    y.v = net_heads(n, net_linear(n, h, keys, c->qkv_bias, layers[2].name, l), c->kv_heads);
    return y;
}

/* The norm of all heads together. */
static struct value *wide_norm(struct net *n, struct value *x, const char *name, int64_t l)
{
    return x ? net_heads(n, net_norm(n, net_rows(n, x, x->shape[1] * x->shape[2]), name, l), x->shape[1]) : NULL;
}

static struct value *self_attention(struct net *n, struct value *h, const struct decoder_layer *with, int64_t l)
{
    const struct model_config *c = n->config;
    struct heads y = decoder_project(n, h, with, l);
    struct value *q = y.q, *k = y.k, *v = y.v;
    if (with->wide_norms) {
        q = wide_norm(n, q, "self_attn.q_norm", l);
        k = wide_norm(n, k, "self_attn.k_norm", l);
    }
    if (with->head_norms) {
        q = net_head_norm(n, q, "self_attn.q_norm", l);
        k = net_head_norm(n, k, "self_attn.k_norm", l);
    }
    if (!c->no_positions[l] && !y.turned) {
        q = net_rope_query(n, q, c->is_local[l]);
        k = net_rope(n, k, c->is_local[l]);
    }
    struct value *sinks = with->sinks ? net_parameter(n, "self_attn.sinks", l, false, 1, &c->heads) : NULL;
    struct value *a = net_attention(n, q, k, v, sinks, c->is_local[l], l);
    return net_linear(n, a, c->channels, c->output_bias, "self_attn.o_proj", l);
}

static struct value *decoder_feed_forward(struct net *n, struct value *h, const struct decoder_layer *with, int64_t l)
{
    const struct model_config *c = n->config;
    const struct net_layer layers[] = {{"mlp.gate_proj", c->feed_forward}, {"mlp.up_proj", c->feed_forward}};
    struct value *gate, *up, *inner;
    bool plain = !with->geglu && !(c->swiglu_limit > 0);
    if (with->experts)
        return experts_forward(n, h, l);
    struct value *both = with->fused ? net_linear(n, h, 2 * c->feed_forward, c->mlp_bias, "mlp.gate_up_proj", l)
                         : plain     ? net_linears(n, h, 2, layers, c->mlp_bias, l)
                                     : NULL;
    if (both && plain) {
        inner = net_swiglu_packed(n, both);
    } else {
        gate =
            both ? net_split(n, both, c->feed_forward, &up) : net_linear(n, h, c->feed_forward, c->mlp_bias, layers[0].name, l);
        up = both ? up : net_linear(n, h, c->feed_forward, c->mlp_bias, layers[1].name, l);
        inner = with->geglu ? net_geglu(n, gate, up) : net_swiglu(n, gate, up);
    }
    return net_linear(n, inner, c->channels, c->mlp_bias, "mlp.down_proj", l);
}

struct value *decoder_layer(struct net *n, struct value *x, const struct decoder_layer *with, int64_t l)
{
    bool both = with->post_norms && !with->no_pre_norms;
    struct value *h = with->no_pre_norms ? x : net_norm(n, x, "input_layernorm", l);
    struct value *a = with->attention ? with->attention(n, h, l) : self_attention(n, h, with, l);
    x = net_add(n, x, with->post_norms ? net_norm(n, a, "post_attention_layernorm", l) : a);

    h = with->no_pre_norms ? x : net_norm(n, x, both ? "pre_feedforward_layernorm" : "post_attention_layernorm", l);
    struct value *m = decoder_feed_forward(n, h, with, l);
    return net_add(n, x, with->post_norms ? net_norm(n, m, "post_feedforward_layernorm", l) : m);
}

struct value *decoder_forward_by(struct net *n, struct value *(*layer)(struct net *n, struct value *x, int64_t l))
{
    struct value *x = net_layers(n, net_embedding(n), layer);
    return net_norm(n, x, n->family->norm, NET_NO_LAYER);
}

static struct value *same_layer(struct net *n, struct value *x, int64_t l)
{
    return decoder_layer(n, x, n->family->decoder, l);
}

struct value *decoder_forward(struct net *n)
{
    return decoder_forward_by(n, same_layer);
}

enum status decoder_check_activation(const struct hf_config *hf, const char *key, const char *activation)
{
    const char *found = activation;
    TRY(hf_config_text(hf, key, &found));
    return strcmp(found, activation)
               ? fail(ERR_UNSUPPORTED, "%s: \"%s\" is \"%s\", a %s has \"%s\"", hf->path, key, found, hf->model_type, activation)
               : OK;
}

enum status decoder_check_silu(const struct hf_config *hf)
{
    return decoder_check_activation(hf, "hidden_act", "silu");
}

enum status decoder_check_experts(const struct hf_config *hf, const struct model_config *config)
{
    return config->experts_chosen <= config->experts
               ? OK
               : fail(ERR_FORMAT, "%s: \"num_experts_per_tok\" is %lld, and there are %lld experts", hf->path,
                      (long long)config->experts_chosen, (long long)config->experts);
}

static enum status read_layer_types(const struct hf_config *hf, struct model_config *config, const json_t *types)
{
    if (!json_is_array(types) || (int64_t)json_array_size(types) != config->layers)
        return fail(ERR_FORMAT, "%s: \"layer_types\" must be a list with a name for each of the %lld layers", hf->path,
                    (long long)config->layers);
    for (int64_t l = 0; l < config->layers; l++) {
        const char *type = json_string_value(json_array_get(types, (size_t)l));
        config->is_local[l] = type && !strcmp(type, "sliding_attention");
        if (!config->is_local[l] && (!type || strcmp(type, "full_attention")))
            return fail(ERR_UNSUPPORTED, "%s: \"layer_types\" has \"%s\"; a %s has \"full_attention\" and \"sliding_attention\"",
                        hf->path, type ? type : "no name", hf->model_type);
    }
    return OK;
}

/* "layer_types" has the last word about config->is_local. */
static enum status finish_local(const struct hf_config *hf, struct model_config *config)
{
    const json_t *types = json_object_get(hf->tree, "layer_types");
    int64_t window = config->local;
    bool any = false;
    config->local = 0;
    if (types && !json_is_null(types))
        TRY(read_layer_types(hf, config, types));
    for (int64_t l = 0; l < config->layers; l++)
        any |= config->is_local[l];
    if (!any)
        return OK;
    if (json_is_null(json_object_get(hf->tree, "sliding_window")))
        return fail(ERR_FORMAT, "%s: \"sliding_window\" is null, and a %s with these \"layer_types\" has local layers", hf->path,
                    hf->model_type);
    TRY(window ? hf_config_size(hf, "sliding_window", &window) : hf_config_need_size(hf, "sliding_window", &window));
    config->local = window;
    return OK;
}

enum status decoder_read_local(const struct hf_config *hf, struct model_config *config, bool local, int64_t from)
{
    for (int64_t l = 0; l < config->layers; l++)
        config->is_local[l] = local && l >= from;
    return finish_local(hf, config);
}

enum status decoder_read_window(const struct hf_config *hf, struct model_config *config, int64_t otherwise)
{
    const json_t *window = json_object_get(hf->tree, "sliding_window");
    config->local = window ? 0 : otherwise;
    return decoder_read_local(hf, config, window ? !json_is_null(window) : otherwise > 0, 0);
}

enum status decoder_read_used_window(const struct hf_config *hf, struct model_config *config, bool dense)
{
    bool local = false;
    int64_t from = dense ? 28 : 0;
    TRY(hf_config_bool(hf, "use_sliding_window", &local));
    local = local && !json_is_null(json_object_get(hf->tree, "sliding_window"));
    if (dense)
        TRY(hf_config_int(hf, "max_window_layers", &from));
    config->local = 4096;
    return decoder_read_local(hf, config, local, from);
}

enum status decoder_read_period(const struct hf_config *hf, struct model_config *config, int64_t period)
{
    for (int64_t l = 0; l < config->layers; l++)
        config->is_local[l] = (l + 1) % period != 0;
    return finish_local(hf, config);
}
