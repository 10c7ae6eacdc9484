/* Products with frozen weights in NF4 (format/nf4.h): w[i] = value[code i] · absmax of its block, absmax = map[byte] · scale +
 * mean.
 *
 *     nf4_expand       rows of w as numbers of the run's type
 *     linear_nf4       y = x · wᵀ; way back: linear_nf4_bwd_x, dx = dy · w. There is no dw.
 *     linear_nf4_pair  y1 = x · w1ᵀ and y2 = x · w2ᵀ: gate and up, K and V
 *
 * The whole of w never exists as numbers. A device that compiles kernels expands tiles in its local memory. Elsewhere a panel of
 * w is expanded into scratch, the device's engine multiplies by it, and so on to the next; a panel makes some columns of the
 * result with all their terms, in either direction, so that sums are those of one product.
 */
#include "format/nf4.h"
#include "ops/op.h"

#define TILE_N 64 /* columns of a result that a work-group makes */

enum { PANEL_BYTES = 16 << 20, TILE_TALL = 64, TILE_FLAT = 16, BLOCK = 16 };

#ifdef REAL_DOUBLE
#define real_fma fma
#else
#define real_fma fmaf
#endif

/* --- nf4_expand --------------------------------------------------------------------------------------------------------- */

enum { PACKED, CODES, SCALES, MAP, WEIGHT };
enum { EX_IN, EX_ROW, EX_COLUMN, EX_COLUMNS };
enum { BEGIN, END };

/* A row of the grid is a row of the part of w that begins at (EX_ROW, EX_COLUMN). FMA with 0 is a product that is rounded before
 * the sum is, as on every device and in bitsandbytes. */
static ALWAYS_INLINE void body_expand(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const int32_t *packed = c->data[PACKED], *codes = c->data[CODES];
    const real *scales = c->data[SCALES], *map = c->data[MAP];
    void *w = c->data[WEIGHT];
    int64_t columns = c->dim[EX_COLUMNS];
    real pair[256][2], value[NF4_BLOCK]; /* the two values of a byte; those of a block before they are scaled */
    for (int byte = 0; byte < 256; byte++) {
        pair[byte][0] = (real)nf4_values[byte / 16];
        pair[byte][1] = (real)nf4_values[byte % 16];
    }
    for (int64_t r = begin; r < end; r++) {
        int64_t first = ((c->dim[EX_ROW] + r) * c->dim[EX_IN] + c->dim[EX_COLUMN]) / NF4_BLOCK;
        for (int64_t b = 0; b < columns / NF4_BLOCK; b++) {
            int64_t block = first + b;
            uint32_t code = (uint32_t)codes[block / 4] >> 8 * (block % 4) & 255;
            real absmax = real_fma(map[code], scales[1 + block / NF4_GROUP], 0) + scales[0];
            for (int i = 0; i < NF4_BLOCK; i += 2) {
                uint32_t byte = (uint32_t)packed[block * (NF4_BLOCK / 8) + i / 8] >> 4 * (i % 8) & 255;
                memcpy(value + i, pair[byte], sizeof pair[byte]);
            }
            INDEPENDENT
            for (int i = 0; i < NF4_BLOCK; i++)
                store(dt, w, r * columns + b * NF4_BLOCK + i, value[i] * absmax);
        }
    }
}

KERNEL_BODY static void nf4_expand_forward(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[WEIGHT], body_expand, c, begin, end);
}

static const struct kernel kernel_expand = {"nf4_expand", nf4_expand_forward, .file = "nf4", .operands = 5,
                                            .sizes = 4,   .group = 128,       .rows = 1};

/* The four parts of a weight (out, in) from input `first` on; the map is input `map`. */
static enum status expect_weight(const struct node *n, int first, int map, int64_t in, int64_t *out)
{
    if (in % NF4_BLOCK)
        return fail(ERR_UNSUPPORTED, "%s: NF4 needs blocks of %d values along a row, and rows of %lld are no multiple of that",
                    n->op->name, NF4_BLOCK, (long long)in);
    TRY(node_expect(n, first + PACKED, 2, SHAPE(-1, in / 8)));
    *out = n->in[first]->shape[0];
    TRY(node_expect(n, first + CODES, 1, SHAPE(nf4_code_words(*out * in))));
    TRY(node_expect(n, first + SCALES, 1, SHAPE(nf4_scales(*out * in))));
    return node_expect(n, map, 1, SHAPE(NF4_MAP));
}

