/* geglu: y = gelu(gate) · up, element by element, with gelu in its form by tanh:
 *
 *     gelu(a) = a / 2 · (1 + tanh u) = a · s,  u = √(2/π) · (a + 0.044715 a³),  s = σ(2u)
 *
 * Backward: dgate = dy · up · (s + gate · s · (1 − s) · 2u'), dup = dy · gate · s.
 */
#include "ops/elementwise.h"

enum { GATE, UP, INPUTS };
enum { Y };
enum { BWD_GATE, BWD_UP, BWD_DY, BWD_INPUTS };
enum { BWD_DGATE, BWD_DUP };

/* 2u and its derivative. */
static ALWAYS_INLINE real twice_u(real a, real *slope)
{
    const real root = (real)1.5957691216057308, cubic = (real)0.044715; /* 2 · √(2/π) */
    *slope = root * (1 + 3 * cubic * a * a);
    return root * (a + cubic * a * a * a);
}

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *gates = c->data[GATE], *up = c->data[UP];
    void *y = c->data[INPUTS + Y];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real gate = load(dt, gates, i), slope;
        store(dt, y, i, gate / (1 + real_exp(-twice_u(gate, &slope))) * load(dt, up, i));
    }
}

KERNEL_BODY static void geglu_forward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[GATE], body, c, begin, end);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_geglu_bwd);
}

static double flops(const struct node *n)
{
    return 9.0 * (double)n->rows;
}

static struct value *build(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_geglu, d, 0, 0);
}

static const struct op_example examples[] = {
    {.build = build, .axes = ELEMENTWISE_SIZES},
    {.build = build, .axes = {{"T", {3}}, {"C", {64}}}, .scale = 30},
    {0},
};

const struct op OP(geglu) = {
    .name = "geglu",
    .formula = "y = gate · s · up, s = σ(2u), u = √(2/π) · (gate + 0.044715 gate³)",
    .inputs = {"gate", "up"},
    .outputs = {"y"},
    .shape = elementwise_shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_geglu, .host = geglu_forward, .group = 256, .rows = 256},
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
        real slope, s = 1 / (1 + real_exp(-twice_u(gate, &slope)));
        store(dt, dgate, i, dy * up * (s + gate * s * (1 - s) * slope));
        store(dt, dup, i, dy * gate * s);
    }
}

KERNEL_BODY static void geglu_backward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[BWD_GATE], body_bwd, c, begin, end);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_geglu_bwd, d, 0, 0);
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(geglu_bwd) = {
    .name = "geglu_bwd",
    .formula = "dgate = dy · up · (s + gate · s · (1 − s) · 2u'), dup = dy · gate · s",
    .inputs = {"gate", "up", "dy"},
    .outputs = {"dgate", "dup"},
    .shape = elementwise_shape,
    .kernel = {SIGNATURE_geglu_bwd, .host = geglu_backward, .group = 256, .rows = 256},
    .block = 8192,
    .in_place = 1 + BWD_GATE,
    .examples = examples_bwd,
};
