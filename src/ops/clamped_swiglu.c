/* clamped_swiglu: y = g · σ(alpha · g) · (u + 1), element by element, with g = min(gate, limit) and u = up clamped to ±limit.
 *
 * Backward, with s = σ(alpha · g): dgate = dy · (u + 1) · s · (1 + alpha · g · (1 − s)), dup = dy · g · s; 0 where it was
 * clamped.
 */
#include "ops/elementwise.h"

#define ONLY_clamped_swiglu
#define ONLY_clamped_swiglu_bwd
#include "ops/clamped_swiglu.kl"

ELEMENTWISE_HOST(clamped_swiglu)
ELEMENTWISE_BUILD(clamped_swiglu, 1.702, 1)

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_clamped_swiglu_bwd);
}

static double flops(const struct node *n)
{
    return 9.0 * (double)n->rows;
}

static const struct op_example examples[] = {
    {.build = clamped_swiglu_build, .axes = ELEMENTWISE_SIZES},
    {.build = clamped_swiglu_build, .axes = {{"T", {3}}, {"C", {64}}}, .scale = 30},
    {0},
};

const struct op OP(clamped_swiglu) = {
    .name = "clamped_swiglu",
    .formula = "y = g · σ(alpha · g) · (u + 1), g = min(gate, limit), u = up clamped to ±limit",
    .inputs = {"gate", "up"},
    .outputs = {"y"},
    .gradient = gradient,
    .cheap = true,
    .flops = flops,
    .examples = examples,
    ELEMENTWISE_OP(clamped_swiglu),
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

ELEMENTWISE_HOST(clamped_swiglu_bwd)
ELEMENTWISE_BUILD(clamped_swiglu_bwd, 1.702, 1)

static const struct op_example examples_bwd[] = {{.build = clamped_swiglu_bwd_build, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(clamped_swiglu_bwd) = {
    .name = "clamped_swiglu_bwd",
    .formula = "dgate = dy · (u + 1) · s · (1 + alpha · g · (1 − s)), dup = dy · g · s, s = σ(alpha · g), 0 where clamped",
    .inputs = {"gate", "up", "dy"},
    .outputs = {"dgate", "dup"},
    .examples = examples_bwd,
    ELEMENTWISE_OP(clamped_swiglu_bwd),
};