static enum status shape_expand(struct program *p, struct node *n)
{
    TRY(node_expect(n, PACKED, 2, SHAPE(-1, -1)));
    int64_t begin = (int64_t)n->number[BEGIN], end = (int64_t)n->number[END], out;
    n->size[EX_IN] = n->size[EX_COLUMNS] = n->in[PACKED]->shape[1] * 8;
    TRY(expect_weight(n, 0, MAP, n->size[EX_IN], &out));
    if (begin < 0 || begin >= end || end > out)
        return fail(ERR_ARGUMENT, "nf4_expand: rows %lld to %lld of %lld", (long long)begin, (long long)end, (long long)out);
    n->size[EX_ROW] = begin;
    n->rows = end - begin;
    node_output(p, n, 0, p->types[ROLE_WEIGHT], 2, SHAPE(n->rows, n->size[EX_IN]));
    return program_status(p);
}

static enum status lower_expand(struct lowering *l, const struct node *n)
{
    struct value *values[] = {n->in[PACKED], n->in[CODES], n->in[SCALES], n->in[MAP], n->out[0]};
    return lower_launch(l, &kernel_expand, 5, values, n->size, n->number, n->rows, BLOCK);
}

static struct nf4_weight example_weight(struct program *p, const char *const names[3], struct value *map, int64_t out, int64_t in)
{
    return (struct nf4_weight){
        .packed = program_input(p, names[0], ROLE_INDEX, 2, out, in / 8),
        .codes = program_input(p, names[1], ROLE_INDEX, 1, nf4_code_words(out * in)),
        .scales = program_input(p, names[2], ROLE_STATISTIC, 1, nf4_scales(out * in)),
        .map = map ? map : program_input(p, "map", ROLE_STATISTIC, 1, (int64_t)NF4_MAP),
    };
}

static const char *const names[] = {"packed", "codes", "scales"}, *const names2[] = {"packed2", "codes2", "scales2"};

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    int64_t seed = 0;
    for (const char *c = input; *c; c++)
        seed = seed * 31 + *c;
    for (int64_t i = 0; i < count; i++)
        to[i] = (int32_t)((uint32_t)example_number(seed + i, 1 << 30) << 16 ^ (uint32_t)example_number(~seed - i, 1 << 30));
}

/* absmax of about 0.1 ± 0.05; the map is bitsandbytes'. */
static double adjust(const char *input, int64_t index, double random)
{
    if (!strcmp(input, "map")) {
        float map[NF4_MAP];
        nf4_map(map);
        return (double)map[index];
    }
    return strncmp(input, "scales", 6) ? random : index == 0 ? 0.1 + 0.01 * random : 0.04 + 0.01 * fabs(random);
}

static struct value *build_expand(struct program *p, const int64_t *d)
{
    return nf4_expand(p, example_weight(p, names, NULL, d[0], d[1]), d[0] / 3, d[0] - d[0] / 4);
}

#define FILLED .fill = fill, .adjust = adjust

static const struct op_example examples_expand[] = {
    {.build = build_expand, FILLED, .axes = {{"out", {1, 5, 67, 512}}, {"in", {64, 192, 320, 1024}}}}, {0}};

const struct op OP(nf4_expand) = {
    .name = "nf4_expand",
    .formula = "w[i] = value[packed i] · (map[code] · scale + mean), rows begin … end − 1",
    .inputs = {"packed", "codes", "scales", "map"},
    .outputs = {"w"},
    .shape = shape_expand,
    .lower = lower_expand,
    .frozen = 1,
    .examples = examples_expand,
};

/* --- products ----------------------------------------------------------------------------------------------------------- */

enum { X, X_WEIGHT, X_MAP = X_WEIGHT + MAP };
enum { T, IN, OUT, OUT2 };
enum { PLACE_COLUMNS, PLACE_ALL, PLACE_AT };

