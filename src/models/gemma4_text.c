/* Gemma 4: layers as models/gemma.h says, with norms of q, k and v, and
 *
 *  - an input of its own for each layer: what a second embedding and a projection of the first one give it, gated by the layer;
 *  - in the last layers the keys and values of the last layer before them that is local, or global, as they are;
 *  - in layers that see all tokens another head size and number of kv-heads, and perhaps the keys as values;
 *  - a scalar for each layer.
 *
 * Shapes: x (T, C) · q (T, H, D) · k, v (T, K, D), with D and K of the kind of layer · inputs of layers (T, P)
 * Covers the text of every dense model with "model_type": "gemma4_text".
 */
#include <stdio.h>
#include <string.h>

#include "models/gemma.h"

static bool gemma4_text_shares(const struct model_config *c, int64_t l)
{
    return l >= c->layers - c->shared_layers;
}

/* Keys and values of a layer that has its own, in the cache if there is one. */
static void make_keys(struct net *n, struct value *h, struct model_config *c, bool local, int64_t l)
{
    int64_t size = c->kv_heads * c->head_size;
    struct value *k = net_linear(n, h, size, c->qkv_bias, "self_attn.k_proj", l);
    struct value *v = c->keys_as_values && !local ? k : net_linear(n, h, size, c->qkv_bias, "self_attn.v_proj", l);
    k = net_rope(n, net_head_norm(n, net_heads(n, k, c->kv_heads), "self_attn.k_norm", l), local);
    v = net_head_norm(n, net_heads(n, v, c->kv_heads), NULL, l);
    n->kept_keys[local] = net_cached(n, k, "k", l);
    n->kept_values[local] = net_cached(n, v, "v", l);
}

static struct value *attention_of(struct net *n, struct value *h, int64_t l)
{
    bool local = n->config->is_local[l];
    struct model_config c = family_layers(n->config, local);
    struct value *q = net_linear(n, h, c.heads * c.head_size, c.qkv_bias, "self_attn.q_proj", l);
    q = net_rope(n, net_head_norm(n, net_heads(n, q, c.heads), "self_attn.q_norm", l), local);
    if (!gemma4_text_shares(&c, l))
        make_keys(n, h, &c, local, l);
    struct value *a = net_attend(n, q, n->kept_keys[local], n->kept_values[local], NULL, local);
    return net_linear(n, a, c.channels, c.output_bias, "self_attn.o_proj", l);
}

static struct value *gemma4_text_feed_forward(struct net *n, struct value *h, int64_t l)
{
    const struct model_config *c = n->config;
    int64_t F = c->feed_forward * (c->wide_shared && gemma4_text_shares(c, l) ? 2 : 1);
    struct value *gate = net_linear(n, h, F, false, "mlp.gate_proj", l);
    struct value *up = net_linear(n, h, F, false, "mlp.up_proj", l);
    return net_linear(n, net_geglu(n, gate, up), c->channels, false, "mlp.down_proj", l);
}

/* The layer's input, gated by the state x. */
static struct value *own_input(struct net *n, struct value *x, int64_t l)
{
    struct value *gate = net_linear(n, x, n->config->layer_input, false, "per_layer_input_gate", l);
    return net_linear(n, net_geglu(n, gate, n->layer_input[l]), n->config->channels, false, "per_layer_projection", l);
}

static struct value *gemma4_text_layer(struct net *n, struct value *x, int64_t l)
{
    struct value *a = attention_of(n, net_norm(n, x, "input_layernorm", l), l);
    x = net_add(n, x, net_norm(n, a, "post_attention_layernorm", l));
    struct value *m = gemma4_text_feed_forward(n, net_norm(n, x, "pre_feedforward_layernorm", l), l);
    x = net_add(n, x, net_norm(n, m, "post_feedforward_layernorm", l));
    if (n->config->layer_input)
        x = net_add(n, x, net_norm(n, own_input(n, x, l), "post_per_layer_input_norm", l));
    return net_scalar(n, x, "layer_scalar", l);
}

