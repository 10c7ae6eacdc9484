/* OLMo 3: OLMo 2's layers (models/olmo2.c), of which every fourth sees all tokens. "rope_scaling" and "rope_theta" are for those
 * layers; local ones have plain rotary frequencies from 500000 on, or what "rope_parameters" says of them.
 * Covers every model with "model_type": "olmo3".
 */
#include "models/decoder.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    config->local = 4096;
    TRY(decoder_read_period(hf, config, 4));
    TRY(hf_config_rope_of(hf, "full_attention", "rope_theta", true, 500000, &config->rope));
    return hf_config_rope_of(hf, "sliding_attention", NULL, false, 500000, &config->local_rope);
}

static const struct config_row config[] = {
    DECODER_CONFIG(2048, 1e-5),
    {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 0},
    {"attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 0},
    {0},
};

const struct family family_olmo3 = {
    .model_type = "olmo3",
    DECODER_MODULES,
    .config = config,
    .finish = finish,
    .decoder = &(const struct decoder_layer){.wide_norms = true, .post_norms = true, .no_pre_norms = true},
    .forward = decoder_forward,
};
