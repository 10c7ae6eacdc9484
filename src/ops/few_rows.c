/* Products with few rows of x, as decoding has them: y = x · wᵀ + bias on the CPU, by one reading of w.
 *
 * Such a product takes the time of reading w, and an engine that packs or expands w first reads and writes it again. Here four
 * rows of w meet the rows of x at a time; of a weight in parts, a piece of them is expanded into fast memory, in the run's type
 * as everywhere. Each sum has one order, whatever the number of threads.
 */
#include "ops/op.h"

enum { X, BIAS, Y, PARTS, FEW_OPERANDS = PARTS + WEIGHT_PARTS };
enum { T, IN, OUT, TYPE, AS };                   /* the weight's type, and the one in which it is multiplied */
enum { TOGETHER = 4, BLOCK = 64, PIECE = 1024 }; /* rows of w; of a grid's block; columns, a multiple of every type's block */

/* sum[t][r] += x[t] · w[r] over `count` columns. Beyond `rows` it is the last row once more, which is not stored. */
static ALWAYS_INLINE void add_products(real sum[][BLOCK], const real x[][PIECE], int64_t tokens, const void *w, int64_t rows,
                                       int64_t count, enum dtype dt)
{
    int64_t whole = count / LANES * LANES, last = (rows - 1) * count;
    int64_t w1 = min(count, last), w2 = min(w1 + count, last), w3 = min(w2 + count, last);
    for (int64_t t = 0; t < tokens; t++) {
        vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, a, b;
        for (int64_t i = 0; i < whole; i += LANES) {
            memcpy(&a, x[t] + i, sizeof a);
            vec_load(&b, dt, w, i);
            s0 += a * b;
            vec_load(&b, dt, w, w1 + i);
            s1 += a * b;
            vec_load(&b, dt, w, w2 + i);
            s2 += a * b;
            vec_load(&b, dt, w, w3 + i);
            s3 += a * b;
        }
        real total[TOGETHER] = {vec_sum(&s0), vec_sum(&s1), vec_sum(&s2), vec_sum(&s3)};
        const int64_t row[TOGETHER] = {0, w1, w2, w3};
        for (int r = 0; r < TOGETHER; r++) {
            for (int64_t i = whole; i < count; i++)
                total[r] += x[t][i] * load(dt, w, row[r] + i);
            sum[t][r] += total[r];
        }
    }
}

/* A piece of some rows of a weight in parts. */
static ALWAYS_INLINE void expand_piece(const struct call *c, int64_t row, int64_t rows, int64_t column, int64_t columns, void *to)
{
    struct call call = {
        .data = {[EXPAND_W] = to},
        .dim = {[EXPAND_IN] = c->dim[IN], [EXPAND_ROW] = row, [EXPAND_COLUMN] = column, [EXPAND_COLUMNS] = columns}};
    memcpy(call.data + EXPAND_PARTS, c->data + PARTS, WEIGHT_PARTS * sizeof *call.data);
    call.dtype[EXPAND_W] = (enum dtype)c->dim[AS];
    weight_types[c->dim[TYPE]]->kernel.host(&call, 0, rows);
}

static ALWAYS_INLINE void block_of_rows(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    real sum[FEW_ROWS][BLOCK] = {{0}}, x[FEW_ROWS][PIECE], expanded[TOGETHER * PIECE];
    int64_t in = c->dim[IN];
    for (int64_t column = 0; column < in; column += PIECE) {
        int64_t count = min(in - column, PIECE);
        for (int64_t t = 0; t < c->dim[T]; t++)
            for (int64_t i = 0; i < count; i++)
                x[t][i] = load(c->dtype[X], c->data[X], t * in + column + i);
        for (int64_t j = begin; j < end; j += TOGETHER) {
            int64_t rows = min(end - j, TOGETHER);
            real(*to)[BLOCK] = (real(*)[BLOCK])(sum[0] + (j - begin));
            expand_piece(c, j, rows, column, count, expanded);
            add_products(to, x, c->dim[T], expanded, rows, count, dt);
        }
    }
    for (int64_t t = 0; t < c->dim[T]; t++)
        for (int64_t j = begin; j < end; j++)
            store(c->dtype[Y], c->data[Y], t * c->dim[OUT] + j,
                  sum[t][j - begin] + (c->data[BIAS] ? load(c->dtype[BIAS], c->data[BIAS], j) : 0));
}

KERNEL_BODY static void few_rows(const struct call *c, int64_t begin, int64_t end)
{
    for (int64_t j = begin; j < end; j += BLOCK)
        SPECIALISE((enum dtype)c->dim[AS], block_of_rows, c, j, min(j + BLOCK, end));
}

static const struct kernel kernel = {.name = "few_rows", .host = few_rows};

enum status lower_few_rows(struct lowering *l, struct value *x, struct value *w, struct value *y, struct value *bias)
{
    struct value *values[FEW_OPERANDS] = {[X] = x, [BIAS] = bias, [Y] = y};
    int64_t size[NUMBERS] = {[T] = x->shape[0],
                             [IN] = w->shape[1],
                             [OUT] = w->shape[0],
                             [TYPE] = (int64_t)w->weight->type,
                             [AS] = (int64_t)l->program->types[ROLE_WEIGHT]};
    memcpy(values + PARTS, w->weight->part, sizeof w->weight->part);
    return lower_launch(l, &kernel, FEW_OPERANDS, values, size, (double[NUMBERS]){0}, size[OUT], BLOCK);
}
