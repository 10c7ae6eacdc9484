/* clip: the clipping factor and corrections of an optimizer step, computed on the device so that the host need not wait.
 *
 *     norm = sqrt(Σ parts) / divisor          of the divided gradient
 *     factor = min(1, max_norm / (norm + 1e-6))   as PyTorch clips; 1 if max_norm is 0
 *     control = {factor / divisor, norm, 1, 1 − beta1^t, sqrt(1 − beta2^t)}, t = count[0] += 1
 *
 * A norm that is not finite, or a divisor that is not above 0, skips the step: control[0] and control[2] are 0 and count[1] += 1
 * instead. divisor, max_norm and the betas' logarithms are in hyper (enum step_number). The op has no gradient.
 */
#include "ops/op.h"

enum { PARTS, HYPER, COUNT, INPUTS };
enum { CONTROL, COUNT_AFTER };
enum { P };

/* Σ with compensated rounding errors (Kahan): there may be many thousand parts. */
static ALWAYS_INLINE real careful_sum(const real *x, int64_t count)
{
    real sum = 0, lost = 0;
    for (int64_t i = 0; i < count; i++) {
        real term = x[i] - lost, next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    return sum;
}

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    const real *hyper = c->data[HYPER];
    real divisor = hyper[STEP_DIVISOR], max_norm = hyper[STEP_MAX_NORM], *control = c->data[INPUTS + CONTROL];
    int32_t *count = c->data[COUNT];
    for (int64_t row = begin; row < end; row++) { /* the grid is one row */
        real norm = real_sqrt(careful_sum(c->data[PARTS], c->dim[P])) / divisor, factor = max_norm / (norm + (real)1e-6);
        real t = (real)count[0] + 1;
        bool applies = divisor > 0 && isfinite(norm);
        control[0] = applies ? (max_norm > 0 && factor < 1 ? factor : 1) / divisor : 0;
        control[1] = norm;
        control[2] = applies;
        control[3] = -real_expm1(t * hyper[STEP_LOG_BETA1]);
        control[4] = real_sqrt(-real_expm1(t * hyper[STEP_LOG_BETA2]));
        count[applies ? 0 : 1]++;
    }
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, PARTS, 1, SHAPE(-1)));
    TRY(node_expect(n, HYPER, 1, SHAPE(STEP_NUMBERS)));
    TRY(node_expect(n, COUNT, 1, SHAPE(2)));
    n->size[P] = n->in[PARTS]->shape[0];
    n->rows = 1;
    node_output(p, n, CONTROL, p->types[ROLE_STATISTIC], 1, SHAPE(5));
    node_alias(p, n, COUNT_AFTER, COUNT);
    return program_status(p);
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)input;
    for (int64_t i = 0; i < count; i++)
        to[i] = (int32_t)(i ? 3 : d[1] - 1);
}

static double adjust_with(double divisor, double max_norm, const char *input, int64_t index, double random)
{
    double hyper[STEP_NUMBERS];
    step_numbers(hyper, divisor, max_norm, 0.9, 0.999, 0);
    return !strcmp(input, "parts") ? random * random : hyper[index];
}

static double adjust_clipping(const char *input, int64_t index, double random)
{
    return adjust_with(100, 0.02, input, index, random);
}

static double adjust_below(const char *input, int64_t index, double random)
{
    return adjust_with(7, 1e6, input, index, random);
}

static double adjust_off(const char *input, int64_t index, double random)
{
    return adjust_with(0.5, 0, input, index, random);
}

static double adjust_skipped(const char *input, int64_t index, double random)
{
    return adjust_with(-1, 1, input, index, random);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return clip(p, program_input(p, "parts", ROLE_STATISTIC, 1, d[0]),
                program_input(p, "hyper", ROLE_STATISTIC, 1, (int64_t)STEP_NUMBERS),
                program_input(p, "count", ROLE_INDEX, 1, (int64_t)2));
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"P", {1, 5, 3000}},                                                                                                     \
        {                                                                                                                        \
            "t",                                                                                                                 \
            {                                                                                                                    \
                1, 2, 1000, 2000000                                                                                              \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .adjust = adjust_clipping, .axes = SIZES},
    {.build = build, .fill = fill, .adjust = adjust_below, .axes = SIZES},
    {.build = build, .fill = fill, .adjust = adjust_off, .axes = SIZES},
    {.build = build, .fill = fill, .adjust = adjust_skipped, .axes = SIZES},
    {0},
};

const struct op OP(clip) = {
    .name = "clip",
    .formula = "control = factor / divisor, norm = sqrt(Σ parts) / divisor, applies, 1 − beta1^t, sqrt(1 − beta2^t)",
    .inputs = {"parts", "hyper", "count"},
    .outputs = {"control", "count"},
    .shape = shape,
    .kernel = {SIGNATURE_clip, .host = forward, .group = 256, .rows = 1},
    .block = 1,
    .examples = examples,
};
