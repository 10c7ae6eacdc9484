/* expert_linear: y = x · w[e]ᵀ + bias[e] + low · b[e]ᵀ, low = scale · x · a[e]ᵀ, where e is the expert of a row of x.
 *
 * Rows are sorted by expert (ops/experts/expert_slots.h). Which rows an expert has is known only on the device, so this is not a
 * matmul of the device's engine but a kernel of its own: a row of its grid is a tile of rows of one expert and COLUMNS columns of
 * the result, of as many tiles as there may be. The matrices of all experts lie in one tensor, and each operand is read by
 * strides: the layouts of checkpoints and of PEFT's adapters need no copy. On tensor cores it is expert_linear_mma.kl's.
 *
 * As in linear_lora, the adapter's part is written first and the product added to it, and a sum is rounded once. Terms are summed
 * in chains of CHAIN.
 *
 * Backward: dx = dy · w[e] is the same kernel with other strides; dw[e] += dyᵀ · x over the rows of e, nothing for an expert
 * without rows. dx and dw of the adapter as in linear_lora.
 */
#include "ops/experts/expert_linear_mma.h"

#define COLUMNS 64
#define CHAIN 128
enum { X, W, BIAS, A, B, TILES, BEGIN };
enum { Y, LOW };
enum { FROM, COUNT, STEP, LAYOUT, SCALE }; /* numbers */

/* --- a tile on the host ------------------------------------------------------------------------------------------------- */

struct matrix { /* element (i, j) is data[at + i · down + j · across] */
    const void *data;
    int64_t at, down, across;
};

enum { QUAD = 4, PAIR = 2, HALF = PAIR * LANES }; /* rows and vectors of columns that are summed at once */

/* Up to EXPERT_TILE rows of left, and COLUMNS columns of right, times a chain of terms; zeros beyond. */
struct panels {
    real left[EXPERT_TILE][CHAIN];
    real right[CHAIN][COLUMNS];
    real sum[EXPERT_TILE][COLUMNS];
};

static ALWAYS_INLINE void body_pack(struct panels *p, const struct matrix *l, const struct matrix *r, int64_t term, int64_t terms,
                                    int64_t rows, int64_t columns, enum dtype tl, enum dtype tr)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < terms; k++)
            p->left[i][k] = load(tl, l->data, l->at + i * l->down + (term + k) * l->across);
    for (int64_t i = rows; i < (rows + QUAD - 1) / QUAD * QUAD; i++)
        memset(p->left[i], 0, sizeof p->left[i]);
    if (r->down == 1) /* terms side by side */
        for (int64_t j = 0; j < columns; j++)
            for (int64_t k = 0; k < terms; k++)
                p->right[k][j] = load(tr, r->data, r->at + term + k + j * r->across);
    else
        for (int64_t k = 0; k < terms; k++)
            for (int64_t j = 0; j < columns; j++)
                p->right[k][j] = load(tr, r->data, r->at + (term + k) * r->down + j * r->across);
    for (int64_t k = 0; k < terms && columns < COLUMNS; k++)
        memset(p->right[k] + columns, 0, (size_t)(COLUMNS - columns) * sizeof(real));
}

/* It and the product are functions of their own: inlined into each kernel below they doubled the time of building this file. */
KERNEL_BODY_OF(expert_panels_pack,
               (struct panels * p, const struct matrix *l, const struct matrix *r, int64_t term, int64_t terms, int64_t rows,
                int64_t columns, enum dtype tl, enum dtype tr),
               (p, l, r, term, terms, rows, columns, tl, tr))
{
    (void)tl, (void)tr; /* the reference has one type */
    SPECIALISE2(tl, tr, body_pack, p, l, r, term, terms, rows, columns);
}

static ALWAYS_INLINE void expert_linear_multiply(struct panels *p, int64_t row, int64_t column, int64_t terms)
{
    vec sum[QUAD][PAIR] = {0}, right[PAIR], before;
    for (int64_t k = 0; k < terms; k++) {
        memcpy(right, &p->right[k][column], sizeof right);
        for (int i = 0; i < QUAD; i++)
            for (int j = 0; j < PAIR; j++)
                sum[i][j] += p->left[row + i][k] * right[j];
    }
    for (int i = 0; i < QUAD; i++)
        for (int j = 0; j < PAIR; j++) {
            real *to = &p->sum[row + i][column + j * LANES];
            memcpy(&before, to, sizeof before);
            before += sum[i][j];
            memcpy(to, &before, sizeof before);
        }
}

