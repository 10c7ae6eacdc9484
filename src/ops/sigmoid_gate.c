/* sigmoid_gate: y = x · σ(gate), element by element: what attention with an output gate lets through.
 *
 * Backward, with s = σ(gate): dx = dy · s, dgate = dy · x · s · (1 − s).
 */
#include "ops/elementwise.h"

enum { X, GATE, INPUTS };
enum { Y };
enum { BWD_X, BWD_GATE, BWD_DY, BWD_INPUTS };
enum { BWD_DX, BWD_DGATE };

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *x = c->data[X], *gate = c->data[GATE];
    void *y = c->data[INPUTS + Y];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++)
        store(dt, y, i, load(dt, x, i) / (1 + real_exp(-load(dt, gate, i))));
}

KERNEL_BODY static void sigmoid_gate_forward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[X], body, c, begin, end);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_sigmoid_gate_bwd);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_sigmoid_gate, d, 0, 0);
}

static const struct op_example examples[] = {{.build = build, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(sigmoid_gate) = {
    .name = "sigmoid_gate",
    .formula = "y = x · σ(gate)",
    .inputs = {"x", "gate"},
    .outputs = {"y"},
    .shape = elementwise_shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_sigmoid_gate, .host = sigmoid_gate_forward, .group = 256, .rows = 256},
    .block = 8192,
    .in_place = 1 + X,
    .cheap = true,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void body_bwd(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    void *dx = c->data[BWD_INPUTS + BWD_DX], *dgate = c->data[BWD_INPUTS + BWD_DGATE];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real x = load(dt, c->data[BWD_X], i), dy = load(dt, c->data[BWD_DY], i);
        real s = 1 / (1 + real_exp(-load(dt, c->data[BWD_GATE], i)));
        store(dt, dx, i, dy * s);
        store(dt, dgate, i, dy * x * s * (1 - s));
    }
}

KERNEL_BODY static void sigmoid_gate_backward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[BWD_X], body_bwd, c, begin, end);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return elementwise_build(p, OP_sigmoid_gate_bwd, d, 0, 0);
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(sigmoid_gate_bwd) = {
    .name = "sigmoid_gate_bwd",
    .formula = "dx = dy · s, dgate = dy · x · s · (1 − s), s = σ(gate)",
    .inputs = {"x", "gate", "dy"},
    .outputs = {"dx", "dgate"},
    .shape = elementwise_shape,
    .kernel = {SIGNATURE_sigmoid_gate_bwd, .host = sigmoid_gate_backward, .group = 256, .rows = 256},
    .block = 8192,
    .in_place = 1 + BWD_X,
    .examples = examples_bwd,
};
