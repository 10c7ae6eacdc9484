/* softcap: y = cap · tanh(x / cap), which is x where that is small and never beyond ±cap; element by element.
 *
 * Backward: dx = dy · (1 − tanh²(x / cap)) = dy · 4e / (1 + e)² with e = exp(−2 |x / cap|), which is precise where tanh is
 * near 1.
 */
#include "ops/elementwise.h"

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

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_softcap_bwd);
}

static double flops(const struct node *n)
{
    return 3.0 * (double)n->rows;
}

static struct value *build(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_softcap, d, 1.5, 0);
}

static const struct op_example examples[] = {
    {.build = build, .axes = ELEMENTWISE_SIZES},
    {.build = build, .axes = {{"T", {3}}, {"C", {64}}}, .scale = 30},
    {0},
};

const struct op OP(softcap) = {
    .name = "softcap",
    .formula = "y = cap · tanh(x / cap)",
    .inputs = {"x"},
    .outputs = {"y"},
    .shape = elementwise_shape,
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

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_softcap_bwd, d, 1.5, 0);
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(softcap_bwd) = {
    .name = "softcap_bwd",
    .formula = "dx = dy · (1 − tanh²(x / cap))",
    .inputs = {"x", "dy"},
    .outputs = {"dx"},
    .shape = elementwise_shape,
    .kernel = {SIGNATURE_softcap_bwd, .host = softcap_backward, .group = 256, .rows = 256},
    .block = 8192,
    .in_place = 1 + BWD_X,
    .examples = examples_bwd,
};
