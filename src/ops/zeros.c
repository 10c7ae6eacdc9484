/* zeros: the start of a gradient sum, with another value's shape and the type of gradients. clear: a value becomes 0, in place.
 */
#include "ops/op.h"

enum { X };
enum { Y };

static enum status shape(struct program *p, struct node *n)
{
    node_output(p, n, Y, p->types[ROLE_GRADIENT], n->in[X]->rank, n->in[X]->shape);
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    return lower_fill(l, n->out[Y]);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return NODE(p, zeros, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]));
}

static const struct op_example examples[] = {{.build = build, .axes = {{"T", {1, 7}}, {"C", {1, 33}}}}, {0}};

const struct op OP(zeros) = {
    .name = "zeros",
    .formula = "y = 0",
    .inputs = {"x"},
    .outputs = {"y"},
    .shape = shape,
    .lower = lower,
    .examples = examples,
};

enum { X_AFTER };

static enum status clear_shape(struct program *p, struct node *n)
{
    node_alias(p, n, X_AFTER, X);
    return program_status(p);
}

static enum status clear_lower(struct lowering *l, const struct node *n)
{
    return lower_fill(l, n->in[X]);
}

static struct value *build_clear(struct program *p, const int64_t *d)
{
    return clear(p, program_input(p, "x", ROLE_GRADIENT, 1, d[0]));
}

static const struct op_example clear_examples[] = {{.build = build_clear, .axes = {{"N", {1, 33}}}, .forward_only = true}, {0}};

const struct op OP(clear) = {
    .name = "clear",
    .formula = "x = 0",
    .inputs = {"x"},
    .outputs = {"x"},
    .shape = clear_shape,
    .lower = clear_lower,
    .examples = clear_examples,
};
