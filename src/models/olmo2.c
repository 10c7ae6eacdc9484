/* OLMo 2: the shared decoder (models/decoder.h) with norms after attention and feed-forward, and norms of all heads of q and k.
 * Covers every model with "model_type": "olmo2".
 */
#include "models/decoder.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    (void)config;
    return decoder_check_silu(hf);
}

static const struct config_row config[] = {
    DECODER_CONFIG(2048, 1e-5),
    {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 0},
    {"attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 0},
    {0},
};

const struct family family_olmo2 = {
    .model_type = "olmo2",
    DECODER_MODULES,
    .config = config,
    .rope_theta = 10000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){.wide_norms = true, .post_norms = true, .no_pre_norms = true},
    .forward = decoder_forward,
};
