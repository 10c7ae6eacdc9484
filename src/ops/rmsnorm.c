/* rmsnorm: y = (offset + g) · x · r with r = 1 / sqrt(mean(x²) + eps), over rows of C channels; without g it is 0. Some models
 * store a norm's weights less 1: their offset is 1.
 *
 * Keeps r of each row for the backward pass. With x̂ = r·x and u = (offset + g)·dy:
 *     dx = r · (u − x̂ · mean(x̂·u)), plus what other ops gave x: the residual's gradient
 *     dg += Σ over rows of x̂·dy, in two stages of fixed order
 *
 * Where the stream was added to just before, one launch adds and normalises. Where what reads dx wants it rounded, one launch
 * writes both.
 */
#include "ops/op.h"

enum { X, G, INPUTS };
enum { Y, R };
enum { T, C };
enum { EPS, OFFSET }; /* numbers */

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype ty)
{
    const void *x = c->data[X], *g = c->data[G];
    void *y = c->data[INPUTS + Y];
    real *inverse = c->data[INPUTS + R], eps = (real)c->number[EPS], offset = (real)c->number[OFFSET];
    int64_t channels = c->dim[C];
    for (int64_t t = begin; t < end; t++) {
        int64_t row = t * channels;
        real r = 1 / real_sqrt(dot(x, row, x, row, channels, tx, tx) / (real)channels + eps);
        inverse[t] = r;
        INDEPENDENT
        for (int64_t i = 0; i < channels; i++)
            store(ty, y, row + i, (g ? offset + load(ty, g, i) : offset) * (load(tx, x, row + i) * r));
    }
}

KERNEL_BODY(rmsnorm_forward)
{
    SPECIALISE2(c->dtype[X], c->dtype[INPUTS + Y], body, c, begin, end);
}

enum { SUM_OF, SUM_D, SUM_G, SUM_X, SUM_Y, SUM_R, SUM_OPERANDS }; /* x = the sum of two */

static ALWAYS_INLINE void body_sum(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype td, enum dtype ty)
{
    struct call norm = *c;
    norm.data[X] = c->data[SUM_X];
    norm.data[G] = c->data[SUM_G];
    norm.data[INPUTS + Y] = c->data[SUM_Y];
    norm.data[INPUTS + R] = c->data[SUM_R];
    const void *before = c->data[SUM_OF], *d = c->data[SUM_D];
    void *x = c->data[SUM_X];
    int64_t channels = c->dim[C];
    for (int64_t t = begin; t < end; t++) {
        INDEPENDENT
        for (int64_t i = t * channels; i < (t + 1) * channels; i++)
            store(tx, x, i, load(tx, before, i) + load(td, d, i));
        body(&norm, t, t + 1, tx, ty);
    }
}

KERNEL_BODY(rmsnorm_forward_sum)
{
    SPECIALISE3(c->dtype[SUM_OF], c->dtype[SUM_D], c->dtype[SUM_Y], body_sum, c, begin, end);
}

enum { BLOCK = 8 };

static const struct kernel kernel = {SIGNATURE_rmsnorm, .host = rmsnorm_forward, .group = 256, .rows = 1};
static const struct kernel kernel_sum = {SIGNATURE_rmsnorm_sum, .host = rmsnorm_forward_sum, .group = 256, .rows = 1};

static enum status lower(struct lowering *l, const struct node *n)
{
    const struct node *sum = lower_take_back(l, n->in[X], l->program->ops[OP_add]);
    if (!sum)
        return lower_kernel(l, &kernel, n->rows, BLOCK);
    struct value *values[] = {[SUM_OF] = sum->in[0], [SUM_D] = sum->in[1], [SUM_G] = n->in[G],
                              [SUM_X] = n->in[X],    [SUM_Y] = n->out[Y],  [SUM_R] = n->out[R]};
    TRY(lower_launch(l, &kernel_sum, SUM_OPERANDS, values, n->size, n->number, n->rows, BLOCK));
    lower_in_place(l, n->in[X], sum->in[0]);
    return OK;
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->rows = n->size[T] = n->in[X]->shape[0];
    n->size[C] = n->in[X]->shape[1];
    if (n->in[G])
        TRY(node_expect(n, G, 1, SHAPE(n->size[C])));
    node_output(p, n, Y, n->in[G] ? n->in[G]->dtype : p->types[ROLE_ACTIVATION], 2, n->in[X]->shape); /* one type */
    node_output(p, n, R, p->types[ROLE_STATISTIC], 1, SHAPE(n->size[T]));
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *dy = gradient_as_is(n, Y);
    if (gradient_wanted(n, G))
        NODE(p, rmsnorm_bwd_g, n->in[X], n->out[R], dy, gradient_sum(p, n, G));
    if (!gradient_wanted(n, X))
        return program_status(p);
    struct value *sum = n->in[X]->dtype == p->types[ROLE_GRADIENT] ? gradient_so_far(p, n, X) : NULL;
    return gradient_put(p, n, X, sum, NODE_WITH(p, rmsnorm_bwd_x, n->number[OFFSET], n->in[X], n->in[G], n->out[R], dy, sum));
}

