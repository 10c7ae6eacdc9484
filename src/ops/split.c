/* split: the columns of x (T, A + B) as two values, a (T, A) and b (T, B): of a layer whose weight holds two.
 *
 * Backward: join, which lays the gradients of both side by side. What has no gradient gives zeros.
 */
#include "ops/op.h"

enum { X, INPUTS };
enum { A, B };
enum { T, COLUMNS_A, COLUMNS_B };
enum { FIRST }; /* number: the columns of a */

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *x = c->data[X];
    void *a = c->data[INPUTS + A], *b = c->data[INPUTS + B];
    int64_t first = c->dim[COLUMNS_A], second = c->dim[COLUMNS_B], width = first + second;
    for (int64_t t = begin; t < end; t++) {
        INDEPENDENT
        for (int64_t i = 0; i < first; i++)
            store(dt, a, t * first + i, load(dt, x, t * width + i));
        INDEPENDENT
        for (int64_t i = 0; i < second; i++)
            store(dt, b, t * second + i, load(dt, x, t * width + first + i));
    }
}

KERNEL_BODY(split_forward)
{
    SPECIALISE(c->dtype[X], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    const struct value *x = n->in[X];
    n->rows = n->size[T] = x->shape[0];
    n->size[COLUMNS_A] = (int64_t)n->number[FIRST];
    n->size[COLUMNS_B] = x->shape[1] - n->size[COLUMNS_A];
    if (n->size[COLUMNS_A] < 1 || n->size[COLUMNS_B] < 1)
        return fail(ERR_INTERNAL, "split: %lld of %lld columns", (long long)n->size[COLUMNS_A], (long long)x->shape[1]);
    node_output(p, n, A, x->dtype, 2, SHAPE(n->size[T], n->size[COLUMNS_A]));
    node_output(p, n, B, x->dtype, 2, SHAPE(n->size[T], n->size[COLUMNS_B]));
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *parts[] = {gradient_of(p, n, A), gradient_of(p, n, B)};
    double columns[] = {(double)n->size[COLUMNS_A], (double)n->size[COLUMNS_B]};
    return gradient_add(p, n, X, program_node(p, OP_join, 2, parts, 2, columns));
}

static struct value *build(struct program *p, const int64_t *d)
{
    return split(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1] + d[2]), d[1]);
}

static struct value *build_second(struct program *p, const int64_t *d)
{
    struct value *a = build(p, d);
    return a ? a->producer->out[B] : NULL;
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 5, 34}}, {"A", {1, 16, 130}},                                                                                  \
        {                                                                                                                        \
            "B",                                                                                                                 \
            {                                                                                                                    \
                3, 64                                                                                                            \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {{.build = build, .axes = SIZES}, {.build = build_second, .axes = SIZES}, {0}};

const struct op OP(split) = {
    .name = "split",
    .formula = "a = x[:, :A], b = x[:, A:]",
    .inputs = {"x"},
    .outputs = {"a", "b"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_split, .host = split_forward, .group = 128, .rows = 1},
    .block = 8,
    .cheap = true,
    .examples = examples,
};

/* --- join --------------------------------------------------------------------------------------------------------------- */

enum { JOIN_A, JOIN_B, JOIN_INPUTS };
enum { JOIN_Y };

static ALWAYS_INLINE void body_join(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const void *a = c->data[JOIN_A], *b = c->data[JOIN_B];
    void *y = c->data[JOIN_INPUTS + JOIN_Y];
    int64_t first = c->dim[COLUMNS_A], second = c->dim[COLUMNS_B], width = first + second;
    for (int64_t t = begin; t < end; t++) {
        INDEPENDENT
        for (int64_t i = 0; i < first; i++)
            store(dt, y, t * width + i, a ? load(dt, a, t * first + i) : 0);
        INDEPENDENT
        for (int64_t i = 0; i < second; i++)
            store(dt, y, t * width + first + i, b ? load(dt, b, t * second + i) : 0);
    }
}

KERNEL_BODY(join_forward)
{
    SPECIALISE(c->dtype[JOIN_INPUTS + JOIN_Y], body_join, c, begin, end);
}

static enum status shape_join(struct program *p, struct node *n)
{
    const struct value *like = n->in[JOIN_A] ? n->in[JOIN_A] : n->in[JOIN_B];
    if (!like)
        return fail(ERR_INTERNAL, "join: there is nothing to join");
    n->rows = n->size[T] = like->shape[0];
    for (int i = JOIN_A; i <= JOIN_B; i++) {
        n->size[COLUMNS_A + i] = (int64_t)n->number[i];
        if (n->in[i])
            TRY(node_expect(n, i, 2, SHAPE(n->size[T], n->size[COLUMNS_A + i])));
    }
    node_output(p, n, JOIN_Y, like->dtype, 2, SHAPE(n->size[T], n->size[COLUMNS_A] + n->size[COLUMNS_B]));
    return program_status(p);
}

static struct value *build_join(struct program *p, const int64_t *d)
{
    return program_node(p, OP_join, 2,
                        (struct value *[]){program_input(p, "a", ROLE_ACTIVATION, 2, d[0], d[1]),
                                           program_input(p, "b", ROLE_ACTIVATION, 2, d[0], d[2])},
                        2, (double[]){(double)d[1], (double)d[2]});
}

static const struct op_example examples_join[] = {{.build = build_join, .axes = SIZES}, {0}};

const struct op OP(join) = {
    .name = "join",
    .formula = "y = [a | b]",
    .inputs = {"a?", "b?"},
    .outputs = {"y"},
    .shape = shape_join,
    .kernel = {SIGNATURE_join, .host = join_forward, .group = 128, .rows = 1},
    .block = 8,
    .examples = examples_join,
};
