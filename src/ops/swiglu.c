/* swiglu: y = silu(gate) · up with silu(a) = a · σ(a), element by element.
 *
 * Backward, with s = σ(gate): dgate = dy · up · s · (1 + gate · (1 − s)), dup = dy · gate · s.
 */
#include "ops/elementwise.h"

#define ONLY_swiglu
#define ONLY_swiglu_bwd
#include "ops/swiglu.kl"

ELEMENTWISE_HOST(swiglu)
ELEMENTWISE_BUILD(swiglu, 0, 0)

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_swiglu_bwd);
}

static double flops(const struct node *n)
{
    return 5.0 * (double)n->rows;
}

static const struct op_example examples[] = {
    {.build = swiglu_build, .axes = ELEMENTWISE_SIZES},
    {.build = swiglu_build, .axes = {{"T", {3}}, {"C", {64}}}, .scale = 30},
    {0},
};

const struct op OP(swiglu) = {
    .name = "swiglu",
    .formula = "y = gate · σ(gate) · up",
    .inputs = {"gate", "up"},
    .outputs = {"y"},
    .gradient = gradient,
    .cheap = true,
    .flops = flops,
    .examples = examples,
    ELEMENTWISE_OP(swiglu),
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

ELEMENTWISE_HOST(swiglu_bwd)
ELEMENTWISE_BUILD(swiglu_bwd, 0, 0)

static const struct op_example examples_bwd[] = {{.build = swiglu_bwd_build, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(swiglu_bwd) = {
    .name = "swiglu_bwd",
    .formula = "dgate = dy · up · s · (1 + gate · (1 − s)), dup = dy · gate · s, s = σ(gate)",
    .inputs = {"gate", "up", "dy"},
    .outputs = {"dgate", "dup"},
    .examples = examples_bwd,
    ELEMENTWISE_OP(swiglu_bwd),
};