/* The columns of x, of `count` layers, by halves. */
static void share_out(struct net *n, struct value *x, int64_t count, struct value **to)
{
    if (count == 1) {
        *to = x;
        return;
    }
    struct value *rest, *first = net_split(n, x, count / 2 * n->config->layer_input, &rest);
    share_out(n, first, count / 2, to);
    share_out(n, rest, count - count / 2, to + count / 2);
}

/* The inputs of all layers, from the tokens and from their embeddings x. */
static void gemma4_text_make_inputs(struct net *n, struct value *x)
{
    const struct model_config *c = n->config;
    int64_t L = c->layers, P = c->layer_input;
    struct value *tokens = net_table(n, "model.embed_tokens_per_layer", c->vocabulary, L * P, sqrt((double)P));
    struct value *states = net_linear(n, x, L * P, false, "model.per_layer_model_projection", NET_NO_LAYER);
    states = net_scale(n, states, 1 / sqrt((double)c->channels));
    states = net_norm(n, net_rows(n, states, P), "model.per_layer_projection_norm", NET_NO_LAYER);
    struct value *all = net_scale(n, net_add(n, tokens, net_rows(n, states, L * P)), sqrt(0.5));
    n->layer_input = net_array(n, L);
    if (n->layer_input)
        share_out(n, net_as(n, all, states), L, n->layer_input);
}

static struct value *forward(struct net *n)
{
    struct value *x = net_embedding(n);
    if (n->config->layer_input)
        gemma4_text_make_inputs(n, x);
    return net_norm(n, net_layers(n, x, gemma4_text_layer), n->family->norm, NET_NO_LAYER);
}

/* Numbers of layers are padded to one length: "05" and "11". */
static const json_t *of_layer(const json_t *by_layer, int64_t l)
{
    const json_t *own = NULL;
    for (int digits = 1; !own && digits <= 4; digits++) {
        char number[24];
        snprintf(number, sizeof number, "%0*lld", digits, (long long)l);
        own = json_object_get(by_layer, number);
    }
    return own;
}

/* What layers may have of their own. */
static enum status gemma4_text_check_own(const struct hf_config *hf, const json_t *own, int64_t l)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)own, key, value) if (strcmp(key, "head_dim") && strcmp(key, "num_key_value_heads")) return fail(
        ERR_UNSUPPORTED, "%s: \"per_layer_config\": layer %lld has a \"%s\" of its own, which is not supported", hf->path,
        (long long)l, key);
    return OK;
}

/* Head size and kv-heads of the layers that see all tokens: by name in the published files, by layer in those of transformers. */
static enum status read_global(const struct hf_config *hf, struct model_config *config)
{
    const json_t *by_layer = json_object_get(hf->tree, "per_layer_config");
    config->global_head_size = json_is_object(by_layer) ? config->head_size : 512;
    config->global_kv_heads = config->kv_heads;
    TRY(hf_config_size(hf, "global_head_dim", &config->global_head_size));
    if (config->keys_as_values)
        TRY(hf_config_size(hf, "num_global_key_value_heads", &config->global_kv_heads));
    bool found = false;
    for (int64_t l = 0; l < config->layers && json_is_object(by_layer); l++) {
        const json_t *own = of_layer(by_layer, l);
        if (!own)
            continue;
        TRY(gemma4_text_check_own(hf, own, l));
        int64_t head_size = config->head_size, kv_heads = config->kv_heads;
        TRY(json_get_int(own, "head_dim", &head_size, hf->path));
        TRY(json_get_int(own, "num_key_value_heads", &kv_heads, hf->path));
        if (config->is_local[l] || (found && (head_size != config->global_head_size || kv_heads != config->global_kv_heads)))
            return fail(ERR_UNSUPPORTED, "%s: \"per_layer_config\": layer %lld differs from others of its type", hf->path,
                        (long long)l);
        config->global_head_size = head_size;
        config->global_kv_heads = kv_heads;
        found = true;
    }
    bool good = config->global_head_size > 0 && config->global_head_size % 2 == 0 && config->global_kv_heads > 0 &&
                config->heads % config->global_kv_heads == 0;
    return good ? OK
                : fail(ERR_FORMAT, "%s: %lld heads of %lld channels cannot share %lld key/value heads", hf->path,
                       (long long)config->heads, (long long)config->global_head_size, (long long)config->global_kv_heads);
}

