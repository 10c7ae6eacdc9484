/* Ministral 3: the shared decoder (models/decoder.h), with YaRN and queries that grow with the position.
 * Covers every model with "model_type": "ministral3", also as the text part of a mistral3.
 */
#include "models/decoder.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    const json_t *old = json_object_get(hf->tree, "rope_scaling"), *rope = json_object_get(hf->tree, "rope_parameters");
    TRY(decoder_check_silu(hf));
    if (!json_object_size(old) && !json_object_size(rope))
        return fail(ERR_FORMAT, "%s: \"rope_parameters\" is missing: a %s has YaRN", hf->path, hf->model_type);
    TRY(hf_config_rope_real(hf, "llama_4_scaling_beta", &config->rope.growth));
    if (!(config->rope.growth >= 0))
        return fail(ERR_FORMAT, "%s: \"llama_4_scaling_beta\" is %g, it must be at least 0", hf->path, config->rope.growth);
    if (config->rope.growth != 0 && !config->rope.original_max_position)
        return fail(ERR_FORMAT, "%s: \"llama_4_scaling_beta\" needs \"original_max_position_embeddings\"", hf->path);
    return decoder_read_window(hf, config, 0);
}

static const struct config_row config[] = {
    DECODER_CONFIG(262144, 1e-5),
    {0},
};

const struct family family_ministral3 = {
    .model_type = "ministral3",
    DECODER_MODULES,
    .config = config,
    .part = {4096, 34, 32, 8, 128, 14336, 131072},
    .rope_theta = 1000000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){0},
    .forward = decoder_forward,
};
