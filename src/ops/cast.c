/* cast: y = x in the element type of another value, `like`. */
#include "ops/op.h"

enum { X, LIKE };
enum { Y };

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype ty)
{
    const void *x = c->data[X];
    void *y = c->data[1];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++)
        store(ty, y, i, load(tx, x, i));
}

KERNEL_BODY static void cast_forward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE2(c->dtype[X], c->dtype[1], body, c, begin, end);
}

static const struct kernel kernel = {"cast", cast_forward, .file = "cast", .operands = 2, .group = 256, .rows = 256};

static enum status shape(struct program *p, struct node *n)
{
    n->rows = value_elements(n->in[X]);
    node_output(p, n, Y, n->in[LIKE]->dtype, n->in[X]->rank, n->in[X]->shape);
    return program_status(p);
}

/* `like` gives its type alone: it is no operand, and need not be alive. */
static enum status lower(struct lowering *l, const struct node *n)
{
    return lower_launch(l, &kernel, 2, (struct value *[]){n->in[X], n->out[Y]}, n->size, n->number, n->rows, 16384);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return gradient_add(p, n, X, gradient_of(n, Y)); /* which casts it back */
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
    .formula = "y = x, in the type of `like`",
    .inputs = {"x", "like?"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .cheap = true,
    .examples = examples,
};
