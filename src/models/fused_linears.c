/* Linear layers of one input as one op. Trained as a whole, they are one layer. Trained by adapters without dropout, they are
 * ops/linear_lora_group.c.
 *
 * What is trained of them, weights or A's, lies one above the other because the store's order is that of the one array that is
 * trained, and they are asked for one after the other in every program. A tensor stands for all of them (struct tensor: first,
 * last). Frozen weights that the device copies are parts of one tensor; others stay where their files have them, and are
 * multiplied one by one.
 */
#include <stdio.h>

#include "models/lora.h"

struct fusion {
    struct net *net;
    int count;
    char module[NET_LAYERS_MAX][NAME_SIZE];
    struct value *a[NET_LAYERS_MAX];
};

static bool can_be(const struct fusion *f, int64_t inputs)
{
    const struct adapter_config *lora = f->net->tuning->lora;
    bool can = lora != NULL && f->net->tuning->train;
    for (int i = 0; i < f->count && can; i++)
        can = adapter_targets(lora, f->module[i], f->net->family->head) &&
              adapter_scale(lora, f->module[i]) == adapter_scale(lora, f->module[0]) &&
              adapter_rank(lora, f->module[i]) * inputs % TRAINED_UNIT == 0;
    return can;
}

/* A tensor of these and all between them, of `rows` rows. */
static enum status tensor_over(struct tensor **out, struct net *n, const char *name, const struct tensor *first,
                               const struct tensor *last, int64_t rows)
{
    TRY(store_tensor(out, n->store, name, first->lifetime, first->dtype, 2, (int64_t[]){rows, first->shape[1]}));
    (*out)->assembled = true;
    (*out)->first = first;
    (*out)->last = last;
    return OK;
}

/* Matrices that are trained, as one. */
static struct value *all_trained(const struct fusion *f, struct value *const *part, const char *what)
{
    struct net *n = f->net;
    char name[NAME_SIZE + 32], sum[NAME_SIZE + 64];
    int64_t rows = 0;
    struct tensor *all;
    for (int i = 0; i < f->count; i++) {
        if (!part[i])
            return NULL;
        rows += part[i]->shape[0];
    }
    const struct tensor *first = part[0]->tensor, *last = part[f->count - 1]->tensor;
    snprintf(name, sizeof name, "fused.%s%s", f->module[0], what);
    snprintf(sum, sizeof sum, "gradient.%s", name);
    enum status status = tensor_over(&all, n, name, first, last, rows);
    if (status == OK && !all->gradient)
        status = tensor_over(&all->gradient, n, sum, first->gradient, last->gradient, rows);
    return status == OK ? program_tensor(&n->program, all) : program_fail(&n->program, status);
}

/* Dense frozen weights or biases as one value, whose parts they become; NULL: they must stay apart. */
static struct value *all_frozen(const struct fusion *f, struct value *const *part, const char *what)
{
    struct net *n = f->net;
    char name[NAME_SIZE + 32];
    int64_t rows = 0, bytes = 0;
    struct tensor *all;
    for (int i = 0; i < f->count; i++) {
        const struct value *v = part[i];
        if (!v || !v->tensor || v->dtype != part[0]->dtype || value_bytes(v) % ALIGNMENT != 0)
            return NULL;
        rows += v->shape[0];
    }
    snprintf(name, sizeof name, "fused.%s%s", f->module[0], what);
    enum status status = store_tensor(&all, n->store, name, part[0]->tensor->lifetime, part[0]->dtype, part[0]->rank,
                                      (int64_t[]){rows, part[0]->shape[1]});
    if (status != OK)
        return program_fail(&n->program, status);
    all->assembled = true;
    for (int i = 0; i < f->count; bytes += value_bytes(part[i]), i++) {
        part[i]->tensor->whole = all;
        part[i]->tensor->part = bytes;
    }
    return program_tensor(&n->program, all);
}

static struct value *with_adapters(const struct fusion *f, struct value *x, const struct net_layer *layers, bool with_bias)
{
    struct net *n = f->net;
    struct value *w[NET_LAYERS_MAX] = {0}, *bias[NET_LAYERS_MAX] = {0}, *whole = NULL, *whole_bias = NULL;
    struct lora_layer parts[NET_LAYERS_MAX] = {{0}};
    for (int i = 0; i < f->count; i++) {
        w[i] = net_linear_weight(n, f->module[i], layers[i].size, x->shape[1]);
        bias[i] = with_bias ? net_linear_bias(n, f->module[i], layers[i].size) : NULL;
        parts[i] = (struct lora_layer){w[i], bias[i], lora_b(n, f->module[i], layers[i].size)};
    }
    if (n->tuning->copied)
        whole_bias = with_bias ? all_frozen(f, bias, ".bias") : NULL;
    if (n->tuning->copied && (!with_bias || whole_bias))
        whole = all_frozen(f, w, "");
    for (int i = 0; i < f->count && whole; i++) {
        parts[i].w = i ? NULL : whole;
        parts[i].bias = i ? NULL : whole_bias;
    }
    struct value *a = all_trained(f, f->a, ".lora_A");
    return a ? linear_lora_group(&n->program, net_as(n, x, w[0]), a, parts, f->count,
                                 adapter_scale(n->tuning->lora, f->module[0]))
             : NULL;
}

static bool trains(const struct net *n)
{
    return n->goal == NET_TRAIN || n->goal == NET_TRAIN_LOGITS;
}

/* All weights are trained. */
static struct value *as_one(const struct fusion *f, struct value *x, const struct net_layer *layers)
{
    struct value *w[NET_LAYERS_MAX];
    for (int i = 0; i < f->count; i++) {
        if (layers[i].size * x->shape[1] % TRAINED_UNIT != 0)
            return NULL;
        w[i] = net_linear_weight(f->net, f->module[i], layers[i].size, x->shape[1]);
    }
    struct value *all = all_trained(f, w, "");
    return all ? linear(&f->net->program, net_as(f->net, x, all), all) : NULL;
}

struct value *net_linears(struct net *n, struct value *x, int count, const struct net_layer *layers, bool with_bias,
                          int64_t layer)
{
    struct fusion f = {.net = n, .count = count};
    if (!x)
        return NULL;
    for (int i = 0; i < count; i++)
        net_module(n, f.module[i], layers[i].name, layer);
    if (n->tuning->train && !n->tuning->lora)
        return trains(n) && !with_bias ? as_one(&f, x, layers) : NULL;
    if (!can_be(&f, x->shape[1]))
        return NULL;
    for (int i = 0; i < count; i++) /* one after the other, in every program */
        f.a[i] = lora_a(n, f.module[i], x->shape[1]);
    return trains(n) && !n->draw && program_status(&n->program) == OK ? with_adapters(&f, x, layers, with_bias) : NULL;
}
