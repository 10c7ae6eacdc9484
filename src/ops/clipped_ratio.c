/* clipped_ratio: clipped importance sampling, the loss of PPO and GRPO by row and of GSPO (arXiv 2507.18071) by sequence.
 *
 *     ratio = exp(mean of (log p − old) over the rows of the sequence),  log p = −nll; by row the row alone
 *     loss[r] = −min(ratio · A[r], clip(ratio, 1 − settings[0], 1 + settings[1]) · A[r])
 *     dnll[r] = 1 / n · Σ weights · A · ratio over the rows of the sequence that are not clipped, n of all its rows
 *
 * A ratio is clipped above where A ≥ 0 and below where A < 0, so one that overflowed has a finite loss and no gradient where it
 * is clipped. The mean over sequences of GSPO is the sum of losses with weights of 1 / n. ops/loss.h says what the operands are.
 */
#include "ops/loss.h"
#include "ops/op.h"

enum { R };

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
    real ratio = real_exp(sum / count);
    for (int64_t k = first; k < end; k++)
        flow += clips(ratio, advantages[k], settings) ? 0 : weights[k] * advantages[k];
    *dnll = flow == 0 ? 0 : flow * ratio / count; /* 0 · ∞ is no number */
    return ratio;
}

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    const real *advantages = c->data[LOSS_ADVANTAGES], *settings = c->data[LOSS_SETTINGS];
    const int32_t *rows = c->data[LOSS_ROWS];
    real *loss = c->data[LOSS_INPUTS + LOSS_LOSS], *dnll = c->data[LOSS_INPUTS + LOSS_DNLL], ratio = 1, flow = 0;
    for (int64_t r = begin, known = -1; r < end; r++) {
        int64_t first = rows ? rows[2 * r] : r;
        if (first != known)
            ratio = find_ratio(c, first, rows ? rows[2 * r + 1] : r + 1, &flow);
        known = first;
        loss[r] = -(clips(ratio, advantages[r], settings) ? limit_of(advantages[r], settings) : ratio) * advantages[r];
        dnll[r] = flow;
    }
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, LOSS_NLL, 1, SHAPE(-1)));
    n->size[R] = n->rows = n->in[LOSS_NLL]->shape[0];
    for (int i = LOSS_WEIGHTS; i < LOSS_SETTINGS; i++)
        TRY(node_expect(n, i, 1, SHAPE(n->size[R])));
    TRY(node_expect(n, LOSS_SETTINGS, 1, SHAPE(LOSS_NUMBERS)));
    if (n->in[LOSS_ROWS])
        TRY(node_expect(n, LOSS_ROWS, 2, SHAPE(n->size[R], 2)));
    node_output(p, n, LOSS_LOSS, p->types[ROLE_STATISTIC], 1, SHAPE(n->size[R]));
    node_output(p, n, LOSS_DNLL, p->types[ROLE_STATISTIC], 1, SHAPE(n->size[R]));
    return program_status(p);
}

/* The same op once more, with the incoming gradient as weights. */
static enum status gradient(struct program *p, const struct node *n)
{
    struct value *in[LOSS_INPUTS];
    memcpy(in, n->in, sizeof in);
    in[LOSS_WEIGHTS] = gradient_of(n, LOSS_LOSS);
    struct value *again = program_node(p, OP_clipped_ratio, LOSS_INPUTS, in, 0, NULL);
    return again ? gradient_add(p, n, LOSS_NLL, again->producer->out[LOSS_DNLL]) : program_status(p);
}

/* Sequences of 1, 2, 3, 5, … rows. */
static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)input, (void)count;
    for (int64_t r = 0, first = 0, length = 1, next = 2; r < d[0]; r++) {
        int64_t end = first + length < d[0] ? first + length : d[0];
        to[2 * r] = (int32_t)first;
        to[2 * r + 1] = (int32_t)end;
        if (r + 1 == end) {
            int64_t sum = length + next;
            first = end;
            length = next;
            next = sum;
        }
    }
}

/* Ratios from exp(−1) to e, most of which are clipped. */
static double adjust(const char *input, int64_t index, double random)
{
    return !strcmp(input, "settings")  ? 0.2 + 0.1 * (double)index
           : !strcmp(input, "nll")     ? 2 + 0.3 * random
           : !strcmp(input, "old")     ? -2 + 0.3 * random
           : !strcmp(input, "weights") ? fabs(random)
                                       : random;
}

static struct value *build(struct program *p, const int64_t *d)
{
    static const char *const names[] = {"nll", "weights", "old", "advantages"};
    struct value *in[LOSS_INPUTS] = {NULL};
    for (int i = LOSS_NLL; i < LOSS_SETTINGS; i++)
        in[i] = program_input(p, names[i], ROLE_STATISTIC, 1, d[0]);
    in[LOSS_SETTINGS] = program_input(p, "settings", ROLE_STATISTIC, 1, (int64_t)LOSS_NUMBERS);
    in[LOSS_ROWS] = d[1] > 1 ? program_input(p, "rows", ROLE_INDEX, 2, d[0], (int64_t)2) : NULL;
    return program_node(p, OP_clipped_ratio, LOSS_INPUTS, in, 0, NULL);
}

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .adjust = adjust, .axes = {{"R", {1, 2, 37, 300}}, {"parts", {1, 2}}}},
    {0},
};

const struct op OP(clipped_ratio) = {
    .name = "clipped_ratio",
    .formula =
        "loss = −min(ratio · A, clip(ratio, 1 − settings[0], 1 + settings[1]) · A), ratio = exp(mean over rows of −nll − old)",
    .inputs = {"nll", "weights", "old", "advantages", "settings", "rows?"},
    .outputs = {"loss", "dnll"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_clipped_ratio, .host = forward, .group = 64, .rows = 1},
    .block = 256,
    .constants = LOSS_INPUTS - LOSS_WEIGHTS,
    .examples = examples,
};