KERNEL_BODY_OF(expert_panels_multiply, (struct panels * p, int64_t rows, int64_t columns, int64_t terms),
               (p, rows, columns, terms))
{
    for (int64_t i = 0; i < rows; i += QUAD)
        for (int64_t j = 0; j < columns; j += HALF)
            expert_linear_multiply(p, i, j, terms);
}

/* p->sum = left (rows, terms) · right (terms, columns) */
static void panels_product(struct panels *p, const struct matrix *l, const struct matrix *r, int64_t rows, int64_t columns,
                           int64_t terms, enum dtype tl, enum dtype tr)
{
    memset(p->sum, 0, sizeof p->sum);
    for (int64_t term = 0; term < terms; term += CHAIN) {
        int64_t some = terms - term < CHAIN ? terms - term : CHAIN;
        expert_panels_pack(p, l, r, term, some, rows, columns, tl, tr);
        expert_panels_multiply(p, rows, columns, some);
    }
}

/* --- strides ------------------------------------------------------------------------------------------------------------ */

/* Of a kernel over rows: y (rows, columns) = x (rows, terms) · right, whose element (k, j) for expert e is w[at + e · expert + k
 * · down + j · across]. `output` is the stride of w's outputs, by which the bias is found. */
enum { K_COLUMNS, K_TERMS, K_EXPERT, K_DOWN, K_ACROSS, K_AT, K_OUTPUT, K_ADD };
enum { K_X, K_W, K_BIAS, K_TILES, K_Y, K_OPERANDS };
enum { K_ALPHA }; /* number */

/* Of the matrices of experts: how far experts, outputs and inputs are apart, and how many there are. */
struct strides {
    int64_t expert, output, input, experts, outputs, inputs;
};

static struct strides strides_of(const struct value *w, enum experts_layout layout)
{
    int64_t a = w->shape[0], b = w->shape[1], c = w->shape[2];
    switch (layout) {
    case EXPERTS_OUT_IN: return (struct strides){b * c, c, 1, a, b, c};
    case EXPERTS_IN_OUT: return (struct strides){b * c, 1, c, a, c, b};
    case EXPERTS_LAST: return (struct strides){1, b * c, c, c, a, b};
    }
    return (struct strides){0};
}

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype ty)
{
    struct panels panels;
    const int64_t *d = c->dim;
    int64_t across = (d[K_COLUMNS] + COLUMNS - 1) / COLUMNS;
    void *y = c->data[K_Y];
    real alpha = (real)c->number[K_ALPHA];
    for (int64_t g = begin; g < end; g++) {
        const int32_t *tile = (const int32_t *)c->data[K_TILES] + g / across * TILE_NUMBERS;
        int64_t rows = tile[TILE_END] - tile[TILE_FIRST], column = g % across * COLUMNS, left = d[K_COLUMNS] - column;
        int64_t columns = left < COLUMNS ? left : COLUMNS, e = tile[TILE_EXPERT], outputs = d[K_EXPERT] / d[K_TERMS];
        if (!rows)
            continue;
        struct matrix x = {c->data[K_X], tile[TILE_FIRST] * d[K_TERMS], d[K_TERMS], 1};
        struct matrix w = {c->data[K_W], e * d[K_EXPERT] + d[K_AT] + column * d[K_ACROSS], d[K_DOWN], d[K_ACROSS]};
        panels_product(&panels, &x, &w, rows, columns, d[K_TERMS], tx, tx);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                int64_t at = (tile[TILE_FIRST] + i) * d[K_COLUMNS] + column + j;
                real sum = (d[K_ADD] ? load(ty, y, at) : 0) + alpha * panels.sum[i][j];
                if (c->data[K_BIAS])
                    sum += load(tx, c->data[K_BIAS], e * outputs + (d[K_AT] + (column + j) * d[K_ACROSS]) / d[K_OUTPUT]);
                store(ty, y, at, sum);
            }
    }
}

KERNEL_BODY(rows_product)
{
    SPECIALISE2(c->dtype[K_X], c->dtype[K_Y], body, c, begin, end);
}

