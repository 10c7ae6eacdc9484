/* linear_lora: y = x · wᵀ + bias + low · bᵀ, low = scale · z · aᵀ: a linear layer with a low-rank adapter, rounded once.
 *
 * The adapter's part is small compared with x · wᵀ. Added to that after it is rounded, whatever of it is below half a unit in the
 * last place would be lost, and a young adapter would learn from what is left. So it is written to y first, at its own size, and
 * x · wᵀ and the bias are added to it in float32 sums. LoRAFusion (arXiv 2510.00206) sums in this order for speed.
 *
 * Backward: with dlow = scale · dy · b, db += dyᵀ · low, da += dlowᵀ · z, dz += dlow · a and dx += dy · w. Where z is x, both
 * add to one sum, the smaller first.
 */
#include "ops/linear.h"

enum { X, W, BIAS, Z, A, B };
enum { Y, LOW };
enum { T = LINEAR_T, IN = LINEAR_IN, OUT = LINEAR_OUT, LOW_RANK };
enum { SCALE }; /* number */

static enum status shape(struct program *p, struct node *n)
{
    TRY(linear_shape(n, X, W, BIAS));
    TRY(node_expect(n, Z, 2, n->in[X]->shape));
    TRY(node_expect(n, A, 2, SHAPE(-1, n->size[IN])));
    n->size[LOW_RANK] = n->in[A]->shape[0];
    TRY(node_expect(n, B, 2, SHAPE(n->size[OUT], n->size[LOW_RANK])));
    node_output(p, n, Y, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[OUT]));
    node_output(p, n, LOW, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[LOW_RANK]));
    return program_status(p);
}

/* A backward pass that makes values again may need only low. */
static enum status lower(struct lowering *l, const struct node *n)
{
    TRY(lower_gemm(l, n->in[Z], false, n->in[A], true, n->out[LOW],
                   (struct lower_with){.scaled = true, .alpha = n->number[SCALE]}));
    if (n->out[Y]->unread)
        return OK;
    TRY(lower_gemm(l, n->out[LOW], false, n->in[B], true, n->out[Y], (struct lower_with){0}));
    return lower_product(l, n->in[X], n->in[W], false, n->out[Y], (struct lower_with){.accumulate = true, .bias = n->in[BIAS]});
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *dy = gradient_of(p, n, Y);
    struct value *dlow = linear_bwd_x(p, dy, n->in[B], NULL, false, n->number[SCALE]);
    if (gradient_wanted(n, B))
        NODE(p, linear_bwd_w, dy, n->out[LOW], gradient_sum(p, n, B));
    TRY(linear_gradient_w(p, n, Z, A, dlow));
    TRY(linear_gradient_w(p, n, X, W, dy));
    TRY(linear_gradient_bias(p, n, BIAS, dy));
    if (value_root(n->in[Z]) != value_root(n->in[X])) {
        TRY(linear_gradient_x(p, n, Z, A, dlow));
        return linear_gradient_x(p, n, X, W, dy);
    }
    if (!gradient_wanted(n, X))
        return program_status(p);
    struct value *dx = linear_bwd_x(p, dlow, n->in[A], gradient_products(p, n, X), linear_sum_is_wide(p, n, X), 1);
    return gradient_add_product(p, n, X, linear_bwd_x(p, dy, n->in[W], dx, false, 1));
}

static double flops(const struct node *n)
{
    double per_token = (double)(n->size[IN] * n->size[OUT]) + (double)n->size[LOW_RANK] * (double)(n->size[IN] + n->size[OUT]);
    return 2.0 * (double)n->size[T] * per_token;
}

/* parts: 1 has no bias, 2 has one; from 3 on z is another value than x. */
static struct value *build_on(struct program *p, const int64_t *d, struct value *w)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]);
    struct value *z = d[4] > 2 ? program_input(p, "z", ROLE_ACTIVATION, 2, d[0], d[1]) : x;
    struct value *bias = d[4] % 2 == 0 ? program_input(p, "bias", ROLE_WEIGHT, 1, d[2]) : NULL;
    return linear_lora(p, x, w, bias, z, program_input(p, "a", ROLE_WEIGHT, 2, d[3], d[1]),
                       program_input(p, "b", ROLE_WEIGHT, 2, d[2], d[3]), 0.75);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return build_on(p, d, program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]));
}

static struct value *build_stored(struct program *p, const int64_t *d)
{
    return build_on(p, d, example_weight(p, d[5], d[2], d[1]));
}

static const struct op_example examples[] = {
    {.build = build,
     .axes = {{"T", {1, 3, 67}}, {"in", {16, 33, 96}}, {"out", {7, 64}}, {"rank", {1, 4, 16}}, {"parts", {1, 2, 3, 4}}},
     .scale = 0.3f},
    {.build = build_stored,
     .fill = example_fill_weight,
     .adjust = example_adjust_weight,
     .axes =
         {{"T", {1, 67}}, {"in", {192}}, {"out", {64, 129}}, {"rank", {8}}, {"parts", {1, 4}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {.build = build_stored,
     .fill = example_fill_weight,
     .adjust = example_adjust_weight,
     .forward_only = true,
     .axes = {{"T", {3}}, {"in", {2560}}, {"out", {4096}}, {"rank", {16}}, {"parts", {2}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {.build = build,
     .forward_only = true,
     .axes = {{"T", {256}}, {"in", {576}}, {"out", {1536}}, {"rank", {16}}, {"parts", {1}}}},
    {0},
};

const struct op OP(linear_lora) = {
    .name = "linear_lora",
    .formula = "y = x · wᵀ + bias + low · bᵀ, low = scale · z · aᵀ",
    .inputs = {"x", "w", "bias?", "z", "a", "b"},
    .outputs = {"y", "low"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .flops = flops,
    .examples = examples,
};
