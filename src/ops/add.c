/* add: y = x + d, in x's element type; in 16-bit runs the residual stream is wider than what is added to it. */
#include "ops/elementwise.h"

#define ONLY_add
#include "ops/add.kl"

enum { X, D };
enum { Y };

ELEMENTWISE_HOST_OF_TWO(add, D)

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
    .kernel = {SIGNATURE_add, .host = HOST(add), .group = 256, .rows = 256},
    .block = 16384,
    .in_place = 1 + X,
    .flops = flops,
    .examples = examples,
};
