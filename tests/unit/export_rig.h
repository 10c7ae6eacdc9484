/* A tiny model and an adapter, to be exported. */
#ifndef UNIT_EXPORT_RIG_H
#define UNIT_EXPORT_RIG_H

#include "base/json.h"
#include "export/export.h"
#include "format/adapter.h"
#include "host_json.h"
#include "tiny_model.h"

enum { RANK_OF_PAIR = 2 };

static struct tiny_model model;
static char adapter[96], output[96];

static inline float entry(int64_t i, int stream)
{
    return (float)((i * 37 + stream * 11) % 23 - 11) / 40;
}

/* A pair next to q_proj and down_proj of the first layer, scaled by 3; with `norms` also a norm that was trained whole. */
static inline void make_adapter(bool norms)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } parts[] = {
        {"self_attn.q_proj.lora_A", RANK_OF_PAIR, TINY_CHANNELS},
        {"self_attn.q_proj.lora_B", 32, RANK_OF_PAIR},
        {"mlp.down_proj.lora_A", RANK_OF_PAIR, TINY_FEED_FORWARD},
        {"mlp.down_proj.lora_B", TINY_CHANNELS, RANK_OF_PAIR},
        {"input_layernorm", TINY_CHANNELS, 0},
    };
    struct safetensors_tensor list[5];
    char names[5][96], path[128];
    float *data[5];
    int count = norms ? 5 : 4;
    for (int p = 0; p < count; p++) {
        int64_t n = parts[p].rows * (parts[p].columns ? parts[p].columns : 1);
        data[p] = malloc((size_t)n * sizeof(float));
        for (int64_t i = 0; i < n; i++)
            data[p][i] = entry(i, p);
        snprintf(names[p], sizeof names[p], ADAPTER_PREFIX "model.layers.0.%s.weight", parts[p].name);
        list[p] = (struct safetensors_tensor){.name = names[p],
                                              .dtype = SAFETENSORS_F32,
                                              .rank = parts[p].columns ? 2 : 1,
                                              .shape = {parts[p].rows, parts[p].columns},
                                              .data = (const uint8_t *)data[p],
                                              .bytes = n * 4};
    }
    assert_ok(directory_make(adapter));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", adapter);
    assert_ok(safetensors_write(path, list, count, NULL));
    for (int p = 0; p < count; p++)
        free(data[p]);
    const char *targets[] = {"layers.0.self_attn.q_proj", "layers.0.mlp.down_proj"}, *saved[] = {"layers.0.input_layernorm"};
    struct adapter_config config = {
        .rank = RANK_OF_PAIR, .alpha = 6, .targets = targets, .target_count = 2, .saved = saved, .saved_count = norms};
    assert_ok(adapter_config_write(&config, adapter));
}

static inline int make(void **state)
{
    (void)state;
    host_json(); /* a text of Jansson that goes to free() ends the program */
    tiny_model_make(&model, false);
    snprintf(adapter, sizeof adapter, "%s/adapter", model.dir);
    make_adapter(false);
    return 0;
}

static inline int clean(void **state)
{
    (void)state;
    tiny_model_remove(&model);
    return 0;
}

static inline struct export_options options_of(const char *name, int type)
{
    snprintf(output, sizeof output, "%s/%s", model.dir, name);
    return (struct export_options){.model = model.dir, .adapter = adapter, .output = output, .type = type};
}

static inline enum status merge(const struct export_options *o)
{
    json_t *report = NULL;
    enum status status = export_model(o, &report);
    json_decref(report);
    return status;
}

static inline void put_file(const char *name, const char *text)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", output, name);
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
}

#endif
