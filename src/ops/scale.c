/* scale: y = s · x, or with a number in memory, `by` (1), y = s · by · x. Backward: dx is the same of dy; `by` gets no gradient.
 */
#include "ops/op.h"

enum { X, BY, INPUTS };
enum { Y };
enum { S }; /* number */

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt, enum dtype tb)
{
    const void *x = c->data[X];
    void *y = c->data[INPUTS + Y];
    real s = (real)c->number[S] * (c->data[BY] ? load(tb, c->data[BY], 0) : 1);
    INDEPENDENT
    for (int64_t i = begin; i < end; i++)
        store(dt, y, i, s * load(dt, x, i));
}

KERNEL_BODY(scale_forward)
{
    SPECIALISE2(c->dtype[X], c->dtype[BY], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    if (n->in[BY])
        TRY(node_expect(n, BY, 1, SHAPE(1)));
    node_output(p, n, Y, n->in[X]->dtype, n->in[X]->rank, n->in[X]->shape);
    n->rows = value_elements(n->in[X]);
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return gradient_add(p, n, X, NODE_WITH(p, scale, n->number[S], gradient_of(p, n, Y), n->in[BY]));
}

static double flops(const struct node *n)
{
    return (double)n->rows;
}

static struct value *build(struct program *p, const int64_t *d)
{
    return scale(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), 0.3);
}

static struct value *build_by(struct program *p, const int64_t *d)
{
    return scale_by(p, program_input(p, "x", ROLE_RESIDUAL, 2, d[0], d[1]), program_input(p, "by", ROLE_WEIGHT, 1, 1L));
}

static const struct op_example examples[] = {
    {.build = build, .axes = {{"T", {1, 5, 64}}, {"C", {1, 16, 31, 577}}}},
    {.build = build_by, .axes = {{"T", {5}}, {"C", {31, 577}}}},
    {0},
};

const struct op OP(scale) = {
    .name = "scale",
    .formula = "y = s · by · x",
    .inputs = {"x", "by?"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_scale, .host = scale_forward, .group = 256, .rows = 256},
    .block = 16384,
    .in_place = 1 + X,
    .constants = 1,
    .flops = flops,
    .examples = examples,
};
