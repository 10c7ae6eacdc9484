/* The formulas of the ops that have one text for all devices (src/ops/text.h), once more: in double, as their papers write them,
 * and with nothing of that text. They are the host's functions of these ops in the reference; `ops gradient` holds those of
 * backward passes against differences of the others.
 */
#include "ops/op.h"
#include "ops/optimizers/update.h"

#define FORMULA(name)                                                                                                            \
    void formula_##name(const struct call *c, int64_t begin, int64_t end);                                                       \
    void formula_##name(const struct call *c, int64_t begin, int64_t end)

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double sigmoid_slope(double x)
{
    return sigmoid(x) * sigmoid(-x);
}

/* --- element by element ---------------------------------------------------------------------------------------------------- */

FORMULA(add)
{
    const double *x = c->data[0], *d = c->data[1];
    double *y = c->data[2];
    for (int64_t i = begin; i < end; i++)
        y[i] = x[i] + d[i];
}

FORMULA(cast)
{
    const double *x = c->data[0];
    double *y = c->data[1];
    for (int64_t i = begin; i < end; i++)
        y[i] = x[i];
}

FORMULA(sigmoid_gate)
{
    const double *x = c->data[0], *gate = c->data[1];
    double *y = c->data[2];
    for (int64_t i = begin; i < end; i++)
        y[i] = x[i] * sigmoid(gate[i]);
}

FORMULA(sigmoid_gate_bwd)
{
    const double *x = c->data[0], *gate = c->data[1], *dy = c->data[2];
    double *dx = c->data[3], *dgate = c->data[4];
    for (int64_t i = begin; i < end; i++) {
        double by_gate = x[i] * sigmoid_slope(gate[i]) * dy[i];
        dx[i] = sigmoid(gate[i]) * dy[i];
        dgate[i] = by_gate;
    }
}

FORMULA(softcap)
{
    const double *x = c->data[0];
    double *y = c->data[1], cap = c->number[0];
    for (int64_t i = begin; i < end; i++)
        y[i] = tanh(x[i] / cap) * cap;
}

FORMULA(softcap_bwd)
{
    const double *x = c->data[0], *dy = c->data[1];
    double *dx = c->data[2], cap = c->number[0];
    for (int64_t i = begin; i < end; i++)
        dx[i] = dy[i] / (cosh(x[i] / cap) * cosh(x[i] / cap));
}

/* --- gated activations: y = f(gate) · up ----------------------------------------------------------------------------------- */

static double silu(double x)
{
    return x * sigmoid(x);
}

static double silu_slope(double x)
{
    return sigmoid(x) + x * sigmoid_slope(x);
}

/* Hendrycks and Gimpel, 2016: x / 2 · (1 + tanh u), u = √(2/π) · (x + 0.044715 x³). */
static double gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * pow(x, 3))));
}

static double gelu_slope(double x)
{
    double root = sqrt(2 / acos(-1)), t = tanh(root * (x + 0.044715 * pow(x, 3)));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 0.134145 * x * x);
}

typedef double activation(double x);

/* The gradients may lie where gate and up do. */
static void gated(const double *gate, const double *up, double *y, int64_t begin, int64_t end, activation *f)
{
    for (int64_t i = begin; i < end; i++)
        y[i] = f(gate[i]) * up[i];
}

static void gated_bwd(const double *gate, const double *up, const double *dy, double *dgate, double *dup, int64_t begin,
                      int64_t end, activation *f, activation *slope)
{
    for (int64_t i = begin; i < end; i++) {
        double by_gate = dy[i] * slope(gate[i]) * up[i], by_up = dy[i] * f(gate[i]);
        dgate[i] = by_gate;
        dup[i] = by_up;
    }
}

FORMULA(swiglu)
{
    gated(c->data[0], c->data[1], c->data[2], begin, end, silu);
}

FORMULA(swiglu_bwd)
{
    gated_bwd(c->data[0], c->data[1], c->data[2], c->data[3], c->data[4], begin, end, silu, silu_slope);
}

FORMULA(geglu)
{
    gated(c->data[0], c->data[1], c->data[2], begin, end, gelu);
}

FORMULA(geglu_bwd)
{
    gated_bwd(c->data[0], c->data[1], c->data[2], c->data[3], c->data[4], begin, end, gelu, gelu_slope);
}

/* gate and up side by side, each of so many columns. */
FORMULA(swiglu_packed)
{
    int64_t columns = c->dim[1];
    for (int64_t t = begin; t < end; t++) {
        const double *gate = (const double *)c->data[0] + 2 * t * columns;
        gated(gate, gate + columns, (double *)c->data[1] + t * columns, 0, columns, silu);
    }
}

