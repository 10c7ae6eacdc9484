/* rope_split: q, k and v of y = [q | k | v], each as a value of its own, q and k rotated as by rope. rope_join is its backward
 * pass: the gradients, rotated by the opposite angles, side by side again.
 *
 * A layer of several projections writes its results side by side; attention reads each by itself. Rotating has to read and write
 * q and k anyway. Without a table nothing is rotated.
 */
#include "ops/op.h"

enum { X, TABLE, INPUTS };
enum { Q, K, V };
enum { DQ, DK, DV, JOIN_TABLE, JOIN_INPUTS };
enum { JOIN_Y };
enum { T, SIZE_H, SIZE_K, D, P };
enum { HEADS, KV_HEADS, HEAD_SIZE }; /* numbers; the last only of rope_join */

struct heads { /* of one token */
    int64_t count, size, pairs;
    const real *cosine;
    real sign;
};

static ALWAYS_INLINE void turn(const struct heads *h, const void *from, int64_t from_at, void *to, int64_t to_at, enum dtype dt)
{
    const real *cosine = h->cosine, *sine = cosine ? cosine + h->pairs : NULL;
    real sign = h->sign;
    int64_t pairs = h->pairs, size = h->size;
    for (int64_t k = 0; k < h->count; k++, from_at += size, to_at += size) {
        INDEPENDENT
        for (int64_t i = 0; i < pairs; i++) {
            real a = load(dt, from, from_at + i), b = load(dt, from, from_at + pairs + i), s = sign * sine[i];
            store(dt, to, to_at + i, a * cosine[i] - b * s);
            store(dt, to, to_at + pairs + i, b * cosine[i] + a * s);
        }
        INDEPENDENT
        for (int64_t i = 2 * pairs; i < size; i++)
            store(dt, to, to_at + i, load(dt, from, from_at + i));
    }
}

static ALWAYS_INLINE struct heads rope_split_heads_of(const struct call *c, int part, const real *table, int64_t t, real sign)
{
    int64_t pairs = part == V || !table ? 0 : c->dim[P];
    return (struct heads){c->dim[part == Q ? SIZE_H : SIZE_K], c->dim[D], pairs, table ? table + t * 2 * c->dim[P] : NULL, sign};
}

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    for (int64_t t = begin; t < end; t++) {
        int64_t at = t * (c->dim[SIZE_H] + 2 * c->dim[SIZE_K]) * c->dim[D];
        for (int part = Q; part <= V; part++) {
            struct heads h = rope_split_heads_of(c, part, c->data[TABLE], t, 1);
            turn(&h, c->data[X], at, c->data[INPUTS + part], t * h.count * h.size, dt);
            at += h.count * h.size;
        }
    }
}

KERNEL_BODY(rope_split_forward)
{
    SPECIALISE(c->dtype[X], body, c, begin, end);
}

/* Sizes from the numbers and the table. */
static enum status set_sizes(struct node *n, const struct value *table, int64_t tokens, int64_t head_size)
{
    n->rows = n->size[T] = tokens;
    n->size[SIZE_H] = (int64_t)n->number[HEADS];
    n->size[SIZE_K] = (int64_t)n->number[KV_HEADS];
    n->size[D] = head_size;
    n->size[P] = table ? table->shape[2] : 0;
    bool fits = !table || (table->rank == 3 && table->shape[0] == tokens && 2 * n->size[P] <= head_size);
    return fits ? OK : fail(ERR_INTERNAL, "%s: the table does not fit heads of %lld", n->op->name, (long long)head_size);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    int64_t heads = (int64_t)n->number[HEADS] + 2 * (int64_t)n->number[KV_HEADS], columns = n->in[X]->shape[1];
    TRY(set_sizes(n, n->in[TABLE], n->in[X]->shape[0], columns / heads));
    TRY(node_expect(n, X, 2, SHAPE(n->size[T], heads * n->size[D])));
    for (int part = Q; part <= V; part++)
        node_output(p, n, part, n->in[X]->dtype, 3, SHAPE(n->size[T], n->size[part == Q ? SIZE_H : SIZE_K], n->size[D]));
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *in[JOIN_INPUTS] = {gradient_of(p, n, Q), gradient_of(p, n, K), gradient_of(p, n, V), n->in[TABLE]};
    double number[] = {n->number[HEADS], n->number[KV_HEADS], (double)n->size[D]};
    return gradient_add(p, n, X, program_node(p, OP_rope_join, JOIN_INPUTS, in, 3, number));
}

static double flops(const struct node *n)
{
    return 6.0 * (double)(n->size[T] * (n->size[SIZE_H] + n->size[SIZE_K]) * n->size[P]);
}

/* A table like rope's, of all pairs of a head (pairs = 1), of half of them (2), or none (3). */
static struct value *example_table(struct program *p, const int64_t *d)
{
    return d[4] > 2 ? NULL : example_input(p, "table", ROLE_STATISTIC, d[5] == 4, 3, SHAPE(d[0], 2, d[3] / 2 / d[4]));
}

