/* Qwen3.5, its text (models/qwen3_5.h).
 * Covers the text of Qwen3.5's dense models: every model with "model_type": "qwen3_5_text".
 */
#include "models/qwen3_5.h"

static const struct config_row config[] = {QWEN3_5_CONFIG, {0}};

const struct family family_qwen3_5_text = {
    .model_type = "qwen3_5_text",
    DECODER_MODULES,
    .config = config,
    .part = {4096, 32, 16, 4, 256, 12288, 248320},
    .rope_theta = 10000,
    .finish = qwen3_5_finish,
    .forward = qwen3_5_forward,
};
