/* linear_lora_group: y = [y1 | y2 | y3], yi = x · wiᵀ + biasi + lowi · biᵀ, low = scale · x · aᵀ: linear layers of one input with
 * their adapters (ops/linear_lora.c), whose a's lie one above the other. low is one product then, and so are da and a's part of
 * dx; x is read once for them instead of once for each layer.
 *
 * Where the weights too lie one above the other, all of them are w1, and x · wᵀ and dy · w are one product each. Weights and
 * biases are constants here.
 *
 * Backward, as for one layer: dlowi = scale · dyi · bi, dbi += dyiᵀ · lowi, da += dlowᵀ · x, dx += dlow · a, then dx += dyi · wi,
 * in the gradients' type, as several products meet.
 */
#include "ops/linear.h"

enum { X, A, B1, W1 = B1 + LORAS_MAX, BIAS1 = W1 + LORAS_MAX, INPUTS = BIAS1 + LORAS_MAX };
enum { Y, LOW };
enum { T, IN, OUT, LOW_RANK };
enum { SCALE }; /* number */

static struct value *columns(struct lowering *l, struct value *v, int64_t at, int64_t count)
{
    return program_columns(l->program, v, at, count);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->size[T] = n->in[X]->shape[0];
    n->size[IN] = n->in[X]->shape[1];
    TRY(node_expect(n, A, 2, SHAPE(-1, n->size[IN])));
    n->size[LOW_RANK] = n->in[A]->shape[0];
    int64_t ranks = 0, rows = 0;
    for (int i = 0; i < LORAS_MAX; i++) {
        const struct value *b = n->in[B1 + i], *w = n->in[W1 + i], *bias = n->in[BIAS1 + i];
        n->size[OUT] += b ? b->shape[0] : 0;
        ranks += b ? b->shape[1] : 0;
        rows += w ? w->shape[0] : 0;
        bool fits = (!w || w->shape[1] == n->size[IN]) && (!bias || (w && bias->shape[0] == w->shape[0]));
        bool apart = !n->in[W1 + 1] || (b && w ? b->shape[0] == w->shape[0] : !b && !w);
        if (!fits || !apart)
            return fail(ERR_INTERNAL, "linear_lora_group: the parts of layer %d do not fit", i);
    }
    if (ranks != n->size[LOW_RANK] || rows != n->size[OUT])
        return fail(ERR_INTERNAL, "linear_lora_group: %lld ranks and %lld rows, %lld and %lld are needed", (long long)ranks,
                    (long long)rows, (long long)n->size[LOW_RANK], (long long)n->size[OUT]);
    node_output(p, n, Y, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[OUT]));
    node_output(p, n, LOW, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[LOW_RANK]));
    return program_status(p);
}

