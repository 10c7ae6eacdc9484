/* The head of a GGUF file as the config.json that it was made from. Keys that a family's files do not have keep the defaults of
 * the family, which are transformers'. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "models/gguf_base.h"

static const struct {
    const char *key; /* after "<architecture>." */
    const char *name;
    bool real;
} KEYS[] = {
    {"block_count", "num_hidden_layers", false},
    {"context_length", "max_position_embeddings", false},
    {"embedding_length", "hidden_size", false},
    {"feed_forward_length", "intermediate_size", false},
    {"attention.head_count", "num_attention_heads", false},
    {"attention.head_count_kv", "num_key_value_heads", false},
    {"attention.key_length", "head_dim", false},
    {"attention.sliding_window", "sliding_window", false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    {"attn_logit_softcapping", "attn_logit_softcapping", true},
    {"final_logit_softcapping", "final_logit_softcapping", true},
    {"rope.freq_base", "rope_theta", true},
    {"attention.scale", "attention_multiplier", true},
    {"embedding_scale", "embedding_multiplier", true},
    {"residual_scale", "residual_multiplier", true},
    {"logit_scale", "logits_scaling", true},
};

static enum status gguf_config_put(json_t *tree, const char *name, json_t *value)
{
    return value && json_object_set_new(tree, name, value) == 0 ? OK : fail(ERR_MEMORY, "out of memory: a JSON value");
}

/* A number of the architecture's own keys; a missing one is left as it is. */
static enum status get_int(const struct gguf_base *base, const char *key, int64_t *out)
{
    char whole[128];
    snprintf(whole, sizeof whole, "%s.%s", base->arch->name, key);
    return gguf_get_int(base->file[0], whole, out);
}

static enum status get_real(const struct gguf_base *base, const char *key, double *out)
{
    char whole[128];
    snprintf(whole, sizeof whole, "%s.%s", base->arch->name, key);
    return gguf_get_real(base->file[0], whole, out);
}

static bool gguf_config_has(const struct gguf_base *base, const char *key)
{
    char whole[128];
    snprintf(whole, sizeof whole, "%s.%s", base->arch->name, key);
    return gguf_value_find(base->file[0], whole) != NULL;
}

static enum status gguf_config_put_numbers(const struct gguf_base *base, json_t *tree)
{
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        int64_t whole = 0;
        double real = 0;
        if (!gguf_config_has(base, KEYS[i].key))
            continue;
        TRY(KEYS[i].real ? get_real(base, KEYS[i].key, &real) : get_int(base, KEYS[i].key, &whole));
        TRY(gguf_config_put(tree, KEYS[i].name, KEYS[i].real ? json_real(real) : json_integer(whole)));
    }
    return OK;
}

/* How many channels of a head are turned: all of them in files that do not say how large a head is. */
static enum status put_heads(const struct gguf_base *base, json_t *tree)
{
    int64_t turned = 0, size = 0, layers = 0, channels = 0, heads = 1;
    TRY(get_int(base, "rope.dimension_count", &turned));
    TRY(get_int(base, "attention.key_length", &size));
    TRY(get_int(base, "block_count", &layers));
    TRY(get_int(base, "embedding_length", &channels));
    TRY(get_int(base, "attention.head_count", &heads));
    if (!size && turned && base->arch->permuted)
        TRY(gguf_config_put(tree, "head_dim", json_integer(turned)));
    size = size || heads < 1 ? size : channels / heads;
    if (turned && size && turned < size && !base->arch->permuted)
        TRY(gguf_config_put(tree, "partial_rotary_factor", json_real((double)turned / (double)size)));
    /* Files of gemma do not say by what scores are divided; of the largest of each it is not the size of a head. */
    bool gemma2 = !strcmp(base->arch->name, "gemma2"), gemma3 = !strcmp(base->arch->name, "gemma3");
    if (gemma2 || gemma3) {
        bool largest = layers == (gemma2 ? 46 : 62);
        TRY(gguf_config_put(tree, "query_pre_attn_scalar", json_integer(largest && heads > 0 ? channels / heads : size)));
    }
    return OK;
}

/* Of too many, one more than a configuration may have: it is refused then. */
static json_t *numbers_of(const struct gguf_base *base, const char *tensor)
{
    const struct gguf_tensor *t = gguf_base_find(base, tensor);
    json_t *list = t && !strcmp(gguf_type_name(t->type), "F32") ? json_array() : NULL;
    for (int64_t i = 0; list && i < min(t->shape[0], ROPE_PAIRS_MAX + 1); i++) {
        float number;
        memcpy(&number, t->data + 4 * i, sizeof number);
        json_array_append_new(list, json_real(isfinite(number) ? (double)number : 0)); /* which is refused too */
    }
    return list;
}

/* llama.cpp's factor of cosines and sines: of YaRN it grows with the length, and the file's own multiplies it. Files of OLMo 3
 * have the model's whole factor there. */
static enum status put_attention_factor(const struct gguf_base *base, json_t *rope, bool yarn)
{
    double factor = 1, multiplier = 0, own = 0;
    TRY(get_real(base, "rope.scaling.factor", &factor));
    TRY(get_real(base, "rope.scaling.yarn_log_multiplier", &multiplier));
    TRY(get_real(base, "rope.scaling.attn_factor", &own));
    double length = yarn && factor > 1 ? 0.1 * log(factor) : 0;
    if (own == 0 && !yarn)
        return OK;
    if (own == 0 || strcmp(base->arch->name, "olmo2") != 0)
        own = (own != 0 ? own : 1) * (1 + length) / (1 + multiplier * length);
    if (!isfinite(own))
        return fail(ERR_FORMAT, "%s: its keys of rope.scaling give no finite attention factor", base->path);
    return gguf_config_put(rope, "attention_factor", json_real(own));
}

