/* Building a model's program. */
#include "models/net.h"

#include <math.h>
#include <stdio.h>

#include "models/lora.h"
#include "models/net_weight.h"
#include "models/rotary.h"

static struct value *on_tensor(struct net *n, const char *name, enum lifetime lifetime, enum dtype dtype, int rank,
                               const int64_t *shape)
{
    struct tensor *tensor;
    enum status status = store_tensor(&tensor, n->store, name, lifetime, dtype, rank, shape);
    return status == OK ? program_tensor(&n->program, tensor) : program_fail(&n->program, status);
}

struct value *net_layers(struct net *n, struct value *x, struct value *(*layer)(struct net *n, struct value *x, int64_t l))
{
    for (int64_t l = 0; l < n->config->layers; l++) {
        n->program.segment = 1 + l;
        x = layer(n, x, l);
    }
    n->program.segment = 0;
    return x;
}

/* The weight (V, C) of the embedding, or of the head. */
static struct value *vocabulary_weight(struct net *n, const char *module)
{
    return net_matrix(n, module, false, n->config->vocabulary, n->config->channels);
}

/* A number as a tensor of this type holds it. */
static double rounded(double number, enum dtype dtype)
{
    float f = (float)number;
    switch (dtype) {
    case DTYPE_BF16: return (double)bf16_to_f32(bf16_from_f32(f));
    case DTYPE_F16: return (double)f16_to_f32(f16_from_f32(f));
    case DTYPE_F32: return (double)f;
    default: return number;
    }
}

/* A factor of 0 is none. */
static struct value *net_scaled(struct net *n, struct value *x, double factor)
{
    return x && factor != 0 && factor != 1 ? scale(&n->program, x, factor) : x;
}

struct value *net_table(struct net *n, const char *module, int64_t rows, int64_t columns, double by)
{
    struct program *p = &n->program;
    struct value *x = embedding(p, n->ids, net_matrix(n, module, false, rows, columns), n->order, n->config->padding);
    return net_scaled(n, x, rounded(by, p->types[ROLE_WEIGHT]));
}

struct value *net_embedding(struct net *n)
{
    struct program *p = &n->program;
    struct value *w = vocabulary_weight(n, n->family->embedding);
    struct value *x = embedding(p, n->ids, w, n->order, n->config->padding);
    double by = n->config->embedding_scale;
    return net_scaled(n, x, rounded(by, p->types[ROLE_WEIGHT]));
}

/* Of rows of `channels` channels; a name of NULL: without weights. */
static struct value *norm(struct net *n, struct value *x, int64_t channels, const char *name, int64_t layer)
{
    char module[NAME_SIZE];
    if (!name)
        return rmsnorm_offset(&n->program, x, NULL, n->config->eps, 1);
    struct value *w = net_part(n, net_module(n, module, name, layer), ".weight", net_trains_norms(n), channels, 0);
    return rmsnorm_offset(&n->program, x, w, n->config->eps, n->config->norm_offset);
}

struct value *net_norm(struct net *n, struct value *x, const char *name, int64_t layer)
{
    return x ? norm(n, x, x->shape[1], name, layer) : NULL;
}

struct value *net_head_norm(struct net *n, struct value *x, const char *name, int64_t layer)
{
    if (!x)
        return NULL;
    int64_t heads = x->shape[1], D = x->shape[2];
    struct value *rows = program_view(&n->program, x, 2, n->T * heads, D);
    return program_view(&n->program, norm(n, rows, D, name, layer), 3, n->T, heads, D);
}

/* A matrix that is narrower than the run's weights is widened where it is multiplied, and x stays. */
struct value *net_as(struct net *n, struct value *x, struct value *like)
{
    bool narrow = like && n->weights->narrow && like->tensor && like->dtype != n->program.types[ROLE_WEIGHT];
    return x && like && !narrow && x->dtype != like->dtype ? NODE(&n->program, cast, x, like) : x;
}

