/* softcap: y = cap · tanh(x / cap), which is x where that is small and never beyond ±cap; element by element.
 *
 * Backward: dx = dy · (1 − tanh²(x / cap)) = dy · 4e / (1 + e)² with e = exp(−2 |x / cap|), which is precise where tanh is
 * near 1.
 */
#include "ops/op.h"

enum { X, INPUTS };
enum { Y };
enum { CAP }; /* number */

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *x = c->data[X];
    void *y = c->data[INPUTS + Y];
    real cap = (real)c->number[CAP];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++)
        store(dt, y, i, cap * real_tanh(load(dt, x, i) / cap));
}

KERNEL_BODY static void softcap_forward(const struct call *c, int64_t begin, int64_t end)
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
    return gradient_add(p, n, X, NODE_WITH(p, softcap_bwd, n->number[CAP], n->in[X], gradient_of(p, n, Y)));
}

static double flops(const struct node *n)
{
    return 3.0 * (double)n->rows;
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 5, 64}},                                                                                                       \
        {                                                                                                                        \
            "C",                                                                                                                 \
            {                                                                                                                    \
                1, 16, 31, 577                                                                                                   \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static struct value *build(struct program *p, const int64_t *d)
{
    return softcap(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), 1.5);
}

static const struct op_example examples[] = {
    {.build = build, .axes = SIZES},
    {.build = build, .axes = {{"T", {3}}, {"C", {64}}}, .scale = 30},
    {0},
};

const struct op OP(softcap) = {
    .name = "softcap",
    .formula = "y = cap · tanh(x / cap)",
    .inputs = {"x"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_softcap, .host = softcap_forward, .group = 256, .rows = 256},
    .block = 8192,
    .in_place = 1 + X,
    .flops = flops,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

enum { BWD_X, BWD_DY, BWD_INPUTS };
enum { BWD_DX };

static ALWAYS_INLINE void body_bwd(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype ty)
{
    const void *x = c->data[BWD_X], *dy = c->data[BWD_DY];
    void *dx = c->data[BWD_INPUTS + BWD_DX];
    real inverse = -2 / (real)c->number[CAP];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real size = load(tx, x, i), e = real_exp(inverse * (size < 0 ? -size : size));
        store(ty, dx, i, load(tx, dy, i) * (4 * e / ((1 + e) * (1 + e))));
    }
}

KERNEL_BODY static void softcap_backward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE2(c->dtype[BWD_X], c->dtype[BWD_INPUTS + BWD_DX], body_bwd, c, begin, end);
}

static enum status shape_bwd(struct program *p, struct node *n)
{
    TRY(node_expect(n, BWD_DY, n->in[BWD_X]->rank, n->in[BWD_X]->shape));
    node_output(p, n, BWD_DX, n->in[BWD_X]->dtype, n->in[BWD_X]->rank, n->in[BWD_X]->shape);
    n->rows = value_elements(n->in[BWD_X]);
    return program_status(p);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return NODE_WITH(p, softcap_bwd, 1.5, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                     program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[1]));
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = SIZES}, {0}};

const struct op OP(softcap_bwd) = {
    .name = "softcap_bwd",
    .formula = "dx = dy · (1 − tanh²(x / cap))",
    .inputs = {"x", "dy"},
    .outputs = {"dx"},
    .shape = shape_bwd,
    .kernel = {SIGNATURE_softcap_bwd, .host = softcap_backward, .group = 256, .rows = 256},
    .block = 8192,
    .in_place = 1 + BWD_X,
    .examples = examples_bwd,
};
