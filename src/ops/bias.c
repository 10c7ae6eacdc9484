/* bias: y = x + b, the same b (C) for every row. Backward: db += the sum of dy over rows, in row order. */
#include "ops/op.h"

enum { X, B, INPUTS };
enum { Y };
enum { T, C };

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype tb)
{
    const void *x = c->data[X], *b = c->data[B];
    void *y = c->data[INPUTS + Y];
    int64_t channels = c->dim[C];
    for (int64_t t = begin; t < end; t++) {
        INDEPENDENT
        for (int64_t i = 0; i < channels; i++)
            store(tx, y, t * channels + i, load(tx, x, t * channels + i) + load(tb, b, i));
    }
}

KERNEL_BODY static void bias_forward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE2(c->dtype[X], c->dtype[B], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->rows = n->size[T] = n->in[X]->shape[0];
    n->size[C] = n->in[X]->shape[1];
    TRY(node_expect(n, B, 1, SHAPE(n->size[C])));
    node_output(p, n, Y, n->in[X]->dtype, 2, n->in[X]->shape);
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    if (gradient_wanted(n, B))
        NODE(p, bias_bwd, gradient_of(n, Y), gradient_sum(p, n, B));
    return gradient_add(p, n, X, gradient_of(n, Y));
}

static struct value *build(struct program *p, const int64_t *d)
{
    return bias(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "b", ROLE_WEIGHT, 1, d[1]));
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 2, 6, 65}},                                                                                                    \
        {                                                                                                                        \
            "C",                                                                                                                 \
            {                                                                                                                    \
                1, 17, 64, 300                                                                                                   \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {{.build = build, .axes = SIZES}, {0}};

const struct op OP(bias) = {
    .name = "bias",
    .formula = "y = x + b",
    .inputs = {"x", "b"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_bias, .host = bias_forward, .group = 256, .rows = 1},
    .block = 8,
    .in_place = true,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

enum { BWD_DY, BWD_DB };
enum { BWD_DB_AFTER };

static ALWAYS_INLINE void body_bwd(const struct call *c, int64_t begin, int64_t end, enum dtype ty)
{
    int64_t channels = c->dim[C];
    real *db = c->data[BWD_DB];
    for (int64_t i = begin; i < end; i++) {
        real sum = 0;
        for (int64_t t = 0; t < c->dim[T]; t++)
            sum += load(ty, c->data[BWD_DY], t * channels + i);
        db[i] += sum;
    }
}

KERNEL_BODY static void bias_backward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[BWD_DY], body_bwd, c, begin, end);
}

static enum status shape_bwd(struct program *p, struct node *n)
{
    TRY(node_expect(n, BWD_DY, 2, SHAPE(-1, -1)));
    n->size[T] = n->in[BWD_DY]->shape[0];
    n->rows = n->size[C] = n->in[BWD_DY]->shape[1];
    TRY(node_expect(n, BWD_DB, 1, SHAPE(n->size[C])));
    node_alias(p, n, BWD_DB_AFTER, BWD_DB);
    return program_status(p);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return NODE(p, bias_bwd, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[1]),
                program_input(p, "db", ROLE_GRADIENT, 1, d[1]));
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = SIZES}, {0}};

const struct op OP(bias_bwd) = {
    .name = "bias_bwd",
    .formula = "db += Σ over rows of dy",
    .inputs = {"dy", "db"},
    .outputs = {"db"},
    .shape = shape_bwd,
    .kernel = {SIGNATURE_bias_bwd, .host = bias_backward, .group = 64, .rows = 64},
    .block = 64,
    .examples = examples_bwd,
};
