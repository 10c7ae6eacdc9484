/* Qwen3 with experts: the shared decoder (models/decoder.h) with a norm of each head of q and k, and layers of experts
 * (models/experts.h).
 * Covers Qwen3-30B-A3B, Qwen3-235B-A22B and Qwen3-Coder: every model with "model_type": "qwen3_moe".
 */
#include "models/decoder.h"
#include "models/experts.h"

static struct value *qwen3_moe_layer(struct net *n, struct value *x, int64_t l)
{
    return decoder_layer(n, x, &(struct decoder_layer){.head_norms = true, .experts = n->config->has_experts[l]}, l);
}

static struct value *forward(struct net *n)
{
    return decoder_forward_by(n, qwen3_moe_layer);
}

/* Every `step`-th layer has experts, except those that the config lists. */
static enum status qwen3_moe_read_layers(const struct hf_config *hf, struct model_config *config)
{
    const json_t *dense = json_object_get(hf->tree, "mlp_only_layers"), *number;
    int64_t step = 1;
    size_t i;
    TRY(hf_config_size(hf, "decoder_sparse_step", &step));
    for (int64_t l = 0; l < config->layers; l++)
        config->has_experts[l] = (l + 1) % step == 0;
    json_array_foreach(dense, i, number)
    {
        int64_t l = json_is_integer(number) ? json_integer_value(number) : -1;
        if (l < 0 || l >= config->layers)
            return fail(ERR_FORMAT, "%s: \"mlp_only_layers\" must be a list of layers", hf->path);
        config->has_experts[l] = false;
    }
    return OK;
}

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    TRY(qwen3_moe_read_layers(hf, config));
    TRY(decoder_read_used_window(hf, config, false));
    return decoder_check_experts(hf, config);
}

static const struct config_row config[] = {
    DECODER_CONFIG(32768, 1e-6),
    {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 0},
    {"attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 0},
    {"num_local_experts", CONFIG_SIZE, CONFIG(experts), SAME_AS_NONE, 128}, /* as transformers 5 writes it */
    {"num_experts", CONFIG_SIZE, CONFIG(experts), SAME_AS(experts), 0},
    {"num_experts_per_tok", CONFIG_SIZE, CONFIG(experts_chosen), SAME_AS_NONE, 8},
    {"moe_intermediate_size", CONFIG_SIZE, CONFIG(expert_feed_forward), SAME_AS_NONE, 768},
    {"norm_topk_prob", CONFIG_BOOL, CONFIG(experts_normalised), SAME_AS_NONE, 0},
    {0},
};

const struct family family_qwen3_moe = {
    .model_type = "qwen3_moe",
    DECODER_MODULES,
    .experts = &experts_plain,
    .stacked = experts_stacked,
    .config = config,
    .rope_theta = 10000,
    .finish = finish,
    .forward = forward,
};
