/* sapo: the loss of soft adaptive policy optimization (SAPO, arXiv 2511.20347), by row. A smooth gate takes the place of
 * clipping.
 *
 *     l = log p − old, log p = −nll; t = settings[1] if A > 0, else settings[0]
 *     ratio = exp(l), and e^±20 where l is beyond ±20 (LOSS_LOG_MAX), with no gradient there
 *     s = sigmoid(t · (ratio − 1)), loss = −4 / t · s · A
 *     dnll = weights · 4 · s · (1 − s) · ratio · A
 *
 * A row of weight 0 has a loss of 0, whatever its ratio. Where the loss is not finite dnll is −loss, so that no step is taken
 * (ops/optimizers/clip.c).
 */
#include "ops/losses/ratio.h"

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    const real *nll = c->data[LOSS_NLL], *old = c->data[LOSS_OLD], *advantages = c->data[LOSS_ADVANTAGES];
    const real *weights = c->data[LOSS_WEIGHTS], *settings = c->data[LOSS_SETTINGS];
    real *loss = c->data[LOSS_INPUTS + LOSS_LOSS], *dnll = c->data[LOSS_INPUTS + LOSS_DNLL];
    for (int64_t r = begin; r < end; r++) {
        real t = settings[advantages[r] > 0], log_ratio = -nll[r] - old[r], ratio = ratio_of(log_ratio);
        real away = real_exp(-t * (ratio - 1)), s = 1 / (1 + away),
             slope = s * away * s; /* s · (1 − s), or no number if s is 0 */
        loss[r] = weights[r] == 0 ? 0 : -4 / t * s * advantages[r];
        dnll[r] = loss[r] == 0 || ratio_stays(log_ratio) ? 0 : weights[r] * 4 * slope * ratio * advantages[r];
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
    .formula = "loss = −4 / t · sigmoid(t · (ratio − 1)) · A, t = settings[A > 0], ratio = exp(−nll − old), "
               "whose logarithm is clamped to ±20",
    .inputs = {"nll", "weights", "old", "advantages", "settings", "rows?"},
    .outputs = {"loss", "dnll"},
    .shape = ratio_shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_sapo, .host = forward, .group = 64, .rows = 64},
    .block = 256,
    .constants = LOSS_INPUTS - LOSS_WEIGHTS,
    .examples = examples,
};
