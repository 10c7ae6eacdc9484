/* Qwen3: the shared decoder (models/decoder.h) with a norm of each head of q and k.
 * Covers the dense models of Qwen3: every model with "model_type": "qwen3".
 */
#include "models/decoder.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    return decoder_read_used_window(hf, config, true);
}

static const struct config_row config[] = {
    DECODER_CONFIG(32768, 1e-6),
    {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 0},
    {"attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 0},
    {0},
};

const struct family family_qwen3 = {
    .model_type = "qwen3",
    DECODER_MODULES,
    .config = config,
    .part = {4096, 32, 32, 32, 128, 22016, 151936},
    .rope_theta = 10000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){.head_norms = true},
    .forward = decoder_forward,
};
