/* Qwen2: the shared decoder (models/decoder.h) with biases of q, k and v.
 * Covers Qwen2 and Qwen2.5: every model with "model_type": "qwen2".
 */
#include "models/decoder.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    config->qkv_bias = true;
    return decoder_read_used_window(hf, config, true);
}

static const struct config_row config[] = {
    DECODER_CONFIG(32768, 1e-6),
    {0},
};

const struct family family_qwen2 = {
    .model_type = "qwen2",
    DECODER_MODULES,
    .config = config,
    .part = {4096, 32, 32, 32, 0, 22016, 151936},
    .rope_theta = 10000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){0},
    .forward = decoder_forward,
};