static double flops(const struct node *n)
{
    return 4.0 * (double)(n->size[T] * n->size[C]);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return rmsnorm(p, example_input(p, "x", ROLE_RESIDUAL, d[2] == 1, 2, d),
                   example_input(p, "g", ROLE_WEIGHT, d[2] == 2, 1, d + 1), 1e-5);
}

/* Weights stored less 1, and (parts = 1) none at all. */
static struct value *build_offset(struct program *p, const int64_t *d)
{
    struct value *g = d[2] > 1 ? program_input(p, "g", ROLE_WEIGHT, 1, d[1]) : NULL;
    return rmsnorm_offset(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), g, 1e-6, 1);
}

/* As in a decoder layer: the norm of the stream just after it was added to, and the stream itself. */
static struct value *build_added(struct program *p, const int64_t *d)
{
    struct value *x =
        add(p, example_input(p, "x", ROLE_RESIDUAL, d[2] == 1, 2, d), example_input(p, "d", ROLE_ACTIVATION, d[2] == 2, 2, d));
    return add(p, x, rmsnorm(p, x, example_input(p, "g", ROLE_WEIGHT, d[2] == 3, 1, d + 1), 1e-5));
}

#define ROWS_AND_CHANNELS                                                                                                        \
    {                                                                                                                            \
        {"T", {1, 2, 7, 33, 130}},                                                                                               \
        {                                                                                                                        \
            "C",                                                                                                                 \
            {                                                                                                                    \
                1, 3, 16, 31, 64, 96, 577, 1024                                                                                  \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build, .axes = {{"T", {1, 2, 7, 33, 130}}, {"C", {3, 16, 31, 64, 96, 577, 1024}}}},
    {.build = build, .axes = {{"T", {1, 130}}, {"C", {1}}}, .looser = 10}, /* dx is what is left where its terms cancel */
    {.build = build, .axes = {{"T", {5}}, {"C", {96}}}, .scale = 1e-6f},
    {.build = build_offset, .axes = {{"T", {7}}, {"C", {31, 96}}, {"parts", {1, 2}}}},
    {.build = build_added, .axes = {{"T", {1, 9, 33}}, {"C", {3, 64, 577}}}},
    {.build = build, .axes = {{"T", {9}}, {"C", {64}}, {"aside", {UPTO(2)}}}, .forward_only = true},
    {.build = build_added, .axes = {{"T", {9}}, {"C", {64}}, {"aside", {UPTO(3)}}}, .forward_only = true},
    {0},
};

const struct op OP(rmsnorm) = {
    .name = "rmsnorm",
    .formula = "y = (offset + g) · x · r, r = 1 / sqrt(mean(x²) + eps)",
    .inputs = {"x", "g?"},
    .outputs = {"y", "r"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .cheap = true,
    .flops = flops,
    .examples = examples,
};

/* --- dx ----------------------------------------------------------------------------------------------------------------- */

enum { BX_X, BX_G, BX_R, BX_DY, BX_SUM, BX_INPUTS };
enum { BX_DX, BX_ROUNDED };
enum { BX_OFFSET }; /* number */

static ALWAYS_INLINE void body_bwd_x(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype tg,
                                     enum dtype ty)
{
    const void *x = c->data[BX_X], *g = c->data[BX_G], *dy = c->data[BX_DY], *sum = c->data[BX_SUM];
    void *dx = c->data[BX_INPUTS + BX_DX], *rounded = c->data[BX_INPUTS + BX_ROUNDED];
    real offset = (real)c->number[BX_OFFSET];
    int64_t channels = c->dim[C], whole = channels / LANES * LANES;
    for (int64_t t = begin; t < end; t++) {
        int64_t row = t * channels;
        real r = ((const real *)c->data[BX_R])[t];
        vec parts = {0}, vx, vg = {0}, vy;
        for (int64_t i = 0; i < whole; i += LANES) {
            vec_load(&vx, tx, x, row + i);
            if (g)
                vec_load(&vg, tg, g, i);
            vec_load(&vy, ty, dy, row + i);
            parts += vx * (offset + vg) * vy;
        }
        real total = vec_sum(&parts);
        for (int64_t i = whole; i < channels; i++)
            total += load(tx, x, row + i) * (g ? offset + load(tg, g, i) : offset) * load(ty, dy, row + i);
        real mean = r * total / (real)channels;
        INDEPENDENT
        for (int64_t i = 0; i < channels; i++) {
            real weight = g ? offset + load(tg, g, i) : offset;
            real part = r * (weight * load(ty, dy, row + i) - load(tx, x, row + i) * r * mean);
            store(tx, dx, row + i, sum ? load(tx, sum, row + i) + part : part);
        }
        int64_t copied = rounded ? channels : 0;
        INDEPENDENT
        for (int64_t i = 0; i < copied; i++)
            store(DTYPE_BF16, rounded, row + i, load(tx, dx, row + i));
    }
}

KERNEL_BODY(rmsnorm_backward_x)
{
    SPECIALISE3(c->dtype[BX_X], c->dtype[BX_G], c->dtype[BX_DY], body_bwd_x, c, begin, end);
}

static enum status shape_bwd_x(struct program *p, struct node *n)
{
    n->rows = n->size[T] = n->in[BX_X]->shape[0];
    n->size[C] = n->in[BX_X]->shape[1];
    TRY(node_expect(n, BX_DY, 2, n->in[BX_X]->shape));
    if (n->in[BX_SUM])
        TRY(node_expect(n, BX_SUM, 2, n->in[BX_X]->shape));
    if (n->in[BX_SUM] && n->in[BX_SUM]->dtype != n->in[BX_X]->dtype)
        return fail(ERR_INTERNAL, "rmsnorm_bwd_x: sum and x differ in type");
    node_output(p, n, BX_DX, n->in[BX_X]->dtype, 2, n->in[BX_X]->shape);
    return program_status(p);
}

static struct value *build_bwd_x(struct program *p, const int64_t *d)
{
    return NODE(p, rmsnorm_bwd_x, program_input(p, "x", ROLE_RESIDUAL, 2, d[0], d[1]),
                program_input(p, "g", ROLE_WEIGHT, 1, d[1]), program_input(p, "r", ROLE_STATISTIC, 1, d[0]),
                program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[1]), NULL);
}

/* As in a decoder layer: dy is a sum of products, and the residual's gradient is added. */
static struct value *build_sum(struct program *p, const int64_t *d)
{
    return NODE(p, rmsnorm_bwd_x, example_input(p, "x", ROLE_RESIDUAL, d[2] == 1, 2, d),
                example_input(p, "g", ROLE_WEIGHT, d[2] == 2, 1, d + 1), program_input(p, "r", ROLE_STATISTIC, 1, d[0]),
                example_input(p, "dy", ROLE_GRADIENT, d[2] == 3, 2, d), example_input(p, "sum", ROLE_RESIDUAL, d[2] == 4, 2, d));
}

/* The layer before reads it in its own type. */
static struct value *build_rounded(struct program *p, const int64_t *d)
{
    struct value *dx = build_sum(p, d);
    return program_rounded(p, dx, program_input(p, "like", ROLE_ACTIVATION, 1, d[1]));
}

static struct value *build_bwd_offset(struct program *p, const int64_t *d)
{
    return NODE_WITH(p, rmsnorm_bwd_x, 1, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                     d[2] > 1 ? program_input(p, "g", ROLE_WEIGHT, 1, d[1]) : NULL,
                     program_input(p, "r", ROLE_STATISTIC, 1, d[0]), program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[1]),
                     NULL);
}

