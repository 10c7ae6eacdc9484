/* all_reduce, reduce_scatter, all_gather: what ranks of a group (device/group.h) do with an array that each of them has, in
 * place. A single process has nothing to do. The ops have no gradient.
 *
 *     all_reduce       x = Σ x of all ranks
 *     reduce_scatter   the rank's part of x = Σ of that part of all ranks; the other parts are not defined
 *     all_gather       part r of x = that of rank r
 */
#include "ops/op.h"

enum { X };
enum { X_AFTER };

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 1, SHAPE(-1)));
    node_alias(p, n, X_AFTER, X);
    return program_status(p);
}

static enum status lower_all(struct lowering *l, const struct node *n, enum collective_kind kind)
{
    const struct group *g = l->device->group;
    struct value *x = n->in[X], *part = x;
    int64_t count = value_elements(x);
    if (group_size(g) == 1)
        return OK;
    if (kind != COLLECTIVE_ALL_REDUCE) {
        part = program_rows(l->program, x, count / g->size * g->rank, count / g->size);
        if (!part)
            return program_status(l->program);
    }
    struct collective collective = {.kind = kind, .dtype = x->dtype, .count = count};
    return lower_collective(l, &collective, kind == COLLECTIVE_ALL_GATHER ? part : x,
                            kind == COLLECTIVE_REDUCE_SCATTER ? part : x);
}

static enum status lower_all_reduce(struct lowering *l, const struct node *n)
{
    return lower_all(l, n, COLLECTIVE_ALL_REDUCE);
}

static enum status lower_reduce_scatter(struct lowering *l, const struct node *n)
{
    return lower_all(l, n, COLLECTIVE_REDUCE_SCATTER);
}

static enum status lower_all_gather(struct lowering *l, const struct node *n)
{
    return lower_all(l, n, COLLECTIVE_ALL_GATHER);
}

static struct value *build_all_reduce(struct program *p, const int64_t *d)
{
    return all_reduce(p, program_input(p, "x", ROLE_GRADIENT, 1, d[0]));
}

static const struct op_example examples_all_reduce[] = {
    {.build = build_all_reduce, .axes = {{"N", {1, 17}}}, .forward_only = true}, {0}};

const struct op OP(all_reduce) = {
    .name = "all_reduce",
    .formula = "x = Σ x of all ranks",
    .inputs = {"x"},
    .outputs = {"x"},
    .shape = shape,
    .lower = lower_all_reduce,
    .examples = examples_all_reduce,
};

static struct value *build_reduce_scatter(struct program *p, const int64_t *d)
{
    return reduce_scatter(p, program_input(p, "x", ROLE_GRADIENT, 1, d[0]));
}

static const struct op_example examples_reduce_scatter[] = {
    {.build = build_reduce_scatter, .axes = {{"N", {1, 17}}}, .forward_only = true}, {0}};

const struct op OP(reduce_scatter) = {
    .name = "reduce_scatter",
    .formula = "the rank's part of x = Σ of that part of all ranks",
    .inputs = {"x"},
    .outputs = {"x"},
    .shape = shape,
    .lower = lower_reduce_scatter,
    .examples = examples_reduce_scatter,
};

static struct value *build_all_gather(struct program *p, const int64_t *d)
{
    return all_gather(p, program_input(p, "x", ROLE_GRADIENT, 1, d[0]));
}

static const struct op_example examples_all_gather[] = {
    {.build = build_all_gather, .axes = {{"N", {1, 17}}}, .forward_only = true}, {0}};

const struct op OP(all_gather) = {
    .name = "all_gather",
    .formula = "part r of x = that of rank r",
    .inputs = {"x"},
    .outputs = {"x"},
    .shape = shape,
    .lower = lower_all_gather,
    .examples = examples_all_gather,
};
