/* geglu: y = gelu(gate) · up, element by element, with gelu in its form by tanh:
 *
 *     gelu(a) = a / 2 · (1 + tanh u) = a · s,  u = √(2/π) · (a + 0.044715 a³),  s = σ(2u)
 *
 * Backward: dgate = dy · up · (s + gate · s · (1 − s) · 2u'), dup = dy · gate · s.
 */
#include "ops/elementwise.h"

#define ONLY_geglu
#define ONLY_geglu_bwd
#include "ops/geglu.kl"

ELEMENTWISE_HOST(geglu)
ELEMENTWISE_BUILD(geglu, 0, 0)

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_geglu_bwd);
}

static double flops(const struct node *n)
{
    return 9.0 * (double)n->rows;
}

static const struct op_example examples[] = {
    {.build = geglu_build, .axes = ELEMENTWISE_SIZES},
    {.build = geglu_build, .axes = {{"T", {3}}, {"C", {64}}}, .scale = 30},
    {0},
};

const struct op OP(geglu) = {
    .name = "geglu",
    .formula = "y = gate · s · up, s = σ(2u), u = √(2/π) · (gate + 0.044715 gate³)",
    .inputs = {"gate", "up"},
    .outputs = {"y"},
    .gradient = gradient,
    .cheap = true,
    .flops = flops,
    .examples = examples,
    ELEMENTWISE_OP(geglu),
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

ELEMENTWISE_HOST(geglu_bwd)
ELEMENTWISE_BUILD(geglu_bwd, 0, 0)

static const struct op_example examples_bwd[] = {{.build = geglu_bwd_build, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(geglu_bwd) = {
    .name = "geglu_bwd",
    .formula = "dgate = dy · up · (s + gate · s · (1 − s) · 2u'), dup = dy · gate · s",
    .inputs = {"gate", "up", "dy"},
    .outputs = {"dgate", "dup"},
    .examples = examples_bwd,
    ELEMENTWISE_OP(geglu_bwd),
};
