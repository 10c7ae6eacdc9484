/* What follows from a family and its numbers. */
#include "models/family.h"

#include <string.h>

#include "base/name.h"

struct model_config family_layers(const struct model_config *config, bool local)
{
    struct model_config of = *config;
    if (local && of.local_rope.theta > 0)
        of.rope = of.local_rope;
    if (!local && of.global_head_size) {
        of.head_size = of.global_head_size;
        of.kv_heads = of.global_kv_heads;
    }
    return of;
}

const char *family_head(const struct family *family, const struct model_config *config)
{
    return config->tied ? family->embedding : family->head;
}

bool family_repeats(const struct family *family, const struct model_config *config, const char *tensor)
{
    char head[NAME_SIZE];
    return config->tied && !strcmp(tensor, name_fill(head, family->head, 0, 0, ".weight"));
}

bool family_in_layer(const struct family *family, const char *name)
{
    return !strncmp(name, family->layer, strcspn(family->layer, "%"));
}

/* --- identity ----------------------------------------------------------------------------------------------------------- */

/* Field by field: between them there may be bytes that have no value. */
#define ADD(of, field) hash_add(hash, &(of)->field, (int64_t)sizeof(of)->field)

static void hash_rope(struct hash *hash, const struct rope_config *r)
{
    ADD(r, kind), ADD(r, theta), ADD(r, factor), ADD(r, turning), ADD(r, low_freq_factor), ADD(r, high_freq_factor);
    ADD(r, original_max_position), ADD(r, part), ADD(r, attention_factor), ADD(r, beta_fast), ADD(r, beta_slow);
    ADD(r, truncate), ADD(r, growth), ADD(r, pairs), ADD(r, factors);
}

static void hash_delta(struct hash *hash, const struct delta_config *d)
{
    ADD(d, key_heads), ADD(d, value_heads), ADD(d, key_size), ADD(d, value_size), ADD(d, taps), ADD(d, is_linear);
}

void family_hash(struct hash *hash, const struct family *family, const struct model_config *c)
{
    hash_add(hash, family->model_type, (int64_t)strlen(family->model_type) + 1);
    ADD(c, channels), ADD(c, layers), ADD(c, heads), ADD(c, kv_heads), ADD(c, head_size), ADD(c, feed_forward);
    ADD(c, vocabulary), ADD(c, local), ADD(c, is_local), ADD(c, no_positions), ADD(c, experts), ADD(c, experts_chosen);
    ADD(c, expert_feed_forward), ADD(c, has_experts), ADD(c, experts_normalised), ADD(c, shared_feed_forward), ADD(c, padding);
    ADD(c, eps), ADD(c, norm_offset), ADD(c, embedding_scale), ADD(c, residual_scale), ADD(c, logit_scale);
    ADD(c, attention_scale), ADD(c, attention_cap), ADD(c, logit_cap), ADD(c, swiglu_alpha), ADD(c, swiglu_limit);
    ADD(c, tied), ADD(c, qkv_bias), ADD(c, output_bias), ADD(c, mlp_bias), ADD(c, global_head_size), ADD(c, global_kv_heads);
    ADD(c, shared_layers), ADD(c, layer_input), ADD(c, keys_as_values), ADD(c, wide_shared);
    hash_rope(hash, &c->rope);
    hash_rope(hash, &c->local_rope);
    hash_delta(hash, &c->delta);
}
