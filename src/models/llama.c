/* Llama: the shared decoder (models/decoder.h).
 * Covers Llama 2 and 3, SmolLM2 and TinyLlama: every model with "model_type": "llama" and a tokenizer that hone reads.
 */
#include "models/decoder.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    (void)config;
    return decoder_check_silu(hf);
}

static const struct config_row config[] = {
    DECODER_CONFIG(2048, 1e-6),
    {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 0},
    {"attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 0},
    {"mlp_bias", CONFIG_BOOL, CONFIG(mlp_bias), SAME_AS_NONE, 0},
    {0},
};

const struct family family_llama = {
    .model_type = "llama",
    DECODER_MODULES,
    .config = config,
    .part = {4096, 32, 32, 0, 0, 11008, 32000},
    .rope_theta = 10000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){0},
    .forward = decoder_forward,
};
