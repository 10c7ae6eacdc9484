/* route: a token's k experts and their weights, from its router's logits (T, E).
 *
 * Experts are those of the k largest logits, the largest first; of equal ones the lower number. With normalise, weights are the
 * softmax of those k logits, else that of all E. Logits are compared, not probabilities, so every device chooses the same.
 *
 * Backward, with w the weights and p the softmax that they come from: dlogits[e] = p[e] · (dw[e] − Σ w · dw), where dw is 0 for
 * experts that were not chosen, and p too if the weights are normalised.
 */
#include "ops/experts/expert_slots.h"

enum { LOGITS, INPUTS };
enum { WEIGHTS, EXPERTS };
enum { T, E, K };
enum { NUMBER_K, NORMALISE }; /* numbers */

/* The largest logit after the one before, in the order of size, then number; -1: there is none, because logits are not numbers.
 */
static int64_t next_best(const real *logit, int64_t count, int64_t before)
{
    int64_t best = -1;
    for (int64_t e = 0; e < count; e++) {
        bool left = before < 0 || logit[e] < logit[before] || (logit[e] == logit[before] && e > before);
        if (left && logit[e] == logit[e] && (best < 0 || logit[e] > logit[best]))
            best = e;
    }
    return best;
}

static real softmax_sum(const real *logit, int64_t count, const int32_t *chosen, int64_t k, bool normalise, real top)
{
    real sum = 0;
    for (int64_t i = 0; i < (normalise ? k : count); i++)
        sum += real_exp(logit[normalise ? chosen[i] : i] - top);
    return sum;
}

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    int64_t count = c->dim[E], k = c->dim[K];
    for (int64_t t = begin; t < end; t++) {
        const real *logit = (const real *)c->data[LOGITS] + t * count;
        real *weight = (real *)c->data[INPUTS + WEIGHTS] + t * k;
        int32_t *expert = (int32_t *)c->data[INPUTS + EXPERTS] + t * k;
        for (int64_t j = 0, before = -1; j < k; j++) {
            int64_t best = next_best(logit, count, before);
            before = best < 0 ? j : best;
            expert[j] = (int32_t)before;
        }
        real top = logit[expert[0]], sum = softmax_sum(logit, count, expert, k, c->number[NORMALISE] != 0, top);
        for (int64_t j = 0; j < k; j++)
            weight[j] = real_exp(logit[expert[j]] - top) / sum;
    }
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, LOGITS, 2, SHAPE(-1, -1)));
    n->rows = n->size[T] = n->in[LOGITS]->shape[0];
    n->size[E] = n->in[LOGITS]->shape[1];
    n->size[K] = (int64_t)n->number[NUMBER_K];
    if (n->size[K] < 1 || n->size[K] > n->size[E])
        return fail(ERR_INTERNAL, "route: %lld of %lld experts", (long long)n->size[K], (long long)n->size[E]);
    node_output(p, n, WEIGHTS, p->types[ROLE_STATISTIC], 2, SHAPE(n->size[T], n->size[K]));
    node_output(p, n, EXPERTS, p->types[ROLE_INDEX], 2, SHAPE(n->size[T], n->size[K]));
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *inputs[] = {n->in[LOGITS], n->out[EXPERTS], gradient_of(p, n, WEIGHTS)};
    return gradient_add(p, n, LOGITS, program_node(p, OP_route_bwd, 3, inputs, 1, &n->number[NORMALISE]));
}

/* kind: 1 the softmax of all, 2 of the chosen. */
static struct value *build(struct program *p, const int64_t *d)
{
    return route(p, program_input(p, "logits", ROLE_STATISTIC, 2, d[0], d[1]), d[2], d[3] > 1);
}

/* Some logits are equal. */
static double adjust(const char *input, int64_t index, double random)
{
    (void)input;
    return index % 3 ? random : 0.25;
}

/* A token's logits are so far apart that a small change does not choose other experts: multiples of the golden ratio, less their
 * whole part, are as far apart as can be. */
static double spread_logits(const char *input, int64_t index, double random)
{
    (void)input;
    double multiple = (double)index * 0.61803398874989485;
    return 6 * (multiple - floor(multiple)) + 0.001 * random;
}

