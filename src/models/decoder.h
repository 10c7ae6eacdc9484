/* The decoder that most families share: pre-norm layers of grouped-query attention with rotary positions and a SwiGLU (or GeGLU)
 * feed-forward. A family says what it does otherwise; biases, factors, local layers and layers without positions are those of
 * its config.
 *
 * Shapes: x (T, C) · q (T, H, D) · k, v (T, K, D) · feed-forward (T, F)
 */
#ifndef MODELS_DECODER_H
#define MODELS_DECODER_H

#include "models/net.h"

struct decoder_layer {
    bool head_norms;   /* q_norm and k_norm of each head before its rotation */
    bool wide_norms;   /* the same two, of all heads together */
    bool sinks;        /* one more score of each head: self_attn.sinks */
    bool experts;      /* its feed-forward is one of experts */
    bool post_norms;   /* norms of what attention and feed-forward give as well, before it is added; then names are Gemma's */
    bool no_pre_norms; /* with post_norms: none of what they take */
    bool geglu;        /* the feed-forward's activation is gelu by tanh, not silu */
    bool fused;        /* qkv_proj is q, k and v, gate_up_proj is gate and up: each is one layer, with one adapter */
    struct value *(*attention)(struct net *n, struct value *h, int64_t l); /* in the place of self_attn; NULL: it is as above */
};

/* Layer l of the network. */
struct value *decoder_layer(struct net *n, struct value *x, const struct decoder_layer *with, int64_t l);

/* From the embedding to the last norm: all layers as family->decoder says, or by a function where they differ. */
struct value *decoder_forward(struct net *n);
struct value *decoder_forward_by(struct net *n, struct value *(*layer)(struct net *n, struct value *x, int64_t l));

/* The rows of config.json that these families have in common; SAME_AS(head_size) is hidden_size / num_attention_heads. */
#define DECODER_CONFIG(max_positions, eps_otherwise)                                                                             \
    {"hidden_size", CONFIG_SIZE, CONFIG(channels), SAME_AS_NONE, 0},                                                             \
        {"num_hidden_layers", CONFIG_SIZE, CONFIG(layers), SAME_AS_NONE, 0},                                                     \
        {"num_attention_heads", CONFIG_SIZE, CONFIG(heads), SAME_AS_NONE, 0},                                                    \
        {"num_key_value_heads", CONFIG_SIZE, CONFIG(kv_heads), SAME_AS(heads), 0},                                               \
        {"head_dim", CONFIG_SIZE, CONFIG(head_size), SAME_AS(head_size), 0},                                                     \
        {"intermediate_size", CONFIG_SIZE, CONFIG(feed_forward), SAME_AS_NONE, 0},                                               \
        {"vocab_size", CONFIG_SIZE, CONFIG(vocabulary), SAME_AS_NONE, 0},                                                        \
        {"max_position_embeddings", CONFIG_SIZE, CONFIG(window), SAME_AS_NONE, max_positions},                                   \
        {"rms_norm_eps", CONFIG_REAL, CONFIG(eps), SAME_AS_NONE, eps_otherwise},                                                 \
    {                                                                                                                            \
        "tie_word_embeddings", CONFIG_BOOL, CONFIG(tied), SAME_AS_NONE, 0                                                        \
    }

/* The names of its modules. */
#define DECODER_MODULES .layer = "model.layers.%d.", .embedding = "model.embed_tokens", .norm = "model.norm", .head = "lm_head"

/* Refuses another activation than silu; or, by its key, than the one that a family has. */
enum status decoder_check_silu(const struct hf_config *hf);
enum status decoder_check_activation(const struct hf_config *hf, const char *key, const char *activation);

/* Refuses more chosen experts than there are. */
enum status decoder_check_experts(const struct hf_config *hf, const struct model_config *config);

/* Which layers have local attention, and over how many tokens: by "layer_types", or else those from `from` on if `local`. What
 * config->local is before stands for a missing "sliding_window"; with 0 it is required. */
enum status decoder_read_local(const struct hf_config *hf, struct model_config *config, bool local, int64_t from);

/* The same for families with a window in every layer or none: null is none, a missing one is `otherwise` (0: none). */
enum status decoder_read_window(const struct hf_config *hf, struct model_config *config, int64_t otherwise);

/* The same for Qwen's: "use_sliding_window" says whether there is one, if it is not null, and in the dense ones
 * "max_window_layers" from where on. */
enum status decoder_read_used_window(const struct hf_config *hf, struct model_config *config, bool dense);

/* The same where not "layer_types" but a period says it: every so many layers one that sees all tokens, the last of them. */
enum status decoder_read_period(const struct hf_config *hf, struct model_config *config, int64_t period);

#endif
