/* Building a model's program. */
#include "models/net.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct value *on_tensor(struct net *n, const char *name, enum lifetime lifetime, enum dtype dtype, int rank,
                               const int64_t *shape)
{
    struct tensor *tensor;
    enum status status = store_tensor(&tensor, n->store, name, lifetime, dtype, rank, shape);
    return status == OK ? program_tensor(&n->program, tensor) : program_fail(&n->program, status);
}

static struct value *weight(struct net *n, enum role role, const char *name, int64_t layer, const char *part, int rank,
                            int64_t d0, int64_t d1)
{
    char stem[160], full[192];
    const char *number = strstr(name, "%d");
    if (number)
        snprintf(stem, sizeof stem, "%.*s%lld%s", (int)(number - name), name, (long long)layer, number + 2);
    else
        snprintf(stem, sizeof stem, "%s", name);
    snprintf(full, sizeof full, "%s%s", stem, part);
    return on_tensor(n, full, LIFE_WEIGHTS, n->program.types[role], rank, (int64_t[]){d0, d1});
}

struct value *net_embedding(struct net *n, const char *name)
{
    struct value *w = weight(n, ROLE_WEIGHT, name, 0, ".weight", 2, n->config->vocabulary, n->config->channels);
    return embedding(&n->program, n->ids, w, NULL);
}

struct value *net_norm(struct net *n, struct value *x, const char *name, int64_t layer)
{
    return rmsnorm(&n->program, x, weight(n, ROLE_WEIGHT, name, layer, ".weight", 1, n->config->channels, 0), n->config->eps);
}

struct value *net_linear(struct net *n, struct value *x, int64_t size, bool with_bias, const char *name, int64_t layer)
{
    if (!x)
        return NULL;
    struct value *y = linear(&n->program, x, weight(n, ROLE_WEIGHT, name, layer, ".weight", 2, size, x->shape[1]));
    return with_bias ? bias(&n->program, y, weight(n, ROLE_WEIGHT, name, layer, ".bias", 1, size, 0)) : y;
}

struct value *net_heads(struct net *n, struct value *x, int64_t heads)
{
    return program_view(&n->program, x, 3, n->T, heads, n->config->head_size);
}

struct value *net_rope(struct net *n, struct value *x)
{
    return rope(&n->program, x, n->table);
}

static struct value *cached(struct net *n, struct value *x, const char *which, int64_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "cache.%lld.%s", (long long)layer, which);
    if (!x)
        return NULL;
    struct value *cache = on_tensor(n, name, LIFE_CACHE, x->dtype, 3, (int64_t[]){n->S, x->shape[1], x->shape[2]});
    return cache_write(&n->program, cache, x, n->slots);
}

struct value *net_attention(struct net *n, struct value *q, struct value *k, struct value *v, int64_t layer)
{
    if (n->S) {
        k = cached(n, k, "k", layer);
        v = cached(n, v, "v", layer);
    }
    double scale = 1 / sqrt((double)n->config->head_size);
    struct value *y = attention(&n->program, q, k, v, n->first, n->last, NULL, scale);
    return program_view(&n->program, y, 2, n->T, n->config->heads * n->config->head_size);
}

struct value *net_swiglu(struct net *n, struct value *gate, struct value *up)
{
    return swiglu(&n->program, gate, up);
}

struct value *net_add(struct net *n, struct value *x, struct value *d)
{
    return add(&n->program, x, d);
}

/* Llama 3 stretches slow rotations by `factor`, keeps fast ones, and goes over smoothly between. Steps are rounded to float32
 * where the models' own code rounds. */
static float scaled(const struct rope_config *rope, float frequency)
{
    if (rope->kind == ROPE_LINEAR)
        return frequency / (float)rope->factor;
    if (rope->kind != ROPE_LLAMA3)
        return frequency;
    double length = (double)rope->original_max_position, wave = (double)(float)(2 * 3.14159265358979323846 / (double)frequency);
    if (wave < length / rope->high_freq_factor)
        return frequency;
    if (wave > length / rope->low_freq_factor)
        return frequency / (float)rope->factor;
    float smooth = (float)((length / wave - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor));
    return (1 - smooth) * (frequency / (float)rope->factor) + smooth * frequency;
}

void net_frequencies(const struct model_config *config, float *out)
{
    for (int64_t i = 0; i < config->head_size / 2; i++) {
        float exponent = (float)(2 * i) / (float)config->head_size;
        out[i] = scaled(&config->rope, 1 / (float)pow((double)(float)config->rope.theta, (double)exponent));
    }
}

static void make_inputs(struct net *n)
{
    struct program *p = &n->program;
    n->ids = program_input(p, "ids", ROLE_INDEX, 1, n->T);
    n->positions = program_input(p, "positions", ROLE_INDEX, 1, n->T);
    n->first = program_input(p, "first", ROLE_INDEX, 1, n->T);
    n->last = program_input(p, "last", ROLE_INDEX, 1, n->T);
    n->slots = n->S ? program_input(p, "slots", ROLE_INDEX, 1, n->T) : NULL;
    n->rows = program_input(p, "rows", ROLE_INDEX, 1, n->R);
    n->targets = n->goal == NET_LOSS ? program_input(p, "targets", ROLE_INDEX, 1, n->R) : NULL;
}

enum status net_build(struct net *n, struct store *store, const struct family *family, const struct model_config *config,
                      enum run_type run, enum net_goal goal, int64_t T, int64_t R, int64_t S)
{
    *n = (struct net){.store = store, .config = config, .T = T, .R = R, .S = S, .goal = goal};
    struct program *p = &n->program;
    program_init(p, ops_table, run);
    make_inputs(n);
    n->table = rope_table(p, n->positions, weight(n, ROLE_STATISTIC, NET_FREQUENCIES, 0, "", 1, config->head_size / 2, 0));
    struct value *x = gather_rows(p, family->forward(n), n->rows);
    const char *head = config->tied ? "model.embed_tokens" : "lm_head";
    struct value *w = weight(n, ROLE_WEIGHT, head, 0, ".weight", 2, config->vocabulary, config->channels);
    n->result = goal == NET_LOSS ? linear_cross_entropy(p, x, w, n->targets) : linear_wide(p, x, w);
    program_output(p, n->result, goal == NET_LOSS ? "losses" : "logits");
    return program_status(p);
}

void net_free(struct net *n)
{
    program_free(&n->program);
}