static ALWAYS_INLINE void body_place(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    int64_t columns = c->dim[PLACE_COLUMNS], size = dtype_size(dt);
    for (int64_t r = begin; r < end; r++)
        memcpy((char *)c->data[1] + (r * c->dim[PLACE_ALL] + c->dim[PLACE_AT]) * size,
               (const char *)c->data[0] + r * columns * size, (size_t)(columns * size));
}

static void nf4_place(const struct call *c, int64_t begin, int64_t end)
{
    body_place(c, begin, end, c->dtype[0]);
}

/* Of panels alone, so that devices that compile have no text of it. */
static const struct kernel kernel_place = {.name = "nf4_place", .host = nf4_place};

#define PRODUCT(symbol, count, dims, tile_m)                                                                                     \
    {                                                                                                                            \
#symbol, NULL, .file = "nf4", .operands = (count), .sizes = (dims), .group = 256, .rows = 1,                             \
                       .defines = DEFINE(TILE_N) " -DTILE_M=" DEFINE_TEXT(tile_m)                                                \
    }

/* With many rows of x, and with few. */
static const struct kernel kernels[][2] = {
    {PRODUCT(linear_nf4, 6, 3, 64), PRODUCT(linear_nf4, 6, 3, 16)},
    {PRODUCT(linear_nf4_bwd_x, 6, 3, 64), PRODUCT(linear_nf4_bwd_x, 6, 3, 16)},
    {PRODUCT(linear_nf4_pair, 10, 4, 64), PRODUCT(linear_nf4_pair, 10, 4, 16)},
};
enum { FORWARD, BACKWARD, PAIR };

static enum status lower_tiles(struct lowering *l, const struct node *n, int product, int64_t columns)
{
    struct value *values[OPERANDS] = {0};
    int64_t side = n->size[T] <= TILE_FLAT ? TILE_FLAT : TILE_TALL;
    int64_t tiles = (n->size[T] + side - 1) / side * ((columns + TILE_N - 1) / TILE_N);
    memcpy(values, n->in, (size_t)n->in_count * sizeof *values);
    memcpy(values + n->in_count, n->out, (size_t)n->out_count * sizeof *values);
    return lower_launch(l, &kernels[product][side == TILE_FLAT], n->in_count + n->out_count, values, n->size, n->number, tiles,
                        1);
}

/* The first rows · columns elements of scratch, as a matrix. */
static struct value *matrix_in(struct program *p, struct value *scratch, int64_t rows, int64_t columns)
{
    return program_view(p, program_rows(p, scratch, 0, rows * columns), 2, rows, columns);
}

/* y = x · wᵀ, or x · w if `back`: the columns of y that a panel of w makes, then the next ones. weight: packed, codes, scales. */
static enum status lower_panels(struct lowering *l, struct value *x, struct value *const *weight, struct value *map,
                                struct value *y, bool back)
{
    struct program *p = l->program;
    int64_t out = weight[PACKED]->shape[0], in = weight[PACKED]->shape[1] * 8, rows = x->shape[0];
    int64_t all = back ? in : out, terms = back ? out : in, most = PANEL_BYTES / 4 / terms / NF4_BLOCK * NF4_BLOCK;
    most = most < NF4_BLOCK ? NF4_BLOCK : most;
    most = most < all ? most : all;
    struct value *panel = program_scratch(p, p->types[ROLE_WEIGHT], 1, SHAPE(most * terms));
    struct value *result = most < all ? program_scratch(p, y->dtype, 1, SHAPE(rows * most)) : NULL;
    for (int64_t at = 0; at < all; at += most) {
        int64_t some = all - at < most ? all - at : most;
        struct value *w = back ? matrix_in(p, panel, out, some) : matrix_in(p, panel, some, in);
        struct value *part = result ? matrix_in(p, result, rows, some) : y;
        TRY(program_status(p));
        struct value *expand[] = {weight[PACKED], weight[CODES], weight[SCALES], map, w};
        int64_t size[NUMBERS] = {[EX_IN] = in, [EX_ROW] = back ? 0 : at, [EX_COLUMN] = back ? at : 0, [EX_COLUMNS] = w->shape[1]};
        TRY(lower_launch(l, &kernel_expand, 5, expand, size, (double[NUMBERS]){0}, w->shape[0], BLOCK));
        TRY(lower_gemm(l, x, false, w, !back, part, false));
        if (result)
            TRY(lower_launch(l, &kernel_place, 2, (struct value *[]){part, y},
                             (int64_t[NUMBERS]){[PLACE_COLUMNS] = some, [PLACE_ALL] = all, [PLACE_AT] = at}, (double[NUMBERS]){0},
                             rows, BLOCK));
    }
    return OK;
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->size[T] = n->in[X]->shape[0];
    n->size[IN] = n->in[X]->shape[1];
    TRY(expect_weight(n, X_WEIGHT, X_MAP, n->size[IN], &n->size[OUT]));
    node_output(p, n, 0, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[OUT]));
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    if (l->device->class->compiles)
        return lower_tiles(l, n, FORWARD, n->size[OUT]);
    return lower_panels(l, n->in[X], n->in + X_WEIGHT, n->in[X_MAP], n->out[0], false);
}

