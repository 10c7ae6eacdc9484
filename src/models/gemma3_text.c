/* Gemma 3: the shared decoder (models/decoder.h) as models/gemma.h says, with a norm of each head of q and k. Local layers have
 * rotary frequencies of their own; every sixth layer sees all tokens.
 * Covers the text of every model with "model_type": "gemma3_text".
 */
#include "models/gemma.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    int64_t period = 6;
    TRY(hf_config_size(hf, "sliding_window_pattern", &period));
    TRY(gemma_finish(hf, config, &(struct gemma){.period = period, .window = 4096, .norm_offset = 1}));
    TRY(hf_config_rope_of(hf, "full_attention", "rope_theta", true, 1e6, &config->rope));
    return hf_config_rope_of(hf, "sliding_attention", "rope_local_base_freq", false, 1e4, &config->local_rope);
}

static const struct config_row config[] = {GEMMA_CONFIG(131072), {0}};

const struct family family_gemma3_text = {
    .model_type = "gemma3_text",
    DECODER_MODULES,
    .config = config,
    .part = {2304, 26, 8, 4, 256, 9216, 262208},
    .finish = finish,
    .decoder = &(const struct decoder_layer){.head_norms = true, .geglu = true, .post_norms = true},
    .forward = decoder_forward,
};
