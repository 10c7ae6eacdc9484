/* rope: rotary positions. Of each head the first 2 · P channels are pairs (x[i], x[i + P]), which turn by an angle:
 *
 *     y[i]     = x[i] · cos − x[i + P] · sin
 *     y[i + P] = x[i + P] · cos + x[i] · sin
 *
 * The other channels stay. Backward: the rotation by the opposite angle. rope_table computes the cosines and sines once for all
 * layers and heads, of angles positions[t] · frequencies[row[t]][i], times a factor that may grow with the position:
 *
 *     factor · (1 + growth · log(1 + floor(positions[t] / length)))
 *
 * The angle is a float32 product in every run, as in the models' training.
 */
#include <string.h>

#include "ops/op.h"

enum { POSITIONS, FREQUENCIES, ROW, TABLE_INPUTS };
enum { TABLE_Y };
enum { TABLE_T, TABLE_P };
enum { FACTOR, GROWTH, LENGTH };

static void table(const struct call *c, int64_t begin, int64_t end)
{
    const int32_t *positions = c->data[POSITIONS], *row = c->data[ROW];
    int64_t pairs = c->dim[TABLE_P];
    for (int64_t t = begin; t < end; t++) {
        const real *frequencies = (const real *)c->data[FREQUENCIES] + (row ? row[t] * pairs : 0);
        real *y = (real *)c->data[TABLE_INPUTS + TABLE_Y] + t * 2 * pairs;
        double factor = c->number[FACTOR];
        if (c->number[GROWTH] != 0) {
            int64_t lengths = positions[t] / (int64_t)c->number[LENGTH];
            factor *= 1 + c->number[GROWTH] * log1p((double)lengths);
        }
        for (int64_t i = 0; i < pairs; i++) {
            float angle = (float)positions[t] * (float)frequencies[i];
            y[i] = (real)(factor * cos((double)angle));
            y[pairs + i] = (real)(factor * sin((double)angle));
        }
    }
}

static enum status table_shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, POSITIONS, 1, SHAPE(-1)));
    TRY(node_expect(n, FREQUENCIES, 2, SHAPE(-1, -1)));
    n->rows = n->size[TABLE_T] = n->in[POSITIONS]->shape[0];
    n->size[TABLE_P] = n->in[FREQUENCIES]->shape[1];
    if (n->in[ROW])
        TRY(node_expect(n, ROW, 1, SHAPE(n->size[TABLE_T])));
    node_output(p, n, TABLE_Y, p->types[ROLE_STATISTIC], 3, SHAPE(n->size[TABLE_T], 2, n->size[TABLE_P]));
    return program_status(p);
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    if (strcmp(input, "row"))
        example_bounds(input, to, count);
    for (int64_t i = 0; i < count && !strcmp(input, "row"); i++)
        to[i] = example_number(i, 2);
}

static struct value *table_build(struct program *p, const int64_t *d)
{
    return rope_table(p, program_input(p, "positions", ROLE_INDEX, 1, d[0]),
                      program_input(p, "frequencies", ROLE_STATISTIC, 2, (int64_t)1, d[1] / 2), NULL, 1, 0, 1);
}

static struct value *table_build_grown(struct program *p, const int64_t *d)
{
    return rope_table(p, program_input(p, "positions", ROLE_INDEX, 1, d[0]),
                      program_input(p, "frequencies", ROLE_STATISTIC, 2, (int64_t)2, d[1] / 2),
                      program_input(p, "row", ROLE_INDEX, 1, d[0]), 1.25, 0.1, 3);
}

static const struct op_example table_examples[] = {
    {.build = table_build, .fill = fill, .axes = {{"T", {1, 9, 70}}, {"D", {2, 16, 64, 128}}}},
    {.build = table_build_grown, .fill = fill, .axes = {{"T", {9, 70}}, {"D", {16, 96}}}},
    {0},
};

const struct op OP(rope_table) = {
    .name = "rope_table",
    .formula = "y = f · cos(positions · frequencies[row]), f · sin(…), f = factor · (1 + growth · log(1 + ⌊positions / length⌋))",
    .inputs = {"positions", "frequencies", "row?"},
    .outputs = {"y"},
    .shape = table_shape,
    .kernel = {SIGNATURE_rope_table, .host = table, .group = 64, .rows = 1},
    .block = 16,
    .examples = table_examples,
};

/* --- the rotation ------------------------------------------------------------------------------------------------------- */

enum { X, TABLE, INPUTS };
enum { Y };
enum { T, H, D, P };
enum { SIGN }; /* number: 1 forward, −1 backward */

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    int64_t heads = c->dim[H], size = c->dim[D], pairs = c->dim[P];
    const void *x = c->data[X];
    void *y = c->data[INPUTS + Y];
    real sign = (real)c->number[SIGN];
    for (int64_t t = begin; t < end; t++) {
        const real *cosine = (const real *)c->data[TABLE] + t * 2 * pairs, *sine = cosine + pairs;
        for (int64_t h = 0; h < heads; h++) {
            int64_t at = (t * heads + h) * size;
            INDEPENDENT
            for (int64_t i = 0; i < pairs; i++) {
                real a = load(dt, x, at + i), b = load(dt, x, at + pairs + i), s = sign * sine[i];
                store(dt, y, at + i, a * cosine[i] - b * s);
                store(dt, y, at + pairs + i, b * cosine[i] + a * s);
            }
            for (int64_t i = 2 * pairs; i < size; i++)
                store(dt, y, at + i, load(dt, x, at + i));
        }
    }
}

KERNEL_BODY(rope_rotate)
{
    SPECIALISE(c->dtype[X], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 3, SHAPE(-1, -1, -1)));
    for (int i = 0; i < 3; i++)
        n->size[i] = n->in[X]->shape[i];
    TRY(node_expect(n, TABLE, 3, SHAPE(n->size[T], 2, -1)));
    n->size[P] = n->in[TABLE]->shape[2];
    if (2 * n->size[P] > n->size[D])
        return fail(ERR_INTERNAL, "rope: %lld pairs in a head of %lld", (long long)n->size[P], (long long)n->size[D]);
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
    return 6.0 * (double)(n->size[T] * n->size[H] * n->size[P]);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return rope(p, program_input(p, "x", ROLE_ACTIVATION, 3, d[0], d[1], d[2]), table_build(p, (int64_t[]){d[0], d[2]}));
}

/* A quarter of the head. */
static struct value *build_part(struct program *p, const int64_t *d)
{
    return rope(p, program_input(p, "x", ROLE_ACTIVATION, 3, d[0], d[1], d[2]), table_build(p, (int64_t[]){d[0], d[2] / 4}));
}

static const struct op_example examples[] = {
    {.build = build_part, .fill = fill, .axes = {{"T", {3, 34}}, {"H", {1, 5}}, {"D", {16, 96}}}},
    {.build = build, .fill = fill, .axes = {{"T", {1, 3, 34, 65}}, {"H", {1, 3, 8}}, {"D", {2, 16, 64, 128}}}},
    {0},
};

const struct op OP(rope) = {
    .name = "rope",
    .formula = "pairs (i, i + P) of each head turned by the table's angles",
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
