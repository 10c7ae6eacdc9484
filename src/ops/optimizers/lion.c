/* lion: one step of Lion (Chen et al., 2023, arXiv 2302.06675), which steps by signs and keeps one mean:
 *
 *     w −= lr · decay · w
 *     w −= lr · sign(beta1 · m + (1 − beta1) · g'),  m = beta2 · m + (1 − beta2) · g',  copy = w,  g = 0
 *
 * The operands are in ops/optimizers/update.h.
 */
#include "ops/optimizers/update.h"

enum { M = STATE, STATES = M + 1 - STATE };

static ALWAYS_INLINE void update(const struct call *c, int64_t begin, int64_t end, const real *rates)
{
    real *w = c->data[W], *g = c->data[G], *m = c->data[M];
    const real *hyper = c->data[HYPER];
    real scale = ((const real *)c->data[CONTROL])[0], rate = rates[0], decay = rates[0] * rates[1];
    real beta1 = hyper[STEP_BETA1], rest1 = hyper[STEP_REST1], beta2 = hyper[STEP_BETA2], rest2 = hyper[STEP_REST2];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real grad = g[i] * scale, way = beta1 * m[i] + rest1 * grad;
        w[i] = w[i] - decay * w[i] - (way > 0 ? rate : way < 0 ? -rate : 0);
        m[i] = beta2 * m[i] + rest2 * grad;
        g[i] = 0;
    }
    update_copy(c, begin, end);
}

KERNEL_BODY static void lion_forward(const struct call *c, int64_t begin, int64_t end)
{
    update_pieces(c, begin, end, update);
}

static const struct kernel kernel = {SIGNATURE_lion, .host = lion_forward, .group = PIECE, .rows = 1, .defines = DEFINE(PIECE)};

static enum status shape(struct program *p, struct node *n)
{
    return update_shape(p, n, STATES);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    return update_lower(l, n, &kernel);
}

static double flops(const struct node *n)
{
    return 10.0 * (double)n->size[N];
}

static struct value *build(struct program *p, const int64_t *d)
{
    return update_example(p, d, OP_lion, STATES, (const char *const[]){"m"});
}

static const struct op_example examples[] = UPDATE_EXAMPLES(build);

const struct op OP(lion) = {
    .name = "lion",
    .formula = "w −= lr · (decay · w + sign(beta1 · m + (1 − beta1) · g')), m = beta2 · m + (1 − beta2) · g', "
               "g' = control[0] · g; copy = w; g = 0",
    .inputs = {"w", "g", "control", "rates", "ranges", "hyper", "copy?", "m"},
    .outputs = {"w", "g", "m", "copy"},
    .shape = shape,
    .lower = lower,
    .flops = flops,
    .examples = examples,
};
