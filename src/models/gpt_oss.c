/* gpt-oss: the shared decoder (models/decoder.h) with biases and sinks of attention, every second layer local, and experts with
 * biases and a clamped SwiGLU in every layer (models/experts.h).
 * Covers gpt-oss-20b and gpt-oss-120b: every model with "model_type": "gpt_oss".
 */
#include "models/decoder.h"
#include "models/experts.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    TRY(decoder_check_silu(hf));
    if (!json_object_size(json_object_get(hf->tree, "rope_scaling")) &&
        !json_is_object(json_object_get(hf->tree, "rope_parameters")))
        return fail(ERR_FORMAT, "%s: \"rope_scaling\" is missing, and a gpt_oss has YaRN", hf->path);
    config->experts_normalised = true;
    config->expert_feed_forward = config->feed_forward;
    config->local = 128;
    TRY(decoder_read_period(hf, config, 2));
    return decoder_check_experts(hf, config);
}

static const struct config_row config[] = {
    DECODER_CONFIG(131072, 1e-5),
    {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 1},
    {"attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 1},
    {"num_experts", CONFIG_SIZE, CONFIG(experts), SAME_AS_NONE, 128},
    {"num_local_experts", CONFIG_SIZE, CONFIG(experts), SAME_AS(experts), 0},
    {"num_experts_per_tok", CONFIG_SIZE, CONFIG(experts_chosen), SAME_AS_NONE, 4},
    {"swiglu_alpha", CONFIG_REAL, CONFIG(swiglu_alpha), SAME_AS_NONE, 1.702},
    {"swiglu_limit", CONFIG_REAL, CONFIG(swiglu_limit), SAME_AS_NONE, 7},
    {0},
};

const struct family family_gpt_oss = {
    .model_type = "gpt_oss",
    DECODER_MODULES,
    .experts = &(const struct experts_form){.router = "mlp.router", .by_input = true, .interleaved = true, .biases = true},
    .frozen = "sinks and biases of experts",
    .config = config,
    .rope_theta = 150000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){.sinks = true, .experts = true},
    .forward = decoder_forward,
};
