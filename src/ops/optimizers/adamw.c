/* adamw: one step of AdamW (Loshchilov and Hutter, 2019), as torch.optim.AdamW:
 *
 *     w −= lr · decay · w
 *     m = beta1 · m + (1 − beta1) · g',  v = beta2 · v + (1 − beta2) · g'²
 *     w −= lr / control[3] · m / (sqrt(v) / control[4] + eps),  copy = w,  g = 0
 *
 * The operands are in ops/optimizers/update.h.
 */
#include "ops/optimizers/update.h"

#define ONLY_adamw
#include "ops/optimizers/adamw.kl"

UPDATE(adamw, "m", "v")

static double flops(const struct node *n)
{
    return 14.0 * (double)n->size[ELEMENTS];
}

static const struct op_example examples[] = UPDATE_EXAMPLES(adamw_build);

const struct op OP(adamw) = {
    .name = "adamw",
    .formula = "m, v = means of g' and g'², g' = control[0] · g; w −= lr · (decay · w + m̂ / (sqrt(v̂) + eps)); copy = w; g = 0",
    .inputs = {"w", "g", "control", "rates", "ranges", "hyper", "copy?", "m", "v"},
    .outputs = {"w", "g", "m", "v", "copy"},
    .shape = adamw_shape,
    .lower = adamw_lower,
    .flops = flops,
    .examples = examples,
};
