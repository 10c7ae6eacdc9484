/* linear: y = x · wᵀ, x (T, in), w (out, in). The device's engine computes every product, or the kernels of the type that w is
 * stored in (ops/weight.h).
 *
 * Backward: dx = dy · w and dw += dyᵀ · x, the latter only if w is trained: frozen weights cost one product, not two.
 *
 * linear_add: y += x · wᵀ, in the memory of an activation that another op made.
 */
#include "ops/op.h"

enum { X, W };
enum { Y };
enum { T, IN, OUT };
enum { WIDE }; /* number: results in the statistics' type */

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->size[T] = n->in[X]->shape[0];
    n->size[IN] = n->in[X]->shape[1];
    TRY(node_expect(n, W, 2, SHAPE(-1, n->size[IN])));
    n->size[OUT] = n->in[W]->shape[0];
    node_output(p, n, Y, p->types[n->number[WIDE] != 0 ? ROLE_STATISTIC : ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[OUT]));
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    return lower_product(l, n->in[X], n->in[W], false, n->out[Y]);
}

/* The gradients of a product of the inputs x and w, from its result's gradient dy. */
static enum status add_gradients(struct program *p, const struct node *n, int x, int w, struct value *dy)
{
    if (dy && dy->dtype != n->in[x]->dtype) /* wide results in a 16-bit run */
        dy = NODE(p, cast, dy, n->in[x]);
    if (gradient_wanted(n, w))
        NODE(p, linear_bwd_w, dy, n->in[x], gradient_sum(p, n, w));
    if (gradient_wanted(n, x))
        TRY(gradient_add(p, n, x, NODE(p, linear_bwd_x, dy, n->in[w])));
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return add_gradients(p, n, X, W, gradient_of(n, Y));
}

static double flops(const struct node *n)
{
    return 2.0 * (double)n->size[T] * (double)n->size[IN] * (double)n->size[OUT];
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 2, 5, 16, 67}}, {"in", {1, 3, 16, 33, 96}},                                                                    \
        {                                                                                                                        \
            "out",                                                                                                               \
            {                                                                                                                    \
                1, 7, 64, 129                                                                                                    \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static struct value *build(struct program *p, const int64_t *d)
{
    return linear(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]));
}

static struct value *build_wide(struct program *p, const int64_t *d)
{
    return linear_wide(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                       program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]));
}

static struct value *build_stored(struct program *p, const int64_t *d)
{
    return linear(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), example_weight(p, d[3], d[2], d[1]));
}

#define STORED .fill = example_fill_weight, .adjust = example_adjust_weight
#define STORED_SIZES                                                                                                             \
    {                                                                                                                            \
        {"T", {1, 16, 67}}, {"in", {64, 192, 320}}, {"out", {5, 64, 129}},                                                       \
        {                                                                                                                        \
            "type",                                                                                                              \
            {                                                                                                                    \
                UPTO(WEIGHT_COUNT)                                                                                               \
            }                                                                                                                    \
        }                                                                                                                        \
    }
#define STORED_LARGE                                                                                                             \
    {                                                                                                                            \
        {"T", {3, 20}}, {"in", {2560}}, {"out", {4096}},                                                                         \
        {                                                                                                                        \
            "type",                                                                                                              \
            {                                                                                                                    \
                UPTO(WEIGHT_COUNT)                                                                                               \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build, .axes = SIZES},
    {.build = build_stored, STORED, .axes = STORED_SIZES},
    {.build = build_stored, STORED, .forward_only = true, .axes = STORED_LARGE},
    {.build = build_wide, .axes = {{"T", {1, 4}}, {"in", {33, 64}}, {"out", {515}}}},
    {.build = build, .forward_only = true, .axes = {{"T", {256}}, {"in", {576}}, {"out", {576, 1536}}}},
    {0},
};

const struct op OP(linear) = {
    .name = "linear",
    .formula = "y = x · wᵀ",
    .inputs = {"x", "w"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .flops = flops,
    .examples = examples,
};

/* --- linear_add --------------------------------------------------------------------------------------------------------- */

enum { ADD_Y, ADD_X, ADD_W };

static enum status shape_add(struct program *p, struct node *n)
{
    TRY(node_expect(n, ADD_X, 2, SHAPE(-1, -1)));
    n->size[T] = n->in[ADD_X]->shape[0];
    n->size[IN] = n->in[ADD_X]->shape[1];
    TRY(node_expect(n, ADD_W, 2, SHAPE(-1, n->size[IN])));
    n->size[OUT] = n->in[ADD_W]->shape[0];
    TRY(node_expect(n, ADD_Y, 2, SHAPE(n->size[T], n->size[OUT])));
    node_alias(p, n, Y, ADD_Y);
    return program_status(p);
}

static enum status lower_add(struct lowering *l, const struct node *n)
{
    return lower_gemm(l, n->in[ADD_X], false, n->in[ADD_W], true, n->out[Y], (struct lower_with){.accumulate = true});
}

/* The old and the new y share one gradient: nothing is added for y. */
static enum status gradient_of_add(struct program *p, const struct node *n)
{
    return add_gradients(p, n, ADD_X, ADD_W, program_view_as(p, gradient_of(n, Y), 2, n->out[Y]->shape));
}

static struct value *build_add(struct program *p, const int64_t *d)
{
    return linear_add(p, program_input(p, "y", ROLE_ACTIVATION, 2, d[0], d[2]),
                      program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]));
}