#define SIZES                                                                                                                    \
    {"T", {1, 67}}, {"E", {2, 7}}, {"k", {1, 2}},                                                                                \
    {                                                                                                                            \
        "kind",                                                                                                                  \
        {                                                                                                                        \
            1, 2                                                                                                                 \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build, .adjust = spread_logits, .axes = {SIZES}},
    {.build = build, .adjust = spread_logits, .axes = {{"T", {3, 40}}, {"E", {128}}, {"k", {8}}, {"kind", {1, 2}}}},
    {.build = build, .adjust = adjust, .forward_only = true, .axes = {{"T", {40}}, {"E", {9, 64}}, {"k", {4}}, {"kind", {1, 2}}}},
    {0},
};

const struct op OP(route) = {
    .name = "route",
    .formula = "experts of the k largest logits, and their weights by softmax",
    .inputs = {"logits"},
    .outputs = {"weights", "experts"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_route, .host = forward, .group = 64, .rows = 64},
    .block = 64,
    .cheap = true,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

enum { BWD_LOGITS, BWD_EXPERTS, BWD_DWEIGHTS, BWD_INPUTS };
enum { BWD_DLOGITS };
enum { BWD_NORMALISE }; /* number */

static void backward(const struct call *c, int64_t begin, int64_t end)
{
    int64_t count = c->dim[E], k = c->dim[K];
    bool normalise = c->number[BWD_NORMALISE] != 0;
    for (int64_t t = begin; t < end; t++) {
        const real *logit = (const real *)c->data[BWD_LOGITS] + t * count, *dw = (const real *)c->data[BWD_DWEIGHTS] + t * k;
        const int32_t *expert = (const int32_t *)c->data[BWD_EXPERTS] + t * k;
        real *dlogit = (real *)c->data[BWD_INPUTS + BWD_DLOGITS] + t * count, mean = 0, top = logit[expert[0]];
        real sum = softmax_sum(logit, count, expert, k, normalise, top);
        for (int64_t j = 0; j < k; j++)
            mean += real_exp(logit[expert[j]] - top) / sum * dw[j];
        for (int64_t e = 0; e < count; e++)
            dlogit[e] = normalise ? 0 : -real_exp(logit[e] - top) / sum * mean;
        for (int64_t j = 0; j < k; j++)
            dlogit[expert[j]] = real_exp(logit[expert[j]] - top) / sum * (dw[j] - mean);
    }
}

static enum status shape_bwd(struct program *p, struct node *n)
{
    TRY(node_expect(n, BWD_LOGITS, 2, SHAPE(-1, -1)));
    n->rows = n->size[T] = n->in[BWD_LOGITS]->shape[0];
    n->size[E] = n->in[BWD_LOGITS]->shape[1];
    TRY(node_expect(n, BWD_EXPERTS, 2, SHAPE(n->size[T], -1)));
    n->size[K] = n->in[BWD_EXPERTS]->shape[1];
    TRY(node_expect(n, BWD_DWEIGHTS, 2, SHAPE(n->size[T], n->size[K])));
    node_output(p, n, BWD_DLOGITS, n->in[BWD_LOGITS]->dtype, 2, n->in[BWD_LOGITS]->shape);
    return program_status(p);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    struct value *logits = program_input(p, "logits", ROLE_STATISTIC, 2, d[0], d[1]);
    struct value *weights = route(p, logits, d[2], d[3] > 1);
    return NODE_WITH(p, route_bwd, d[3] > 1, logits, weights ? weights->producer->out[EXPERTS] : NULL,
                     program_input(p, "dweights", ROLE_STATISTIC, 2, d[0], d[2]));
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = {SIZES}}, {0}};

const struct op OP(route_bwd) = {
    .name = "route_bwd",
    .formula = "dlogits = p · (dweights − Σ weights · dweights)",
    .inputs = {"logits", "experts", "dweights"},
    .outputs = {"dlogits"},
    .shape = shape_bwd,
    .kernel = {SIGNATURE_route_bwd, .host = backward, .group = 64, .rows = 64},
    .block = 64,
    .examples = examples_bwd,
};