static const struct op_example examples_bwd_x[] = {
    {.build = build_bwd_x, .axes = ROWS_AND_CHANNELS},
    {.build = build_sum, .axes = ROWS_AND_CHANNELS},
    {.build = build_rounded, .axes = {{"T", {1, 9, 33}}, {"C", {3, 64, 577}}}},
    {.build = build_bwd_offset, .axes = {{"T", {7}}, {"C", {31, 96}}, {"parts", {1, 2}}}},
    {.build = build_sum, .axes = {{"T", {9}}, {"C", {64}}, {"aside", {UPTO(4)}}}},
    {0},
};

const struct op OP(rmsnorm_bwd_x) = {
    .name = "rmsnorm_bwd_x",
    .formula = "dx = r · (u − x̂ · mean(x̂·u)) + sum, x̂ = r·x, u = (offset + g)·dy",
    .inputs = {"x", "g?", "r", "dy", "sum?"},
    .outputs = {"dx", "rounded?"},
    .shape = shape_bwd_x,
    .kernel = {SIGNATURE_rmsnorm_bwd_x, .host = rmsnorm_backward_x, .group = 256, .rows = 1},
    .block = 8,
    .in_place = 1 + BX_SUM,
    .rounds = BX_ROUNDED,
    .examples = examples_bwd_x,
};

