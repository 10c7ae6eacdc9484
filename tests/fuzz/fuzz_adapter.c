/* The input is an adapter_config.json and, after a zero byte, an option with patterns. What can be read can be written, and
 * reading that again gives the same answers. */
#include <math.h>
#include <string.h>

#include "format/adapter.h"
#include "fuzz.h"

static const char *const MODULES[] = {
    "model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "model.norm", "lm_head", "q", ""};

static void check_option(const uint8_t *data, size_t size)
{
    char text[256];
    size = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, data, size);
    text[size] = 0;
    struct adapter_config c = {0};
    struct adapter_pattern *patterns;
    int64_t count;
    if (adapter_parse_patterns(&c.arena, text, "--x", &patterns, &count) == OK)
        for (int64_t i = 0; i < count; i++)
            PROMISE(*patterns[i].module && isfinite(patterns[i].value));
    if (adapter_parse_targets(&c, text, "--x") == OK)
        PROMISE(c.all_linear || c.target_count > 0);
    if (adapter_parse_parameters(&c, text, "--x") == OK)
        for (size_t i = 0; i < sizeof MODULES / sizeof *MODULES; i++)
            adapter_targets_parameter(&c, MODULES[i]);
    adapter_config_free(&c);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    size_t cut = fuzz_cut(data, size);
    fuzz_put("adapter_config.json", data, cut);
    if (cut < size)
        check_option(data + cut + 1, size - cut - 1);
    struct adapter_config config, again;
    if (adapter_config_open(&config, fuzz_dir()) != OK)
        return;
    fuzz_accept();
    PROMISE(config.all_linear || config.target_count > 0 || config.parameter_count > 0);
    PROMISE(adapter_config_write(&config, fuzz_dir()) == OK);
    PROMISE(adapter_config_open(&again, fuzz_dir()) == OK);
    for (size_t i = 0; i < sizeof MODULES / sizeof *MODULES; i++) {
        int64_t rank = adapter_rank(&config, MODULES[i]);
        PROMISE(rank >= 1 && rank <= ADAPTER_RANK_MAX && isfinite(adapter_scale(&config, MODULES[i])));
        PROMISE(rank == adapter_rank(&again, MODULES[i]));
        PROMISE(adapter_scale(&config, MODULES[i]) == adapter_scale(&again, MODULES[i]));
        PROMISE(adapter_targets(&config, MODULES[i], "lm_head") == adapter_targets(&again, MODULES[i], "lm_head"));
        PROMISE(adapter_saves(&config, MODULES[i]) == adapter_saves(&again, MODULES[i]));
    }
    PROMISE(config.dropout == again.dropout && config.target_count == again.target_count);
    adapter_config_free(&again);
    adapter_config_free(&config);
}
