/* linear: y = x · wᵀ + bias, x (T, in), w (out, in), bias (out). The device's engine computes every product, or the kernels of
 * the type that w is stored in (ops/weights/weight.h); product and bias are summed in float32 and rounded once.
 *
 * Backward: dx = dy · w and dw += dyᵀ · x, the latter only if w is trained: frozen weights cost one product, not two. Several
 * products add to one dx, and are rounded once by what reads it (ops/linear.h).
 */
#include "ops/linear.h"

enum { X, W, BIAS };
enum { Y };
enum { T = LINEAR_T, IN = LINEAR_IN, OUT = LINEAR_OUT };
enum { WIDE }; /* number: results in the statistics' type */

static enum status shape(struct program *p, struct node *n)
{
    TRY(linear_shape(n, X, W, BIAS));
    node_output(p, n, Y, p->types[n->number[WIDE] != 0 ? ROLE_STATISTIC : ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[OUT]));
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    return lower_product(l, n->in[X], n->in[W], false, n->out[Y], (struct lower_with){.bias = n->in[BIAS]});
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *dy = gradient_of(p, n, Y);
    if (dy && dy->dtype != n->in[X]->dtype) /* wide results in a 16-bit run */
        dy = NODE(p, cast, dy, n->in[X]);
    TRY(linear_gradient_w(p, n, X, W, dy));
    TRY(linear_gradient_bias(p, n, BIAS, dy));
    return linear_gradient_x(p, n, X, W, dy);
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

static struct value *build_bias(struct program *p, const int64_t *d)
{
    return linear_bias(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                       program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]), program_input(p, "bias", ROLE_WEIGHT, 1, d[2]));
}

static struct value *build_wide(struct program *p, const int64_t *d)
{
    return linear_wide(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                       program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]));
}

static struct value *build_wide_bias(struct program *p, const int64_t *d)
{
    return linear_wide_bias(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                            program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]), program_input(p, "bias", ROLE_WEIGHT, 1, d[2]));
}

static struct value *build_stored(struct program *p, const int64_t *d)
{
    return linear(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), example_weight(p, d[3], d[2], d[1]));
}

static struct value *build_stored_bias(struct program *p, const int64_t *d)
{
    return linear_bias(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), example_weight(p, d[3], d[2], d[1]),
                       program_input(p, "bias", ROLE_WEIGHT, 1, d[2]));
}

#define STORED .fill = example_fill_weight, .adjust = example_adjust_weight
#define STORED_SIZES                                                                                                             \
    {                                                                                                                            \
        {"T", {1, 16, 33, 67}}, {"in", {64, 192, 320}}, {"out", {5, 64, 129}},                                                   \
        {                                                                                                                        \
            "type",                                                                                                              \
            {                                                                                                                    \
                UPTO(WEIGHT_SAMPLES)                                                                                             \
            }                                                                                                                    \
        }                                                                                                                        \
    }
/* Types whose blocks run over the ends of rows: those of NF4 and FP8. */
#define STORED_OVER_ROWS                                                                                                         \
    {                                                                                                                            \
        {"T", {1, 33, 67}}, {"in", {80, 83}}, {"out", {5, 129}},                                                                 \
        {                                                                                                                        \
            "type",                                                                                                              \
            {                                                                                                                    \
                1 + WEIGHT_nf4, 1 + WEIGHT_nf4_single, 1 + WEIGHT_fp8, 1 + WEIGHT_fp8_block                                      \
            }                                                                                                                    \
        }                                                                                                                        \
    }
