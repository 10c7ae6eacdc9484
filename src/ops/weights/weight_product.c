/* Products with weights, and their rows.
 *
 * A weight in parts is expanded panel by panel: a panel gives some columns of the result with all their terms, forward and
 * backward, so that the sums are those of one product. On the CPU it fits into a cache, or is an eighth of a large weight, so
 * that a program has few commands; on devices that compile it is mostly the whole weight.
 */
#include "ops/op.h"

enum { PANEL_BYTES = 16 << 20, PANEL_BYTES_COMPILED = 256 << 20, PANELS_MAX = 8, PANEL_STEP = 64, BLOCK = 16 };
enum { PLACE_FROM, PLACE_TO };
enum { PLACE_COLUMNS, PLACE_ALL, PLACE_AT, PLACE_ADD };

/* Copies the columns of a panel's result into the whole result, or adds them to it. */
static ALWAYS_INLINE void body_place(const struct call *c, int64_t begin, int64_t end, enum dtype tf, enum dtype tt)
{
    const void *from = c->data[PLACE_FROM];
    void *to = c->data[PLACE_TO];
    int64_t columns = c->dim[PLACE_COLUMNS];
    bool adds = c->dim[PLACE_ADD];
    for (int64_t r = begin; r < end; r++) {
        int64_t row = r * c->dim[PLACE_ALL] + c->dim[PLACE_AT];
        INDEPENDENT
        for (int64_t i = 0; i < columns; i++)
            store(tt, to, row + i, load(tf, from, r * columns + i) + (adds ? load(tt, to, row + i) : 0));
    }
}

KERNEL_BODY(weight_place)
{
    SPECIALISE2(c->dtype[PLACE_FROM], c->dtype[PLACE_TO], body_place, c, begin, end);
}

static const struct kernel kernel_place = {SIGNATURE_weight_place, .host = weight_place, .group = 128, .rows = 1};

static enum status lower_expand(struct lowering *l, struct value *w, int64_t row, int64_t column, struct value *ids,
                                struct value *to)
{
    const struct weight *weight = w->weight;
    struct value *values[OPERANDS] = {[EXPAND_W] = to, [EXPAND_IDS] = ids};
    memcpy(values + EXPAND_PARTS, weight->part, sizeof weight->part);
    int64_t size[NUMBERS] = {
        [EXPAND_IN] = w->shape[1], [EXPAND_ROW] = row, [EXPAND_COLUMN] = column, [EXPAND_COLUMNS] = to->shape[1]};
    const struct kernel *kernel = &weight_types[weight->type]->kernel;
    return lower_launch(l, kernel, kernel->operands, values, size, (double[NUMBERS]){0}, to->shape[0], BLOCK);
}

enum status lower_rows(struct lowering *l, struct value *w, int64_t row, struct value *ids, struct value *y)
{
    return lower_expand(l, w, row, 0, ids, y);
}

/* The first rows · columns elements of scratch, as a matrix. */
static struct value *matrix_in(struct program *p, struct value *scratch, int64_t rows, int64_t columns)
{
    return program_view(p, program_rows(p, scratch, 0, rows * columns), 2, rows, columns);
}

/* Columns of the result that a panel gives: whole blocks, so that backward they are whole blocks of the weight's columns. */
static int64_t panel_columns(const struct lowering *l, int64_t all, int64_t terms, int64_t block)
{
    int64_t usual = l->device->class->compiles ? PANEL_BYTES_COMPILED : PANEL_BYTES;
    int64_t bytes = l->device->panel_bytes ? l->device->panel_bytes : usual;
    int64_t step = block > PANEL_STEP ? block : PANEL_STEP, fewest = (all + PANELS_MAX - 1) / PANELS_MAX;
    int64_t max_columns = bytes / 4 / terms > fewest ? bytes / 4 / terms / step * step : (fewest + step - 1) / step * step;
    max_columns = max_columns < step ? step : max_columns;
    return max_columns < all ? max_columns : all;
}

/* What is added enters each panel's matmul. Where a panel's result goes through scratch, that is float32 if y is added to it. */
static enum status lower_panels(struct lowering *l, struct value *x, struct value *w, bool back, struct value *y,
                                struct lower_with with)
{
    struct program *p = l->program;
    int64_t out = w->shape[0], in = w->shape[1], rows = x->shape[0], all = back ? in : out, terms = back ? out : in;
    int64_t max_columns = panel_columns(l, all, terms, weight_types[w->weight->type]->block);
    struct value *scratch = program_scratch(p, p->types[ROLE_WEIGHT], 1, SHAPE(max_columns * terms));
    enum dtype type = with.accumulate ? p->types[ROLE_STATISTIC] : y->dtype;
    int64_t wide = y->stride ? y->stride : all, left = y->stride ? y->base_offset / dtype_size(y->dtype) : 0;
    struct value *whole = y->stride ? value_root(y) : y; /* a kernel takes no columns: it gets all of them */
    struct value *result = max_columns < all ? program_scratch(p, type, 1, SHAPE(rows * max_columns)) : NULL;
    for (int64_t at = 0; at < all; at += max_columns) {
        int64_t some = all - at < max_columns ? all - at : max_columns;
        struct value *panel = back ? matrix_in(p, scratch, out, some) : matrix_in(p, scratch, some, in);
        struct value *part = result ? matrix_in(p, result, rows, some) : y;
        struct lower_with of_part = {.accumulate = with.accumulate && !result, .bias = program_rows(p, with.bias, at, some)};
        TRY(program_status(p));
        TRY(lower_expand(l, w, back ? 0 : at, back ? at : 0, NULL, panel));
        TRY(lower_gemm(l, x, false, panel, !back, part, of_part));
        if (result)
            TRY(lower_launch(l, &kernel_place, 2, (struct value *[]){[PLACE_FROM] = part, [PLACE_TO] = whole},
                             (int64_t[NUMBERS]){some, wide, left + at, with.accumulate}, (double[NUMBERS]){0}, rows, BLOCK));
    }
    return OK;
}

