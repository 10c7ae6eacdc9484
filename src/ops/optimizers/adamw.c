/* adamw: one step of AdamW (Loshchilov and Hutter, 2019), as torch.optim.AdamW:
 *
 *     w −= lr · decay · w
 *     m = beta1 · m + (1 − beta1) · g',  v = beta2 · v + (1 − beta2) · g'²
 *     w −= lr / control[3] · m / (sqrt(v) / control[4] + eps),  copy = w,  g = 0
 *
 * The operands are in ops/optimizers/update.h.
 */
#include "ops/optimizers/update.h"

enum { M = STATE, V, STATES = V + 1 - STATE };

static ALWAYS_INLINE void update(const struct call *c, int64_t begin, int64_t end, const real *rates)
{
    real *w = c->data[W], *g = c->data[G], *m = c->data[M], *v = c->data[V];
    const real *control = c->data[CONTROL], *hyper = c->data[HYPER];
    real scale = control[0], step = rates[0] / control[3], root = 1 / control[4], decay = rates[0] * rates[1];
    real beta1 = hyper[STEP_BETA1], rest1 = hyper[STEP_REST1];
    real beta2 = hyper[STEP_BETA2], rest2 = hyper[STEP_REST2], eps = hyper[STEP_EPSILON];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real grad = g[i] * scale, mean = beta1 * m[i] + rest1 * grad, square = beta2 * v[i] + rest2 * grad * grad;
        real decayed = w[i] - decay * w[i];
        w[i] = decayed - step * mean / (real_sqrt(square) * root + eps);
        m[i] = mean;
        v[i] = square;
        g[i] = 0;
    }
    update_copy(c, begin, end);
}

KERNEL_BODY static void adamw_forward(const struct call *c, int64_t begin, int64_t end)
{
    update_pieces(c, begin, end, update);
}

static const struct kernel kernel = {SIGNATURE_adamw, .host = adamw_forward, .group = PIECE, .rows = 1, .defines = DEFINE(PIECE)};

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
    return 14.0 * (double)n->size[N];
}

static struct value *build(struct program *p, const int64_t *d)
{
    return update_example(p, d, OP_adamw, STATES, (const char *const[]){"m", "v"});
}

static const struct op_example examples[] = UPDATE_EXAMPLES(build);

const struct op OP(adamw) = {
    .name = "adamw",
    .formula = "m, v = means of g' and g'², g' = control[0] · g; w −= lr · (decay · w + m̂ / (sqrt(v̂) + eps)); copy = w; g = 0",
    .inputs = {"w", "g", "control", "rates", "ranges", "hyper", "copy?", "m", "v"},
    .outputs = {"w", "g", "m", "v", "copy"},
    .shape = shape,
    .lower = lower,
    .flops = flops,
    .examples = examples,
};
