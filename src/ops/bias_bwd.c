/* bias_bwd: db += the sum of dy over rows, in row order: the gradient of a linear layer's bias. */
#include "ops/op.h"

enum { DY, DB };
enum { DB_AFTER };
enum { T, C };

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype ty)
{
    int64_t channels = c->dim[C];
    real *db = c->data[DB];
    for (int64_t i = begin; i < end; i++) {
        real sum = 0;
        for (int64_t t = 0; t < c->dim[T]; t++)
            sum += load(ty, c->data[DY], t * channels + i);
        db[i] += sum;
    }
}

KERNEL_BODY(bias_backward)
{
    SPECIALISE(c->dtype[DY], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, DY, 2, SHAPE(-1, -1)));
    n->size[T] = n->in[DY]->shape[0];
    n->rows = n->size[C] = n->in[DY]->shape[1];
    TRY(node_expect(n, DB, 1, SHAPE(n->size[C])));
    node_alias(p, n, DB_AFTER, DB);
    return program_status(p);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return NODE(p, bias_bwd, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[1]),
                program_input(p, "db", ROLE_GRADIENT, 1, d[1]));
}

static const struct op_example examples[] = {
    {.build = build, .axes = {{"T", {1, 2, 6, 65}}, {"C", {1, 17, 64, 300}}}},
    {0},
};

const struct op OP(bias_bwd) = {
    .name = "bias_bwd",
    .formula = "db += Σ over rows of dy",
    .inputs = {"dy", "db"},
    .outputs = {"db"},
    .shape = shape,
    .kernel = {SIGNATURE_bias_bwd, .host = bias_backward, .group = 64, .rows = 64},
    .block = 64,
    .examples = examples,
};
