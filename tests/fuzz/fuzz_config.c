/* The input is a config.json and, after a zero byte, a generation_config.json. */
#include <string.h>

#include "format/hf_config.h"
#include "fuzz.h"

void fuzz_input(const uint8_t *data, size_t size)
{
    size_t cut = fuzz_cut(data, size);
    fuzz_put("config.json", data, cut);
    fuzz_put("generation_config.json", cut < size ? (const char *)data + cut + 1 : "{}", cut < size ? size - cut - 1 : 2);
    struct hf_config config;
    if (hf_config_open(&config, fuzz_dir()) != OK)
        return;
    fuzz_accept();
    PROMISE(config.model_type && config.eos_count >= 0 && config.eos_count <= HF_CONFIG_EOS_MAX);
    for (int i = 0; i < config.eos_count; i++)
        PROMISE(config.eos[i] >= 0 && config.eos[i] <= INT32_MAX);
    PROMISE(config.bos >= -1 && config.pad >= -1);
    int64_t hidden;
    if (hf_config_need_size(&config, "hidden_size", &hidden) == OK)
        PROMISE(hidden >= 1 && hidden <= INT32_MAX);
    double eps;
    if (hf_config_need_real(&config, "rms_norm_eps", &eps) == OK)
        PROMISE(eps == eps);
    bool tied = false;
    hf_config_bool(&config, "tie_word_embeddings", &tied);
    const char *act = "silu";
    hf_config_text(&config, "hidden_act", &act);
    PROMISE(strlen(act) <= size + 4);
    struct rope_config rope;
    if (hf_config_rope(&config, 10000, &rope) == OK) {
        PROMISE(rope.theta > 0 && rope.attention_factor > 0);
        PROMISE(rope.kind == ROPE_DEFAULT || rope.kind == ROPE_LONG || rope.factor > 0);
        for (int64_t i = 0; i < 2 * rope.pairs; i++)
            PROMISE(rope.kind == ROPE_LONG && rope.pairs <= ROPE_PAIRS_MAX && rope.factors[i / rope.pairs][i % rope.pairs] > 0);
        if (rope.kind == ROPE_LLAMA3)
            PROMISE(rope.high_freq_factor > rope.low_freq_factor && rope.original_max_position > 0);
    }
    hf_config_close(&config);
}