/* Every layer that shares keys has one of its kind before those. */
static enum status check_shared(const struct hf_config *hf, const struct model_config *config)
{
    bool has[2] = {false, false}, wants[2] = {false, false};
    if (config->shared_layers < 0 || config->shared_layers >= config->layers)
        return fail(ERR_FORMAT, "%s: \"num_kv_shared_layers\" is %lld of %lld layers", hf->path, (long long)config->shared_layers,
                    (long long)config->layers);
    for (int64_t l = 0; l < config->layers; l++)
        *(gemma4_text_shares(config, l) ? &wants[config->is_local[l]] : &has[config->is_local[l]]) = true;
    return (wants[0] && !has[0]) || (wants[1] && !has[1])
               ? fail(ERR_FORMAT, "%s: a layer shares keys and values, and no layer of its type has any", hf->path)
               : OK;
}

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    bool experts = false;
    int64_t rows = config->vocabulary;
    TRY(hf_config_bool(hf, "enable_moe_block", &experts));
    if (experts)
        return fail(ERR_UNSUPPORTED, "%s: \"enable_moe_block\": experts of a %s are not supported, its dense models are",
                    hf->path, hf->model_type);
    TRY(gemma_finish(hf, config, &(struct gemma){.period = 6, .window = 512}));
    config->is_local[config->layers - 1] = false;
    config->attention_scale = 1;
    config->layer_input = 256;
    TRY(hf_config_int(hf, "hidden_size_per_layer_input", &config->layer_input));
    if (config->layer_input < 0)
        return fail(ERR_FORMAT, "%s: \"hidden_size_per_layer_input\" is %lld, it must be at least 0", hf->path,
                    (long long)config->layer_input);
    TRY(hf_config_size(hf, "vocab_size_per_layer_input", &rows));
    if (config->layer_input && rows != config->vocabulary)
        return fail(ERR_UNSUPPORTED, "%s: \"vocab_size_per_layer_input\" is %lld, not \"vocab_size\"", hf->path, (long long)rows);
    TRY(hf_config_int(hf, "num_kv_shared_layers", &config->shared_layers));
    TRY(hf_config_bool(hf, "attention_k_eq_v", &config->keys_as_values));
    TRY(hf_config_bool(hf, "use_double_wide_mlp", &config->wide_shared));
    TRY(read_global(hf, config));
    TRY(check_shared(hf, config));
    const json_t *rope = json_object_get(hf->tree, "rope_parameters");
    if (!json_is_object(json_object_get(rope, "full_attention")) || !json_is_object(json_object_get(rope, "sliding_attention")))
        return fail(ERR_FORMAT, "%s: \"rope_parameters\" must have \"full_attention\" and \"sliding_attention\"", hf->path);
    TRY(hf_config_rope_of(hf, "full_attention", "rope_theta", false, 1e6, &config->rope));
    return hf_config_rope_of(hf, "sliding_attention", "rope_theta", false, 1e4, &config->local_rope);
}

static const struct config_row config[] = {GEMMA_CONFIG(131072), {0}};

const struct family family_gemma4_text = {
    .model_type = "gemma4_text",
    DECODER_MODULES,
    .config = config,
    .by_layer = true,
    .part = {2304, 30, 8, 4, 256, 9216, 262144},
    .finish = finish,
    .forward = forward,
};
