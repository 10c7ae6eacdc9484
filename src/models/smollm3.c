/* SmolLM3: the shared decoder (models/decoder.h), with layers whose q and k are not rotated.
 * Covers every model with "model_type": "smollm3".
 */
#include "models/decoder.h"

/* By "no_rope_layers", where 0 is a layer without positions, or else each "no_rope_layer_interval"th is one. */
static enum status read_positions(const struct hf_config *hf, struct model_config *config)
{
    int64_t interval = 4;
    const json_t *list = json_object_get(hf->tree, "no_rope_layers");
    bool listed = list && !json_is_null(list);
    TRY(hf_config_size(hf, "no_rope_layer_interval", &interval));
    if (listed && (!json_is_array(list) || (int64_t)json_array_size(list) < config->layers))
        return fail(ERR_FORMAT, "%s: \"no_rope_layers\" must be a list with 0 or 1 for each of the %lld layers", hf->path,
                    (long long)config->layers);
    for (int64_t l = 0; l < config->layers; l++)
        config->no_positions[l] = listed ? json_integer_value(json_array_get(list, (size_t)l)) == 0 : (l + 1) % interval == 0;
    return OK;
}

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    TRY(read_positions(hf, config));
    bool local = false;
    const json_t *types = json_object_get(hf->tree, "layer_types");
    TRY(hf_config_bool(hf, "use_sliding_window", &local));
    if (local && (!types || json_is_null(types)))
        return fail(ERR_UNSUPPORTED, "%s: \"use_sliding_window\" needs \"layer_types\", which say in which layers", hf->path);
    return decoder_read_local(hf, config, false, 0);
}

static const struct config_row config[] = {
    DECODER_CONFIG(32768, 1e-6),
    {"tie_word_embeddings", CONFIG_BOOL, CONFIG(tied), SAME_AS_NONE, 1}, /* published files leave it out */
    {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 0},
    {"attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 0},
    {"mlp_bias", CONFIG_BOOL, CONFIG(mlp_bias), SAME_AS_NONE, 0},
    {0},
};

const struct family family_smollm3 = {
    .model_type = "smollm3",
    DECODER_MODULES,
    .config = config,
    .rope_theta = 2000000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){0},
    .forward = decoder_forward,
};
