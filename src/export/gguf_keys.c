/* What llama.cpp reads of each architecture. What its files cannot say is refused, or a warning where short texts are not
 * concerned. */
#include "export/gguf_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "models/rotary.h"

struct keys {
    struct gguf_head *head;
    const struct model *m;
    const struct gguf_arch *arch;
    char key[128];
};

static const char *key(struct keys *k, const char *name)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch->name, name);
    return k->key;
}

static enum status put_size(struct keys *k, const char *name, int64_t value)
{
    return gguf_put_size(k->head, key(k, name), value);
}

static enum status gguf_keys_put_real(struct keys *k, const char *name, double value)
{
    return gguf_put_real(k->head, key(k, name), value);
}

static enum status refuse_rope(const struct keys *k)
{
    return fail(ERR_UNSUPPORTED,
                "%s: a GGUF file of a %s has no keys for this rotary embedding (%s); merge to safetensors: --output DIR",
                k->m->hf.path, k->arch->name, rope_kind_name(k->m->config.rope.kind));
}

/* YaRN. Files of mistral3 say where it begins and ends, and whether cosines and sines grow with the length; of the others
 * llama.cpp takes what is usual. Local layers with frequencies of their own would be scaled too. */
static enum status put_yarn(struct keys *k, const struct rope_config *rope)
{
    bool says = !strcmp(k->arch->name, "mistral3");
    double grown = says || rope->factor <= 1 ? 1 : 1 + 0.1 * log(rope->factor), times = rope->attention_factor / grown;
    bool usual = rope->beta_fast == 32 && rope->beta_slow == 1;
    if (!rope->truncate || (!says && !usual) || k->m->config.local_rope.theta != 0)
        return refuse_rope(k);
    TRY(gguf_put_text(k->head, key(k, "rope.scaling.type"), "yarn"));
    TRY(gguf_keys_put_real(k, "rope.scaling.factor", rope->factor));
    TRY(fabs(times - 1) < 1e-7 ? OK : gguf_keys_put_real(k, "rope.scaling.attn_factor", times));
    if (!says)
        return OK;
    TRY(gguf_keys_put_real(k, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    TRY(gguf_keys_put_real(k, "rope.scaling.yarn_beta_slow", rope->beta_slow));
    return gguf_keys_put_real(k, "rope.scaling.yarn_log_multiplier", 1); /* 1: they do not grow */
}

static enum status put_rope(struct keys *k)
{
    const struct rope_config *rope = &k->m->config.rope;
    TRY(gguf_keys_put_real(k, "rope.freq_base", rope->theta));
    TRY(put_size(k, "rope.dimension_count", 2 * rotary_pairs(&k->m->config)));
    if (rope->growth != 0)
        TRY(gguf_keys_put_real(k, "attention.temperature_scale", rope->growth));
    if (rope->growth != 0 || rope->kind == ROPE_YARN)
        TRY(put_size(k, "rope.scaling.original_context_length", rope->original_max_position));
    switch (rope->kind) {
    case ROPE_DEFAULT:
    case ROPE_LLAMA3: return OK; /* its factors are a tensor */
    case ROPE_LINEAR:
        TRY(gguf_put_text(k->head, key(k, "rope.scaling.type"), "linear"));
        return gguf_keys_put_real(k, "rope.scaling.factor", rope->factor);
    case ROPE_YARN: return put_yarn(k, rope);
    default: return refuse_rope(k);
    }
}

/* Of gemma2 every second layer sees all tokens, of gemma3 every sixth, and its local layers turn from 10000 on. */
static enum status check_gemma(const struct keys *k)
{
    const struct model_config *c = &k->m->config;
    const struct rope_config *rope = &c->local_rope;
    int64_t period = !strcmp(k->arch->name, "gemma2") ? 2 : 6;
    bool same = rope->theta == 0 || (rope->kind == ROPE_DEFAULT && rope->theta == 1e4);
    for (int64_t l = 0; l < c->layers; l++)
        same &= c->is_local[l] == ((l + 1) % period != 0);
    return same ? OK
                : fail(ERR_UNSUPPORTED,
                       "%s: a GGUF file of a %s cannot say which layers are local, nor how those turn; merge to safetensors: "
                       "--output DIR",
                       k->m->hf.path, k->arch->name);
}

/* Layers with local attention: gemma's are fixed by the architecture; in the other families llama.cpp knows none. */
static enum status put_window(struct keys *k)
{
    const struct model_config *c = &k->m->config;
    bool gemma = strncmp(k->arch->name, "gemma", 5) == 0;
    if (gemma)
        TRY(check_gemma(k));
    if (!c->local)
        return OK;
    if (!gemma)
        log_message(LOG_WARNING,
                    "%s: llama.cpp attends to all tokens in a %s; after more than %lld tokens its answers will differ",
                    k->m->hf.path, k->arch->name, (long long)c->local);
    return put_size(k, "attention.sliding_window", c->local);
}

/* llama.cpp rotates three of four layers where a family leaves some out. */
static enum status check_positions(const struct keys *k)
{
    const struct model_config *c = &k->m->config;
    bool any = false, same = true;
    for (int64_t l = 0; l < c->layers; l++) {
        any |= c->no_positions[l];
        same &= c->no_positions[l] == ((l + 1) % 4 == 0);
    }
    return !any || same ? OK
                        : fail(ERR_UNSUPPORTED, "%s: a GGUF file cannot say which layers have no positions; merge to safetensors",
                               k->m->hf.path);
}

/* Granite's, all of them: llama.cpp takes others for those that are missing. */
static enum status put_factors(struct keys *k)
{
    const struct model_config *c = &k->m->config;
    if (strcmp(k->arch->name, "granite") != 0)
        return OK;
    TRY(gguf_keys_put_real(k, "attention.scale", c->attention_scale));
    TRY(gguf_keys_put_real(k, "embedding_scale", c->embedding_scale));
    TRY(gguf_keys_put_real(k, "residual_scale", c->residual_scale));
    return gguf_keys_put_real(k, "logit_scale", 1 / c->logit_scale);
}

/* llama.cpp caps the scores of every gemma2 and of no other, and the logits of every gemma2. */
static enum status put_caps(struct keys *k)
{
    const struct model_config *c = &k->m->config;
    bool gemma2 = !strcmp(k->arch->name, "gemma2");
    if (gemma2 != (c->attention_cap > 0) || (gemma2 && !(c->logit_cap > 0)))
        return fail(ERR_UNSUPPORTED,
                    "%s: llama.cpp caps the scores and logits of every gemma2, and scores of no other model, unlike this "
                    "config.json (attn_logit_softcapping, final_logit_softcapping); merge to safetensors: --output DIR",
                    k->m->hf.path);
    TRY(gemma2 ? gguf_keys_put_real(k, "attn_logit_softcapping", c->attention_cap) : OK);
    return c->logit_cap > 0 ? gguf_keys_put_real(k, "final_logit_softcapping", c->logit_cap) : OK;
}

static enum status gguf_keys_put_numbers(struct keys *k)
{
    const struct model_config *c = &k->m->config;
    TRY(put_size(k, "vocab_size", c->vocabulary));
    TRY(put_size(k, "context_length", c->window));
    TRY(put_size(k, "embedding_length", c->channels));
    TRY(put_size(k, "block_count", c->layers));
    TRY(put_size(k, "feed_forward_length", c->feed_forward));
    TRY(put_size(k, "attention.head_count", c->heads));
    TRY(put_size(k, "attention.head_count_kv", c->kv_heads));
    TRY(put_size(k, "attention.key_length", c->head_size));
    TRY(put_size(k, "attention.value_length", c->head_size));
    TRY(gguf_keys_put_real(k, "attention.layer_norm_rms_epsilon", c->eps));
    TRY(put_rope(k));
    TRY(put_window(k));
    TRY(check_positions(k));
    TRY(put_factors(k));
    return put_caps(k);
}

enum status gguf_keys_arch(const struct gguf_arch **arch, const struct model *m)
{
    *arch = gguf_arch_of(m->hf.model_type);
    return *arch ? OK
                 : fail(ERR_UNSUPPORTED, "%s: hone writes no GGUF files of a %s; merge to safetensors instead: --output DIR",
                        m->hf.path, m->hf.model_type);
}

/* Files of gemma have no key for the scale of scores: llama.cpp takes the size of a head, and of the largest of each the channels
 * divided by the heads. What is left goes into q. */
float gguf_times(const struct gguf_arch *arch, const struct model_config *config, const char *tensor)
{
    bool gemma2 = !strcmp(arch->name, "gemma2"), gemma3 = !strcmp(arch->name, "gemma3");
    const char *scaled = gemma2 ? ".q_proj.weight" : ".q_norm.weight";
    if ((!gemma2 && !gemma3) || !strstr(tensor, scaled) || config->attention_scale == 0)
        return 0;
    bool largest = config->layers == (gemma2 ? 46 : 62);
    double size = (double)(largest ? config->channels / config->heads : config->head_size);
    double times = config->attention_scale * sqrt(size);
    return fabs(times - 1) < 1e-9 ? 0 : (float)times;
}

/* The last part of a path, which stands for the model's name. */
static void base_name(char name[static 128], const char *dir)
{
    int64_t end = (int64_t)strlen(dir);
    while (end > 1 && dir[end - 1] == '/')
        end--;
    int64_t begin = end;
    while (begin > 0 && dir[begin - 1] != '/')
        begin--;
    snprintf(name, 128, "%.*s", (int)(end - begin), dir + begin);
}

enum status gguf_put_config(struct gguf_head *head, const struct model *m, const struct gguf_arch *arch, const char *dir)
{
    struct keys k = {.head = head, .m = m, .arch = arch};
    char name[128];
    base_name(name, dir);
    TRY(gguf_put_text(head, "general.architecture", arch->name));
    TRY(gguf_put_text(head, "general.name", name));
    return gguf_keys_put_numbers(&k);
}
