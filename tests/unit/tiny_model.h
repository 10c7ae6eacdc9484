/* A model directory made by the test: a random llama of two layers and 32 channels (TINY_DEPTH and TINY_WIDTH where a test says
 * so) with a byte-level tokenizer and a ChatML template. */
#ifndef TESTS_UNIT_TINY_MODEL_H
#define TESTS_UNIT_TINY_MODEL_H

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/rng.h"
#include "format/safetensors.h"

#ifndef TINY_DEPTH
#define TINY_DEPTH 2
#endif
#ifndef TINY_WIDTH
#define TINY_WIDTH 32
#endif

enum {
    TINY_VOCABULARY = 259,
    TINY_CHANNELS = TINY_WIDTH,
    TINY_FEED_FORWARD = TINY_WIDTH * 3 / 2,
    TINY_LAYERS = TINY_DEPTH,
    TINY_TENSORS = 4 + 9 * TINY_LAYERS
};

struct tiny_model {
    char dir[64];
    bool tied;
};

static inline void tiny_write(const struct tiny_model *m, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", m->dir, name);
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
}

/* The byte alphabet of byte-level tokenizers: printable bytes stand for themselves, the others for code points from 256 on. */
static inline int tiny_code_point(int byte)
{
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173))
        return byte;
    int beyond = 0;
    for (int b = 0; b < byte; b++)
        beyond += !((b >= 33 && b <= 126) || (b >= 161 && b != 173));
    return 256 + beyond;
}

static inline void tiny_tokenizer(const struct tiny_model *m)
{
    static char text[32768];
    int n = snprintf(text, sizeof text, "{\"added_tokens\": [");
    static const char *const added[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    for (int i = 0; i < 3; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s{\"id\": %d, \"content\": \"%s\", \"special\": true, \"single_word\": false, \"lstrip\": false, "
                      "\"rstrip\": false, \"normalized\": false}",
                      i ? ", " : "", i, added[i]);
    n += snprintf(text + n, sizeof text - (size_t)n,
                  "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                  "\"trim_offsets\": true, \"use_regex\": true}, "
                  "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                  "\"trim_offsets\": true, \"use_regex\": true}, "
                  "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null, "
                  "\"end_of_word_suffix\": null, "
                  "\"fuse_unk\": false, \"byte_fallback\": false, \"merges\": [], \"vocab\": {\"<|endoftext|>\": 0, "
                  "\"<|im_start|>\": 1, \"<|im_end|>\": 2");
    for (int b = 0; b < 256; b++)
        n += snprintf(text + n, sizeof text - (size_t)n, ", \"\\u%04x\": %d", tiny_code_point(b), 3 + b);
    snprintf(text + n, sizeof text - (size_t)n, "}}}");
    tiny_write(m, "tokenizer.json", text);
    tiny_write(m, "tokenizer_config.json", "{\"bos_token\": \"<|im_start|>\", \"eos_token\": \"<|im_end|>\"}");
    tiny_write(m, "chat_template.jinja",
               "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
               "'\\n' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
}

struct tiny_tensors {
    struct safetensors_tensor list[TINY_TENSORS];
    char names[TINY_TENSORS][64];
    float *data[TINY_TENSORS];
    int count;
};

static inline void tiny_tensor(struct tiny_tensors *t, const char *name, int64_t rows, int64_t columns)
{
    int64_t n = rows * (columns ? columns : 1);
    float *data = malloc((size_t)n * sizeof *data), pair[2];
    for (int64_t i = 0; i < n; i++) {
        struct philox r = philox(11, (uint64_t)t->count, (uint64_t)i);
        philox_normal(r.word[0], r.word[1], pair);
        data[i] = columns ? pair[0] * 0.2f : 1 + pair[0] * 0.1f;
    }
    snprintf(t->names[t->count], sizeof t->names[0], "%s", name);
    t->data[t->count] = data;
    t->list[t->count] = (struct safetensors_tensor){.name = t->names[t->count],
                                                    .dtype = SAFETENSORS_F32,
                                                    .rank = columns ? 2 : 1,
                                                    .shape = {rows, columns},
                                                    .data = (const uint8_t *)data,
                                                    .bytes = n * 4};
    t->count++;
}

/* The matrices (rows, columns) of so many experts in one tensor. */
static inline void tiny_stack(struct tiny_tensors *t, const char *name, int64_t experts, int64_t rows, int64_t columns)
{
    tiny_tensor(t, name, experts * rows, columns);
    struct safetensors_tensor *last = &t->list[t->count - 1];
    last->rank = 3;
    memcpy(last->shape, (int64_t[]){experts, rows, columns}, 3 * sizeof(int64_t));
}

static inline void tiny_save(const struct tiny_model *m, struct tiny_tensors *t)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", m->dir);
    assert_ok(safetensors_write(path, t->list, t->count, NULL));
    for (int i = 0; i < t->count; i++)
        free(t->data[i]);
}

static inline void tiny_weights(const struct tiny_model *m)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } layer[] = {
        {"input_layernorm", TINY_CHANNELS, 0},
        {"self_attn.q_proj", TINY_CHANNELS, TINY_CHANNELS},
        {"self_attn.k_proj", TINY_CHANNELS / 2, TINY_CHANNELS},
        {"self_attn.v_proj", TINY_CHANNELS / 2, TINY_CHANNELS},
        {"self_attn.o_proj", TINY_CHANNELS, TINY_CHANNELS},
        {"post_attention_layernorm", TINY_CHANNELS, 0},
        {"mlp.gate_proj", TINY_FEED_FORWARD, TINY_CHANNELS},
        {"mlp.up_proj", TINY_FEED_FORWARD, TINY_CHANNELS},
        {"mlp.down_proj", TINY_CHANNELS, TINY_FEED_FORWARD},
    };
    struct tiny_tensors t = {.count = 0};
    char name[64];
    tiny_tensor(&t, "model.embed_tokens.weight", TINY_VOCABULARY, TINY_CHANNELS);
    for (int l = 0; l < TINY_LAYERS; l++)
        for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++) {
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, layer[i].name);
            tiny_tensor(&t, name, layer[i].rows, layer[i].columns);
        }
    tiny_tensor(&t, "model.norm.weight", TINY_CHANNELS, 0);
    if (!m->tied)
        tiny_tensor(&t, "lm_head.weight", TINY_VOCABULARY, TINY_CHANNELS);
    tiny_save(m, &t);
}