#define STORED_LARGE                                                                                                             \
    {                                                                                                                            \
        {"T", {3, 20}}, {"in", {2560}}, {"out", {4096}},                                                                         \
        {                                                                                                                        \
            "type",                                                                                                              \
            {                                                                                                                    \
                UPTO(WEIGHT_SAMPLES)                                                                                             \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build, .axes = SIZES},
    {.build = build_bias, .axes = SIZES},
    {.build = build_stored, STORED, .axes = STORED_SIZES},
    {.build = build_stored, STORED, .axes = STORED_OVER_ROWS},
    {.build = build_stored_bias,
     STORED,
     .axes = {{"T", {16, 67}}, {"in", {192}}, {"out", {129}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {.build = build_stored, STORED, .forward_only = true, .axes = STORED_LARGE},
    {.build = build_wide, .axes = {{"T", {1, 4}}, {"in", {33, 64}}, {"out", {515}}}},
    {.build = build_wide_bias, .axes = {{"T", {4}}, {"in", {33}}, {"out", {32}}}},
    {.build = build, .forward_only = true, .axes = {{"T", {256}}, {"in", {576}}, {"out", {576, 1536}}}},
    {0},
};

const struct op OP(linear) = {
    .name = "linear",
    .formula = "y = x · wᵀ + bias",
    .inputs = {"x", "w", "bias?"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .flops = flops,
    .examples = examples,
};

/* --- dx ----------------------------------------------------------------------------------------------------------------- */

enum { BX_DY, BX_W, BX_DX };
enum { BX_DX_AFTER };
enum { BX_WIDE, BX_SCALED, BX_ALPHA, BX_AT }; /* numbers; of a new dx: in the gradients' type; by alpha; alpha. Columns of dy */

static enum status shape_bwd_x(struct program *p, struct node *n)
{
    TRY(node_expect(n, BX_DY, 2, SHAPE(-1, -1)));
    if ((int64_t)n->number[BX_AT] + n->in[BX_W]->shape[0] > n->in[BX_DY]->shape[1])
        return fail(ERR_INTERNAL, "linear_bwd_x: dy has fewer columns than w has rows");
    n->size[T] = n->in[BX_DY]->shape[0];
    n->size[IN] = n->in[BX_W]->shape[1];
    n->size[OUT] = n->in[BX_W]->shape[0];
    enum role role = n->number[BX_WIDE] != 0 ? ROLE_GRADIENT : ROLE_ACTIVATION;
    if (n->in[BX_DX]) {
        TRY(node_expect(n, BX_DX, 2, SHAPE(n->size[T], n->size[IN])));
        node_alias(p, n, BX_DX_AFTER, BX_DX);
    } else {
        node_output(p, n, BX_DX_AFTER, p->types[role], 2, SHAPE(n->size[T], n->size[IN]));
    }
    return program_status(p);
}

static enum status lower_bwd_x(struct lowering *l, const struct node *n)
{
    struct lower_with with = {
        .accumulate = n->in[BX_DX] != NULL, .scaled = n->number[BX_SCALED] != 0, .alpha = n->number[BX_ALPHA]};
    struct value *dy = program_columns(l->program, n->in[BX_DY], (int64_t)n->number[BX_AT], n->size[OUT]);
    return dy ? lower_product(l, dy, n->in[BX_W], true, n->out[BX_DX_AFTER], with) : program_status(l->program);
}

static struct value *build_bwd_x(struct program *p, const int64_t *d)
{
    return linear_bwd_x(p, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[2]),
                        program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]), NULL, false, 0.75);
}

static struct value *build_add(struct program *p, const int64_t *d)
{
    return linear_bwd_x(p, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[2]),
                        program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]),
                        program_input(p, "dx", d[3] > 1 ? ROLE_GRADIENT : ROLE_ACTIVATION, 2, d[0], d[1]), false, 1);
}

static struct value *build_part(struct program *p, const int64_t *d)
{
    struct value *w = d[3] > 1 ? example_weight(p, d[3] - 1, d[2], d[1]) : program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]);
    return linear_bwd_x_at(p, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], 2 * d[2] + 3), d[2], w,
                           program_input(p, "dx", ROLE_GRADIENT, 2, d[0], d[1]), false, 1);
}

static struct value *build_stored_bwd_x(struct program *p, const int64_t *d)
{
    return linear_bwd_x(p, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[2]), example_weight(p, d[3], d[2], d[1]), NULL,
                        d[0] % 2, 1);
}

static struct value *build_stored_add(struct program *p, const int64_t *d)
{
    return linear_bwd_x(p, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[2]), example_weight(p, d[3], d[2], d[1]),
                        program_input(p, "dx", d[4] > 1 ? ROLE_GRADIENT : ROLE_ACTIVATION, 2, d[0], d[1]), false, 1);
}

