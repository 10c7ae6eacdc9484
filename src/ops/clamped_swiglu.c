/* clamped_swiglu: y = g · σ(alpha · g) · (u + 1), element by element, with g = min(gate, limit) and u = up clamped to ±limit.
 *
 * Backward, with s = σ(alpha · g): dgate = dy · (u + 1) · s · (1 + alpha · g · (1 − s)), dup = dy · g · s; 0 where it was
 * clamped.
 */
#include "ops/elementwise.h"

enum { GATE, UP, INPUTS };
enum { Y };
enum { ALPHA, LIMIT };
enum { BWD_GATE, BWD_UP, BWD_DY, BWD_INPUTS };
enum { BWD_DGATE, BWD_DUP };

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *gates = c->data[GATE], *ups = c->data[UP];
    void *y = c->data[INPUTS + Y];
    real alpha = (real)c->number[ALPHA], limit = (real)c->number[LIMIT];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real gate = load(dt, gates, i), up = load(dt, ups, i);
        real g = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up;
        store(dt, y, i, g / (1 + real_exp(-alpha * g)) * (u + 1));
    }
}

KERNEL_BODY static void clamped_swiglu_forward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[GATE], body, c, begin, end);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_clamped_swiglu_bwd);
}

static double flops(const struct node *n)
{
    return 9.0 * (double)n->rows;
}

static struct value *build(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_clamped_swiglu, d, 1.702, 1);
}

static const struct op_example examples[] = {
    {.build = build, .axes = ELEMENTWISE_SIZES},
    {.build = build, .axes = {{"T", {3}}, {"C", {64}}}, .scale = 30},
    {0},
};

const struct op OP(clamped_swiglu) = {
    .name = "clamped_swiglu",
    .formula = "y = g · σ(alpha · g) · (u + 1), g = min(gate, limit), u = up clamped to ±limit",
    .inputs = {"gate", "up"},
    .outputs = {"y"},
    .shape = elementwise_shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_clamped_swiglu, .host = clamped_swiglu_forward, .group = 256, .rows = 256},
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
    real alpha = (real)c->number[ALPHA], limit = (real)c->number[LIMIT];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real gate = load(dt, gates, i), up = load(dt, ups, i), dy = load(dt, dys, i);
        real g = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up;
        real s = 1 / (1 + real_exp(-alpha * g));
        real of_gate = dy * (u + 1) * s * (1 + alpha * g * (1 - s)), of_up = dy * g * s;
        store(dt, dgate, i, gate > limit ? 0 : of_gate);
        store(dt, dup, i, up > limit || up < -limit ? 0 : of_up);
    }
}

KERNEL_BODY static void clamped_swiglu_backward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[BWD_GATE], body_bwd, c, begin, end);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_clamped_swiglu_bwd, d, 1.702, 1);
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(clamped_swiglu_bwd) = {
    .name = "clamped_swiglu_bwd",
    .formula = "dgate = dy · (u + 1) · s · (1 + alpha · g · (1 − s)), dup = dy · g · s, s = σ(alpha · g), 0 where clamped",
    .inputs = {"gate", "up", "dy"},
    .outputs = {"dgate", "dup"},
    .shape = elementwise_shape,
    .kernel = {SIGNATURE_clamped_swiglu_bwd, .host = clamped_swiglu_backward, .group = 256, .rows = 256},
    .block = 8192,
    .in_place = 1 + BWD_GATE,
    .examples = examples_bwd,
};
