/* squared_sum: parts[i] = Σ g² of the i-th piece of 16384 elements. Pieces have a fixed size, so that the sum of the parts does
 * not depend on threads. */
#include "ops/op.h"

enum { G };
enum { PARTS };
enum { N };

#define PIECE 16384

KERNEL_BODY(squared_sum_forward)
{
    const real *g = c->data[G];
    real *parts = c->data[1];
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * PIECE, count = c->dim[N] - at < PIECE ? c->dim[N] - at : PIECE;
        parts[i] = dot(g, at, g, at, count, DTYPE_F32, DTYPE_F32);
    }
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, G, 1, SHAPE(-1)));
    n->size[N] = n->in[G]->shape[0];
    n->rows = (n->size[N] + PIECE - 1) / PIECE;
    node_output(p, n, PARTS, p->types[ROLE_STATISTIC], 1, SHAPE(n->rows));
    return program_status(p);
}

static double flops(const struct node *n)
{
    return 2.0 * (double)n->size[N];
}

static struct value *build(struct program *p, const int64_t *d)
{
    return squared_sum(p, program_input(p, "g", ROLE_GRADIENT, 1, d[0]));
}

static const struct op_example examples[] = {
    {.build = build, .axes = {{"N", {1, 17, 1000, 16384, 16385, 50000}}}},
    {.build = build, .axes = {{"N", {33000}}}, .scale = 1e-12f},
    {.build = build, .axes = {{"N", {1 << 20}}}},
    {0},
};

const struct op OP(squared_sum) = {
    .name = "squared_sum",
    .formula = "parts[i] = Σ g², over the i-th 16384 elements",
    .inputs = {"g"},
    .outputs = {"parts"},
    .shape = shape,
    .kernel = {SIGNATURE_squared_sum, .host = squared_sum_forward, .group = 256, .rows = 1, .defines = DEFINE(PIECE)},
    .block = 1,
    .flops = flops,
    .examples = examples,
};
