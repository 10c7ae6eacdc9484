/* dropout: y[t, c] = x[t, c] / (1 − p) with probability 1 − p, else 0. Backward: the same op on dy, plus a sum: what other ops
 * gave x.
 *
 * Whether an element is kept depends on its token and channel, not on its place in memory: Philox with the key
 * seed + id · 0x9E3779B97F4A7C15 and the counter {c / 4, position, sequence, step} draws the channels c / 4 · 4 … + 3, and a
 * channel is kept iff its number in [0, 1) is at least p. So a sequence gets the same draws in any micro-batch, with any number
 * of threads, and when it is recomputed.
 */
#include "base/rng.h"
#include "ops/op.h"

enum { X, SEQUENCE, POSITIONS, DRAW, SUM, INPUTS };
enum { Y };
enum { T, C, KEPT_MIN, ID };          /* kept_min: of the upper 24 bits of a word that keeps, so philox_uniform >= p, exactly */
enum { FACTOR, PROBABILITY, NUMBER }; /* numbers: 1 / (1 − p), p, the id */
enum { SEED_LOW, SEED_HIGH, STEP };   /* of draw */

enum { COUNTERS = 16, CHANNELS = 4 * COUNTERS };

static ALWAYS_INLINE void draw_words(uint32_t *word, uint64_t key, uint64_t high, uint64_t low)
{
    for (int l = 0; l < COUNTERS; l++) {
        struct philox r = philox_inline(key, high, low + (uint64_t)l);
        for (int k = 0; k < 4; k++)
            word[4 * l + k] = r.word[k];
    }
}

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype tx, enum dtype ty)
{
    const int32_t *sequence = c->data[SEQUENCE], *positions = c->data[POSITIONS], *draw = c->data[DRAW];
    const void *x = c->data[X], *sum = c->data[SUM];
    void *y = c->data[INPUTS + Y];
    uint64_t key =
        ((uint32_t)draw[SEED_LOW] | (uint64_t)(uint32_t)draw[SEED_HIGH] << 32) + (uint64_t)c->dim[ID] * 0x9E3779B97F4A7C15u;
    int32_t kept_min = (int32_t)c->dim[KEPT_MIN];
    real factor = (real)c->number[FACTOR];
    int64_t channels = c->dim[C];
    for (int64_t t = begin; t < end; t++) {
        uint64_t high = (uint32_t)sequence[t] | (uint64_t)(uint32_t)draw[STEP] << 32;
        uint64_t low = (uint64_t)(uint32_t)positions[t] << 32;
        for (int64_t at = 0; at < channels; at += CHANNELS) {
            uint32_t word[CHANNELS];
            draw_words(word, key, high, low + (uint64_t)at / 4);
            int64_t count = min(channels - at, CHANNELS), row = t * channels + at;
            INDEPENDENT
            for (int64_t i = 0; i < count; i++) {
                real scaled = load(tx, x, row + i) * factor, kept = (int32_t)(word[i] >> 8) >= kept_min ? scaled : 0;
                store(ty, y, row + i, sum ? load(ty, sum, row + i) + kept : kept);
            }
        }
    }
}

KERNEL_BODY(dropout_forward)
{
    SPECIALISE2(c->dtype[X], c->dtype[INPUTS + Y], body, c, begin, end);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->rows = n->size[T] = n->in[X]->shape[0];
    n->size[C] = n->in[X]->shape[1];
    TRY(node_expect(n, SEQUENCE, 1, SHAPE(n->size[T])));
    TRY(node_expect(n, POSITIONS, 1, SHAPE(n->size[T])));
    TRY(node_expect(n, DRAW, 1, SHAPE(4)));
    if (!(n->number[PROBABILITY] >= 0 && n->number[PROBABILITY] < 1))
        return fail(ERR_ARGUMENT, "dropout with probability %g, it must be at least 0 and below 1", n->number[PROBABILITY]);
    n->size[KEPT_MIN] = (int64_t)ceil(n->number[PROBABILITY] * 0x1p24);
    n->size[ID] = (int64_t)n->number[NUMBER];
    if (n->in[SUM])
        TRY(node_expect(n, SUM, 2, n->in[X]->shape));
    node_output(p, n, Y, n->in[n->in[SUM] ? SUM : X]->dtype, 2, n->in[X]->shape);
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    if (gradient_wanted(n, SUM))
        TRY(gradient_add(p, n, SUM, gradient_as_is(n, Y)));
    if (!gradient_wanted(n, X))
        return program_status(p);
    struct value *sum = gradient_so_far(p, n, X);
    struct value *inputs[] = {gradient_as_is(n, Y), n->in[SEQUENCE], n->in[POSITIONS], n->in[DRAW], sum};
    return gradient_put(p, n, X, sum, program_node(p, OP_dropout, INPUTS, inputs, 3, n->number));
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    if (!strcmp(input, "positions"))
        example_bounds(input, to, count);
    for (int64_t i = 0; i < count && strcmp(input, "positions"); i++)
        to[i] = example_number(i + input[0], INT32_MAX) - (input[0] == 'd' ? 1 << 30 : 0);
}

static struct value *build_sum(struct program *p, const int64_t *d)
{
    return program_node(p, OP_dropout, INPUTS,
                        (struct value *[]){program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                                           program_input(p, "sequence", ROLE_INDEX, 1, d[0]),
                                           program_input(p, "positions", ROLE_INDEX, 1, d[0]),
                                           program_input(p, "draw", ROLE_INDEX, 1, (int64_t)4),
                                           program_input(p, "sum", ROLE_GRADIENT, 2, d[0], d[1])},
                        3, (double[]){1 / (1 - (double)d[2] / 100), (double)d[2] / 100, 5});
}

static struct value *build(struct program *p, const int64_t *d)
{
    return dropout(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "sequence", ROLE_INDEX, 1, d[0]),
                   program_input(p, "positions", ROLE_INDEX, 1, d[0]), program_input(p, "draw", ROLE_INDEX, 1, (int64_t)4),
                   (double)d[2] / 100, d[3]);
}

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .axes = {{"T", {1, 5, 33}}, {"C", {1, 6, 64, 131}}, {"percent", {5, 50}}, {"id", {1, 77}}}},
    {.build = build_sum, .fill = fill, .axes = {{"T", {1, 33}}, {"C", {6, 131}}, {"percent", {5, 50}}}},
    {.build = build, .fill = fill, .forward_only = true, .axes = {{"T", {512}}, {"C", {576}}, {"percent", {10}}, {"id", {77}}}},
    {0},
};

const struct op OP(dropout) = {
    .name = "dropout",
    .formula = "y = x · keep / (1 − p) + sum, keep drawn for {sequence, position, channel, step, id}",
    .inputs = {"x", "sequence", "positions", "draw", "sum?"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_dropout, .host = dropout_forward, .group = 64, .rows = 1},
    .block = 8,
    .in_place = 1 + SUM,
    .cheap = true,
    .examples = examples,
};
