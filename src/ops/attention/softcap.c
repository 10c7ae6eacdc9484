/* softcap: y = cap · tanh(x / cap), which is x where that is small and never beyond ±cap; element by element.
 *
 * Backward: dx = dy · (1 − tanh²(x / cap)) = dy · 4e / (1 + e)² with e = exp(−2 |x / cap|), which is precise where tanh is
 * near 1.
 */
#include "ops/elementwise.h"

#define ONLY_softcap
#define ONLY_softcap_bwd
#include "ops/attention/softcap.kl"

ELEMENTWISE_HOST(softcap)
ELEMENTWISE_BUILD(softcap, 1.5, 0)

static enum status gradient(struct program *p, const struct node *n)
{
    return elementwise_gradient(p, n, OP_softcap_bwd);
}

static double flops(const struct node *n)
{
    return 3.0 * (double)n->rows;
}

static const struct op_example examples[] = {
    {.build = softcap_build, .axes = ELEMENTWISE_SIZES},
    {.build = softcap_build, .axes = {{"T", {3}}, {"C", {64}}}, .scale = 30},
    {0},
};

const struct op OP(softcap) = {
    .name = "softcap",
    .formula = "y = cap · tanh(x / cap)",
    .inputs = {"x"},
    .outputs = {"y"},
    .gradient = gradient,
    .flops = flops,
    .examples = examples,
    ELEMENTWISE_OP(softcap),
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

enum { X, DY, DX }; /* operands; the gradient of logits may have another type than they */

ELEMENTWISE_HOST_OF_TWO(softcap_bwd, DX)
ELEMENTWISE_BUILD(softcap_bwd, 1.5, 0)

static const struct op_example examples_bwd[] = {{.build = softcap_bwd_build, .axes = ELEMENTWISE_SIZES}, {0}};

const struct op OP(softcap_bwd) = {
    .name = "softcap_bwd",
    .formula = "dx = dy · (1 − tanh²(x / cap))",
    .inputs = {"x", "dy"},
    .outputs = {"dx"},
    .examples = examples_bwd,
    ELEMENTWISE_OP(softcap_bwd),
};
