/* swiglu_packed: y = silu(gate) · up of x = [gate | up] (T, 2 · F): of two layers that write side by side. swiglu.kl has the
 * formula, and that of the backward pass, which writes the gradients side by side too. */
#include "ops/text.h"

#define ONLY_swiglu_packed
#define ONLY_swiglu_packed_bwd
#include "ops/swiglu.kl"

enum { X };
enum { Y };
enum { BWD_X, BWD_DY };
enum { BWD_DX };
enum { T, F };

ROWS_HOST(swiglu_packed)

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->rows = n->size[T] = n->in[X]->shape[0];
    n->size[F] = n->in[X]->shape[1] / 2;
    TRY(node_expect(n, X, 2, SHAPE(-1, 2 * n->size[F])));
    node_output(p, n, Y, n->in[X]->dtype, 2, SHAPE(n->size[T], n->size[F]));
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return gradient_add(p, n, X, NODE(p, swiglu_packed_bwd, n->in[X], gradient_of(p, n, Y)));
}

static double flops(const struct node *n)
{
    return 5.0 * (double)(n->size[T] * n->size[F]);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return swiglu_packed(p, example_input(p, "x", ROLE_ACTIVATION, d[2] == 1, 2, SHAPE(d[0], 2 * d[1])));
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 5, 64}},                                                                                                       \
        {                                                                                                                        \
            "F",                                                                                                                 \
            {                                                                                                                    \
                1, 31, 160, 577                                                                                                  \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build, .axes = SIZES},
    {.build = build, .axes = {{"T", {3}}, {"F", {64}}}, .scale = 30},
    {.build = build, .axes = {{"T", {5}}, {"F", {160}}, {"aside", {1}}}, .forward_only = true},
    {0},
};

const struct op OP(swiglu_packed) = {
    .name = "swiglu_packed",
    .formula = "y = gate · σ(gate) · up, x = [gate | up]",
    .inputs = {"x"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_swiglu_packed, .host = HOST(swiglu_packed), .group = 256, .rows = 1},
    .block = 8,
    .cheap = true,
    .flops = flops,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

ROWS_HOST(swiglu_packed_bwd)

static enum status shape_bwd(struct program *p, struct node *n)
{
    TRY(node_expect(n, BWD_DY, 2, SHAPE(-1, -1)));
    n->rows = n->size[T] = n->in[BWD_DY]->shape[0];
    n->size[F] = n->in[BWD_DY]->shape[1];
    TRY(node_expect(n, BWD_X, 2, SHAPE(n->size[T], 2 * n->size[F])));
    node_output(p, n, BWD_DX, n->in[BWD_X]->dtype, 2, n->in[BWD_X]->shape);
    return program_status(p);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return NODE(p, swiglu_packed_bwd, example_input(p, "x", ROLE_ACTIVATION, d[2] == 1, 2, SHAPE(d[0], 2 * d[1])),
                example_input(p, "dy", ROLE_ACTIVATION, d[2] == 2, 2, d));
}

static const struct op_example examples_bwd[] = {
    {.build = build_bwd, .axes = SIZES}, {.build = build_bwd, .axes = {{"T", {5}}, {"F", {160}}, {"aside", {UPTO(2)}}}}, {0}};

const struct op OP(swiglu_packed_bwd) = {
    .name = "swiglu_packed_bwd",
    .formula = "dx = [dgate | dup], as of swiglu_bwd",
    .inputs = {"x", "dy"},
    .outputs = {"dx"},
    .shape = shape_bwd,
    .kernel = {SIGNATURE_swiglu_packed_bwd, .host = HOST(swiglu_packed_bwd), .group = 256, .rows = 1},
    .block = 8,
    .in_place = 1 + BWD_X,
    .examples = examples_bwd,
};