#define DEFINES DEFINE(EXPERT_TILE) DEFINE(COLUMNS) DEFINE(CHAIN)

static const struct kernel kernel_rows = {SIGNATURE_expert_linear, .host = rows_product, .group = 256, .rows = 1,
                                          .defines = DEFINES};
static const struct kernel kernels_rows_mma[] = EXPERTS_MMA_KERNELS(expert_linear_mma, &kernel_rows);

static enum status lower_rows_product(struct lowering *l, struct value *x, struct value *w, enum experts_layout layout,
                                      struct value *tiles, struct experts_part part, bool back, struct value *y,
                                      struct lower_with with)
{
    struct strides s = strides_of(w, layout);
    int64_t columns = back ? s.inputs : part.count, output = part.step * s.output;
    struct value *values[] = {[K_X] = x, [K_W] = w, [K_BIAS] = with.bias, [K_TILES] = tiles, [K_Y] = y};
    int64_t size[NUMBERS] = {[K_COLUMNS] = columns,
                             [K_TERMS] = back ? part.count : s.inputs,
                             [K_EXPERT] = s.expert,
                             [K_DOWN] = back ? output : s.input,
                             [K_ACROSS] = back ? s.input : output,
                             [K_AT] = part.from * s.output,
                             [K_OUTPUT] = s.output,
                             [K_ADD] = with.accumulate};
    const struct kernel *kernel = &kernel_rows;
    int64_t grid = tiles->shape[0] * divide_up(columns, COLUMNS);
    if (experts_mma_takes(l, x, w) && columns % 2 == 0 && y->base_offset % 16 == 0) {
        kernel = &kernels_rows_mma[experts_mma_kind(w, s.expert, size[K_DOWN], size[K_ACROSS], size[K_AT], columns)];
        grid = tiles->shape[0] / (MMA_DOWN / EXPERT_TILE) * divide_up(columns, MMA_ACROSS);
    }
    return lower_launch(l, kernel, K_OPERANDS, values, size, (double[NUMBERS]){with.scaled ? with.alpha : 1}, grid, 1);
}

/* --- forward ------------------------------------------------------------------------------------------------------------ */

static struct experts_part part_of(const double *number)
{
    return (struct experts_part){(int64_t)number[FROM], (int64_t)number[COUNT], (int64_t)number[STEP]};
}

static const struct experts_part *expert_linear_whole(struct experts_part *part, const struct strides *s)
{
    *part = (struct experts_part){0, s->outputs, 1};
    return part;
}

/* The pair's matrices as those of experts: a (E, rank, in), b (out, rank, E). */
static struct value *a_of(struct program *p, struct value *a, int64_t experts)
{
    return a ? program_view(p, a, 3, experts, a->shape[0] / experts, a->shape[1]) : NULL;
}

static struct value *b_of(struct program *p, struct value *b, int64_t experts)
{
    return b ? program_view(p, b, 3, b->shape[0], b->shape[1] / experts, experts) : NULL;
}

