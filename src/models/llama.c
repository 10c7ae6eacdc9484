/* Llama: a pre-norm decoder with grouped-query attention, rotary positions and a SwiGLU feed-forward.
 * Covers Llama 2 and 3, SmolLM2 and TinyLlama: every model with "model_type": "llama" and a tokenizer that hone reads.
 *
 * Shapes: x (T, C) · q (T, H, D) · k, v (T, K, D) · feed-forward (T, F)
 */
#include <string.h>

#include "models/net.h"

static struct value *layer(struct net *n, struct value *x, int64_t l)
{
    const struct model_config *c = n->config;
    int64_t H = c->heads, K = c->kv_heads, D = c->head_size;

    struct value *h = net_norm(n, x, "input_layernorm", l);
    struct value *q = net_heads(n, net_linear(n, h, H * D, c->attention_bias, "self_attn.q_proj", l), H);
    struct value *k = net_heads(n, net_linear(n, h, K * D, c->attention_bias, "self_attn.k_proj", l), K);
    struct value *v = net_heads(n, net_linear(n, h, K * D, c->attention_bias, "self_attn.v_proj", l), K);
    struct value *a = net_attention(n, net_rope(n, q), net_rope(n, k), v, l);
    x = net_add(n, x, net_linear(n, a, c->channels, c->attention_bias, "self_attn.o_proj", l));

    h = net_norm(n, x, "post_attention_layernorm", l);
    struct value *gate = net_linear(n, h, c->feed_forward, c->mlp_bias, "mlp.gate_proj", l);
    struct value *up = net_linear(n, h, c->feed_forward, c->mlp_bias, "mlp.up_proj", l);
    return net_add(n, x, net_linear(n, net_swiglu(n, gate, up), c->channels, c->mlp_bias, "mlp.down_proj", l));
}

static struct value *forward(struct net *n)
{
    struct value *x = net_layers(n, net_embedding(n), layer);
    return net_norm(n, x, n->family->norm, NET_NO_LAYER);
}

static enum status check(const struct hf_config *hf, const struct model_config *config)
{
    (void)config;
    const char *act = "silu";
    TRY(hf_config_text(hf, "hidden_act", &act));
    return strcmp(act, "silu") ? fail(ERR_UNSUPPORTED, "%s: \"hidden_act\" is \"%s\", a llama has \"silu\"", hf->path, act) : OK;
}

static const struct config_row config[] = {
    {"hidden_size", CONFIG_SIZE, CONFIG(channels), SAME_AS_NONE, 0},
    {"num_hidden_layers", CONFIG_SIZE, CONFIG(layers), SAME_AS_NONE, 0},
    {"num_attention_heads", CONFIG_SIZE, CONFIG(heads), SAME_AS_NONE, 0},
    {"num_key_value_heads", CONFIG_SIZE, CONFIG(kv_heads), SAME_AS(heads), 0},
    {"head_dim", CONFIG_SIZE, CONFIG(head_size), SAME_AS(head_size), 0},
    {"intermediate_size", CONFIG_SIZE, CONFIG(feed_forward), SAME_AS_NONE, 0},
    {"vocab_size", CONFIG_SIZE, CONFIG(vocabulary), SAME_AS_NONE, 0},
    {"max_position_embeddings", CONFIG_SIZE, CONFIG(window), SAME_AS_NONE, 2048},
    {"rms_norm_eps", CONFIG_REAL, CONFIG(eps), SAME_AS_NONE, 1e-6},
    {"tie_word_embeddings", CONFIG_BOOL, CONFIG(tied), SAME_AS_NONE, 0},
    {"attention_bias", CONFIG_BOOL, CONFIG(attention_bias), SAME_AS_NONE, 0},
    {"mlp_bias", CONFIG_BOOL, CONFIG(mlp_bias), SAME_AS_NONE, 0},
    {0},
};

const struct family family_llama = {
    .model_type = "llama",
    .layer = "model.layers.%d.",
    .embedding = "model.embed_tokens",
    .norm = "model.norm",
    .head = "lm_head",
    .config = config,
    .rope_theta = 10000,
    .check = check,
    .forward = forward,
};
