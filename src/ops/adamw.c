/* adamw: one step of AdamW (Loshchilov and Hutter, 2019) over flat arrays, in place, as torch.optim.AdamW:
 *
 *     g' = control[0] · g,  w −= lr · decay · w
 *     m = beta1 · m + (1 − beta1) · g',  v = beta2 · v + (1 − beta2) · g'²
 *     w −= lr / control[3] · m / (sqrt(v) / control[4] + eps),  copy = w,  g = 0
 *
 * control comes from `clip`; where control[2] is 0 the step is skipped, and only g = 0. Elements belong to groups by ranges:
 * {end in pieces of 128 elements, group}, ascending; a group has its own learning rate and decay. Nothing flows back.
 */
#include "ops/op.h"

enum { W, G, M, V, CONTROL, RATES, RANGES, COPY };
enum { W_AFTER, M_AFTER, V_AFTER, G_AFTER, COPY_AFTER };
enum { N, K };
enum { BETA1, BETA2, EPS, REST1, REST2 }; /* numbers; the rest is 1 − beta, which float32 cannot take from a rounded beta */

enum { BLOCK = 128 };
#define PIECE 128 /* and work-items of a group */

/* The first range that ends behind a piece; the last one, if none does. */
static int64_t range_of(const int32_t *ranges, int64_t count, int64_t piece)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (ranges[2 * middle] > piece)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Elements [begin, end) of one group. */
static ALWAYS_INLINE void update(const struct call *c, int64_t begin, int64_t end, const real *rates, enum dtype dt)
{
    real *w = c->data[W], *g = c->data[G], *m = c->data[M], *v = c->data[V];
    const real *control = c->data[CONTROL];
    real scale = control[0], step = rates[0] / control[3], root = 1 / control[4], decay = rates[0] * rates[1];
    real beta1 = (real)c->number[BETA1], rest1 = (real)c->number[REST1];
    real beta2 = (real)c->number[BETA2], rest2 = (real)c->number[REST2], eps = (real)c->number[EPS];
    INDEPENDENT
    for (int64_t i = begin; i < end; i++) {
        real grad = g[i] * scale, mean = beta1 * m[i] + rest1 * grad, square = beta2 * v[i] + rest2 * grad * grad;
        real decayed = w[i] - decay * w[i];
        w[i] = decayed - step * mean / (real_sqrt(square) * root + eps);
        m[i] = mean;
        v[i] = square;
        g[i] = 0;
    }
    void *copy = c->data[COPY];
    for (int64_t i = begin; copy && i < end; i++)
        store(dt, copy, i, w[i]);
}

KERNEL_BODY static void adamw_forward(const struct call *c, int64_t begin, int64_t end)
{
    const int32_t *ranges = c->data[RANGES];
    int64_t count = c->dim[K], last = end * PIECE < c->dim[N] ? end * PIECE : c->dim[N];
    if (((const real *)c->data[CONTROL])[2] == 0) {
        memset((real *)c->data[G] + begin * PIECE, 0, (size_t)(last - begin * PIECE) * sizeof(real));
        return;
    }
    for (int64_t k = range_of(ranges, count, begin), at = begin * PIECE; at < last; k++) {
        int64_t until = k + 1 < count && (int64_t)ranges[2 * k] * PIECE < last ? (int64_t)ranges[2 * k] * PIECE : last;
        const real *rates = (const real *)c->data[RATES] + 2 * ranges[2 * k + 1];
        SPECIALISE(c->dtype[COPY], update, c, at, until, rates);
        at = until;
    }
}

