/* cast: y = x in the element type of another value, `like`; without it in that of gradients. */
#include "ops/elementwise.h"

#define ONLY_cast
#include "ops/cast.kl"

enum { X, LIKE };
enum { Y };
enum { CAST_X, CAST_Y, CAST_OPERANDS };

ELEMENTWISE_HOST_OF_TWO(cast, CAST_Y)

static const struct kernel kernel = {SIGNATURE_cast, .host = HOST(cast), .group = 256, .rows = 256};

static enum status shape(struct program *p, struct node *n)
{
    n->rows = value_elements(n->in[X]);
    node_output(p, n, Y, n->in[LIKE] ? n->in[LIKE]->dtype : p->types[ROLE_GRADIENT], n->in[X]->rank, n->in[X]->shape);
    return program_status(p);
}

/* Only the type of `like` is used: it is not an operand, and need not be alive. */
static enum status lower(struct lowering *l, const struct node *n)
{
    struct value *values[] = {[CAST_X] = n->in[X], [CAST_Y] = n->out[Y]};
    return lower_launch(l, &kernel, CAST_OPERANDS, values, n->size, n->number, n->rows, 16384);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return gradient_add(p, n, X, gradient_as_is(n, Y)); /* its reader rounds it to the type of x */
}

static struct value *build(struct program *p, const int64_t *d)
{
    return NODE(p, cast, program_input(p, "x", ROLE_RESIDUAL, 2, d[0], d[1]), program_input(p, "like", ROLE_ACTIVATION, 1, d[1]));
}

static struct value *build_wider(struct program *p, const int64_t *d)
{
    return NODE(p, cast, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "like", ROLE_RESIDUAL, 1, d[1]));
}

static const struct op_example examples[] = {
    {.build = build, .axes = {{"T", {1, 5, 33}}, {"C", {1, 64, 577}}}},
    {.build = build_wider, .axes = {{"T", {1, 5, 33}}, {"C", {1, 64, 577}}}},
    {0},
};

const struct op OP(cast) = {
    .name = "cast",
    .formula = "y = x, in the type of `like`, or of gradients",
    .inputs = {"x", "like?"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .cheap = true,
    .examples = examples,
};
