/* gather_rows: y[r] = x[rows[r]], and zeros where rows[r] is −1: the rows of a packed batch that have a loss.
 *
 * Backward (scatter_rows): dx is zero except dx[rows[r]] = dy[r]; no row occurs twice, so no two writes collide.
 */
#include "ops/op.h"

enum { X, ROWS, INPUTS };
enum { Y };
enum { T, C, R };

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    const int32_t *rows = c->data[ROWS];
    const char *x = c->data[X];
    char *y = c->data[INPUTS + Y];
    size_t bytes = (size_t)(c->dim[C] * dtype_size(c->dtype[X]));
    for (int64_t r = begin; r < end; r++)
        if (rows[r] < 0)
            memset(y + (size_t)r * bytes, 0, bytes);
        else
            memcpy(y + (size_t)r * bytes, x + (size_t)rows[r] * bytes, bytes);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    TRY(node_expect(n, ROWS, 1, SHAPE(-1)));
    n->size[T] = n->in[X]->shape[0];
    n->size[C] = n->in[X]->shape[1];
    n->rows = n->size[R] = n->in[ROWS]->shape[0];
    node_output(p, n, Y, n->in[X]->dtype, 2, SHAPE(n->size[R], n->size[C]));
    return program_status(p);
}

static enum status gradient(struct program *p, const struct node *n)
{
    return gradient_add(p, n, X, NODE_WITH(p, scatter_rows, (double)n->size[T], gradient_of(p, n, Y), n->in[ROWS]));
}

/* Every third row; the last one is −1 if there is more than one. */
static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)input;
    (void)d;
    for (int64_t r = 0; r < count; r++)
        to[r] = (int32_t)(r > 0 && r == count - 1 ? -1 : 3 * r);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return gather_rows(p, program_input(p, "x", ROLE_ACTIVATION, 2, 3 * d[0], d[1]),
                       program_input(p, "rows", ROLE_INDEX, 1, d[0]));
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"R", {1, 2, 17, 40}},                                                                                                   \
        {                                                                                                                        \
            "C",                                                                                                                 \
            {                                                                                                                    \
                1, 33, 64                                                                                                        \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {{.build = build, .fill = fill, .axes = SIZES}, {0}};

const struct op OP(gather_rows) = {
    .name = "gather_rows",
    .formula = "y[r] = x[rows[r]], 0 where rows[r] = −1",
    .inputs = {"x", "rows"},
    .outputs = {"y"},
    .shape = shape,
    .gradient = gradient,
    .kernel = {SIGNATURE_gather_rows, .host = forward, .group = 128, .rows = 1},
    .block = 16,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

enum { BWD_DY, BWD_ROWS, BWD_INPUTS };
enum { BWD_DX };
enum { BWD_T }; /* number: rows of dx */

static void backward(const struct call *c, int64_t begin, int64_t end)
{
    const int32_t *rows = c->data[BWD_ROWS];
    const char *dy = c->data[BWD_DY];
    char *dx = c->data[BWD_INPUTS + BWD_DX];
    size_t bytes = (size_t)(c->dim[C] * dtype_size(c->dtype[BWD_DY]));
    for (int64_t r = begin; r < end; r++)
        if (rows[r] >= 0)
            memcpy(dx + (size_t)rows[r] * bytes, dy + (size_t)r * bytes, bytes);
}

static const struct kernel kernel_bwd = {SIGNATURE_scatter_rows, .host = backward, .group = 128, .rows = 1};

static enum status shape_bwd(struct program *p, struct node *n)
{
    TRY(node_expect(n, BWD_DY, 2, SHAPE(n->in[BWD_ROWS]->shape[0], -1)));
    n->size[T] = (int64_t)n->number[BWD_T];
    n->size[C] = n->in[BWD_DY]->shape[1];
    n->rows = n->size[R] = n->in[BWD_ROWS]->shape[0];
    node_output(p, n, BWD_DX, n->in[BWD_DY]->dtype, 2, SHAPE(n->size[T], n->size[C]));
    return program_status(p);
}

static enum status lower_bwd(struct lowering *l, const struct node *n)
{
    TRY(lower_fill(l, n->out[BWD_DX]));
    return lower_kernel(l, &kernel_bwd, n->rows, 16);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return NODE_WITH(p, scatter_rows, (double)(3 * d[0]), program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[1]),
                     program_input(p, "rows", ROLE_INDEX, 1, d[0]));
}

static const struct op_example examples_bwd[] = {{.build = build_bwd, .fill = fill, .axes = SIZES}, {0}};

const struct op OP(scatter_rows) = {
    .name = "scatter_rows",
    .formula = "dx[rows[r]] = dy[r], 0 elsewhere",
    .inputs = {"dy", "rows"},
    .outputs = {"dx"},
    .shape = shape_bwd,
    .lower = lower_bwd,
    .examples = examples_bwd,
};