/* The adapters' parts first, at their own size. Each is followed by its layer's, which a device may join with it. */
static enum status lower(struct lowering *l, const struct node *n)
{
    TRY(lower_gemm(l, n->in[X], false, n->in[A], true, n->out[LOW],
                   (struct lower_with){.scaled = true, .alpha = n->number[SCALE]}));
    if (n->out[Y]->unread)
        return OK;
    bool apart = n->in[W1 + 1] != NULL;
    for (int64_t i = 0, at = 0, rank = 0; i < LORAS_MAX && n->in[B1 + i]; i++) {
        struct value *b = n->in[B1 + i], *y = columns(l, n->out[Y], at, b->shape[0]);
        struct value *low = columns(l, n->out[LOW], rank, b->shape[1]);
        TRY(program_status(l->program));
        TRY(lower_gemm(l, low, false, b, true, y, (struct lower_with){0}));
        if (apart)
            TRY(lower_product(l, n->in[X], n->in[W1 + i], false, y,
                              (struct lower_with){.accumulate = true, .bias = n->in[BIAS1 + i]}));
        at += b->shape[0];
        rank += b->shape[1];
    }
    return apart ? OK
                 : lower_product(l, n->in[X], n->in[W1], false, n->out[Y],
                                 (struct lower_with){.accumulate = true, .bias = n->in[BIAS1]});
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *dy = gradient_of(p, n, Y);
    struct value *in[1 + LORAS_MAX] = {dy, n->in[B1], n->in[B1 + 1], n->in[B1 + 2]};
    struct value *dlow = program_node(p, OP_linear_lora_group_bwd_low, 1 + LORAS_MAX, in, 1, n->number);
    for (int64_t i = 0, at = 0, rank = 0; i < LORAS_MAX && n->in[B1 + i]; i++) {
        struct value *of[] = {dy, n->out[LOW], NULL};
        if (gradient_wanted(n, B1 + (int)i) && (of[2] = gradient_sum(p, n, B1 + (int)i)))
            program_node(p, OP_linear_bwd_w, 3, of, 2, (double[]){(double)at, (double)rank});
        at += n->in[B1 + i]->shape[0];
        rank += n->in[B1 + i]->shape[1];
    }
    TRY(linear_gradient_w(p, n, X, A, dlow));
    if (!gradient_wanted(n, X))
        return program_status(p);
    struct value *dx = linear_bwd_x(p, dlow, n->in[A], gradient_products(p, n, X), true, 1);
    for (int64_t i = 0, at = 0; i < LORAS_MAX && n->in[W1 + i]; at += n->in[W1 + i]->shape[0], i++)
        dx = linear_bwd_x_at(p, dy, at, n->in[W1 + i], dx, false, 1);
    return gradient_add_product(p, n, X, dx);
}

static double flops(const struct node *n)
{
    double per_token = (double)n->size[IN] * (double)(n->size[OUT] + n->size[LOW_RANK]);
    for (int i = 0; i < LORAS_MAX && n->in[B1 + i]; i++)
        per_token += (double)value_elements(n->in[B1 + i]);
    return 2.0 * (double)n->size[T] * per_token;
}

/* How many layers, and their sizes: some as wide as the first, some wider. parts: 1 plain, 2 with biases. */
static struct value *build_on(struct program *p, const int64_t *d, int64_t type, bool apart)
{
    struct lora_layer layers[LORAS_MAX] = {{0}};
    int64_t rank = 0, rows = 0;
    for (int64_t i = 0; i < d[3]; i++) {
        int64_t out = d[2] + 8 * i, r = 4 + i;
        layers[i].b = program_input(p, "b", ROLE_WEIGHT, 2, out, r);
        rank += r;
        rows += out;
        if (!apart)
            continue;
        layers[i].w = type ? example_weight(p, type, out, d[1]) : program_input(p, "w", ROLE_WEIGHT, 2, out, d[1]);
        layers[i].bias = d[4] > 1 ? program_input(p, "bias", ROLE_WEIGHT, 1, out) : NULL;
    }
    if (!apart) {
        layers[0].w = program_input(p, "w", ROLE_WEIGHT, 2, rows, d[1]);
        layers[0].bias = d[4] > 1 ? program_input(p, "bias", ROLE_WEIGHT, 1, rows) : NULL;
    }
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]);
    return linear_lora_group(p, x, program_input(p, "a", ROLE_WEIGHT, 2, rank, d[1]), layers, (int)d[3], 0.75);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return build_on(p, d, 0, true);
}

static struct value *build_above(struct program *p, const int64_t *d)
{
    return build_on(p, d, 0, false);
}

static struct value *build_stored(struct program *p, const int64_t *d)
{
    return build_on(p, d, d[5], true);
}