static struct value *build_part(struct program *p, const int64_t *d, int part)
{
    struct value *y = example_input(p, "x", ROLE_ACTIVATION, d[5] == 1, 2, SHAPE(d[0], (d[1] + 2 * d[2]) * d[3]));
    struct value *q = rope_split(p, y, example_table(p, d), d[1], d[2]);
    return q ? q->producer->out[part] : NULL;
}

static struct value *build_q(struct program *p, const int64_t *d)
{
    return build_part(p, d, Q);
}

static struct value *build_k(struct program *p, const int64_t *d)
{
    return build_part(p, d, K);
}

static struct value *build_v(struct program *p, const int64_t *d)
{
    return build_part(p, d, V);
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 34}}, {"H", {1, 6}}, {"K", {1, 3}}, {"D", {16, 96}},                                                           \
        {                                                                                                                        \
            "pairs",                                                                                                             \
            {                                                                                                                    \
                1, 2, 3                                                                                                          \
            }                                                                                                                    \
        }                                                                                                                        \
    }

#define ASIDE(...)                                                                                                               \
    {                                                                                                                            \
        {"T", {3}}, {"H", {6}}, {"K", {3}}, {"D", {96}}, {"pairs", {1}},                                                         \
        {                                                                                                                        \
            "aside",                                                                                                             \
            {                                                                                                                    \
                __VA_ARGS__                                                                                                      \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build_q, .axes = SIZES},
    {.build = build_k, .axes = SIZES},
    {.build = build_v, .axes = SIZES},
    {.build = build_k, .axes = ASIDE(1, 4), .forward_only = true},
    {0},
};

const struct op OP(rope_split) = {
    .name = "rope_split",
    .formula = "q, k, v of x = [q | k | v]; q and k turned by the table's angles",
    .inputs = {"x", "table?"},
    .outputs = {"q", "k", "v"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_rope_split, .host = rope_split_forward, .group = 128, .rows = 1},
    .block = 8,
    .constants = 1,
    .flops = flops,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void body_join(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    void *y = c->data[JOIN_INPUTS + JOIN_Y];
    for (int64_t t = begin; t < end; t++) {
        int64_t at = t * (c->dim[SIZE_H] + 2 * c->dim[SIZE_K]) * c->dim[D];
        for (int part = Q; part <= V; part++) {
            struct heads h = rope_split_heads_of(c, part, c->data[JOIN_TABLE], t, -1);
            int64_t columns = h.count * h.size;
            if (c->data[DQ + part])
                turn(&h, c->data[DQ + part], t * columns, y, at, dt);
            for (int64_t i = 0; i < columns && !c->data[DQ + part]; i++)
                store(dt, y, at + i, 0);
            at += columns;
        }
    }
}

KERNEL_BODY(rope_join_forward)
{
    SPECIALISE(c->dtype[JOIN_INPUTS + JOIN_Y], body_join, c, begin, end);
}

static enum status shape_join(struct program *p, struct node *n)
{
    const struct value *like = n->in[DQ] ? n->in[DQ] : n->in[DK] ? n->in[DK] : n->in[DV];
    if (!like)
        return fail(ERR_INTERNAL, "rope_join: there is nothing to join");
    TRY(set_sizes(n, n->in[JOIN_TABLE], like->shape[0], (int64_t)n->number[HEAD_SIZE]));
    for (int part = DQ; part <= DV; part++)
        if (n->in[part])
            TRY(node_expect(n, part, 3, SHAPE(n->size[T], n->size[part == DQ ? SIZE_H : SIZE_K], n->size[D])));
    node_output(p, n, JOIN_Y, like->dtype, 2, SHAPE(n->size[T], (n->size[SIZE_H] + 2 * n->size[SIZE_K]) * n->size[D]));
    return program_status(p);
}

static struct value *build_join(struct program *p, const int64_t *d)
{
    struct value *in[JOIN_INPUTS] = {example_input(p, "dq", ROLE_ACTIVATION, d[5] == 1, 3, SHAPE(d[0], d[1], d[3])),
                                     example_input(p, "dk", ROLE_ACTIVATION, d[5] == 2, 3, SHAPE(d[0], d[2], d[3])),
                                     example_input(p, "dv", ROLE_ACTIVATION, d[5] == 3, 3, SHAPE(d[0], d[2], d[3])),
                                     example_table(p, d)};
    return program_node(p, OP_rope_join, JOIN_INPUTS, in, 3, (double[]){(double)d[1], (double)d[2], (double)d[3]});
}

static const struct op_example examples_join[] = {
    {.build = build_join, .axes = SIZES}, {.build = build_join, .axes = ASIDE(UPTO(4))}, {0}};

const struct op OP(rope_join) = {
    .name = "rope_join",
    .formula = "y = [dq | dk | dv]; dq and dk turned back by the table's angles",
    .inputs = {"dq?", "dk?", "dv?", "table?"},
    .outputs = {"y"},
    .shape = shape_join,
    .kernel = {SIGNATURE_rope_join, .host = rope_join_forward, .group = 128, .rows = 1},
    .block = 8,
    .flops = flops,
    .examples = examples_join,
};
