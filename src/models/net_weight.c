/* The weights of a net: the first use of a name makes the tensor, and its gradient if it is trained. */
#include "models/net_weight.h"

#include <stdio.h>

#include "base/name.h"

static struct value *net_weight_in(struct net *n, const char *name, enum dtype dtype, bool trained, int rank,
                                   const int64_t *shape)
{
    struct program *p = &n->program;
    char sum[NAME_SIZE + 32];
    struct tensor *t;
    enum lifetime lifetime = trained ? LIFE_TRAINABLE : LIFE_WEIGHTS;
    enum status status = store_tensor(&t, n->store, name, lifetime, dtype, rank, shape);
    snprintf(sum, sizeof sum, "gradient.%s", name);
    if (status == OK && trained && !t->gradient)
        status = store_tensor(&t->gradient, n->store, sum, LIFE_GRADIENTS, p->types[ROLE_GRADIENT], rank, shape);
    return status == OK ? program_tensor(p, t) : program_fail(p, status);
}

static struct value *net_weight_of(struct net *n, const char *name, bool trained, int rank, const int64_t *shape)
{
    return net_weight_in(n, name, n->program.types[ROLE_WEIGHT], trained, rank, shape);
}

struct value *net_weight(struct net *n, const char *name, bool trained, int rank, int64_t d0, int64_t d1)
{
    return net_weight_of(n, name, trained, rank, (int64_t[]){d0, d1});
}

/* After its layer's, or with NET_NO_LAYER as it is. */
const char *net_module(const struct net *n, char module[static NAME_SIZE], const char *name, int64_t layer)
{
    return layer < 0 ? name_fill(module, name, 0, 0, "") : name_fill(module, n->family->layer, layer, 0, name);
}

bool net_trains_all(const struct net *n)
{
    return n->tuning->train && !n->tuning->lora;
}

bool net_trains_norms(const struct net *n)
{
    return net_trains_all(n) || (n->tuning->train && n->tuning->norms);
}

struct value *net_parameter(struct net *n, const char *name, int64_t layer, bool of_norm, int rank, const int64_t *shape)
{
    char full[NAME_SIZE];
    return net_weight_of(n, net_module(n, full, name, layer), of_norm ? net_trains_norms(n) : net_trains_all(n), rank, shape);
}

struct value *net_part(struct net *n, const char *module, const char *part, bool trained, int64_t rows, int64_t columns)
{
    char name[NAME_SIZE];
    return net_weight(n, name_fill(name, module, 0, 0, part), trained, columns ? 2 : 1, rows, columns);
}

struct value *net_matrix(struct net *n, const char *module, bool linear, int64_t rows, int64_t columns)
{
    char name[NAME_SIZE];
    const struct parted *parted;
    struct value *part[WEIGHT_PARTS] = {0};
    int type = weights_type(n->weights, name_fill(name, module, 0, 0, ".weight"), linear);
    if (type == WEIGHT_DENSE && net_trains_all(n))
        return net_weight(n, name, true, 2, rows, columns);
    if (type == WEIGHT_DENSE)
        return net_weight_in(n, name, weights_matrix_dtype(n->weights, name, n->program.types[ROLE_WEIGHT]), false, 2,
                             (int64_t[]){rows, columns});
    enum weight_id id = (enum weight_id)type;
    if (net_trains_all(n))
        return program_fail(&n->program,
                            fail(ERR_UNSUPPORTED, "%s is stored as %s, which cannot be trained: use --finetuning-type lora", name,
                                 weight_types[id]->name));
    enum status status = weights_parted(n->weights, n->store, name, id, rows, columns, &parted);
    if (status != OK)
        return program_fail(&n->program, status);
    for (int i = 0; i < weight_parts(id); i++)
        part[i] = program_tensor(&n->program, parted->part[i]);
    return weight_value(&n->program, id, part, rows, columns);
}

struct value *net_linear_weight(struct net *n, const char *module, int64_t rows, int64_t columns)
{
    return net_matrix(n, module, true, rows, columns);
}

struct value *net_linear_bias(struct net *n, const char *module, int64_t rows)
{
    return net_part(n, module, ".bias", net_trains_all(n), rows, 0);
}

struct value *net_experts_weight(struct net *n, const char *module, const char *parameter, int64_t rows, int64_t columns)
{
    char name[2 * NAME_SIZE];
    snprintf(name, sizeof name, "%s.%s", module, parameter);
    return net_weight_of(n, name, net_trains_all(n), columns ? 3 : 2, (int64_t[]){n->config->experts, rows, columns});
}
