/* Rows of tokens to rows of slots sorted by expert, and back. Slot s = t · k + j is the j-th choice of token t and lies at
 * place[s]; rows[p] is the slot at place p (ops/experts/expert_slots.h). Sums are float32 and rounded once.
 *
 *     spread_rows      y[p] = w[rows[p]] · x[rows[p] / k]              without w: a copy
 *     combine_rows     y[t] = Σ over j of w[t, j] · x[place[t·k + j]]   without w: a plain sum
 *     combine_bwd_w    dw[s] = x[place[s]] · dy[s / k]
 *
 * The first two are each other's backward pass.
 */
#include "ops/experts/expert_slots.h"

enum { X, W, ROWS, PLACE, INPUTS };
enum { Y };
enum { N, C, K };
enum { NUMBER_K, WIDE }; /* numbers; WIDE: results in the gradients' type */

static enum status expect_slots(struct node *n, int64_t slots)
{
    TRY(node_expect(n, ROWS, 1, SHAPE(slots)));
    TRY(node_expect(n, PLACE, 1, SHAPE(slots)));
    n->size[N] = slots;
    n->size[K] = (int64_t)n->number[NUMBER_K];
    n->size[C] = n->in[X]->shape[1];
    return n->in[W] ? node_expect(n, W, 2, SHAPE(slots / n->size[K], n->size[K])) : OK;
}

static ALWAYS_INLINE void body_spread(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype ty)
{
    const int32_t *rows = c->data[ROWS];
    const real *w = c->data[W];
    int64_t channels = c->dim[C];
    for (int64_t p = begin; p < end; p++) {
        int64_t from = rows[p] / c->dim[K] * channels;
        real factor = w ? w[rows[p]] : 1;
        INDEPENDENT
        for (int64_t i = 0; i < channels; i++)
            store(ty, c->data[INPUTS + Y], p * channels + i, factor * load(tx, c->data[X], from + i));
    }
}

KERNEL_BODY(spread)
{
    SPECIALISE2(c->dtype[X], c->dtype[INPUTS + Y], body_spread, c, begin, end);
}

static enum status shape_spread(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    TRY(expect_slots(n, n->in[X]->shape[0] * (int64_t)n->number[NUMBER_K]));
    n->rows = n->size[N];
    node_output(p, n, Y, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[N], n->size[C]));
    return program_status(p);
}

static enum status gradient_spread(struct program *p, const struct node *n)
{
    bool wide = gradient_type(p, n, X) != p->types[ROLE_ACTIVATION];
    struct value *inputs[] = {gradient_as_is(n, Y), n->in[W], n->in[ROWS], n->in[PLACE]};
    return gradient_add(p, n, X, program_node(p, OP_combine_rows, 4, inputs, 2, (double[]){n->number[NUMBER_K], wide}));
}