static const struct op_example examples[] = {
    {.build = build,
     .axes = {{"T", {1, 3, 67}}, {"in", {33, 96}}, {"out", {7, 64}}, {"layers", {2, 3}}, {"parts", {1, 2}}},
     .scale = 0.3f},
    {.build = build_above,
     .axes = {{"T", {1, 67}}, {"in", {96}}, {"out", {7, 64}}, {"layers", {2, 3}}, {"parts", {1, 2}}},
     .scale = 0.3f},
    {.build = build_stored,
     .fill = example_fill_weight,
     .adjust = example_adjust_weight,
     .axes =
         {{"T", {1, 67}}, {"in", {192}}, {"out", {129}}, {"layers", {2}}, {"parts", {1, 2}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {.build = build_stored,
     .fill = example_fill_weight,
     .adjust = example_adjust_weight,
     .forward_only = true,
     .axes = {{"T", {4}}, {"in", {2560}}, {"out", {4096}}, {"layers", {2}}, {"parts", {2}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {0},
};

const struct op OP(linear_lora_group) = {
    .name = "linear_lora_group",
    .formula = "y = [y1 | y2 | y3], yi = x · wiᵀ + biasi + lowi · biᵀ, low = scale · x · aᵀ",
    .inputs = {"x", "a", "b1", "b2", "b3?", "w1", "w2?", "w3?", "bias1?", "bias2?", "bias3?"},
    .outputs = {"y", "low"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .constants = 2 * LORAS_MAX,
    .flops = flops,
    .examples = examples,
};

/* --- dlow --------------------------------------------------------------------------------------------------------------- */

enum { BL_DY, BL_B1 };
enum { BL_DLOW };

static enum status shape_bwd_low(struct program *p, struct node *n)
{
    TRY(node_expect(n, BL_DY, 2, SHAPE(-1, -1)));
    n->size[T] = n->in[BL_DY]->shape[0];
    for (int i = 0; i < LORAS_MAX && n->in[BL_B1 + i]; i++) {
        n->size[OUT] += n->in[BL_B1 + i]->shape[0];
        n->size[LOW_RANK] += n->in[BL_B1 + i]->shape[1];
    }
    TRY(node_expect(n, BL_DY, 2, SHAPE(n->size[T], n->size[OUT])));
    node_output(p, n, BL_DLOW, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[LOW_RANK]));
    return program_status(p);
}

static enum status lower_bwd_low(struct lowering *l, const struct node *n)
{
    for (int64_t i = 0, at = 0, rank = 0; i < LORAS_MAX && n->in[BL_B1 + i]; i++) {
        struct value *b = n->in[BL_B1 + i], *dy = columns(l, n->in[BL_DY], at, b->shape[0]);
        struct value *dlow = columns(l, n->out[BL_DLOW], rank, b->shape[1]);
        TRY(program_status(l->program));
        TRY(lower_gemm(l, dy, false, b, false, dlow, (struct lower_with){.scaled = true, .alpha = n->number[SCALE]}));
        at += b->shape[0];
        rank += b->shape[1];
    }
    return OK;
}

static double flops_bwd_low(const struct node *n)
{
    double per_token = 0;
    for (int i = 0; i < LORAS_MAX && n->in[BL_B1 + i]; i++)
        per_token += (double)value_elements(n->in[BL_B1 + i]);
    return 2.0 * (double)n->size[T] * per_token;
}

static struct value *build_bwd_low(struct program *p, const int64_t *d)
{
    struct value *in[1 + LORAS_MAX] = {0};
    int64_t rows = 0;
    for (int64_t i = 0; i < d[2]; rows += d[1] + 8 * i, i++)
        in[BL_B1 + i] = program_input(p, "b", ROLE_WEIGHT, 2, d[1] + 8 * i, 4 + i);
    in[BL_DY] = program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], rows);
    return program_node(p, OP_linear_lora_group_bwd_low, 1 + LORAS_MAX, in, 1, (double[]){0.75});
}

static const struct op_example examples_bwd_low[] = {
    {.build = build_bwd_low, .axes = {{"T", {1, 3, 67}}, {"out", {7, 64}}, {"layers", {2, 3}}}}, {0}};

const struct op OP(linear_lora_group_bwd_low) = {
    .name = "linear_lora_group_bwd_low",
    .formula = "dlow = [dlow1 | dlow2 | dlow3], dlowi = scale · dyi · bi",
    .inputs = {"dy", "b1", "b2", "b3?"},
    .outputs = {"dlow"},
    .shape = shape_bwd_low,
    .lower = lower_bwd_low,
    .flops = flops_bwd_low,
    .examples = examples_bwd_low,
};