struct value *net_linear(struct net *n, struct value *x, int64_t size, bool with_bias, const char *name, int64_t layer)
{
    char module[NAME_SIZE];
    if (!x)
        return NULL;
    net_module(n, module, name, layer);
    struct value *w = net_linear_weight(n, module, size, x->shape[1]);
    x = net_as(n, x, w);
    struct value *bias = with_bias ? net_linear_bias(n, module, size) : NULL;
    bool adapted = n->tuning->lora && adapter_targets(n->tuning->lora, module, n->family->head);
    return adapted ? lora_linear(n, x, w, bias, module) : linear_bias(&n->program, x, w, bias);
}

struct value *net_router(struct net *n, struct value *x, bool with_bias, const char *name, int64_t layer)
{
    char module[NAME_SIZE];
    struct value *w = net_matrix(n, net_module(n, module, name, layer), false, n->config->experts, n->config->channels);
    struct value *bias = with_bias ? net_part(n, module, ".bias", net_trains_all(n), n->config->experts, 0) : NULL;
    return linear_wide_bias(&n->program, x, w, bias);
}

struct value *net_heads(struct net *n, struct value *x, int64_t heads)
{
    return x ? program_view(&n->program, x, 3, n->T, heads, x->shape[1] / heads) : NULL;
}

struct value *net_rope(struct net *n, struct value *x, bool local)
{
    return rope(&n->program, x, local ? n->local_table : n->table);
}

struct value *net_rope_query(struct net *n, struct value *x, bool local)
{
    return rope(&n->program, x, local ? n->local_table : n->query_table);
}

struct value *net_qkv(struct net *n, struct value *y, int64_t layer, bool *turned, struct value **k, struct value **v)
{
    const struct model_config *c = n->config;
    bool local = c->is_local[layer];
    struct value *table = local ? n->local_table : n->table;
    bool turns = turned && !c->no_positions[layer] && (local || n->query_table == n->table);
    struct value *q = y ? rope_split(&n->program, y, turns ? table : NULL, c->heads, c->kv_heads) : NULL;
    *k = q ? q->producer->out[1] : NULL;
    *v = q ? q->producer->out[2] : NULL;
    if (turned)
        *turned = turns;
    return q;
}

static struct value *cache_of(struct net *n, const char *which, int64_t layer, enum dtype dtype, int rank, const int64_t *shape)
{
    char name[64];
    snprintf(name, sizeof name, "cache.%lld.%s", (long long)layer, which);
    return on_tensor(n, name, LIFE_CACHE, dtype, rank, shape);
}

struct value *net_state(struct net *n, const char *which, int64_t layer, enum role role, int rank, const int64_t *shape)
{
    return n->S ? cache_of(n, which, layer, n->program.types[role], rank, shape) : NULL;
}

struct value *net_cached(struct net *n, struct value *x, const char *which, int64_t layer)
{
    if (!x || !n->S)
        return x;
    struct value *cache = cache_of(n, which, layer, x->dtype, 3, (int64_t[]){n->S, x->shape[1], x->shape[2]});
    return cache_write(&n->program, cache, x, n->slots);
}

struct value *net_attend(struct net *n, struct value *q, struct value *k, struct value *v, struct value *sinks, bool local)
{
    if (!q)
        return NULL;
    const struct model_config *c = n->config;
    double scale = c->attention_scale > 0 ? c->attention_scale : 1 / sqrt((double)q->shape[2]);
    struct value *first = local ? n->local_first : n->first, *until = local ? n->local_until : n->until;
    struct value *begin = local ? n->first : NULL;
    struct value *y = attention_sinks(&n->program, q, k, v, first, n->last, until, begin, sinks, scale, c->attention_cap);
    return program_view(&n->program, y, 2, n->T, q->shape[1] * q->shape[2]);
}

struct value *net_attention(struct net *n, struct value *q, struct value *k, struct value *v, struct value *sinks, bool local,
                            int64_t layer)
{
    return net_attend(n, q, net_cached(n, k, "k", layer), net_cached(n, v, "v", layer), sinks, local);
}

struct value *net_swiglu(struct net *n, struct value *gate, struct value *up)
{
    const struct model_config *c = n->config;
    return c->swiglu_limit > 0 ? clamped_swiglu(&n->program, gate, up, c->swiglu_alpha, c->swiglu_limit)
                               : swiglu(&n->program, gate, up);
}

struct value *net_swiglu_packed(struct net *n, struct value *y)
{
    return y ? swiglu_packed(&n->program, y) : NULL;
}