/* dx for one weight, if dy reached its result. */
static enum status add_gradient(struct program *p, const struct node *n, int weight, int map, struct value *dy)
{
    if (!dy || !gradient_wanted(n, X))
        return OK;
    return gradient_add(
        p, n, X,
        NODE(p, linear_nf4_bwd_x, dy, n->in[weight + PACKED], n->in[weight + CODES], n->in[weight + SCALES], n->in[map]));
}

static enum status gradient(struct program *p, const struct node *n)
{
    return add_gradient(p, n, X_WEIGHT, X_MAP, gradient_of(n, 0));
}

static double flops(const struct node *n)
{
    return 2.0 * (double)n->size[T] * (double)n->size[IN] * (double)(n->size[OUT] + n->size[OUT2]);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return linear_nf4(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), example_weight(p, names, NULL, d[2], d[1]));
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"T", {1, 5, 16, 17, 67}}, {"in", {64, 192, 320}},                                                                       \
        {                                                                                                                        \
            "out",                                                                                                               \
            {                                                                                                                    \
                5, 64, 129                                                                                                       \
            }                                                                                                                    \
        }                                                                                                                        \
    }
#define LARGE                                                                                                                    \
    {                                                                                                                            \
        {"T", {3, 20}}, {"in", {2560}},                                                                                          \
        {                                                                                                                        \
            "out",                                                                                                               \
            {                                                                                                                    \
                4096                                                                                                             \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build, FILLED, .axes = SIZES}, {.build = build, FILLED, .forward_only = true, .axes = LARGE}, {0}};

const struct op OP(linear_nf4) = {
    .name = "linear_nf4",
    .formula = "y = x · wᵀ, w in NF4",
    .inputs = {"x", "packed", "codes", "scales", "map"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .frozen = 1 + X_WEIGHT,
    .flops = flops,
    .examples = examples,
};

/* --- dx ----------------------------------------------------------------------------------------------------------------- */

static enum status shape_bwd_x(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    TRY(node_expect(n, X_WEIGHT + PACKED, 2, SHAPE(n->in[X]->shape[1], -1)));
    n->size[T] = n->in[X]->shape[0];
    n->size[IN] = n->in[X_WEIGHT + PACKED]->shape[1] * 8;
    TRY(expect_weight(n, X_WEIGHT, X_MAP, n->size[IN], &n->size[OUT]));
    node_output(p, n, 0, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[IN]));
    return program_status(p);
}

static enum status lower_bwd_x(struct lowering *l, const struct node *n)
{
    if (l->device->class->compiles)
        return lower_tiles(l, n, BACKWARD, n->size[IN]);
    return lower_panels(l, n->in[X], n->in + X_WEIGHT, n->in[X_MAP], n->out[0], true);
}

static struct value *build_bwd_x(struct program *p, const int64_t *d)
{
    struct value *dy = program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[2]);
    struct nf4_weight w = example_weight(p, names, NULL, d[2], d[1]);
    return NODE(p, linear_nf4_bwd_x, dy, w.packed, w.codes, w.scales, w.map);
}

