/* expand: rows of a weight that is stored in parts, as numbers in the run's type. */
#include "ops/op.h"

enum { W };
enum { BEGIN, END };

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, W, 2, SHAPE(-1, -1)));
    int64_t begin = (int64_t)n->number[BEGIN], end = (int64_t)n->number[END], rows = n->in[W]->shape[0];
    if (!n->in[W]->weight)
        return fail(ERR_INTERNAL, "expand: the weight is not stored in parts");
    if (begin < 0 || begin >= end || end > rows)
        return fail(ERR_ARGUMENT, "expand: rows %lld to %lld of %lld", (long long)begin, (long long)end, (long long)rows);
    node_output(p, n, 0, p->types[ROLE_WEIGHT], 2, SHAPE(end - begin, n->in[W]->shape[1]));
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    return lower_rows(l, n->in[W], (int64_t)n->number[BEGIN], NULL, n->out[0]);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return expand(p, example_weight(p, d[2], d[0], d[1]), d[0] / 3, d[0] - d[0] / 4);
}

static const struct op_example examples[] = {
    {.build = build,
     .fill = example_fill_weight,
     .adjust = example_adjust_weight,
     .axes = {{"out", {1, 5, 67, 512}}, {"in", {64, 192, 320, 1024}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {.build = build,
     .fill = example_fill_weight,
     .adjust = example_adjust_weight,
     .axes = {{"out", {1, 67}}, {"in", {256, 1024}}, {"type", {UPTO(WEIGHT_COUNT)}}}},
    {.build = build,
     .fill = example_fill_weight,
     .adjust = example_adjust_weight,
     .axes = {{"out", {1, 5, 67}}, {"in", {5, 80, 83}}, {"type", {1 + WEIGHT_nf4, 1 + WEIGHT_nf4_single}}}},
    {0},
};

const struct op OP(expand) = {
    .name = "expand",
    .formula = "rows begin … end − 1 of w, which is stored in parts",
    .inputs = {"w"},
    .outputs = {"y"},
    .shape = shape,
    .lower = lower,
    .examples = examples,
};