struct value *net_geglu(struct net *n, struct value *gate, struct value *up)
{
    return geglu(&n->program, gate, up);
}

struct value *net_add(struct net *n, struct value *x, struct value *d)
{
    return add(&n->program, x, net_scaled(n, d, n->config->residual_scale));
}

struct value *net_scale(struct net *n, struct value *x, double by)
{
    return scale(&n->program, x, by);
}

struct value *net_scalar(struct net *n, struct value *x, const char *name, int64_t layer)
{
    char full[NAME_SIZE];
    return scale_by(&n->program, x, net_weight(n, net_module(n, full, name, layer), false, 1, 1, 0));
}

struct value *net_rows(struct net *n, struct value *x, int64_t columns)
{
    return x ? program_view(&n->program, x, 2, value_elements(x) / columns, columns) : NULL;
}

struct value **net_array(struct net *n, int64_t count)
{
    struct value **array = arena_array(&n->program.arena, count, sizeof(struct value *));
    return array ? array : program_fail(&n->program, ERR_MEMORY);
}

struct value *net_split(struct net *n, struct value *x, int64_t columns, struct value **rest)
{
    struct value *first = split(&n->program, x, columns);
    *rest = first ? first->producer->out[1] : NULL;
    return first;
}

static bool is_training(const struct net *n)
{
    return n->goal == NET_TRAIN || n->goal == NET_TRAIN_LOGITS;
}

static void make_loss_inputs(struct net *n, const struct loss *loss)
{
    struct program *p = &n->program;
    struct loss_inputs *in = &n->of_loss;
    in->cap = n->config->logit_cap;
    in->weights = program_input(p, "weights", ROLE_STATISTIC, 1, n->R);
    if (loss->op < 0)
        return;
    in->old = program_input(p, "old", ROLE_STATISTIC, 1, n->R);
    in->advantages = program_input(p, "advantages", ROLE_STATISTIC, 1, n->R);
    in->settings = program_input(p, "settings", ROLE_STATISTIC, 1, (int64_t)LOSS_NUMBERS);
    in->rows = loss->by_sequence ? program_input(p, "loss_rows", ROLE_INDEX, 2, n->R, (int64_t)2) : NULL;
}

static void net_make_inputs(struct net *n)
{
    struct program *p = &n->program;
    bool training = is_training(n), logits = n->goal == NET_TRAIN_LOGITS;
    bool has_targets = n->goal == NET_LOSS || n->goal == NET_BASE_LOSS || n->goal == NET_TRAIN;
    bool dropout = training && n->tuning->lora && n->tuning->lora->dropout > 0;
    n->ids = program_input(p, "ids", ROLE_INDEX, 1, n->T);
    n->positions = program_input(p, "positions", ROLE_INDEX, 1, n->T);
    n->first = program_input(p, "first", ROLE_INDEX, 1, n->T);
    n->last = program_input(p, "last", ROLE_INDEX, 1, n->T);
    n->slots = n->S ? program_input(p, "slots", ROLE_INDEX, 1, n->T) : NULL;
    n->rows = program_input(p, "rows", ROLE_INDEX, 1, n->R);
    n->targets = has_targets ? program_input(p, "targets", ROLE_INDEX, 1, n->R) : NULL;
    n->until = training ? program_input(p, "until", ROLE_INDEX, 1, n->T) : NULL;
    n->rope_set = rotary_sets(n->config) > 1 ? program_input(p, "rope_set", ROLE_INDEX, 1, n->T) : NULL;
    n->local_first = n->config->local ? program_input(p, "local_first", ROLE_INDEX, 1, n->T) : NULL;
    n->local_until = n->config->local && training ? program_input(p, "local_until", ROLE_INDEX, 1, n->T) : NULL;
    n->order = training && net_trains_all(n) ? program_input(p, "order", ROLE_INDEX, 1, n->T) : NULL;
    n->sequence = dropout ? program_input(p, "sequence", ROLE_INDEX, 1, n->T) : NULL;
    n->draw = dropout ? program_input(p, "draw", ROLE_INDEX, 1, (int64_t)4) : NULL;
    if (n->goal == NET_TRAIN)
        make_loss_inputs(n, loss_of(n->loss));
    n->dlogits = logits ? program_input(p, "dlogits", ROLE_STATISTIC, 2, n->R, n->config->vocabulary) : NULL;
}