static bool gguf_config_is_word(struct gguf_text text, const char *word)
{
    return text.length == (int64_t)strlen(word) && memcmp(text.text, word, (size_t)text.length) == 0;
}

/* Factors of long and short texts are tensors, other kinds of scaling are keys. Llama 3's is applied to the frequencies
 * themselves, by a tensor (model.c). */
static enum status put_scaling(const struct gguf_base *base, json_t *tree)
{
    static const char *const reals[][2] = {{"rope.scaling.factor", "factor"},
                                           {"rope.scaling.yarn_beta_fast", "beta_fast"},
                                           {"rope.scaling.yarn_beta_slow", "beta_slow"},
                                           {"attention.temperature_scale", "llama_4_scaling_beta"}};
    char key[64];
    struct gguf_text type = {0};
    int64_t original = 0;
    json_t *rope = NULL, *factors;
    snprintf(key, sizeof key, "%s.rope.scaling.type", base->arch->name);
    TRY(gguf_get_text(base->file[0], key, &type));
    if (!type.text || gguf_config_is_word(type, "none"))
        type = (struct gguf_text){"default", strlen("default")};
    if (utf8_invalid(type.text, type.length) >= 0)
        return fail(ERR_FORMAT, "%s: %s is not UTF-8", base->path, key);
    factors = numbers_of(base, "rope_factors_long.weight");
    rope = factors ? json_pack("{s:s, s:o}", "rope_type", "longrope", "long_factor", factors)
                   : json_pack("{s:s%}", "rope_type", type.text, (size_t)type.length);
    TRY(gguf_config_put(tree, "rope_scaling", rope));
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double real = 0;
        TRY(get_real(base, reals[i][0], &real));
        if (real != 0)
            TRY(gguf_config_put(rope, reals[i][1], json_real(real)));
    }
    TRY(put_attention_factor(base, rope, !factors && gguf_config_is_word(type, "yarn")));
    TRY(get_int(base, "rope.scaling.original_context_length", &original));
    if (original)
        TRY(gguf_config_put(rope, "original_max_position_embeddings", json_integer(original)));
    if (!factors)
        return OK;
    TRY(gguf_config_put(tree, "original_max_position_embeddings", json_integer(original)));
    json_t *short_factors = numbers_of(base, "rope_factors_short.weight");
    return short_factors ? gguf_config_put(rope, "short_factor", short_factors)
                         : fail(ERR_FORMAT, "%s: has rope_factors_long.weight without rope_factors_short.weight", base->path);
}

static enum status put_tokens(const struct gguf_base *base, json_t *tree)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t bos = -1, pad = -1;
    json_t *eos = json_array();
    TRY(gguf_config_put(tree, "eos_token_id", eos));
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int64_t id = -1;
        TRY(gguf_get_int(base->file[0], ends[i], &id));
        if (id >= 0)
            json_array_append_new(eos, json_integer(id));
    }
    TRY(gguf_get_int(base->file[0], "tokenizer.ggml.bos_token_id", &bos));
    TRY(gguf_get_int(base->file[0], "tokenizer.ggml.padding_token_id", &pad));
    if (bos >= 0)
        TRY(gguf_config_put(tree, "bos_token_id", json_integer(bos)));
    return pad >= 0 ? gguf_config_put(tree, "pad_token_id", json_integer(pad)) : OK;
}

/* What the tensors say themselves. A quantised model runs in bfloat16 where the device can. */
static enum status put_tensors(const struct gguf_base *base, json_t *tree)
{
    const struct gguf_tensor *embedding = gguf_base_find(base, "token_embd.weight");
    if (!embedding)
        return fail(ERR_FORMAT, "%s: has no tensor token_embd.weight", base->path);
    TRY(gguf_config_put(tree, "vocab_size", json_integer(embedding->shape[1])));
    TRY(gguf_config_put(tree, "tie_word_embeddings", json_boolean(!gguf_base_find(base, "output.weight"))));
    TRY(gguf_config_put(tree, "attention_bias", json_boolean(gguf_base_find(base, "blk.0.attn_output.bias") != NULL)));
    TRY(gguf_config_put(tree, "mlp_bias", json_boolean(gguf_base_find(base, "blk.0.ffn_up.bias") != NULL)));
    return gguf_config_put(tree, "dtype", json_string("bfloat16"));
}

/* OLMo 3's files are of OLMo 2's architecture, and have local layers. */
static const char *model_type(const struct gguf_base *base)
{
    bool olmo3 = !strcmp(base->arch->model_type, "olmo2") && gguf_config_has(base, "attention.sliding_window");
    return olmo3 ? "olmo3" : base->arch->model_type;
}

static enum status gguf_config_fill(const struct gguf_base *base, json_t *tree)
{
    TRY(gguf_config_put(tree, "model_type", json_string(model_type(base))));
    TRY(gguf_config_put_numbers(base, tree));
    TRY(put_heads(base, tree));
    TRY(put_scaling(base, tree));
    TRY(put_tokens(base, tree));
    return put_tensors(base, tree);
}

enum status gguf_base_config(const struct gguf_base *base, struct hf_config *config)
{
    json_t *tree = json_object();
    enum status status = tree ? gguf_config_fill(base, tree) : ERR_MEMORY;
    if (status == OK)
        return hf_config_take(config, tree, base->path);
    json_decref(tree);
    return status;
}
