/* Products of few rows, as decoding has them: y = x · wᵀ + bias on the CPU, by one reading of w.
 *
 * Such a product takes the time of reading w. A weight in parts, expanded as a whole, would be written and read once more. Here a
 * piece of a few rows at a time is expanded into fast memory, in the run's type as everywhere, and meets the rows of x there; or,
 * for one row of x, no further than into registers (ops/weights/weight_bf16.h). Each sum has one order, whatever the number of
 * threads.
 */
#include "ops/dot_rows.h"
#include "ops/op.h"

enum { X, BIAS, Y, PARTS, FEW_OPERANDS = PARTS + WEIGHT_PARTS };
enum { T, IN, OUT, TYPE, AS, ADD }; /* the weight's type, and the one in which it is multiplied; 1: y is added to */
enum { DENSE = WEIGHT_COUNT };      /* a type: the first part has the weight's numbers */
enum { BLOCK = 64, PIECE = 1024 };  /* rows of w of a grid's block; columns, a multiple of every type's block */
enum { AHEAD = 2048 };              /* bytes that are asked for before they are needed */

static ALWAYS_INLINE void load_numbers(real *to, const void *x, int64_t at, int64_t count, enum dtype dt)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = load(dt, x, at + i);
}

static ALWAYS_INLINE void load_piece(const struct call *c, real *to, int64_t at, int64_t count)
{
    SPECIALISE(c->dtype[X], load_numbers, to, c->data[X], at, count);
}

/* Not inlined: once for each sum, and in the loops around it the compiler would make copies for every combination of its types.
 */
__attribute__((noinline)) static void finish(const struct call *c, int64_t at, int64_t column, real sum)
{
    real bias = c->data[BIAS] ? load(c->dtype[BIAS], c->data[BIAS], column) : 0;
    store(c->dtype[Y], c->data[Y], at, sum + bias + (c->dim[ADD] ? load(c->dtype[Y], c->data[Y], at) : 0));
}

/* --- one row of x: rows of w are read one after the other, which is how memory is fastest ------------------------------- */

/* What multiplies blocks without expanding them; NULL: the weight is dense, or nothing does. */
static ALWAYS_INLINE const struct weight_bf16 *direct(const struct call *c)
{
    bool stored = c->dim[TYPE] != DENSE && c->dim[AS] == DTYPE_BF16;
    return stored && weight_bf16() ? weight_types[c->dim[TYPE]]->bf16 : NULL;
}

static ALWAYS_INLINE real dense_dot(const real *x, const void *w, int64_t at, int64_t n, enum dtype dt)
{
    int64_t size = dt == DTYPE_BF16 ? 2 : (int64_t)sizeof(real), whole = n / (2 * LANES) * (2 * LANES);
    vec a = {0}, b = {0}, of_x, of_w;
    for (int64_t i = 0; i < whole; i += 2 * LANES) {
        for (int64_t line = 0; line < 2 * LANES * size; line += 64)
            __builtin_prefetch((const char *)w + (at + i) * size + line + AHEAD);
        memcpy(&of_x, x + i, sizeof of_x);
        vec_load(&of_w, dt, w, at + i);
        a += of_x * of_w;
        memcpy(&of_x, x + i + LANES, sizeof of_x);
        vec_load(&of_w, dt, w, at + i + LANES);
        b += of_x * of_w;
    }
    a += b;
    real sum = vec_sum(&a);
    for (int64_t i = whole; i < n; i++)
        sum += x[i] * load(dt, w, at + i);
    return sum;
}

static ALWAYS_INLINE void one_row(const struct call *c, int64_t begin, int64_t end, const struct weight_bf16 *bf16, enum dtype dt)
{
    const struct weight_type *type = bf16 ? weight_types[c->dim[TYPE]] : NULL;
    _Alignas(sizeof(vec)) real x[FEW_ROWS * PIECE];
    real sum[BLOCK] = {0};
    int64_t in = c->dim[IN];
    for (int64_t column = 0; column < in; column += FEW_ROWS * PIECE) {
        int64_t count = min(in - column, FEW_ROWS * PIECE);
        load_piece(c, x, column, count);
        for (int64_t j = begin; j < end; j++) {
            int64_t at = j * in + column;
            const uint8_t *blocks = c->data[PARTS];
            if (bf16) /* then a real is a float */
                sum[j - begin] += (real)bf16->dot(blocks + at / type->block * type->part[0].bytes, (const void *)x, count);
            else
                sum[j - begin] += dense_dot(x, c->data[PARTS], at, count, dt);
        }
    }
    for (int64_t j = begin; j < end; j++)
        finish(c, j, j, sum[j - begin]);
}

/* --- several rows, or a weight that must be expanded -------------------------------------------------------------------- */

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

static ALWAYS_INLINE void some_rows(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    _Alignas(sizeof(vec)) real x[FEW_ROWS][PIECE], expanded[ROWS_TOGETHER * PIECE];
    real sum[FEW_ROWS][BLOCK] = {{0}};
    int64_t in = c->dim[IN];
    bool dense = c->dim[TYPE] == DENSE;
    for (int64_t column = 0; column < in; column += PIECE) {
        int64_t count = min(in - column, PIECE);
        for (int64_t t = 0; t < c->dim[T]; t++)
            load_piece(c, x[t], t * in + column, count);
        for (int64_t j = begin; j < end; j += ROWS_TOGETHER) {
            int64_t rows = min(end - j, ROWS_TOGETHER);
            const void *w = dense ? c->data[PARTS] : expanded;
            if (!dense)
                expand_piece(c, j, rows, column, count, expanded);
            for (int64_t t = 0; t < c->dim[T]; t++) {
                real part[ROWS_TOGETHER];
                dot_rows(part, x[t], w, dense ? j * in + column : 0, dense ? in : count, rows, count, dt);
                for (int64_t r = 0; r < rows; r++)
                    sum[t][j - begin + r] += part[r];
            }
        }
    }
    for (int64_t t = 0; t < c->dim[T]; t++)
        for (int64_t j = begin; j < end; j++)
            finish(c, t * c->dim[OUT] + j, j, sum[t][j - begin]);
}

KERNEL_BODY(few_rows)
{
    const struct weight_bf16 *bf16 = direct(c);
    bool one = c->dim[T] == 1 && (bf16 || c->dim[TYPE] == DENSE);
    for (int64_t j = begin; j < end; j += BLOCK) {
        int64_t stop = min(j + BLOCK, end);
        if (one)
            SPECIALISE((enum dtype)c->dim[AS], one_row, c, j, stop, bf16);
        else
            SPECIALISE((enum dtype)c->dim[AS], some_rows, c, j, stop);
    }
}

static const struct kernel kernel = {.name = "few_rows", .host = few_rows};

enum status lower_few_rows(struct lowering *l, struct value *x, struct value *w, struct value *y, struct value *bias, bool add)
{
    struct value *values[FEW_OPERANDS] = {[X] = x, [BIAS] = bias, [Y] = y};
    int64_t size[NUMBERS] = {[T] = x->shape[0],
                             [IN] = w->shape[1],
                             [OUT] = w->shape[0],
                             [TYPE] = w->weight ? (int64_t)w->weight->type : DENSE,
                             [AS] = (int64_t)(w->weight ? l->program->types[ROLE_WEIGHT] : w->dtype),
                             [ADD] = add};
    if (w->weight)
        memcpy(values + PARTS, w->weight->part, sizeof w->weight->part);
    else
        values[PARTS] = w;
    return lower_launch(l, &kernel, FEW_OPERANDS, values, size, (double[NUMBERS]){0}, size[OUT], BLOCK);
}