/* As in a low-rank adapter: x · wᵀ + (x · aᵀ) · bᵀ. */
static struct value *build_adapter(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]);
    struct value *y = linear(p, x, program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]));
    struct value *low = linear(p, x, program_input(p, "a", ROLE_WEIGHT, 2, d[3], d[1]));
    return linear_add(p, y, low, program_input(p, "b", ROLE_WEIGHT, 2, d[2], d[3]));
}

static const struct op_example examples_add[] = {
    {.build = build_add, .axes = SIZES},
    {.build = build_adapter, .axes = {{"T", {1, 33}}, {"in", {16, 96}}, {"out", {64}}, {"rank", {4, 16}}}, .scale = 0.5f},
    {.build = build_add, .forward_only = true, .axes = {{"T", {256}}, {"in", {16}}, {"out", {576, 1536}}}},
    {0},
};

const struct op OP(linear_add) = {
    .name = "linear_add",
    .formula = "y += x · wᵀ",
    .inputs = {"y", "x", "w"},
    .outputs = {"y"},
    .shape = shape_add,
    .gradient = gradient_of_add,
    .lower = lower_add,
    .flops = flops,
    .examples = examples_add,
};

/* --- dx ----------------------------------------------------------------------------------------------------------------- */

enum { BX_DY, BX_W };
enum { BX_DX };

static enum status shape_bwd_x(struct program *p, struct node *n)
{
    TRY(node_expect(n, BX_DY, 2, SHAPE(-1, n->in[BX_W]->shape[0])));
    n->size[T] = n->in[BX_DY]->shape[0];
    n->size[IN] = n->in[BX_W]->shape[1];
    n->size[OUT] = n->in[BX_W]->shape[0];
    node_output(p, n, BX_DX, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[IN]));
    return program_status(p);
}

static enum status lower_bwd_x(struct lowering *l, const struct node *n)
{
    return lower_product(l, n->in[BX_DY], n->in[BX_W], true, n->out[BX_DX]);
}

static struct value *build_bwd_x(struct program *p, const int64_t *d)
{
    return NODE(p, linear_bwd_x, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[2]),
                program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]));
}

static struct value *build_stored_bwd_x(struct program *p, const int64_t *d)
{
    return NODE(p, linear_bwd_x, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[2]), example_weight(p, d[3], d[2], d[1]));
}

static const struct op_example examples_bwd_x[] = {
    {.build = build_bwd_x, .axes = SIZES},
    {.build = build_stored_bwd_x, STORED, .axes = STORED_SIZES},
    {.build = build_stored_bwd_x, STORED, .axes = STORED_LARGE},
    {0},
};

const struct op OP(linear_bwd_x) = {
    .name = "linear_bwd_x",
    .formula = "dx = dy · w",
    .inputs = {"dy", "w"},
    .outputs = {"dx"},
    .shape = shape_bwd_x,
    .lower = lower_bwd_x,
    .flops = flops,
    .examples = examples_bwd_x,
};

/* --- dw ----------------------------------------------------------------------------------------------------------------- */

enum { BW_DY, BW_X, BW_DW };
enum { BW_DW_AFTER };

static enum status shape_bwd_w(struct program *p, struct node *n)
{
    n->size[T] = n->in[BW_DY]->shape[0];
    n->size[IN] = n->in[BW_X]->shape[1];
    n->size[OUT] = n->in[BW_DY]->shape[1];
    TRY(node_expect(n, BW_X, 2, SHAPE(n->size[T], -1)));
    TRY(node_expect(n, BW_DW, 2, SHAPE(n->size[OUT], n->size[IN])));
    node_alias(p, n, BW_DW_AFTER, BW_DW);
    return program_status(p);
}

static enum status lower_bwd_w(struct lowering *l, const struct node *n)
{
    return lower_gemm(l, n->in[BW_DY], true, n->in[BW_X], false, n->out[BW_DW_AFTER], (struct lower_with){.accumulate = true});
}

static struct value *build_bwd_w(struct program *p, const int64_t *d)
{
    return NODE(p, linear_bwd_w, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[2]),
                program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "dw", ROLE_GRADIENT, 2, d[2], d[1]));
}

static const struct op_example examples_bwd_w[] = {{.build = build_bwd_w, .axes = SIZES}, {0}};

const struct op OP(linear_bwd_w) = {
    .name = "linear_bwd_w",
    .formula = "dw += dyᵀ · x",
    .inputs = {"dy", "x", "dw"},
    .outputs = {"dw"},
    .shape = shape_bwd_w,
    .lower = lower_bwd_w,
    .flops = flops,
    .examples = examples_bwd_w,
};
