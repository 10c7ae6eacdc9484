/* sapo: the loss of soft adaptive policy optimization (SAPO, arXiv 2511.20347), by row. A smooth gate takes the place of
 * clipping.
 *
 *     ratio = exp(log p − old), log p = −nll; t = settings[1] if A > 0, else settings[0]
 *     s = sigmoid(t · (ratio − 1)), loss = −4 / t · s · A
 *     dnll = weights · 4 · s · (1 − s) · ratio · A; −loss where that is not finite, so that no step is taken
 * (ops/optimizers/clip.c)
 */
#include "ops/losses/ratio.h"

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    const real *nll = c->data[LOSS_NLL], *old = c->data[LOSS_OLD], *advantages = c->data[LOSS_ADVANTAGES];
    const real *weights = c->data[LOSS_WEIGHTS], *settings = c->data[LOSS_SETTINGS];
    real *loss = c->data[LOSS_INPUTS + LOSS_LOSS], *dnll = c->data[LOSS_INPUTS + LOSS_DNLL];
    for (int64_t r = begin; r < end; r++) {
        real t = settings[advantages[r] > 0], ratio = real_exp(-nll[r] - old[r]);
        real away = real_exp(-t * (ratio - 1)), s = 1 / (1 + away), slope = s * away * s; /* s · (1 − s) */
        loss[r] = -4 / t * s * advantages[r];
        dnll[r] = slope == 0 ? 0 : weights[r] * 4 * slope * ratio * advantages[r]; /* 0 · ∞ is no number */
        dnll[r] = isfinite(loss[r]) ? dnll[r] : -loss[r];
    }
}

static enum status gradient(struct program *p, const struct node *n)
{
    return ratio_gradient(p, n, OP_sapo);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return ratio_build(p, d, OP_sapo);
}

static const struct op_example examples[] = {
    {.build = build, .adjust = ratio_adjust, .axes = {{"R", {1, 2, 37, 300}}, {"parts", {1}}}},
    {0},
};

const struct op OP(sapo) = {
    .name = "sapo",
    .formula = "loss = −4 / t · sigmoid(t · (ratio − 1)) · A, t = settings[A > 0], ratio = exp(−nll − old)",
    .inputs = {"nll", "weights", "old", "advantages", "settings", "rows?"},
    .outputs = {"loss", "dnll"},
    .shape = ratio_shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_sapo, .host = forward, .group = 64, .rows = 64},
    .block = 256,
    .constants = LOSS_INPUTS - LOSS_WEIGHTS,
    .examples = examples,
};
