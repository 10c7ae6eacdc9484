/* embedding: y[t] = w[ids[t]], rows of a table.
 *
 * Backward: dw[v] += Σ dy[t] over the tokens t with ids[t] = v. `order` lists the slots sorted by id (equal ids in token order),
 * so that one row of the grid sums one id's run in a fixed order and no two write the same row. One id may get no gradient:
 * PyTorch trains models with a padding token that way.
 */
#include "ops/op.h"

enum { IDS, W, ORDER, INPUTS };
enum { Y };
enum { T, C };
enum { FIXED }; /* number: the id that gets no gradient; -1: none */

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype tw, enum dtype ty)
{
    const int32_t *ids = c->data[IDS];
    const void *w = c->data[W];
    void *y = c->data[INPUTS + Y];
    int64_t channels = c->dim[C];
    for (int64_t t = begin; t < end; t++) {
        int64_t from = ids[t] * channels, to = t * channels;
        INDEPENDENT
        for (int64_t i = 0; i < channels; i++)
            store(ty, y, to + i, load(tw, w, from + i));
    }
}

KERNEL_BODY(embedding_forward)
{
    SPECIALISE2(c->dtype[W], c->dtype[INPUTS + Y], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, IDS, 1, SHAPE(-1)));
    TRY(node_expect(n, W, 2, SHAPE(-1, -1)));
    n->rows = n->size[T] = n->in[IDS]->shape[0];
    n->size[C] = n->in[W]->shape[1];
    if (n->in[ORDER])
        TRY(node_expect(n, ORDER, 1, SHAPE(n->size[T])));
    node_output(p, n, Y, p->types[ROLE_RESIDUAL], 2, SHAPE(n->size[T], n->size[C]));
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    if (n->in[W]->weight)
        return lower_rows(l, n->in[W], 0, n->in[IDS], n->out[Y]);
    return lower_launch(l, &n->op->kernel, 4, (struct value *[]){n->in[IDS], n->in[W], n->in[ORDER], n->out[Y]}, n->size,
                        n->number, n->rows, n->op->block);
}

static enum status gradient(struct program *p, const struct node *n)
{
    if (!gradient_wanted(n, W))
        return OK;
    if (!n->in[ORDER])
        return fail(ERR_INTERNAL, "embedding: its gradient needs the order of the ids");
    NODE_WITH(p, embedding_bwd, n->number[FIXED], n->in[IDS], n->in[ORDER], gradient_of(p, n, Y), gradient_sum(p, n, W));
    return program_status(p);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return embedding(p, program_input(p, "ids", ROLE_INDEX, 1, d[0]), program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]),
                     program_input(p, "order", ROLE_INDEX, 1, d[0]), -1);
}

static struct value *build_stored(struct program *p, const int64_t *d)
{
    return embedding(p, program_input(p, "ids", ROLE_INDEX, 1, d[0]), example_weight(p, d[3], d[2], d[1]), NULL, -1);
}

/* The order by counting: quadratic, but short enough to be clearly right. */
static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    if (strcmp(input, "ids") != 0 && strcmp(input, "order") != 0) {
        example_fill_weight(input, to, count, d);
        return;
    }
    for (int64_t t = 0; t < count; t++) {
        int32_t id = example_number(t, d[2]);
        if (!strcmp(input, "ids")) {
            to[t] = id;
            continue;
        }
        int64_t place = 0;
        for (int64_t s = 0; s < count; s++)
            place += example_number(s, d[2]) < id || (example_number(s, d[2]) == id && s < t);
        to[place] = (int32_t)t;
    }
}

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .axes = {{"T", {1, 5, 33, 128}}, {"C", {1, 64, 577}}, {"V", {1, 7, 512}}}},
    {.build = build_stored,
     .fill = fill,
     .adjust = example_adjust_weight,
     .axes = {{"T", {1, 33}}, {"C", {64, 192}}, {"V", {1, 7, 512}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {0},
};

const struct op OP(embedding) = {
    .name = "embedding",
    .formula = "y[t] = w[ids[t]]",
    .inputs = {"ids", "w", "order?"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .kernel = {SIGNATURE_embedding, .host = embedding_forward, .group = 128, .rows = 1},
    .block = 16,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

enum { BWD_IDS, BWD_ORDER, BWD_DY, BWD_DW };
enum { BWD_DW_AFTER };

static ALWAYS_INLINE void body_bwd(const struct call *c, int64_t begin, int64_t end, enum dtype ty, enum dtype tw)
{
    const int32_t *ids = c->data[BWD_IDS], *order = c->data[BWD_ORDER];
    const void *dy = c->data[BWD_DY];
    void *dw = c->data[BWD_DW];
    int64_t channels = c->dim[C], tokens = c->dim[T], fixed = (int64_t)c->number[FIXED];
    for (int64_t r = begin; r < end; r++) {
        int32_t id = ids[order[r]];
        if ((r > 0 && ids[order[r - 1]] == id) || id == fixed) /* in the middle of a run */
            continue;
        for (int64_t s = r; s < tokens && ids[order[s]] == id; s++) {
            int64_t from = order[s] * channels, to = id * channels;
            INDEPENDENT
            for (int64_t i = 0; i < channels; i++)
                store(tw, dw, to + i, load(tw, dw, to + i) + load(ty, dy, from + i));
        }
    }
}

KERNEL_BODY(embedding_backward)
{
    SPECIALISE2(c->dtype[BWD_DY], c->dtype[BWD_DW], body_bwd, c, begin, end);
}

static enum status shape_bwd(struct program *p, struct node *n)
{
    n->rows = n->size[T] = n->in[BWD_IDS]->shape[0];
    n->size[C] = n->in[BWD_DY]->shape[1];
    TRY(node_expect(n, BWD_ORDER, 1, SHAPE(n->size[T])));
    TRY(node_expect(n, BWD_DY, 2, SHAPE(n->size[T], -1)));
    TRY(node_expect(n, BWD_DW, 2, SHAPE(-1, n->size[C])));
    node_alias(p, n, BWD_DW_AFTER, BWD_DW);
    return program_status(p);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return NODE_WITH(p, embedding_bwd, (double)(d[3] - 2), program_input(p, "ids", ROLE_INDEX, 1, d[0]),
                     program_input(p, "order", ROLE_INDEX, 1, d[0]), program_input(p, "dy", ROLE_RESIDUAL, 2, d[0], d[1]),
                     program_input(p, "dw", ROLE_GRADIENT, 2, d[2], d[1]));
}

static const struct op_example examples_bwd[] = {
    {.build = build_bwd,
     .fill = fill,
     .axes = {{"T", {1, 5, 33, 128}}, {"C", {1, 64, 577}}, {"V", {1, 7, 512}}, {"fixed", {1, 4}}}},
    {0},
};

const struct op OP(embedding_bwd) = {
    .name = "embedding_bwd",
    .formula = "dw[ids[t]] += dy[t], in token order",
    .inputs = {"ids", "order", "dy", "dw"},
    .outputs = {"dw"},
    .shape = shape_bwd,
    .kernel = {SIGNATURE_embedding_bwd, .host = embedding_backward, .group = 128, .rows = 1},
    .block = 16,
    .examples = examples_bwd,
};
