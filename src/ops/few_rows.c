/* Products of few rows with a weight in parts, as decoding has them: y = x · wᵀ + bias on the CPU, by one reading of w.
 *
 * Such a product takes the time of reading w; expanded as a whole, w would be written and read once more. Here a piece of a few
 * rows at a time is expanded into fast memory, in the run's type as everywhere, and meets the rows of x there. Each sum has one
 * order, whatever the number of threads.
 */
#include "ops/dot_rows.h"
#include "ops/op.h"

enum { X, BIAS, Y, PARTS, FEW_OPERANDS = PARTS + WEIGHT_PARTS };
enum { T, IN, OUT, TYPE, AS };     /* the weight's type, and the one in which it is multiplied */
enum { BLOCK = 64, PIECE = 1024 }; /* rows of w of a grid's block; columns, a multiple of every type's block */

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
    real sum[FEW_ROWS][BLOCK] = {{0}}, x[FEW_ROWS][PIECE], expanded[ROWS_TOGETHER * PIECE];
    int64_t in = c->dim[IN];
    for (int64_t column = 0; column < in; column += PIECE) {
        int64_t count = min(in - column, PIECE);
        for (int64_t t = 0; t < c->dim[T]; t++)
            for (int64_t i = 0; i < count; i++)
                x[t][i] = load(c->dtype[X], c->data[X], t * in + column + i);
        for (int64_t j = begin; j < end; j += ROWS_TOGETHER) {
            int64_t rows = min(end - j, ROWS_TOGETHER);
            expand_piece(c, j, rows, column, count, expanded);
            for (int64_t t = 0; t < c->dim[T]; t++) {
                real part[ROWS_TOGETHER];
                dot_rows(part, x[t], expanded, 0, count, rows, count, dt);
                for (int64_t r = 0; r < rows; r++)
                    sum[t][j - begin + r] += part[r];
            }
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
