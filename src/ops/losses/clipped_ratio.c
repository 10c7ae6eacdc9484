/* clipped_ratio: clipped importance sampling, the loss of PPO and GRPO by row and of GSPO (arXiv 2507.18071) by sequence.
 *
 *     l = mean of (log p − old) over the rows of the sequence, log p = −nll; by row only the row
 *     ratio = exp(l), and e^±20 where l is beyond ±20 (LOSS_LOG_MAX), with no gradient there
 *     loss[r] = −min(ratio · A[r], clip(ratio, 1 − settings[0], 1 + settings[1]) · A[r])
 *     dnll[r] = 1 / n · Σ weights · A · ratio over the rows of the sequence that are not clipped, n of all its rows
 *
 * A ratio is clipped above where A ≥ 0 and below where A < 0. A row of weight 0 has a loss of 0, whatever its ratio; by sequence
 * it takes part in that of the others. Where the loss is not finite dnll is −loss, so that no step is taken
 * (ops/optimizers/clip.c). The mean over sequences of GSPO is the sum of losses with weights of 1 / n. ops/losses/loss.h says
 * what the operands are.
 */
#include "ops/losses/ratio.h"

static ALWAYS_INLINE real limit_of(real advantage, const real *settings)
{
    return advantage >= 0 ? 1 + settings[1] : 1 - settings[0];
}

static ALWAYS_INLINE bool clips(real ratio, real advantage, const real *settings)
{
    real limit = limit_of(advantage, settings);
    return advantage >= 0 ? ratio > limit : ratio < limit;
}

/* What the rows [first, end) share: their ratio, and dnll. */
static ALWAYS_INLINE real find_ratio(const struct call *c, int64_t first, int64_t end, real *dnll)
{
    const real *nll = c->data[LOSS_NLL], *old = c->data[LOSS_OLD], *advantages = c->data[LOSS_ADVANTAGES];
    const real *weights = c->data[LOSS_WEIGHTS], *settings = c->data[LOSS_SETTINGS];
    real sum = 0, flow = 0, count = (real)(end - first);
    for (int64_t k = first; k < end; k++)
        sum += -nll[k] - old[k];
    real ratio = ratio_of(sum / count);
    for (int64_t k = first; k < end; k++)
        flow += clips(ratio, advantages[k], settings) ? 0 : weights[k] * advantages[k];
    *dnll = flow == 0 || ratio_stays(sum / count) ? 0 : flow * ratio / count; /* the ratio may be no number */
    return ratio;
}

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    const real *advantages = c->data[LOSS_ADVANTAGES], *settings = c->data[LOSS_SETTINGS], *weights = c->data[LOSS_WEIGHTS];
    const int32_t *rows = c->data[LOSS_ROWS];
    real *loss = c->data[LOSS_INPUTS + LOSS_LOSS], *dnll = c->data[LOSS_INPUTS + LOSS_DNLL], ratio = 1, flow = 0;
    for (int64_t r = begin, known = -1; r < end; r++) {
        int64_t first = rows ? rows[2 * r] : r;
        if (first != known)
            ratio = find_ratio(c, first, rows ? rows[2 * r + 1] : r + 1, &flow);
        known = first;
        loss[r] = -(clips(ratio, advantages[r], settings) ? limit_of(advantages[r], settings) : ratio) * advantages[r];
        loss[r] = weights[r] == 0 ? 0 : loss[r];
        dnll[r] = isfinite(loss[r]) ? flow : -loss[r];
    }
}

static enum status gradient(struct program *p, const struct node *n)
{
    return ratio_gradient(p, n, OP_clipped_ratio);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return ratio_build(p, d, OP_clipped_ratio);
}

static const struct op_example examples[] = {
    {.build = build, .fill = ratio_fill, .adjust = ratio_adjust, .axes = {{"R", {1, 2, 37, 300}}, {"parts", {1, 2}}}},
    {0},
};

const struct op OP(clipped_ratio) = {
    .name = "clipped_ratio",
    .formula =
        "loss = −min(ratio · A, clip(ratio, 1 − settings[0], 1 + settings[1]) · A), ratio = exp(mean over rows of −nll − old), "
        "whose logarithm is clamped to ±20",
    .inputs = {"nll", "weights", "old", "advantages", "settings", "rows?"},
    .outputs = {"loss", "dnll"},
    .shape = ratio_shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_clipped_ratio, .host = forward, .group = 64, .rows = 1},
    .block = 256,
    .constants = LOSS_INPUTS - LOSS_WEIGHTS,
    .examples = examples,
};