/* From the gathered states x (R, C) and the head w to losses and, in training, all gradients. */
static enum status net_finish(struct net *n, struct value *x, struct value *w)
{
    struct program *p = &n->program;
    struct value *dw = w && w->wants_gradient ? program_tensor(p, w->tensor->gradient) : NULL, *dx = NULL;
    double cap = n->config->logit_cap;
    TRY(program_status(p));
    p->recompute = n->tuning->recompute;
    switch (n->goal) {
    case NET_LOSS:
    case NET_BASE_LOSS:
        n->result = n->nll = program_output(p, linear_cross_entropy_capped(p, x, w, n->targets, cap), "losses");
        return program_status(p);
    case NET_LOGITS:
        n->result = linear_wide(p, x, w);
        n->result = program_output(p, cap > 0 ? softcap(p, n->result, cap) : n->result, "logits");
        return program_status(p);
    case NET_TRAIN: {
        struct loss_outputs out;
        dx = linear_loss(p, loss_of(n->loss), x, w, n->targets, &n->of_loss, dw, &out);
        n->result = n->nll = out.losses ? program_output(p, out.losses, "losses") : NULL;
        if (out.nll != out.losses)
            n->nll = program_output(p, out.nll, "nll");
        break;
    }
    case NET_TRAIN_LOGITS: {
        struct value *dz = p->gradient_scale != 1 ? scale(p, n->dlogits, p->gradient_scale) : n->dlogits;
        dz = cap > 0 ? NODE_WITH(p, softcap_bwd, cap, linear_wide(p, x, w), dz) : dz;
        dz = x->dtype == n->dlogits->dtype ? dz : NODE(p, cast, dz, x);
        if (dw)
            NODE(p, linear_bwd_w, dz, x, dw);
        dx = NODE(p, linear_bwd_x, dz, w, NULL);
        break;
    }
    }
    TRY(program_status(p));
    return program_gradient(p, &x, &dx, 1);
}

/* The table of a kind of layers; `growth`: that of their queries. */
static struct value *net_make_table(struct net *n, const char *name, const struct model_config *of, double growth)
{
    struct program *p = &n->program;
    int64_t shape[] = {rotary_sets(of), rotary_pairs(of)};
    struct value *frequencies = on_tensor(n, name, LIFE_WEIGHTS, p->types[ROLE_STATISTIC], 2, shape);
    return rope_table(p, n->positions, frequencies, n->rope_set, of->rope.attention_factor, growth,
                      growth != 0 ? of->rope.original_max_position : 1);
}

static void make_tables(struct net *n)
{
    struct model_config global = family_layers(n->config, false), local = family_layers(n->config, true);
    double growth = n->config->rope.growth;
    n->table = net_make_table(n, NET_FREQUENCIES, &global, 0);
    n->query_table = growth != 0 ? net_make_table(n, NET_FREQUENCIES, &global, growth) : n->table;
    n->local_table = n->config->local_rope.theta > 0 ? net_make_table(n, NET_LOCAL_FREQUENCIES, &local, 0) : n->table;
}

enum status net_build(struct net *n, struct store *store, struct weights *weights, const struct family *family,
                      const struct model_config *config, const struct tuning *tuning, enum run_type run, enum net_goal goal,
                      enum loss_id loss, int64_t T, int64_t R, int64_t S)
{
    *n = (struct net){.store = store, .weights = weights, .family = family, .config = config, .tuning = tuning};
    n->goal = goal;
    n->loss = loss;
    n->T = T;
    n->R = R;
    n->S = S;
    struct program *p = &n->program;
    program_init(p, ops_table, run);
    p->tf32 = tuning->tf32;
    net_make_inputs(n);
    make_tables(n);
    struct value *x = net_scaled(n, gather_rows(p, family->forward(n), n->rows), config->logit_scale);
    return net_finish(n, x, vocabulary_weight(n, family_head(family, config)));
}

void net_free(struct net *n)
{
    program_free(&n->program);
}
