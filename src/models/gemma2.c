/* Gemma 2: the shared decoder (models/decoder.h) as models/gemma.h says, with soft caps; every second layer sees all tokens.
 * Covers every model with "model_type": "gemma2".
 */
#include "models/gemma.h"

static enum status finish(const struct hf_config *hf, struct model_config *config)
{
    return gemma_finish(hf, config,
                        &(struct gemma){.period = 2, .window = 4096, .norm_offset = 1, .attention_cap = 50, .logit_cap = 30});
}

static const struct config_row config[] = {GEMMA_CONFIG(8192), {0}};

const struct family family_gemma2 = {
    .model_type = "gemma2",
    DECODER_MODULES,
    .config = config,
    .rope_theta = 10000,
    .finish = finish,
    .decoder = &(const struct decoder_layer){.geglu = true, .post_norms = true},
    .forward = decoder_forward,
};
