/* Mistral: the shared decoder (models/decoder.h), with local attention in every layer where config.json has a window.
 * Covers every model with "model_type": "mistral": Mistral 7B, Nemo, Small.
 */
#include "models/decoder.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    return decoder_read_window(hf, config, 4096);
}

static const struct config_row config[] = {DECODER_CONFIG(131072, 1e-6), {0}};

const struct family family_mistral = {
    .model_type = "mistral",
    DECODER_MODULES,
    .config = config,
    .part = {4096, 32, 32, 8, 0, 14336, 32000},
    .rope_theta = 10000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){0},
    .forward = decoder_forward,
};
