/* What the families of Gemma have in common: scaled embeddings, norms around attention and feed-forward, GeGLU, soft caps, and
 * layers of local attention with one in a period that sees all tokens.
 */
#ifndef MODELS_GEMMA_H
#define MODELS_GEMMA_H

#include "models/decoder.h"

/* The rows of config.json that all of them have. */
#define GEMMA_CONFIG(max_positions)                                                                                              \
    DECODER_CONFIG(max_positions, 1e-6), {"tie_word_embeddings", CONFIG_BOOL, CONFIG(tied), SAME_AS_NONE, 1},                    \
        {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 0},                                                      \
    {                                                                                                                            \
        "attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 0                                                      \
    }

/* What rows cannot say. `period`: of layers that see all tokens. `window`: of the others, if "sliding_window" is missing. The
 * norms' weights are stored less `norm_offset`. A cap that config.json does not mention is `attention_cap` or `logit_cap`; null
 * there is none. */
struct gemma {
    int64_t period, window;
    double norm_offset, attention_cap, logit_cap;
};

enum status gemma_finish(const struct hf_config *hf, struct model_config *config, const struct gemma *gemma);

#endif
