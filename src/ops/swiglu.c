/* swiglu: y = silu(gate) · up with silu(a) = a · σ(a), element by element.
 *
 * Backward, with s = σ(gate): dgate = dy · up · s · (1 + gate · (1 − s)), dup = dy · gate · s.
 */
#include "ops/elementwise.h"

enum { GATE, UP, INPUTS };
enum { Y };
enum { BWD_GATE, BWD_UP, BWD_DY, BWD_INPUTS };
enum { BWD_DGATE, BWD_DUP };

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *gates = c->data[GATE], *up = c->data[UP];
    void *y = c->data[INPUTS + Y];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real gate = load(dt, gates, i);
        store(dt, y, i, gate / (1 + real_exp(-gate)) * load(dt, up, i));
    }
}

KERNEL_BODY static void swiglu_forward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[GATE], body, c, begin, end);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_swiglu_bwd);
}

static double flops(const struct node *n)
{
    return 5.0 * (double)n->rows;
}

static struct value *build(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_swiglu, d, 0, 0);
}

static const struct op_example examples[] = {
    {.build = build, .axes = ELEMENTWISE_SIZES},
    {.build = build, .axes = {{"T", {3}}, {"C", {64}}}, .scale = 30},
    {0},
};

const struct op OP(swiglu) = {
    .name = "swiglu",
    .formula = "y = gate · σ(gate) · up",
    .inputs = {"gate", "up"},
    .outputs = {"y"},
    .shape = elementwise_shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_swiglu, .host = swiglu_forward, .group = 256, .rows = 256},
    .block = 8192,
    .in_place = 1 + GATE,
    .cheap = true,
    .flops = flops,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void body_bwd(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *gates = c->data[BWD_GATE], *ups = c->data[BWD_UP], *dys = c->data[BWD_DY];
    void *dgate = c->data[BWD_INPUTS + BWD_DGATE], *dup = c->data[BWD_INPUTS + BWD_DUP];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real gate = load(dt, gates, i), up = load(dt, ups, i), dy = load(dt, dys, i);
        real s = 1 / (1 + real_exp(-gate));
        store(dt, dgate, i, dy * up * s * (1 + gate * (1 - s)));
        store(dt, dup, i, dy * gate * s);
    }
}

KERNEL_BODY static void swiglu_backward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[BWD_GATE], body_bwd, c, begin, end);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_swiglu_bwd, d, 0, 0);
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(swiglu_bwd) = {
    .name = "swiglu_bwd",
    .formula = "dgate = dy · up · s · (1 + gate · (1 − s)), dup = dy · gate · s, s = σ(gate)",
    .inputs = {"gate", "up", "dy"},
    .outputs = {"dgate", "dup"},
    .shape = elementwise_shape,
    .kernel = {SIGNATURE_swiglu_bwd, .host = swiglu_backward, .group = 256, .rows = 256},
    .block = 8192,
    .in_place = 1 + BWD_GATE,
    .examples = examples_bwd,
};
