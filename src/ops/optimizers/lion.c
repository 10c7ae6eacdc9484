/* lion: one step of Lion (Chen et al., 2023, arXiv 2302.06675), which steps by signs and keeps one mean:
 *
 *     w −= lr · decay · w
 *     w −= lr · sign(beta1 · m + (1 − beta1) · g'),  m = beta2 · m + (1 − beta2) · g',  copy = w,  g = 0
 *
 * The operands are in ops/optimizers/update.h.
 */
#include "ops/optimizers/update.h"

#define ONLY_lion
#include "ops/optimizers/lion.kl"

UPDATE(lion, "m")

static double flops(const struct node *n)
{
    return 10.0 * (double)n->size[ELEMENTS];
}

static const struct op_example examples[] = UPDATE_EXAMPLES(lion_build);

const struct op OP(lion) = {
    .name = "lion",
    .formula = "w −= lr · (decay · w + sign(beta1 · m + (1 − beta1) · g')), m = beta2 · m + (1 − beta2) · g', "
               "g' = control[0] · g; copy = w; g = 0",
    .inputs = {"w", "g", "control", "rates", "ranges", "hyper", "copy?", "m"},
    .outputs = {"w", "g", "m", "copy"},
    .shape = lion_shape,
    .lower = lion_lower,
    .flops = flops,
    .examples = examples,
};