static inline void tiny_config(const struct tiny_model *m, const char *eps, const char *theta)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d, "
             "\"num_attention_heads\": 4, "
             "\"num_key_value_heads\": 2, \"vocab_size\": %d, \"max_position_embeddings\": 512, \"rms_norm_eps\": %s, "
             "\"rope_theta\": %s, "
             "\"tie_word_embeddings\": %s, \"hidden_act\": \"silu\", \"dtype\": \"float32\"}",
             TINY_CHANNELS, TINY_FEED_FORWARD, TINY_LAYERS, TINY_VOCABULARY, eps, theta, m->tied ? "true" : "false");
    tiny_write(m, "config.json", config);
}

static inline void tiny_model_make(struct tiny_model *m, bool tied)
{
    *m = (struct tiny_model){.tied = tied};
    snprintf(m->dir, sizeof m->dir, "/tmp/hone-tiny-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    tiny_config(m, "1e-5", "10000.0");
    tiny_tokenizer(m);
    tiny_weights(m);
}

/* Chats of different lengths, one a line. */
static inline void tiny_chats(const struct tiny_model *m, int rows)
{
    static char text[16384];
    int n = 0;
    for (int i = 0; i < rows; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"%d?\"}, {\"role\": \"assistant\", "
                      "\"content\": \"%.*s\"}]}\n",
                      i, 3 + i * 5 % 11, "The sharp edge.");
    tiny_write(m, "chats.jsonl", text);
}

static inline void tiny_model_remove(const struct tiny_model *m)
{
    assert_ok(directory_remove(m->dir));
}

/* The teardown of a group whose state is a model. */
static inline int tiny_model_teardown(void **state)
{
    tiny_model_remove(*state);
    return 0;
}

#endif
