/* What the families of Qwen3.5 have in common: layers of linear attention by the gated delta rule between layers of attention
 * with an output gate, and norms whose weights are stored less 1. Positions are those of text, for which the rotations by time,
 * height and width are one.
 *
 * Shapes: x (T, C) · q, gate (T, H, D) · k, v (T, K, D) · of linear attention: K' key heads of DK, H' value heads of DV
 */
#ifndef MODELS_QWEN3_5_H
#define MODELS_QWEN3_5_H

#include "models/decoder.h"

/* The feed-forward is one of experts if the config has any. */
struct value *qwen3_5_forward(struct net *n);

enum status qwen3_5_finish(const struct hf_config *hf, struct model_config *config);

#define QWEN3_5_CONFIG                                                                                                           \
    DECODER_CONFIG(32768, 1e-6), {"attention_bias", CONFIG_BOOL, CONFIG(qkv_bias), SAME_AS_NONE, 0},                             \
        {"attention_bias", CONFIG_BOOL, CONFIG(output_bias), SAME_AS_NONE, 0},                                                   \
        {"linear_num_key_heads", CONFIG_SIZE, CONFIG(delta.key_heads), SAME_AS_NONE, 16},                                        \
        {"linear_num_value_heads", CONFIG_SIZE, CONFIG(delta.value_heads), SAME_AS_NONE, 32},                                    \
        {"linear_key_head_dim", CONFIG_SIZE, CONFIG(delta.key_size), SAME_AS_NONE, 128},                                         \
        {"linear_value_head_dim", CONFIG_SIZE, CONFIG(delta.value_size), SAME_AS_NONE, 128},                                     \
    {                                                                                                                            \
        "linear_conv_kernel_dim", CONFIG_SIZE, CONFIG(delta.taps), SAME_AS_NONE, 4                                               \
    }

#endif
