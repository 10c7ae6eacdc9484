/* delta_gates: what a gated delta rule (gated_delta.c) keeps and learns at each token, from the layer's a and b:
 *
 *     y[t] = (g, β) with g = −exp(log) · softplus(a + dt), β = σ(b)     for each of H heads
 *
 * exp(g) is what remains of the state, β how much of the new value is written. Both are float32 in every run.
 *
 * Backward: da = dg · −exp(log) · σ(a + dt), db = dβ · β · (1 − β), dlog += Σ over tokens of dg · g, ddt += Σ of da.
 */
#include "ops/op.h"

enum { A, B, LOG, DT, INPUTS };
enum { Y };
enum { T, H };

/* log(1 + e) for e >= 0: what is lost in 1 + e is put back. */
static ALWAYS_INLINE real log_1p(real e)
{
    real sum = 1 + e;
    return sum == 1 ? e : real_log(sum) * (e / (sum - 1));
}

static ALWAYS_INLINE real softplus(real x)
{
    return (x > 0 ? x : 0) + log_1p(real_exp(x > 0 ? -x : x));
}

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    int64_t heads = c->dim[H];
    for (int64_t t = begin; t < end; t++) {
        real *y = (real *)c->data[INPUTS + Y] + t * 2 * heads;
        for (int64_t h = 0; h < heads; h++) {
            real x = load(dt, c->data[A], t * heads + h) + load(dt, c->data[DT], h);
            y[h] = -real_exp(load(dt, c->data[LOG], h)) * softplus(x);
            y[heads + h] = 1 / (1 + real_exp(-load(dt, c->data[B], t * heads + h)));
        }
    }
}

KERNEL_BODY(delta_gates_forward)
{
    SPECIALISE(c->dtype[A], body, c, begin, end);
}

static enum status sizes(struct node *n)
{
    TRY(node_expect(n, A, 2, SHAPE(-1, -1)));
    TRY(node_expect(n, B, 2, n->in[A]->shape));
    n->rows = n->size[T] = n->in[A]->shape[0];
    n->size[H] = n->in[A]->shape[1];
    TRY(node_expect(n, LOG, 1, SHAPE(n->size[H])));
    return node_expect(n, DT, 1, SHAPE(n->size[H]));
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(sizes(n));
    node_output(p, n, Y, p->types[ROLE_STATISTIC], 2, SHAPE(n->size[T], 2 * n->size[H]));
    return program_status(p);
}

enum { BWD_DY = INPUTS, BWD_INPUTS };
enum { BWD_DA, BWD_DB, BWD_WIDE_LOG, BWD_WIDE_DT };

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *da = NODE(p, delta_gates_bwd, n->in[A], n->in[B], n->in[LOG], n->in[DT], gradient_of(p, n, Y));
    TRY(program_status(p));
    if (gradient_wanted(n, LOG))
        NODE(p, bias_bwd, da->producer->out[BWD_WIDE_LOG], gradient_sum(p, n, LOG));
    if (gradient_wanted(n, DT))
        NODE(p, bias_bwd, da->producer->out[BWD_WIDE_DT], gradient_sum(p, n, DT));
    TRY(gradient_add(p, n, A, da));
    return gradient_add(p, n, B, da->producer->out[BWD_DB]);
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 5, 66}},                                                                                                       \
        {                                                                                                                        \
            "H",                                                                                                                 \
            {                                                                                                                    \
                1, 6, 48                                                                                                         \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static struct value *build(struct program *p, const int64_t *d)
{
    return delta_gates(p, program_input(p, "a", ROLE_ACTIVATION, 2, d[0], d[1]),
                       program_input(p, "b", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "log", ROLE_WEIGHT, 1, d[1]),
                       program_input(p, "dt", ROLE_WEIGHT, 1, d[1]));
}

static double far(const char *input, int64_t index, double random)
{
    return strcmp(input, "log") != 0 ? random * (index % 3 ? 1 : 20) : random;
}

static const struct op_example examples[] = {
    {.build = build, .axes = SIZES},
    {.build = build, .adjust = far, .axes = SIZES},
    {0},
};

const struct op OP(delta_gates) = {
    .name = "delta_gates",
    .formula = "y = (−exp(log) · softplus(a + dt), σ(b))",
    .inputs = {"a", "b", "log", "dt"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_delta_gates, .host = delta_gates_forward, .group = 64, .rows = 1},
    .block = 64,
    .cheap = true,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void body_bwd(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    int64_t heads = c->dim[H];
    for (int64_t t = begin; t < end; t++) {
        const real *dy = (const real *)c->data[BWD_DY] + t * 2 * heads;
        real *wide_log = (real *)c->data[BWD_INPUTS + BWD_WIDE_LOG] + t * heads;
        real *wide_dt = (real *)c->data[BWD_INPUTS + BWD_WIDE_DT] + t * heads;
        for (int64_t h = 0; h < heads; h++) {
            real x = load(dt, c->data[A], t * heads + h) + load(dt, c->data[DT], h), rate = -real_exp(load(dt, c->data[LOG], h));
            real beta = 1 / (1 + real_exp(-load(dt, c->data[B], t * heads + h)));
            wide_log[h] = dy[h] * rate * softplus(x);
            wide_dt[h] = dy[h] * rate / (1 + real_exp(-x));
            store(dt, c->data[BWD_INPUTS + BWD_DA], t * heads + h, wide_dt[h]);
            store(dt, c->data[BWD_INPUTS + BWD_DB], t * heads + h, dy[heads + h] * beta * (1 - beta));
        }
    }
}

KERNEL_BODY(delta_gates_backward)
{
    SPECIALISE(c->dtype[A], body_bwd, c, begin, end);
}

static enum status shape_bwd(struct program *p, struct node *n)
{
    TRY(sizes(n));
    TRY(node_expect(n, BWD_DY, 2, SHAPE(n->size[T], 2 * n->size[H])));
    for (int i = BWD_DA; i <= BWD_WIDE_DT; i++)
        node_output(p, n, i, i <= BWD_DB ? n->in[A]->dtype : p->types[ROLE_STATISTIC], 2, n->in[A]->shape);
    return program_status(p);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return NODE(p, delta_gates_bwd, program_input(p, "a", ROLE_ACTIVATION, 2, d[0], d[1]),
                program_input(p, "b", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "log", ROLE_WEIGHT, 1, d[1]),
                program_input(p, "dt", ROLE_WEIGHT, 1, d[1]), program_input(p, "dy", ROLE_STATISTIC, 2, d[0], 2 * d[1]));
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .axes = SIZES}, {0}};

const struct op OP(delta_gates_bwd) = {
    .name = "delta_gates_bwd",
    .formula = "da = dg · −exp(log) · σ(a + dt), db = dβ · β · (1 − β); by token: dlog = dg · g, ddt = da in float32",
    .inputs = {"a", "b", "log", "dt", "dy"},
    .outputs = {"da", "db", "dlog", "ddt"},
    .shape = shape_bwd,
    .kernel = {SIGNATURE_delta_gates_bwd, .host = delta_gates_backward, .group = 64, .rows = 1},
    .block = 64,
    .examples = examples_bwd,
};