/* --- dg: groups of rows side by side, then the groups in order -------------------------------------------------------------- */

enum { BG_X, BG_R, BG_DY, BG_DG };
enum { BG_DG_AFTER };
enum { PART_X, PART_R, PART_DY, PART_PART, PART_OPERANDS };
enum { GROUPS_PART, GROUPS_DG, GROUPS_OPERANDS };
enum { CHANNEL_BLOCK = 64 };
#define GROUP_ROWS 64

/* x̂·dy of one group of rows. */
static ALWAYS_INLINE void body_bwd_g(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype ty)
{
    const void *x = c->data[PART_X], *dy = c->data[PART_DY];
    int64_t channels = c->dim[C], rows = c->dim[T];
    for (int64_t group = begin; group < end; group++) {
        real *part = (real *)c->data[PART_PART] + group * channels;
        memset(part, 0, (size_t)channels * sizeof *part);
        for (int64_t t = group * GROUP_ROWS; t < rows && t < (group + 1) * GROUP_ROWS; t++) {
            real r = ((const real *)c->data[PART_R])[t];
            INDEPENDENT
            for (int64_t i = 0; i < channels; i++)
                part[i] += load(tx, x, t * channels + i) * r * load(ty, dy, t * channels + i);
        }
    }
}

KERNEL_BODY(rmsnorm_backward_g)
{
    SPECIALISE2(c->dtype[PART_X], c->dtype[PART_DY], body_bwd_g, c, begin, end);
}

KERNEL_BODY(rmsnorm_sum_groups)
{
    int64_t channels = c->dim[C], groups = divide_up(c->dim[T], GROUP_ROWS);
    const real *part = c->data[GROUPS_PART];
    real *sum = c->data[GROUPS_DG];
    for (int64_t i = begin; i < end; i++) {
        real total = 0;
        for (int64_t group = 0; group < groups; group++)
            total += part[group * channels + i];
        sum[i] += total;
    }
}

static const struct kernel kernel_part = {SIGNATURE_rmsnorm_bwd_g, .host = rmsnorm_backward_g, .group = 256, .rows = 1,
                                          .defines = DEFINE(GROUP_ROWS)};
static const struct kernel kernel_groups = {SIGNATURE_rmsnorm_bwd_g_sum, .host = rmsnorm_sum_groups, .group = 64, .rows = 64,
                                            .defines = DEFINE(GROUP_ROWS)};

static enum status shape_bwd_g(struct program *p, struct node *n)
{
    n->size[T] = n->in[BG_X]->shape[0];
    n->size[C] = n->in[BG_X]->shape[1];
    TRY(node_expect(n, BG_DY, 2, n->in[BG_X]->shape));
    TRY(node_expect(n, BG_DG, 1, SHAPE(n->size[C])));
    node_alias(p, n, BG_DG_AFTER, BG_DG);
    return program_status(p);
}

static enum status lower_bwd_g(struct lowering *l, const struct node *n)
{
    int64_t groups = divide_up(n->size[T], GROUP_ROWS);
    struct value *part = program_scratch(l->program, l->program->types[ROLE_STATISTIC], 2, SHAPE(groups, n->size[C]));
    TRY(program_status(l->program));
    struct value *values[] = {[PART_X] = n->in[BG_X], [PART_R] = n->in[BG_R], [PART_DY] = n->in[BG_DY], [PART_PART] = part};
    struct value *sums[] = {[GROUPS_PART] = part, [GROUPS_DG] = n->in[BG_DG]};
    TRY(lower_launch(l, &kernel_part, PART_OPERANDS, values, n->size, n->number, groups, 1));
    return lower_launch(l, &kernel_groups, GROUPS_OPERANDS, sums, n->size, n->number, n->size[C], CHANNEL_BLOCK);
}

static struct value *build_bwd_g(struct program *p, const int64_t *d)
{
    return NODE(p, rmsnorm_bwd_g, program_input(p, "x", ROLE_RESIDUAL, 2, d[0], d[1]),
                program_input(p, "r", ROLE_STATISTIC, 1, d[0]), program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[1]),
                program_input(p, "dg", ROLE_GRADIENT, 1, d[1]));
}

static const struct op_example examples_bwd_g[] = {{.build = build_bwd_g, .axes = ROWS_AND_CHANNELS}, {0}};

const struct op OP(rmsnorm_bwd_g) = {
    .name = "rmsnorm_bwd_g",
    .formula = "dg += Σ over rows of x̂·dy",
    .inputs = {"x", "r", "dy", "dg"},
    .outputs = {"dg"},
    .shape = shape_bwd_g,
    .lower = lower_bwd_g,
    .examples = examples_bwd_g,
};
