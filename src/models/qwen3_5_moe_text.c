/* Qwen3.5 with experts, its text (models/qwen3_5.h): every layer has experts and, besides them, one that all tokens go to, with a
 * gate of its own (models/experts.h).
 * Covers the text of Qwen3.5-35B-A3B and larger ones: every model with "model_type": "qwen3_5_moe_text".
 */
#include "models/experts.h"
#include "models/qwen3_5.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    config->experts_normalised = true;
    TRY(qwen3_5_finish(hf, config));
    return decoder_check_experts(hf, config);
}

static const struct config_row config[] = {
    {"moe_intermediate_size", CONFIG_SIZE, CONFIG(expert_feed_forward), SAME_AS_NONE, 512},
    {"shared_expert_intermediate_size", CONFIG_SIZE, CONFIG(shared_feed_forward), SAME_AS_NONE, 512},
    {"moe_intermediate_size", CONFIG_SIZE, CONFIG(feed_forward), SAME_AS_NONE, 512}, /* no layer is dense: any size will do */
    {"num_experts", CONFIG_SIZE, CONFIG(experts), SAME_AS_NONE, 256},
    {"num_experts_per_tok", CONFIG_SIZE, CONFIG(experts_chosen), SAME_AS_NONE, 8},
    QWEN3_5_CONFIG,
    {0},
};

const struct family family_qwen3_5_moe_text = {
    .model_type = "qwen3_5_moe_text",
    DECODER_MODULES,
    .experts = &experts_plain,
    .stacked = experts_stacked,
    .config = config,
    .part = {2048, 40, 16, 2, 256, 512, 248320},
    .rope_theta = 10000,
    .finish = finish,
    .forward = qwen3_5_forward,
};
