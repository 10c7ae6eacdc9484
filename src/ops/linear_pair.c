/* linear_pair: y1 = x · w1ᵀ and y2 = x · w2ᵀ: gate and up, K and V. Weights in parts may take one launch, which reads x once.
 *
 * Backward: dx is the sum of both products, and dw of each weight that is trained.
 */
#include "ops/linear.h"

enum { X, W1, W2 };
enum { Y1, Y2 };
enum { T, IN, OUT1, OUT2 };

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->size[T] = n->in[X]->shape[0];
    n->size[IN] = n->in[X]->shape[1];
    for (int k = 0; k < 2; k++) {
        TRY(node_expect(n, W1 + k, 2, SHAPE(-1, n->size[IN])));
        n->size[OUT1 + k] = n->in[W1 + k]->shape[0];
        node_output(p, n, Y1 + k, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[OUT1 + k]));
    }
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    return lower_pair(l, n->in[X], n->in + W1, n->out + Y1);
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *dy[2] = {gradient_of(p, n, Y1), gradient_of(p, n, Y2)};
    struct value *dx = gradient_wanted(n, X) ? gradient_products(p, n, X) : NULL;
    bool wide = (dy[0] && dy[1]) || linear_sum_is_wide(p, n, X);
    for (int k = 0; k < 2; k++) {
        if (!dy[k])
            continue;
        TRY(linear_gradient_w(p, n, X, W1 + k, dy[k]));
        if (gradient_wanted(n, X))
            dx = linear_bwd_x(p, dy[k], n->in[W1 + k], dx, wide, 1);
    }
    return gradient_wanted(n, X) ? gradient_add_product(p, n, X, dx) : program_status(p);
}

static double flops(const struct node *n)
{
    return 2.0 * (double)n->size[T] * (double)n->size[IN] * (double)(n->size[OUT1] + n->size[OUT2]);
}

static struct value *build(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]);
    return linear_pair(p, x, example_weight(p, d[4], d[2], d[1]), example_weight(p, d[4], d[3], d[1]));
}

/* x gets the gradients of both products. */
static struct value *sum_of(struct program *p, struct value *y)
{
    return y ? add(p, y, y->producer->out[1]) : NULL;
}

static struct value *build_sum(struct program *p, const int64_t *d)
{
    return sum_of(p, build(p, (int64_t[]){d[0], d[1], d[2], d[2], d[3]}));
}

static struct value *build_dense(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]);
    return sum_of(p, linear_pair(p, x, program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]),
                                 program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1])));
}

#define STORED .fill = example_fill_weight, .adjust = example_adjust_weight

static const struct op_example examples[] = {
    {.build = build,
     STORED,
     .axes = {{"T", {1, 17, 67}}, {"in", {64, 320}}, {"out1", {20, 129}}, {"out2", {33, 200}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {.build = build_sum,
     STORED,
     .axes = {{"T", {3, 33}}, {"in", {192, 320}}, {"out", {40, 130}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {.build = build_dense, .axes = {{"T", {3, 33}}, {"in", {16, 96}}, {"out", {40, 130}}}},
    {.build = build,
     STORED,
     .forward_only = true,
     .axes = {{"T", {3, 20}}, {"in", {2560}}, {"out1", {4096}}, {"out2", {1024}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {0},
};

const struct op OP(linear_pair) = {
    .name = "linear_pair",
    .formula = "y1 = x · w1ᵀ, y2 = x · w2ᵀ",
    .inputs = {"x", "w1", "w2"},
    .outputs = {"y1", "y2"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .flops = flops,
    .examples = examples,
};