static enum status expect_adapter(const struct node *n, const struct strides *s)
{
    TRY(node_expect(n, A, 2, SHAPE(-1, s->inputs)));
    TRY(node_expect(n, B, 2, SHAPE(s->outputs, n->in[A]->shape[0])));
    return n->in[A]->shape[0] % s->experts ? fail(ERR_INTERNAL, "expert_linear: a rank that is not the same for all experts")
                                           : OK;
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    TRY(node_expect(n, W, 3, SHAPE(-1, -1, -1)));
    struct strides s = strides_of(n->in[W], (enum experts_layout)n->number[LAYOUT]);
    struct experts_part part = part_of(n->number);
    TRY(node_expect(n, X, 2, SHAPE(-1, s.inputs)));
    if (part.from + (part.count - 1) * part.step >= s.outputs)
        return fail(ERR_INTERNAL, "expert_linear: outputs beyond the %lld that there are", (long long)s.outputs);
    if (n->in[BIAS])
        TRY(node_expect(n, BIAS, 2, SHAPE(s.experts, s.outputs)));
    if (n->in[A])
        TRY(expect_adapter(n, &s));
    n->rows = n->in[X]->shape[0];
    node_output(p, n, Y, p->types[ROLE_ACTIVATION], 2, SHAPE(n->rows, part.count));
    if (n->in[A])
        node_output(p, n, LOW, p->types[ROLE_ACTIVATION], 2, SHAPE(n->rows, n->in[A]->shape[0] / s.experts));
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    enum experts_layout layout = (enum experts_layout)n->number[LAYOUT];
    struct strides s = strides_of(n->in[W], layout);
    struct experts_part part = part_of(n->number), all;
    struct value *a = a_of(l->program, n->in[A], s.experts), *b = b_of(l->program, n->in[B], s.experts);
    TRY(program_status(l->program));
    if (a) {
        struct strides of_a = strides_of(a, EXPERTS_OUT_IN);
        TRY(lower_rows_product(l, n->in[X], a, EXPERTS_OUT_IN, n->in[TILES], *expert_linear_whole(&all, &of_a), false,
                               n->out[LOW], (struct lower_with){.scaled = true, .alpha = n->number[SCALE]}));
        if (n->out[Y]->unread)
            return OK;
        TRY(lower_rows_product(l, n->out[LOW], b, EXPERTS_LAST, n->in[TILES], part, false, n->out[Y], (struct lower_with){0}));
    }
    return lower_rows_product(l, n->in[X], n->in[W], layout, n->in[TILES], part, false, n->out[Y],
                              (struct lower_with){.accumulate = a != NULL, .bias = n->in[BIAS]});
}

/* dx + dy · w, or without dx a new alpha · dy · w; `wide`: that in the gradients' type. */
static struct value *bwd_x(struct program *p, struct value *dy, struct value *w, enum experts_layout layout, const struct node *n,
                           struct experts_part part, struct value *dx, bool wide, double alpha)
{
    double numbers[] = {(double)part.from, (double)part.count, (double)part.step, layout, alpha, wide};
    return program_node(p, OP_expert_linear_bwd_x, 4, (struct value *[]){dy, w, dx, n->in[TILES]}, 6, numbers);
}

static void bwd_w(struct program *p, struct value *dy, struct value *x, struct value *dw, enum experts_layout layout,
                  const struct node *n, struct experts_part part)
{
    double numbers[] = {(double)part.from, (double)part.count, (double)part.step, layout};
    program_node(p, OP_expert_linear_bwd_w, 4, (struct value *[]){dy, x, dw, n->in[BEGIN]}, 4, numbers);
}

static enum status gradient(struct program *p, const struct node *n)
{
    enum experts_layout layout = (enum experts_layout)n->number[LAYOUT];
    struct strides s = strides_of(n->in[W], layout);
    struct experts_part part = part_of(n->number), all;
    struct value *dy = gradient_of(p, n, Y), *a = a_of(p, n->in[A], s.experts), *b = b_of(p, n->in[B], s.experts), *dlow = NULL;
    if (gradient_wanted(n, BIAS))
        return fail(ERR_UNSUPPORTED, "biases of experts cannot be trained: use --finetuning-type lora");
    TRY(program_status(p));
    if (a) {
        struct strides of_a = strides_of(a, EXPERTS_OUT_IN);
        dlow = bwd_x(p, dy, b, EXPERTS_LAST, n, part, NULL, false, n->number[SCALE]);
        if (gradient_wanted(n, B))
            bwd_w(p, dy, n->out[LOW], b_of(p, gradient_sum(p, n, B), s.experts), EXPERTS_LAST, n, part);
        if (gradient_wanted(n, A))
            bwd_w(p, dlow, n->in[X], a_of(p, gradient_sum(p, n, A), s.experts), EXPERTS_OUT_IN, n,
                  *expert_linear_whole(&all, &of_a));
    }
    if (gradient_wanted(n, W))
        bwd_w(p, dy, n->in[X], gradient_sum(p, n, W), layout, n, part);
    if (!gradient_wanted(n, X))
        return program_status(p);
    bool wide = gradient_type(p, n, X) != p->types[ROLE_ACTIVATION];
    struct value *dx = gradient_products(p, n, X);
    if (a)
        dx = bwd_x(p, dlow, a, EXPERTS_OUT_IN, n, (struct experts_part){0, a->shape[1], 1}, dx, wide, 1);
    return gradient_add_product(p, n, X, bwd_x(p, dy, n->in[W], layout, n, part, dx, wide, 1));
}