static const struct kernel kernel = {"adamw",      adamw_forward, .file = "adamw", .operands = 8,           .sizes = 2,
                                     .numbers = 5, .group = 128,  .rows = 1,       .defines = DEFINE(PIECE)};

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, W, 1, SHAPE(-1)));
    n->size[N] = n->in[W]->shape[0];
    for (int i = G; i <= V; i++)
        TRY(node_expect(n, i, 1, SHAPE(n->size[N])));
    TRY(node_expect(n, CONTROL, 1, SHAPE(5)));
    TRY(node_expect(n, RATES, 2, SHAPE(-1, 2)));
    TRY(node_expect(n, RANGES, 2, SHAPE(-1, 2)));
    n->size[K] = n->in[RANGES]->shape[0];
    n->number[REST1] = 1 - n->number[BETA1];
    n->number[REST2] = 1 - n->number[BETA2];
    n->rows = (n->size[N] + PIECE - 1) / PIECE;
    node_alias(p, n, W_AFTER, W);
    node_alias(p, n, M_AFTER, M);
    node_alias(p, n, V_AFTER, V);
    node_alias(p, n, G_AFTER, G);
    if (n->in[COPY]) {
        TRY(node_expect(n, COPY, 1, SHAPE(n->size[N])));
        node_alias(p, n, COPY_AFTER, COPY);
    }
    return program_status(p);
}

/* Each array once: its name as an output is no further operand. */
static enum status lower(struct lowering *l, const struct node *n)
{
    return lower_launch(l, &kernel, COPY + 1, n->in, n->size, n->number, n->rows, BLOCK);
}

static double flops(const struct node *n)
{
    return 14.0 * (double)n->size[N];
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)input;
    int64_t pieces = (d[0] + PIECE - 1) / PIECE, ranges = count / 2;
    for (int64_t k = 0; k < ranges; k++) {
        to[2 * k] = (int32_t)(pieces * (k + 1) / ranges);
        to[2 * k + 1] = example_number(k, 2);
    }
}

static double adjust(const char *input, int64_t index, double random)
{
    static const double control[] = {0.25, 3, 1, 0.19, 0.0447};
    if (!strcmp(input, "control"))
        return control[index];
    if (!strcmp(input, "rates"))
        return fabs(random) * 0.1 + 0.01;
    return !strcmp(input, "v") ? random * random : random;
}

static double adjust_skipped(const char *input, int64_t index, double random)
{
    return !strcmp(input, "control") && (index == 0 || index == 2) ? 0 : adjust(input, index, random);
}

static struct value *build(struct program *p, const int64_t *d)
{
    struct value *w = program_input(p, "w", ROLE_GRADIENT, 1, d[0]), *g = program_input(p, "g", ROLE_GRADIENT, 1, d[0]);
    struct value *m = program_input(p, "m", ROLE_GRADIENT, 1, d[0]), *v = program_input(p, "v", ROLE_GRADIENT, 1, d[0]);
    return adamw(p, w, g, m, v, program_input(p, "control", ROLE_STATISTIC, 1, (int64_t)5),
                 program_input(p, "rates", ROLE_STATISTIC, 2, (int64_t)2, (int64_t)2),
                 program_input(p, "ranges", ROLE_INDEX, 2, d[1], (int64_t)2),
                 d[2] > 1 ? program_input(p, "copy", ROLE_WEIGHT, 1, d[0]) : NULL, 0.9, 0.99, 1e-8);
}

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .adjust = adjust, .axes = {{"N", {1, 127, 1000, 40000}}, {"K", {1, 2, 9}}, {"parts", {1, 2}}}},
    {.build = build, .fill = fill, .adjust = adjust_skipped, .axes = {{"N", {5, 20000}}, {"K", {3}}, {"parts", {1, 2}}}},
    {.build = build, .fill = fill, .adjust = adjust, .axes = {{"N", {1 << 20}}, {"K", {9}}, {"parts", {2}}}},
    {0},
};

const struct op OP(adamw) = {
    .name = "adamw",
    .formula = "m, v = means of g' and g'², g' = control[0] · g; w −= lr · (decay · w + m̂ / (sqrt(v̂) + eps)); copy = w; g = 0",
    .inputs = {"w", "g", "m", "v", "control", "rates", "ranges", "copy?"},
    .outputs = {"w", "m", "v", "g", "copy"},
    .shape = shape,
    .lower = lower,
    .flops = flops,
    .examples = examples,
};