/* parts: 1 has no weights, 2 has them. */
static struct value *build_spread(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[3]);
    struct value *w = d[4] > 1 ? program_input(p, "factors", ROLE_STATISTIC, 2, d[0], d[1]) : NULL, *rows = example_sorted(p, d);
    return spread_rows(p, x, w, rows, d[1]);
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 40}}, {"k", {1, 4}}, {"E", {9}}, {"C", {1, 33}},                                                               \
        {                                                                                                                        \
            "parts",                                                                                                             \
            {                                                                                                                    \
                1, 2                                                                                                             \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples_spread[] = {
    {.build = build_spread,
     .fill = example_experts,
     .axes = {{"T", {1, 40}}, {"k", {4}}, {"E", {9}}, {"C", {33}}, {"parts", {1}}}},
    {.build = build_spread, .fill = example_experts, .forward_only = true, .axes = SIZES},
    {0},
};

const struct op OP(spread_rows) = {
    .name = "spread_rows",
    .formula = "y[p] = w[rows[p]] · x[rows[p] / k]",
    .inputs = {"x", "w?", "rows", "place"},
    .outputs = {"y"},
    .shape = shape_spread,
    .gradient = gradient_spread,
    .kernel = {SIGNATURE_spread_rows, .host = spread, .group = 128, .rows = 1},
    .block = 16,
    .constants = 3,
    .cheap = true,
    .examples = examples_spread,
};

/* --- back --------------------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void body_combine(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype ty)
{
    const int32_t *place = c->data[PLACE];
    const real *w = c->data[W];
    int64_t channels = c->dim[C], k = c->dim[K];
    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < channels; i++) {
            real sum = 0;
            for (int64_t s = t * k; s < t * k + k; s++)
                sum += (w ? w[s] : 1) * load(tx, c->data[X], place[s] * channels + i);
            store(ty, c->data[INPUTS + Y], t * channels + i, sum);
        }
}

KERNEL_BODY(combine)
{
    SPECIALISE2(c->dtype[X], c->dtype[INPUTS + Y], body_combine, c, begin, end);
}

static enum status shape_combine(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    TRY(expect_slots(n, n->in[X]->shape[0]));
    n->rows = n->size[N] / n->size[K];
    enum role role = n->number[WIDE] != 0 ? ROLE_GRADIENT : ROLE_ACTIVATION;
    node_output(p, n, Y, p->types[role], 2, SHAPE(n->rows, n->size[C]));
    return program_status(p);
}

static enum status gradient_combine(struct program *p, const struct node *n)
{
    struct value *dy = gradient_of(p, n, Y), *inputs[] = {dy, n->in[W], n->in[ROWS], n->in[PLACE]};
    TRY(gradient_add(p, n, X, program_node(p, OP_spread_rows, 4, inputs, 1, n->number)));
    return n->in[W] ? gradient_add(p, n, W, NODE_WITH(p, combine_bwd_w, n->number[NUMBER_K], n->in[X], dy, n->in[PLACE])) : OK;
}

static struct value *build_combine(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0] * d[1], d[3]);
    struct value *w = d[4] > 1 ? program_input(p, "factors", ROLE_STATISTIC, 2, d[0], d[1]) : NULL, *rows = example_sorted(p, d);
    return combine_rows(p, x, w, rows, d[1]);
}

static const struct op_example examples_combine[] = {{.build = build_combine, .fill = example_experts, .axes = SIZES}, {0}};

const struct op OP(combine_rows) = {
    .name = "combine_rows",
    .formula = "y[t] = Σ over j of w[t, j] · x[place[t·k + j]]",
    .inputs = {"x", "w?", "rows", "place"},
    .outputs = {"y"},
    .shape = shape_combine,
    .gradient = gradient_combine,
    .kernel = {SIGNATURE_combine_rows, .host = combine, .group = 128, .rows = 1},
    .block = 16,
    .constants = 2,
    .examples = examples_combine,
};

/* --- dw ----------------------------------------------------------------------------------------------------------------- */

enum { BW_X, BW_DY, BW_PLACE, BW_INPUTS };
enum { BW_DW };

static ALWAYS_INLINE void body_bwd_w(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype ty)
{
    const int32_t *place = c->data[BW_PLACE];
    real *dw = c->data[BW_INPUTS + BW_DW];
    int64_t channels = c->dim[C];
    for (int64_t s = begin; s < end; s++)
        dw[s] = dot(c->data[BW_X], place[s] * channels, c->data[BW_DY], s / c->dim[K] * channels, channels, tx, ty);
}

KERNEL_BODY(backward_w)
{
    SPECIALISE2(c->dtype[BW_X], c->dtype[BW_DY], body_bwd_w, c, begin, end);
}

static enum status shape_bwd_w(struct program *p, struct node *n)
{
    TRY(node_expect(n, BW_X, 2, SHAPE(-1, -1)));
    n->rows = n->size[N] = n->in[BW_X]->shape[0];
    n->size[C] = n->in[BW_X]->shape[1];
    n->size[K] = (int64_t)n->number[NUMBER_K];
    TRY(node_expect(n, BW_DY, 2, SHAPE(n->size[N] / n->size[K], n->size[C])));
    TRY(node_expect(n, BW_PLACE, 1, SHAPE(n->size[N])));
    node_output(p, n, BW_DW, p->types[ROLE_STATISTIC], 2, SHAPE(n->size[N] / n->size[K], n->size[K]));
    return program_status(p);
}

static struct value *build_bwd_w(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0] * d[1], d[3]);
    struct value *dy = program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[3]), *rows = example_sorted(p, d);
    return NODE_WITH(p, combine_bwd_w, (double)d[1], x, dy, rows ? rows->producer->out[SORTED_PLACE] : NULL);
}

static const struct op_example examples_bwd_w[] = {{.build = build_bwd_w, .fill = example_experts, .axes = SIZES}, {0}};

const struct op OP(combine_bwd_w) = {
    .name = "combine_bwd_w",
    .formula = "dw[s] = x[place[s]] · dy[s / k]",
    .inputs = {"x", "dy", "place"},
    .outputs = {"dw"},
    .shape = shape_bwd_w,
    .kernel = {SIGNATURE_combine_bwd_w, .host = backward_w, .group = 64, .rows = 1},
    .block = 16,
    .examples = examples_bwd_w,
};
