/* Mixtral: the shared decoder (models/decoder.h) with experts in every layer (models/experts.h).
 * Covers every model with "model_type": "mixtral".
 */
#include "models/decoder.h"
#include "models/experts.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    config->experts_normalised = true;
    config->expert_feed_forward = config->feed_forward;
    TRY(decoder_read_window(hf, config, 0));
    return decoder_check_experts(hf, config);
}

static const struct config_row config[] = {
    DECODER_CONFIG(131072, 1e-5),
    {"num_local_experts", CONFIG_SIZE, CONFIG(experts), SAME_AS_NONE, 8},
    {"num_experts_per_tok", CONFIG_SIZE, CONFIG(experts_chosen), SAME_AS_NONE, 2},
    {0},
};

/* Files have the names of Mixtral's first code, the network those of today's. */
static const struct stacked stacked[] = {
    {"mlp.gate.weight", {"block_sparse_moe.gate.weight"}},
    {"mlp.experts.gate_up_proj", {"block_sparse_moe.experts.%d.w1.weight", "block_sparse_moe.experts.%d.w3.weight"}},
    {"mlp.experts.down_proj", {"block_sparse_moe.experts.%d.w2.weight"}},
    {0},
};

const struct family family_mixtral = {
    .model_type = "mixtral",
    DECODER_MODULES,
    .experts = &experts_plain,
    .stacked = stacked,
    .config = config,
    .rope_theta = 1000000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){.experts = true},
    .forward = decoder_forward,
};