static double flops(const struct node *n)
{
    return 2.0 * (double)value_elements(n->in[X]) * n->number[COUNT];
}

/* Outputs of each expert: `out` of them, the second half, or every other one. */
static struct experts_part example_part(int64_t kind, int64_t out)
{
    return kind == 1   ? (struct experts_part){0, out, 1}
           : kind == 2 ? (struct experts_part){out, out, 1}
                       : (struct experts_part){1, out, 2};
}

static struct value *example_experts_w(struct program *p, const char *name, const int64_t *d, int64_t in)
{
    int64_t all = d[4] > 1 ? 2 * d[3] : d[3], E = d[2];
    return d[5] % 2 ? program_input(p, name, ROLE_WEIGHT, 3, E, all, in) : program_input(p, name, ROLE_WEIGHT, 3, E, in, all);
}

/* kind: see example_part; form: 1 and 2 are layouts, from 3 on with an adapter, from 5 on with a bias. */
static struct value *build_with(struct program *p, const int64_t *d, int64_t in, int64_t rank)
{
    int64_t all = d[4] > 1 ? 2 * d[3] : d[3], E = d[2];
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0] * d[1], in), *w = example_experts_w(p, "w", d, in);
    struct value *bias = d[5] > 4 ? program_input(p, "bias", ROLE_WEIGHT, 2, E, all) : NULL;
    struct value *a = d[5] > 2 ? program_input(p, "a", ROLE_WEIGHT, 2, E * rank, in) : NULL;
    struct value *b = d[5] > 2 ? program_input(p, "b", ROLE_WEIGHT, 2, all, rank * E) : NULL, *rows = example_sorted(p, d);
    return expert_linear(p, x, w, d[5] % 2 ? EXPERTS_OUT_IN : EXPERTS_IN_OUT, bias, a, b, rows, example_part(d[4], d[3]), 0.75);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return build_with(p, d, 33, 3);
}

static struct value *build_wide(struct program *p, const int64_t *d)
{
    return build_with(p, d, 192, 16);
}

static const struct op_example examples[] = {
    {.build = build,
     .fill = example_experts,
     .scale = 0.3f,
     .axes = {{"T", {1, 37}}, {"k", {2}}, {"E", {3, 7}}, {"out", {5, 70}}, {"kind", {1, 2, 3}}, {"form", {1, 4}}}},
    {.build = build_wide,
     .fill = example_experts,
     .scale = 0.3f,
     .forward_only = true,
     .axes = {{"T", {67}}, {"k", {4}}, {"E", {5, 64}}, {"out", {70, 136}}, {"kind", {1, 3}}, {"form", {2, 5, 6}}}},
    {0},
};

