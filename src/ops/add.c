/* add: y = x + d, in x's element type; in 16-bit runs the residual stream is wider than what is added to it. */
#include "ops/op.h"

enum { X, D, INPUTS };
enum { Y };

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype td)
{
    const void *x = c->data[X], *d = c->data[D];
    void *y = c->data[INPUTS + Y];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++)
        store(tx, y, i, load(tx, x, i) + load(td, d, i));
}

KERNEL_BODY static void add_forward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE2(c->dtype[X], c->dtype[D], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, D, n->in[X]->rank, n->in[X]->shape));
    node_output(p, n, Y, n->in[X]->dtype, n->in[X]->rank, n->in[X]->shape);
    n->rows = value_elements(n->in[X]);
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    TRY(gradient_add(p, n, X, gradient_as_is(n, Y)));
    return gradient_add(p, n, D, gradient_as_is(n, Y));
}

static double flops(const struct node *n)
{
    return (double)n->rows;
}

static struct value *build(struct program *p, const int64_t *d)
{
    return add(p, program_input(p, "x", ROLE_RESIDUAL, 2, d[0], d[1]), program_input(p, "d", ROLE_ACTIVATION, 2, d[0], d[1]));
}

static const struct op_example examples[] = {
    {.build = build, .axes = {{"T", {1, 3, 16, 33, 257}}, {"C", {1, 7, 16, 64, 130, 577}}}}, {0}};

const struct op OP(add) = {
    .name = "add",
    .formula = "y = x + d",
    .inputs = {"x", "d"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_add, .host = add_forward, .group = 256, .rows = 256},
    .block = 16384,
    .in_place = 1 + X,
    .flops = flops,
    .examples = examples,
};
