/* row_gate: y[t] = x[t] · σ(gate[t]), with one gate for all channels of a token: how much of a shared expert is let through.
 *
 * Backward, with s = σ(gate): dx = dy · s, dgate = s · (1 − s) · Σ over channels of dy · x.
 */
#include "ops/op.h"

enum { X, GATE, INPUTS };
enum { Y };
enum { T, C };
enum { BWD_X, BWD_GATE, BWD_DY, BWD_INPUTS };
enum { BWD_DX, BWD_DGATE };

static ALWAYS_INLINE real sigmoid(enum dtype dt, const void *gate, int64_t t)
{
    return 1 / (1 + real_exp(-load(dt, gate, t)));
}

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *x = c->data[X];
    void *y = c->data[INPUTS + Y];
    int64_t channels = c->dim[C];
    for (int64_t t = begin; t < end; t++) {
        real s = sigmoid(dt, c->data[GATE], t);
        INDEPENDENT
        for (int64_t i = t * channels; i < t * channels + channels; i++)
            store(dt, y, i, s * load(dt, x, i));
    }
}

KERNEL_BODY(row_gate_forward)
{
    SPECIALISE(c->dtype[X], body, c, begin, end);
}

static enum status row_gate_expect(struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->rows = n->size[T] = n->in[X]->shape[0];
    n->size[C] = n->in[X]->shape[1];
    return node_expect(n, GATE, 2, SHAPE(n->rows, 1));
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(row_gate_expect(n));
    node_output(p, n, Y, n->in[X]->dtype, 2, n->in[X]->shape);
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *dx = NODE(p, row_gate_bwd, n->in[X], n->in[GATE], gradient_of(p, n, Y));
    TRY(gradient_add(p, n, X, dx));
    return gradient_add(p, n, GATE, dx ? dx->producer->out[BWD_DGATE] : NULL);
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 5, 64}},                                                                                                       \
        {                                                                                                                        \
            "C",                                                                                                                 \
            {                                                                                                                    \
                1, 31, 160                                                                                                       \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static struct value *build(struct program *p, const int64_t *d)
{
    return row_gate(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                    program_input(p, "gate", ROLE_ACTIVATION, 2, d[0], 1L));
}

static const struct op_example examples[] = {{.build = build, .axes = SIZES}, {0}};

const struct op OP(row_gate) = {
    .name = "row_gate",
    .formula = "y[t] = x[t] · σ(gate[t])",
    .inputs = {"x", "gate"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_row_gate, .host = row_gate_forward, .group = 128, .rows = 1},
    .block = 16,
    .in_place = 1 + X,
    .cheap = true,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void body_bwd(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *x = c->data[BWD_X], *dy = c->data[BWD_DY];
    void *dx = c->data[BWD_INPUTS + BWD_DX], *dgate = c->data[BWD_INPUTS + BWD_DGATE];
    int64_t channels = c->dim[C];
    for (int64_t t = begin; t < end; t++) {
        real s = sigmoid(dt, c->data[BWD_GATE], t);
        store(dt, dgate, t, s * (1 - s) * dot(x, t * channels, dy, t * channels, channels, dt, dt));
        INDEPENDENT
        for (int64_t i = t * channels; i < t * channels + channels; i++)
            store(dt, dx, i, s * load(dt, dy, i));
    }
}

KERNEL_BODY(row_gate_backward)
{
    SPECIALISE(c->dtype[BWD_X], body_bwd, c, begin, end);
}

static enum status shape_bwd(struct program *p, struct node *n)
{
    TRY(row_gate_expect(n));
    TRY(node_expect(n, BWD_DY, 2, n->in[BWD_X]->shape));
    node_output(p, n, BWD_DX, n->in[BWD_X]->dtype, 2, n->in[BWD_X]->shape);
    node_output(p, n, BWD_DGATE, n->in[BWD_X]->dtype, 2, n->in[BWD_GATE]->shape);
    return program_status(p);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return NODE(p, row_gate_bwd, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                program_input(p, "gate", ROLE_ACTIVATION, 2, d[0], 1L), program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[1]));
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = SIZES}, {0}};

const struct op OP(row_gate_bwd) = {
    .name = "row_gate_bwd",
    .formula = "dx[t] = dy[t] · s, dgate[t] = s · (1 − s) · Σ dy[t] · x[t], s = σ(gate[t])",
    .inputs = {"x", "gate", "dy"},
    .outputs = {"dx", "dgate"},
    .shape = shape_bwd,
    .kernel = {SIGNATURE_row_gate_bwd, .host = row_gate_backward, .group = 128, .rows = 1},
    .block = 16,
    .examples = examples_bwd,
};
