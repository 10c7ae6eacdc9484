/* Granite: the shared decoder (models/decoder.h) with factors of the embedding, of attention's scores, of what layers add, and of
 * logits.
 * Covers the dense models of Granite 3: every model with "model_type": "granite".
 */
#include "models/decoder.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    double divisor = 1;
    TRY(decoder_check_silu(hf));
    TRY(hf_config_real(hf, "logits_scaling", &divisor));
    if (!(divisor > 0))
        return fail(ERR_FORMAT, "%s: \"logits_scaling\" is %g, it must be above 0", hf->path, divisor);
    config->logit_scale = 1 / divisor;
    return OK;
}

static const struct config_row config[] = {
    DECODER_CONFIG(2048, 1e-6),
    {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 0},
    {"attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 0},
    {"mlp_bias", CONFIG_BOOL, CONFIG(mlp_bias), SAME_AS_NONE, 0},
    {"embedding_multiplier", CONFIG_REAL, CONFIG(embedding_scale), SAME_AS_NONE, 1},
    {"residual_multiplier", CONFIG_REAL, CONFIG(residual_scale), SAME_AS_NONE, 1},
    {"attention_multiplier", CONFIG_REAL, CONFIG(attention_scale), SAME_AS_NONE, 1},
    {0},
};

const struct family family_granite = {
    .model_type = "granite",
    DECODER_MODULES,
    .config = config,
    .rope_theta = 10000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){0},
    .forward = decoder_forward,
};