/* For few tokens: for more, expanding the weight once and the engine's matmul take less time. */
static const struct kernel *fused(const struct lowering *l, const struct value *w, enum weight_product product, int64_t rows)
{
    const struct weight_type *type = w->weight ? weight_types[w->weight->type] : NULL;
    bool has = type && type->fused && l->device->class->compiles && rows <= WEIGHT_FUSED_MAX && w->shape[1] % WEIGHT_WORD == 0;
    return has ? &type->fused[product][rows > WEIGHT_TILE_FLAT] : NULL;
}

static enum status lower_tiles(struct lowering *l, const struct kernel *kernel, struct value *const *values, const int64_t *size,
                               int64_t columns)
{
    int64_t side = size[0] > WEIGHT_TILE_FLAT ? WEIGHT_TILE_TALL : WEIGHT_TILE_FLAT;
    int64_t tiles = (size[0] + side - 1) / side * ((columns + WEIGHT_TILE - 1) / WEIGHT_TILE);
    return lower_launch(l, kernel, kernel->operands, values, size, (double[NUMBERS]){0}, tiles, 1);
}

enum { TILE_ROWS = 16, TILE_TERMS = 32 }; /* of a weight, in a tile of AMX */

/* Whether the device multiplies few rows by a dense weight with the sums that it has for many. Only in bfloat16: there one bit of
 * a sum changes what is sampled, and tiles that a weight fills wholly are as fast as memory. */
static bool sums_alike(const struct lowering *l, const struct value *x, const struct value *w, const struct value *y)
{
    const struct gemm few = {.m = x->shape[0],
                             .n = w->shape[0],
                             .k = w->shape[1],
                             .transpose_b = true,
                             .a = x->dtype,
                             .b = w->dtype,
                             .c = y->dtype,
                             .alpha = 1};
    bool whole = few.n % TILE_ROWS == 0 && few.k % TILE_TERMS == 0;
    return !w->weight && whole && x->dtype == DTYPE_BF16 && device_gemm_joins(l->device, &few);
}

enum status lower_product(struct lowering *l, struct value *x, struct value *w, bool back, struct value *y,
                          struct lower_with with)
{
    bool gaps = x->stride || y->stride;
    bool few = x->shape[0] <= FEW_ROWS && !with.part && !l->device->class->compiles;
    if (few && !back && !with.scaled && !gaps && !sums_alike(l, x, w, y))
        return lower_few_rows(l, x, w, y, with.bias, with.accumulate);
    if (!w->weight)
        return lower_gemm(l, x, false, w, !back, y, with);
    if (with.scaled || (back && with.bias))
        return fail(ERR_INTERNAL, "%s: a product with a stored weight that is scaled, or backward with a bias",
                    l->node->op->name);
    const struct kernel *kernel = fused(l, w, back ? PRODUCT_BACKWARD : PRODUCT_FORWARD, x->shape[0]);
    if (!kernel || gaps)
        return lower_panels(l, x, w, back, y, with);
    int parts = weight_parts(w->weight->type);
    struct value *values[OPERANDS] = {x};
    memcpy(values + 1, w->weight->part, sizeof w->weight->part);
    values[1 + parts] = y;
    values[2 + parts] = with.bias; /* of the forward pass */
    int64_t size[NUMBERS] = {x->shape[0], w->shape[1], w->shape[0], with.accumulate};
    return lower_tiles(l, kernel, values, size, w->shape[back ? 1 : 0]);
}

enum status lower_pair(struct lowering *l, struct value *x, struct value *const w[2], struct value *const y[2])
{
    const struct kernel *kernel = fused(l, w[0], PRODUCT_PAIR, x->shape[0]);
    if (!kernel || !w[1]->weight || w[1]->weight->type != w[0]->weight->type) {
        TRY(lower_product(l, x, w[0], false, y[0], (struct lower_with){0}));
        return lower_product(l, x, w[1], false, y[1], (struct lower_with){0});
    }
    const struct weight_type *type = weight_types[w[0]->weight->type];
    struct value *values[OPERANDS] = {x};
    int count = 1;
    for (int k = 0; k < 3; k++) /* the parts of both, then the shared ones */
        for (int i = 0; i < WEIGHT_PARTS && type->part[i].name; i++)
            if ((type->part[i].shared != NULL) == (k == 2))
                values[count++] = w[k % 2]->weight->part[i];
    values[count++] = y[0];
    values[count++] = y[1];
    int64_t out = w[0]->shape[0], out2 = w[1]->shape[0];
    return lower_tiles(l, kernel, values, (int64_t[NUMBERS]){x->shape[0], w[0]->shape[1], out, out2}, out > out2 ? out : out2);
}
