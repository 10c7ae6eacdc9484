/* sigmoid_gate: y = x · σ(gate), element by element: what attention with an output gate lets through.
 *
 * Backward, with s = σ(gate): dx = dy · s, dgate = dy · x · s · (1 − s).
 */
#include "ops/elementwise.h"

#define ONLY_sigmoid_gate
#define ONLY_sigmoid_gate_bwd
#include "ops/sigmoid_gate.kl"

ELEMENTWISE_HOST(sigmoid_gate)
ELEMENTWISE_BUILD(sigmoid_gate, 0, 0)

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_sigmoid_gate_bwd);
}

static const struct op_example examples[] = {{.build = sigmoid_gate_build, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(sigmoid_gate) = {
    .name = "sigmoid_gate",
    .formula = "y = x · σ(gate)",
    .inputs = {"x", "gate"},
    .outputs = {"y"},
    .gradient = gradient,
    .cheap = true,
    .examples = examples,
    ELEMENTWISE_OP(sigmoid_gate),
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

ELEMENTWISE_HOST(sigmoid_gate_bwd)
ELEMENTWISE_BUILD(sigmoid_gate_bwd, 0, 0)

static const struct op_example examples_bwd[] = {{.build = sigmoid_gate_bwd_build, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(sigmoid_gate_bwd) = {
    .name = "sigmoid_gate_bwd",
    .formula = "dx = dy · s, dgate = dy · x · s · (1 − s), s = σ(gate)",
    .inputs = {"x", "gate", "dy"},
    .outputs = {"dx", "dgate"},
    .examples = examples_bwd,
    ELEMENTWISE_OP(sigmoid_gate_bwd),
};