static const struct op_example examples_bwd_x[] = {
    {.build = build_bwd_x, .axes = SIZES},
    {.build = build_add, .axes = {{"T", {1, 5, 67}}, {"in", {3, 96}}, {"out", {7, 129}}, {"wide", {1, 2}}}},
    {.build = build_part, STORED, .axes = {{"T", {1, 16, 67}}, {"in", {192}}, {"out", {5, 64}}, {"stored", {1, 2, 3}}}},
    {.build = build_stored_bwd_x, STORED, .axes = STORED_SIZES},
    {.build = build_stored_bwd_x, STORED, .axes = STORED_OVER_ROWS},
    {.build = build_stored_bwd_x, STORED, .axes = STORED_LARGE},
    {.build = build_stored_add,
     STORED,
     .axes = {{"T", {3, 67}}, {"in", {192}}, {"out", {5, 129}}, {"type", {UPTO(WEIGHT_SAMPLES)}}, {"wide", {1, 2}}}},
    {.build = build_stored_add,
     STORED,
     .axes = {{"T", {3}}, {"in", {2560}}, {"out", {4096}}, {"type", {UPTO(WEIGHT_SAMPLES)}}, {"wide", {1}}}},
    {0},
};

const struct op OP(linear_bwd_x) = {
    .name = "linear_bwd_x",
    .formula = "dx = alpha · dy · w, or dx += dy · w",
    .inputs = {"dy", "w", "dx?"},
    .outputs = {"dx"},
    .shape = shape_bwd_x,
    .lower = lower_bwd_x,
    .flops = flops,
    .examples = examples_bwd_x,
};

/* --- dw ----------------------------------------------------------------------------------------------------------------- */

enum { BW_DY, BW_X, BW_DW };
enum { BW_DW_AFTER };
enum { BW_DY_AT, BW_X_AT }; /* numbers: the first columns of dy and x that count */

static enum status shape_bwd_w(struct program *p, struct node *n)
{
    n->size[T] = n->in[BW_DY]->shape[0];
    TRY(node_expect(n, BW_X, 2, SHAPE(n->size[T], -1)));
    TRY(node_expect(n, BW_DW, 2, SHAPE(-1, -1)));
    n->size[OUT] = n->in[BW_DW]->shape[0];
    n->size[IN] = n->in[BW_DW]->shape[1];
    if ((int64_t)n->number[BW_DY_AT] + n->size[OUT] > n->in[BW_DY]->shape[1] ||
        (int64_t)n->number[BW_X_AT] + n->size[IN] > n->in[BW_X]->shape[1])
        return fail(ERR_INTERNAL, "linear_bwd_w: dy or x has fewer columns than dw needs");
    node_alias(p, n, BW_DW_AFTER, BW_DW);
    return program_status(p);
}

static enum status lower_bwd_w(struct lowering *l, const struct node *n)
{
    struct value *dy = program_columns(l->program, n->in[BW_DY], (int64_t)n->number[BW_DY_AT], n->size[OUT]);
    struct value *x = program_columns(l->program, n->in[BW_X], (int64_t)n->number[BW_X_AT], n->size[IN]);
    TRY(program_status(l->program));
    return lower_gemm(l, dy, true, x, false, n->out[BW_DW_AFTER], (struct lower_with){.accumulate = true});
}

static struct value *build_bwd_w(struct program *p, const int64_t *d)
{
    return NODE(p, linear_bwd_w, program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[2]),
                program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "dw", ROLE_GRADIENT, 2, d[2], d[1]));
}

/* Some columns of wider ones. */
static struct value *build_bwd_w_part(struct program *p, const int64_t *d)
{
    struct value *in[] = {program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], 2 * d[2] + 3),
                          program_input(p, "x", ROLE_ACTIVATION, 2, d[0], 3 * d[1]),
                          program_input(p, "dw", ROLE_GRADIENT, 2, d[2], d[1])};
    return program_node(p, OP_linear_bwd_w, 3, in, 2, (double[]){(double)d[2], (double)d[1]});
}

static const struct op_example examples_bwd_w[] = {
    {.build = build_bwd_w, .axes = SIZES},
    {.build = build_bwd_w_part, .axes = {{"T", {1, 16, 67}}, {"in", {3, 16, 96}}, {"out", {7, 64}}}},
    {0},
};

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
