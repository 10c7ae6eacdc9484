/* Phi 3: the shared decoder (models/decoder.h) with fused projections; some turn a part of each head, and have other frequencies
 * for long sequences.
 * Covers Phi 3, 3.5 and 4, text only: every model with "model_type": "phi3".
 */
#include "models/decoder.h"

/* Without it the factors of long sequences would never be used. */
static enum status check_original(const struct hf_config *hf, const struct model_config *config)
{
    const char *key = "original_max_position_embeddings";
    double original = 0;
    TRY(hf_config_real(hf, key, &original));
    TRY(hf_config_rope_real(hf, key, &original));
    return config->rope.kind == ROPE_LONG && original == 0 ? fail(ERR_FORMAT, "%s: \"%s\" is missing", hf->path, key) : OK;
}

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    TRY(check_original(hf, config));
    return decoder_read_window(hf, config, 0);
}

static const struct config_row config[] = {
    DECODER_CONFIG(4096, 1e-5),
    {0},
};

const struct family family_phi3 = {
    .model_type = "phi3",
    DECODER_MODULES,
    .config = config,
    .rope_theta = 10000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){.fused = true},
    .forward = decoder_forward,
};