FORMULA(swiglu_packed_bwd)
{
    int64_t columns = c->dim[1];
    for (int64_t t = begin; t < end; t++) {
        const double *gate = (const double *)c->data[0] + 2 * t * columns, *dy = (const double *)c->data[1] + t * columns;
        double *dgate = (double *)c->data[2] + 2 * t * columns;
        gated_bwd(gate, gate + columns, dy, dgate, dgate + columns, 0, columns, silu, silu_slope);
    }
}

/* gpt-oss: gate · σ(alpha · gate) · (up + 1) of what was clamped before. */
FORMULA(clamped_swiglu)
{
    const double *gate = c->data[0], *up = c->data[1];
    double *y = c->data[2], alpha = c->number[0], limit = c->number[1];
    for (int64_t i = begin; i < end; i++) {
        double g = fmin(gate[i], limit), u = fmax(fmin(up[i], limit), -limit);
        y[i] = (u + 1) * g * sigmoid(alpha * g);
    }
}

FORMULA(clamped_swiglu_bwd)
{
    const double *gate = c->data[0], *up = c->data[1], *dy = c->data[2];
    double *dgate = c->data[3], *dup = c->data[4], alpha = c->number[0], limit = c->number[1];
    for (int64_t i = begin; i < end; i++) {
        double g = fmin(gate[i], limit), u = fmax(fmin(up[i], limit), -limit);
        double by_gate = (u + 1) * (sigmoid(alpha * g) + alpha * g * sigmoid_slope(alpha * g)) * dy[i];
        double by_up = g * sigmoid(alpha * g) * dy[i];
        dgate[i] = g < gate[i] ? 0 : by_gate;
        dup[i] = fabs(up[i]) > limit ? 0 : by_up;
    }
}

/* --- optimizers ------------------------------------------------------------------------------------------------------------ */

/* What an element's step takes from the operands that all optimizers have. */
struct element {
    double lr, decay, grad;
    bool applies; /* else only g is zeroed */
};

static struct element element_of(const struct call *c, int64_t i)
{
    const double *g = c->data[1], *control = c->data[2], *rates = c->data[3];
    const int32_t *ranges = c->data[4];
    int64_t last = c->dim[1] - 1, k = 0;
    while (k < last && ranges[2 * k] * 128 <= i)
        k++;
    const double *rate = rates + 2 * ranges[2 * k + 1];
    return (struct element){rate[0], rate[1], g[i] * control[0], control[2] > 0};
}

static void put(const struct call *c, int64_t i, double w)
{
    double *copy = c->data[6];
    ((double *)c->data[0])[i] = w;
    if (copy)
        copy[i] = w;
}

/* Loshchilov and Hutter, 2019; control has 1 − beta1^t and the root of 1 − beta2^t. */
FORMULA(adamw)
{
    const double *control = c->data[2], *hyper = c->data[5];
    double *w = c->data[0], *g = c->data[1], *m = c->data[7], *v = c->data[8];
    for (int64_t i = begin * 128; i < end * 128 && i < c->dim[0]; i++) {
        struct element e = element_of(c, i);
        g[i] = 0;
        if (!e.applies)
            continue;
        m[i] = hyper[STEP_BETA1] * m[i] + hyper[STEP_REST1] * e.grad;
        v[i] = hyper[STEP_BETA2] * v[i] + hyper[STEP_REST2] * e.grad * e.grad;
        double mean = m[i] / control[3], size = sqrt(v[i] / (control[4] * control[4]));
        put(c, i, w[i] - e.lr * (mean / (size + hyper[STEP_EPSILON]) + e.decay * w[i]));
    }
}

/* Chen et al., 2023. */
FORMULA(lion)
{
    const double *hyper = c->data[5];
    double *w = c->data[0], *g = c->data[1], *m = c->data[7];
    for (int64_t i = begin * 128; i < end * 128 && i < c->dim[0]; i++) {
        struct element e = element_of(c, i);
        g[i] = 0;
        if (!e.applies)
            continue;
        double way = hyper[STEP_BETA1] * m[i] + hyper[STEP_REST1] * e.grad;
        m[i] = hyper[STEP_BETA2] * m[i] + hyper[STEP_REST2] * e.grad;
        put(c, i, w[i] - e.lr * ((way > 0) - (way < 0) + e.decay * w[i]));
    }
}