static const struct op_example examples_bwd_x[] = {
    {.build = build_bwd_x, FILLED, .axes = SIZES}, {.build = build_bwd_x, FILLED, .axes = LARGE}, {0}};

const struct op OP(linear_nf4_bwd_x) = {
    .name = "linear_nf4_bwd_x",
    .formula = "dx = dy · w, w in NF4",
    .inputs = {"dy", "packed", "codes", "scales", "map"},
    .outputs = {"dx"},
    .shape = shape_bwd_x,
    .lower = lower_bwd_x,
    .frozen = 1 + X_WEIGHT,
    .flops = flops,
    .examples = examples_bwd_x,
};

/* --- two at once -------------------------------------------------------------------------------------------------------- */

enum { X_WEIGHT2 = X_WEIGHT + MAP, PAIR_MAP = X_WEIGHT2 + MAP };

static enum status shape_pair(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->size[T] = n->in[X]->shape[0];
    n->size[IN] = n->in[X]->shape[1];
    TRY(expect_weight(n, X_WEIGHT, PAIR_MAP, n->size[IN], &n->size[OUT]));
    TRY(expect_weight(n, X_WEIGHT2, PAIR_MAP, n->size[IN], &n->size[OUT2]));
    node_output(p, n, 0, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[OUT]));
    node_output(p, n, 1, p->types[ROLE_ACTIVATION], 2, SHAPE(n->size[T], n->size[OUT2]));
    return program_status(p);
}

static enum status lower_pair(struct lowering *l, const struct node *n)
{
    if (l->device->class->compiles)
        return lower_tiles(l, n, PAIR, n->size[OUT] > n->size[OUT2] ? n->size[OUT] : n->size[OUT2]);
    TRY(lower_panels(l, n->in[X], n->in + X_WEIGHT, n->in[PAIR_MAP], n->out[0], false));
    return lower_panels(l, n->in[X], n->in + X_WEIGHT2, n->in[PAIR_MAP], n->out[1], false);
}

static enum status gradient_pair(struct program *p, const struct node *n)
{
    TRY(add_gradient(p, n, X_WEIGHT, PAIR_MAP, gradient_of(n, 0)));
    return add_gradient(p, n, X_WEIGHT2, PAIR_MAP, gradient_of(n, 1));
}

static struct value *build_pair(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]);
    struct nf4_weight w1 = example_weight(p, names, NULL, d[2], d[1]), w2 = example_weight(p, names2, w1.map, d[3], d[1]);
    return linear_nf4_pair(p, x, w1, w2);
}

/* Both gradients reach x. */
static struct value *build_pair_sum(struct program *p, const int64_t *d)
{
    struct value *y = build_pair(p, (int64_t[]){d[0], d[1], d[2], d[2]});
    return y ? add(p, y, y->producer->out[1]) : NULL;
}

static const struct op_example examples_pair[] = {
    {.build = build_pair,
     FILLED,
     .axes = {{"T", {1, 16, 17, 67}}, {"in", {64, 320}}, {"out1", {20, 64, 129}}, {"out2", {33, 64, 200}}}},
    {.build = build_pair_sum, FILLED, .axes = {{"T", {3, 33}}, {"in", {192, 320}}, {"out", {40, 130}}}},
    {.build = build_pair,
     FILLED,
     .forward_only = true,
     .axes = {{"T", {3, 20}}, {"in", {2560}}, {"out1", {4096}}, {"out2", {1024}}}},
    {0},
};

const struct op OP(linear_nf4_pair) = {
    .name = "linear_nf4_pair",
    .formula = "y1 = x · w1ᵀ, y2 = x · w2ᵀ, w1 and w2 in NF4",
    .inputs = {"x", "packed1", "codes1", "scales1", "packed2", "codes2", "scales2", "map"},
    .outputs = {"y1", "y2"},
    .shape = shape_pair,
    .gradient = gradient_pair,
    .lower = lower_pair,
    .frozen = 1 + X_WEIGHT,
    .flops = flops,
    .examples = examples_pair,
};
