/* scale: y = s · x. Backward: dx = s · dy. */
#include "ops/op.h"

enum { X, INPUTS };
enum { Y };
enum { S }; /* number */

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *x = c->data[X];
    void *y = c->data[INPUTS + Y];
    real s = (real)c->number[S];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++)
        store(dt, y, i, s * load(dt, x, i));
}

KERNEL_BODY static void scale_forward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[X], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    node_output(p, n, Y, n->in[X]->dtype, n->in[X]->rank, n->in[X]->shape);
    n->rows = value_elements(n->in[X]);
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return gradient_add(p, n, X, NODE_WITH(p, scale, n->number[S], gradient_of(p, n, Y)));
}

static double flops(const struct node *n)
{
    return (double)n->rows;
}

static struct value *build(struct program *p, const int64_t *d)
{
    return scale(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), 0.3);
}

static const struct op_example examples[] = {{.build = build, .axes = {{"T", {1, 5, 64}}, {"C", {1, 16, 31, 577}}}}, {0}};

const struct op OP(scale) = {
    .name = "scale",
    .formula = "y = s · x",
    .inputs = {"x"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_scale, .host = scale_forward, .group = 256, .rows = 256},
    .block = 16384,
    .in_place = 1 + X,
    .flops = flops,
    .examples = examples,
};