const struct op OP(expert_linear) = {
    .name = "expert_linear",
    .formula = "y = x · w[e]ᵀ + bias[e] + low · b[e]ᵀ, low = scale · x · a[e]ᵀ, e the expert of a row",
    .inputs = {"x", "w", "bias?", "a?", "b?", "tiles", "begin"},
    .outputs = {"y", "low"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .constants = 2,
    .flops = flops,
    .examples = examples,
};

/* --- dx ----------------------------------------------------------------------------------------------------------------- */

enum { BX_DY, BX_W, BX_DX, BX_TILES };
enum { BX_DX_AFTER };
enum { BX_ALPHA = 4, BX_WIDE }; /* numbers after those of the part */

static enum status shape_bwd_x(struct program *p, struct node *n)
{
    struct strides s = strides_of(n->in[BX_W], (enum experts_layout)n->number[LAYOUT]);
    TRY(node_expect(n, BX_DY, 2, SHAPE(-1, (int64_t)n->number[COUNT])));
    n->rows = n->in[BX_DY]->shape[0];
    if (n->in[BX_DX]) {
        TRY(node_expect(n, BX_DX, 2, SHAPE(n->rows, s.inputs)));
        node_alias(p, n, BX_DX_AFTER, BX_DX);
    } else {
        enum role role = n->number[BX_WIDE] != 0 ? ROLE_GRADIENT : ROLE_ACTIVATION;
        node_output(p, n, BX_DX_AFTER, p->types[role], 2, SHAPE(n->rows, s.inputs));
    }
    return program_status(p);
}

static enum status lower_bwd_x(struct lowering *l, const struct node *n)
{
    struct lower_with with = {.accumulate = n->in[BX_DX] != NULL, .scaled = true, .alpha = n->number[BX_ALPHA]};
    return lower_rows_product(l, n->in[BX_DY], n->in[BX_W], (enum experts_layout)n->number[LAYOUT], n->in[BX_TILES],
                              part_of(n->number), true, n->out[BX_DX_AFTER], with);
}

static struct value *build_bwd_x(struct program *p, const int64_t *d)
{
    struct value *dy = program_input(p, "dy", ROLE_ACTIVATION, 2, d[0] * d[1], d[3]), *w = example_experts_w(p, "w", d, 40);
    struct value *dx = d[5] > 2 ? program_input(p, "dx", ROLE_GRADIENT, 2, d[0] * d[1], 40L) : NULL, *rows = example_sorted(p, d);
    struct experts_part part = example_part(d[4], d[3]);
    double numbers[] = {(double)part.from,  (double)part.count,
                        (double)part.step,  d[5] % 2 ? EXPERTS_OUT_IN : EXPERTS_IN_OUT,
                        d[5] > 2 ? 1 : 0.5, 0};
    struct value *inputs[] = {dy, w, dx, rows ? rows->producer->out[SORTED_TILES] : NULL};
    return program_node(p, OP_expert_linear_bwd_x, 4, inputs, 6, numbers);
}

static const struct op_example examples_bwd_x[] = {
    {.build = build_bwd_x,
     .fill = example_experts,
     .axes = {{"T", {1, 67}}, {"k", {4}}, {"E", {7}}, {"out", {5, 70, 72}}, {"kind", {1, 3}}, {"form", {1, 4}}}},
    {0},
};

const struct op OP(expert_linear_bwd_x) = {
    .name = "expert_linear_bwd_x",
    .formula = "dx = alpha · dy · w[e], or dx += dy · w[e]",
    .inputs = {"dy", "w", "dx?", "tiles"},
    .outputs = {"dx"},
    .shape = shape_bwd_x,
    .lower = lower_bwd_x,
    .examples = examples_bwd_x,
};

/* --- dw ----------------------------------------------------------------------------------------------------------------- */

enum { BW_DY, BW_X, BW_DW, BW_BEGIN };
enum { BW_DW_AFTER };

/* Element (i, j) of the gradient, output by input, is dw[at + e · expert + i · down + j · across]. */
enum { G_OUT, G_IN, G_EXPERT, G_DOWN, G_ACROSS, G_AT };
enum { G_DY, G_X, G_BEGIN, G_DW, G_OPERANDS };

static ALWAYS_INLINE void weights_tiles(const struct call *c, int64_t begin, int64_t end, enum dtype ty, enum dtype tx)
{
    struct panels panels;
    const int64_t *d = c->dim;
    int64_t down = (d[G_OUT] + EXPERT_TILE - 1) / EXPERT_TILE, across = (d[G_IN] + COLUMNS - 1) / COLUMNS;
    real *dw = c->data[G_DW];
    for (int64_t g = begin; g < end; g++) {
        int64_t e = g / (down * across), i0 = g / across % down * EXPERT_TILE, j0 = g % across * COLUMNS;
        const int32_t *rows = (const int32_t *)c->data[G_BEGIN] + e;
        int64_t some = d[G_OUT] - i0 < EXPERT_TILE ? d[G_OUT] - i0 : EXPERT_TILE;
        int64_t columns = d[G_IN] - j0 < COLUMNS ? d[G_IN] - j0 : COLUMNS;
        if (rows[0] == rows[1])
            continue;
        struct matrix dy = {c->data[G_DY], rows[0] * d[G_OUT] + i0, 1, d[G_OUT]};
        struct matrix x = {c->data[G_X], rows[0] * d[G_IN] + j0, d[G_IN], 1};
        panels_product(&panels, &dy, &x, some, columns, rows[1] - rows[0], ty, tx);
        for (int64_t i = 0; i < some; i++)
            for (int64_t j = 0; j < columns; j++)
                dw[d[G_AT] + e * d[G_EXPERT] + (i0 + i) * d[G_DOWN] + (j0 + j) * d[G_ACROSS]] += panels.sum[i][j];
    }
}

KERNEL_BODY(weights_product)
{
    weights_tiles(c, begin, end, c->dtype[G_DY], c->dtype[G_X]);
}

static const struct kernel kernel_weights = {SIGNATURE_expert_linear_bwd_w, .host = weights_product, .group = 256, .rows = 1,
                                             .defines = DEFINES};
static const struct kernel kernel_weights_mma = EXPERTS_MMA(expert_linear_mma_bwd_w, &kernel_weights, "");

static enum status shape_bwd_w(struct program *p, struct node *n)
{
    struct strides s = strides_of(n->in[BW_DW], (enum experts_layout)n->number[LAYOUT]);
    TRY(node_expect(n, BW_DY, 2, SHAPE(-1, (int64_t)n->number[COUNT])));
    TRY(node_expect(n, BW_X, 2, SHAPE(n->in[BW_DY]->shape[0], s.inputs)));
    TRY(node_expect(n, BW_BEGIN, 1, SHAPE(s.experts + 1)));
    node_alias(p, n, BW_DW_AFTER, BW_DW);
    return program_status(p);
}

static enum status lower_bwd_w(struct lowering *l, const struct node *n)
{
    struct strides s = strides_of(n->in[BW_DW], (enum experts_layout)n->number[LAYOUT]);
    struct experts_part part = part_of(n->number);
    struct value *values[] = {[G_DY] = n->in[BW_DY], [G_X] = n->in[BW_X], [G_BEGIN] = n->in[BW_BEGIN], [G_DW] = n->in[BW_DW]};
    int64_t size[NUMBERS] = {[G_OUT] = part.count,  [G_IN] = s.inputs,
                             [G_EXPERT] = s.expert, [G_DOWN] = part.step * s.output,
                             [G_ACROSS] = s.input,  [G_AT] = part.from * s.output};
    bool mma = experts_mma_takes(l, n->in[BW_DY], n->in[BW_X]) && experts_mma_takes(l, n->in[BW_X], n->in[BW_DY]);
    int64_t grid = s.experts * (mma ? divide_up(part.count, MMA_DOWN) * divide_up(s.inputs, MMA_ACROSS)
                                    : divide_up(part.count, EXPERT_TILE) * divide_up(s.inputs, COLUMNS));
    return lower_launch(l, mma ? &kernel_weights_mma : &kernel_weights, G_OPERANDS, values, size, (double[NUMBERS]){0}, grid, 1);
}

static struct value *build_bwd_w(struct program *p, const int64_t *d)
{
    int64_t in = d[3] % EIGHT ? 70 : 72;
    struct value *dy = program_input(p, "dy", ROLE_ACTIVATION, 2, d[0] * d[1], d[3]);
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0] * d[1], in), *rows = example_sorted(p, d);
    int64_t all = d[4] > 1 ? 2 * d[3] : d[3], E = d[2];
    struct value *dw = d[5] == 3   ? program_input(p, "dw", ROLE_GRADIENT, 3, all, in, E)
                       : d[5] == 2 ? program_input(p, "dw", ROLE_GRADIENT, 3, E, in, all)
                                   : program_input(p, "dw", ROLE_GRADIENT, 3, E, all, in);
    struct experts_part part = example_part(d[4], d[3]);
    double numbers[] = {(double)part.from, (double)part.count, (double)part.step, (double)(d[5] - 1)};
    struct value *inputs[] = {dy, x, dw, rows ? rows->producer->out[SORTED_BEGIN] : NULL};
    return program_node(p, OP_expert_linear_bwd_w, 4, inputs, 4, numbers);
}

static const struct op_example examples_bwd_w[] = {
    {.build = build_bwd_w,
     .fill = example_experts,
     .axes = {{"T", {1, 67}}, {"k", {4}}, {"E", {7}}, {"out", {5, 40}}, {"kind", {2, 3}}, {"layout", {1, 2, 3}}}},
    {0},
};

const struct op OP(expert_linear_bwd_w) = {
    .name = "expert_linear_bwd_w",
    .formula = "dw[e] += dyᵀ · x over the rows of e",
    .inputs = {"dy", "x", "dw", "begin"},
    .outputs = {"dw"},
    .shape = shape_bwd_w,
    .lower = lower_bwd_w,
    .examples = examples_bwd_w,
};
