/* rope: rotary positions. Each head's pairs (x[i], x[i + D/2]) turn by the angle positions[t] · frequencies[i]:
 *
 *     y[i]       = x[i] · cos − x[i + D/2] · sin
 *     y[i + D/2] = x[i + D/2] · cos + x[i] · sin
 *
 * Backward: the rotation by the opposite angle. rope_table computes the cosines and sines once for all layers and heads; its
 * angle is a float32 product in every run, as in the models' training.
 */
#include "ops/op.h"

enum { POSITIONS, FREQUENCIES, TABLE_INPUTS };
enum { TABLE_Y };
enum { T, H, D };

static void table(const struct call *c, int64_t begin, int64_t end)
{
    const int32_t *positions = c->data[POSITIONS];
    int64_t half = c->dim[D] / 2;
    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)positions[t] * (float)((const real *)c->data[FREQUENCIES])[i];
            real *row = (real *)c->data[TABLE_INPUTS + TABLE_Y] + t * 2 * half;
            row[i] = (real)cos((double)angle);
            row[half + i] = (real)sin((double)angle);
        }
}

static enum status table_shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, POSITIONS, 1, SHAPE(-1)));
    TRY(node_expect(n, FREQUENCIES, 1, SHAPE(-1)));
    n->rows = n->size[T] = n->in[POSITIONS]->shape[0];
    n->size[D] = 2 * n->in[FREQUENCIES]->shape[0];
    node_output(p, n, TABLE_Y, p->types[ROLE_STATISTIC], 3, SHAPE(n->size[T], 2, n->size[D] / 2));
    return program_status(p);
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    example_bounds(input, to, count);
}

static struct value *table_build(struct program *p, const int64_t *d)
{
    return rope_table(p, program_input(p, "positions", ROLE_INDEX, 1, d[0]),
                      program_input(p, "frequencies", ROLE_STATISTIC, 1, d[1] / 2));
}

static const struct op_example table_examples[] = {
    {.build = table_build, .fill = fill, .axes = {{"T", {1, 9, 70}}, {"D", {2, 16, 64, 128}}}},
    {0},
};

const struct op OP(rope_table) = {
    .name = "rope_table",
    .formula = "y = cos(positions · frequencies), sin(positions · frequencies)",
    .inputs = {"positions", "frequencies"},
    .outputs = {"y"},
    .shape = table_shape,
    .kernel = {SIGNATURE_rope_table, .host = table, .group = 64, .rows = 1},
    .block = 16,
    .examples = table_examples,
};

/* --- the rotation ------------------------------------------------------------------------------------------------------- */

enum { X, TABLE, INPUTS };
enum { Y };
enum { SIGN }; /* number: 1 forward, −1 backward */

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    int64_t heads = c->dim[H], size = c->dim[D], half = size / 2;
    const void *x = c->data[X];
    void *y = c->data[INPUTS + Y];
    real sign = (real)c->number[SIGN];
    for (int64_t t = begin; t < end; t++) {
        const real *cosine = (const real *)c->data[TABLE] + t * size, *sine = cosine + half;
        for (int64_t h = 0; h < heads; h++) {
            int64_t at = (t * heads + h) * size;
            INDEPENDENT
            for (int64_t i = 0; i < half; i++) {
                real a = load(dt, x, at + i), b = load(dt, x, at + half + i), s = sign * sine[i];
                store(dt, y, at + i, a * cosine[i] - b * s);
                store(dt, y, at + half + i, b * cosine[i] + a * s);
            }
        }
    }
}

KERNEL_BODY static void rope_rotate(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[X], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 3, SHAPE(-1, -1, -1)));
    for (int i = 0; i < 3; i++)
        n->size[i] = n->in[X]->shape[i];
    TRY(node_expect(n, TABLE, 3, SHAPE(n->size[T], 2, n->size[D] / 2)));
    n->rows = n->size[T];
    node_output(p, n, Y, n->in[X]->dtype, 3, n->in[X]->shape);
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return gradient_add(p, n, X, NODE_WITH(p, rope, -n->number[SIGN], gradient_of(p, n, Y), n->in[TABLE]));
}

static double flops(const struct node *n)
{
    return 3.0 * (double)(n->size[T] * n->size[H] * n->size[D]);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return rope(p, program_input(p, "x", ROLE_ACTIVATION, 3, d[0], d[1], d[2]), table_build(p, (int64_t[]){d[0], d[2]}));
}

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .axes = {{"T", {1, 3, 34, 65}}, {"H", {1, 3, 8}}, {"D", {2, 16, 64, 128}}}},
    {0},
};

const struct op OP(rope) = {
    .name = "rope",
    .formula = "pairs (i, i + D/2) of each head turned by the table's angles",
    .inputs = {"x", "table"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_rope, .host = rope_rotate, .group = 128, .rows = 1},
    .block = 8,
    .in_place = 1 + X,
    .flops = flops,
    .examples = examples,
};
