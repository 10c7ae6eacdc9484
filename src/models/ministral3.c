/* Ministral 3: the shared decoder (models/decoder.h), with YaRN and queries that grow with the position.
 * Covers every model with "model_type": "ministral3", also as the text part of a mistral3.
 */
#include "models/decoder.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    TRY(hf_config_rope_real(hf, "llama_4_scaling_beta", &config->rope.growth));
    if (config->rope.growth != 0 && !config->rope.original_max_position)
        return fail(ERR_FORMAT, "%s: \"llama_4_scaling_beta\" needs \"original_max_position_embeddings\"", hf->path);
    int64_t window = 0;
    TRY(hf_config_size(hf, "sliding_window", &window));
    return decoder_read_local(hf, config, window > 0, 0);
}

static const struct config_row config[] = {
    DECODER_CONFIG(262144, 1e-5),
    {0},
};

const struct family family_ministral3 = {
    .model_type = "ministral3",
    DECODER_MODULES,
    .config = config,
    .rope_theta = 1000000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){0},
    .forward = decoder_forward,
};
