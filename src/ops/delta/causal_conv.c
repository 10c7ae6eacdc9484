/* causal_conv: y[t] = silu(z[t]), z[t] = Σ_j w[:, N − 1 − j] · x[t − j], each channel by itself, over the N last tokens of the
 * sequence that t is in.
 *
 * Tokens before first[t] count as zero: in a packed batch (last[t] = t) a sequence sees nothing of the one before it. With a
 * cache, x holds only new tokens; those before them are in `state` (N − 1, C), where the token of slot s has the row
 * s mod (N − 1). A second launch then puts the new ones there.
 *
 * Backward, with z computed again: dz = dy · σ(z) · (1 + z · (1 − σ(z))), dx[t] = Σ_j w[:, N − 1 − j] · dz[t + j] up to until[t],
 * and dw[:, N − 1 − j] += Σ_t dz[t] · x[t − j] in two stages of fixed order.
 */
#include "ops/op.h"

enum { X, W, FIRST, LAST, UNTIL, SLOTS, STATE };
enum { Y, STATE_AFTER };
enum { T, C, N };
enum { CHANNELS = 256, KERNEL_MAX = 8, KEEP_OPERANDS = 3 };
enum { Z_X, Z_W, Z_FIRST, Z_LAST, Z_STATE, Z_DY, Z_OUT, Z_OPERANDS }; /* with dy the result is dz, otherwise y */

/* w of up to CHANNELS channels from `from` on, by distance: to[j][c] = w[from + c, N − 1 − j]. */
static ALWAYS_INLINE void taps(real to[KERNEL_MAX][CHANNELS], const struct call *c, const void *w, int64_t from, int64_t count,
                               enum dtype dt)
{
    for (int64_t j = 0; j < c->dim[N]; j++)
        for (int64_t i = 0; i < count; i++)
            to[j][i] = load(dt, w, (from + i) * c->dim[N] + c->dim[N] - 1 - j);
}

/* z of one token, for `count` channels from `from` on. */
static ALWAYS_INLINE void convolve(real z[CHANNELS], const real tap[KERNEL_MAX][CHANNELS], const struct call *c, int64_t t,
                                   int64_t from, int64_t count, enum dtype dt)
{
    int64_t slot = ((const int32_t *)c->data[Z_LAST])[t], first = ((const int32_t *)c->data[Z_FIRST])[t], rows = c->dim[N] - 1;
    memset(z, 0, CHANNELS * sizeof *z);
    for (int64_t j = 0; j < c->dim[N] && slot - j >= first; j++) {
        const void *x = j > t ? c->data[Z_STATE] : c->data[Z_X];
        int64_t row = (j > t ? (slot - j) % rows : t - j) * c->dim[C] + from;
        for (int64_t i = 0; i < count; i++)
            z[i] += tap[j][i] * load(dt, x, row + i);
    }
}

static ALWAYS_INLINE void body(const struct call *c, int64_t begin, int64_t end, enum dtype dt, enum dtype ty)
{
    real tap[KERNEL_MAX][CHANNELS], z[CHANNELS];
    const void *dy = c->data[Z_DY];
    for (int64_t from = 0; from < c->dim[C]; from += CHANNELS) {
        int64_t count = min(c->dim[C] - from, CHANNELS);
        taps(tap, c, c->data[Z_W], from, count, dt);
        for (int64_t t = begin; t < end; t++) {
            int64_t at = t * c->dim[C] + from;
            convolve(z, tap, c, t, from, count, dt);
            INDEPENDENT
            for (int64_t i = 0; i < count; i++) {
                real s = 1 / (1 + real_exp(-z[i]));
                store(ty, c->data[Z_OUT], at + i, dy ? load(dt, dy, at + i) * s * (1 + z[i] * (1 - s)) : z[i] * s);
            }
        }
    }
}

KERNEL_BODY(causal_conv_forward)
{
    SPECIALISE2(c->dtype[Z_X], c->dtype[Z_OUT], body, c, begin, end);
}

/* The last N − 1 new tokens go to the state. */
static void keep(const struct call *c, int64_t begin, int64_t end)
{
    const char *x = c->data[0];
    const int32_t *slots = c->data[1];
    char *state = c->data[2];
    int64_t bytes = c->dim[C] * dtype_size(c->dtype[0]), rows = c->dim[N] - 1;
    for (int64_t t = begin; t < end; t++)
        if (slots[t] >= 0 && (t + rows >= c->dim[T] || slots[t + rows] < 0))
            memcpy(state + slots[t] % rows * bytes, x + t * bytes, (size_t)bytes);
}

static const struct kernel kernel_z = {SIGNATURE_causal_conv, .host = causal_conv_forward, .group = 128, .rows = 1};
static const struct kernel kernel_keep = {SIGNATURE_causal_conv_keep, .host = keep, .group = 128, .rows = 1};

static enum status sizes(struct node *n, int x, int w, int first, int last)
{
    TRY(node_expect(n, x, 2, SHAPE(-1, -1)));
    TRY(node_expect(n, w, 2, SHAPE(n->in[x]->shape[1], -1)));
    n->rows = n->size[T] = n->in[x]->shape[0];
    n->size[C] = n->in[x]->shape[1];
    n->size[N] = n->in[w]->shape[1];
    TRY(node_expect(n, first, 1, SHAPE(n->size[T])));
    TRY(node_expect(n, last, 1, SHAPE(n->size[T])));
    if (n->size[N] < 2 || n->size[N] > KERNEL_MAX)
        return fail(ERR_UNSUPPORTED, "causal_conv: over %lld tokens; 2 to %d are supported", (long long)n->size[N], KERNEL_MAX);
    return OK;
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(sizes(n, X, W, FIRST, LAST));
    if (n->in[UNTIL])
        TRY(node_expect(n, UNTIL, 1, SHAPE(n->size[T])));
    node_output(p, n, Y, n->in[X]->dtype, 2, n->in[X]->shape);
    if (n->in[STATE]) {
        TRY(node_expect(n, SLOTS, 1, SHAPE(n->size[T])));
        TRY(node_expect(n, STATE, 2, SHAPE(n->size[N] - 1, n->size[C])));
        node_alias(p, n, STATE_AFTER, STATE);
    }
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    struct value *const *in = n->in;
    struct value *values[] = {[Z_X] = in[X],         [Z_W] = in[W], [Z_FIRST] = in[FIRST], [Z_LAST] = in[LAST],
                              [Z_STATE] = in[STATE], [Z_DY] = NULL, [Z_OUT] = n->out[Y]};
    TRY(lower_launch(l, &kernel_z, Z_OPERANDS, values, n->size, n->number, n->rows, n->op->block));
    if (!in[STATE])
        return OK;
    struct value *kept[] = {in[X], in[SLOTS], in[STATE]};
    return lower_launch(l, &kernel_keep, KEEP_OPERANDS, kept, n->size, n->number, n->rows, n->op->block);
}

static enum status gradient(struct program *p, const struct node *n)
{
    if (!n->in[UNTIL])
        return fail(ERR_INTERNAL, "causal_conv: its gradient needs the last token that sees each one");
    struct value *dw = gradient_wanted(n, W) ? gradient_sum(p, n, W) : NULL;
    struct value *dx =
        NODE(p, causal_conv_bwd, n->in[X], n->in[W], n->in[FIRST], n->in[LAST], n->in[UNTIL], gradient_of(p, n, Y), dw);
    return gradient_add(p, n, X, dx);
}

static double flops(const struct node *n)
{
    return 2.0 * (double)(n->size[T] * n->size[C] * n->size[N]);
}

static struct value *index_input(struct program *p, const char *name, int64_t count)
{
    return program_input(p, name, ROLE_INDEX, 1, count);
}

static struct value *build(struct program *p, const int64_t *d)
{
    return causal_conv(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                       program_input(p, "w", ROLE_WEIGHT, 2, d[1], d[2]), index_input(p, "first", d[0]),
                       index_input(p, "last", d[0]), index_input(p, "until", d[0]), NULL, NULL);
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    example_bounds(input, to, count);
}

/* New tokens after d[3] - 1 earlier ones, and one slot of padding. */
static struct value *build_cached(struct program *p, const int64_t *d)
{
    return causal_conv(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                       program_input(p, "w", ROLE_WEIGHT, 2, d[1], d[2]), index_input(p, "first", d[0]),
                       index_input(p, "last", d[0]), NULL, index_input(p, "slots", d[0]),
                       program_input(p, "state", ROLE_ACTIVATION, 2, d[2] - 1, d[1]));
}

static void fill_cached(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    for (int64_t t = 0; t < count; t++) {
        bool padding = t > 0 && t == count - 1;
        to[t] = (int32_t)(!strcmp(input, "first") ? 0 : padding ? (strcmp(input, "slots") != 0 ? 0 : -1) : d[3] - 1 + t);
    }
}

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .axes = {{"T", {1, 3, 34, 130}}, {"C", {1, 48, 300}}, {"N", {2, 4}}}},
    {.build = build_cached,
     .fill = fill_cached,
     .forward_only = true,
     .axes = {{"T", {1, 2, 4, 17}}, {"C", {1, 48, 300}}, {"N", {2, 4}}, {"before", {1, 2, 3, 9}}}},
    {0},
};

const struct op OP(causal_conv) = {
    .name = "causal_conv",
    .formula = "y[t] = silu(Σ w[:, N−1−j] · x[t−j]), of the tokens t−j of t's sequence",
    .inputs = {"x", "w", "first", "last", "until?", "slots?", "state?"},
    .outputs = {"y", "state"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .block = 16,
    .constants = 5,
    .cheap = true,
    .flops = flops,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

enum { BWD_X, BWD_W, BWD_FIRST, BWD_LAST, BWD_UNTIL, BWD_DY, BWD_DW };
enum { BWD_DX, BWD_DW_AFTER };
enum { DX_W, DX_UNTIL, DX_DZ, DX_DX, DX_OPERANDS };
enum { PART_X, PART_FIRST, PART_DZ, PART_PART, PART_OPERANDS };
enum { SUM_PART, SUM_DW, SUM_OPERANDS };
enum { SUM_BLOCK = 64 };
#define GROUP_ROWS 64

static ALWAYS_INLINE void body_dx(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    real tap[KERNEL_MAX][CHANNELS], sum[CHANNELS];
    const int32_t *until = c->data[DX_UNTIL];
    for (int64_t from = 0; from < c->dim[C]; from += CHANNELS) {
        int64_t count = min(c->dim[C] - from, CHANNELS);
        taps(tap, c, c->data[DX_W], from, count, dt);
        for (int64_t t = begin; t < end; t++) {
            memset(sum, 0, sizeof sum);
            for (int64_t j = 0; j < c->dim[N] && t + j <= until[t]; j++) {
                const real *dz = (const real *)c->data[DX_DZ] + (t + j) * c->dim[C] + from;
                for (int64_t i = 0; i < count; i++)
                    sum[i] += tap[j][i] * dz[i];
            }
            for (int64_t i = 0; i < count; i++)
                store(dt, c->data[DX_DX], t * c->dim[C] + from + i, sum[i]);
        }
    }
}

KERNEL_BODY(causal_conv_backward_x)
{
    SPECIALISE(c->dtype[DX_DX], body_dx, c, begin, end);
}

/* dw of one group of tokens; part (groups, N, C) by distance. */
static ALWAYS_INLINE void body_part(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const int32_t *first = c->data[PART_FIRST];
    int64_t channels = c->dim[C], taps = c->dim[N];
    for (int64_t group = begin; group < end; group++) {
        real *part = (real *)c->data[PART_PART] + group * taps * channels;
        memset(part, 0, (size_t)(taps * channels) * sizeof *part);
        for (int64_t t = group * GROUP_ROWS; t < c->dim[T] && t < (group + 1) * GROUP_ROWS; t++)
            for (int64_t j = 0; j < taps && t - j >= first[t]; j++) {
                const real *dz = (const real *)c->data[PART_DZ] + t * channels;
                INDEPENDENT
                for (int64_t i = 0; i < channels; i++)
                    part[j * channels + i] += dz[i] * load(dt, c->data[PART_X], (t - j) * channels + i);
            }
    }
}

KERNEL_BODY(causal_conv_backward_part)
{
    SPECIALISE(c->dtype[PART_X], body_part, c, begin, end);
}

static void sum_parts(const struct call *c, int64_t begin, int64_t end)
{
    int64_t channels = c->dim[C], taps = c->dim[N];
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < taps; j++) {
            real total = 0;
            for (int64_t group = 0; group * GROUP_ROWS < c->dim[T]; group++)
                total += ((const real *)c->data[SUM_PART])[(group * taps + j) * channels + i];
            ((real *)c->data[SUM_DW])[i * taps + taps - 1 - j] += total;
        }
}

static const struct kernel kernel_dx = {SIGNATURE_causal_conv_dx, .host = causal_conv_backward_x, .group = 128, .rows = 1};
static const struct kernel kernel_part = {SIGNATURE_causal_conv_part, .host = causal_conv_backward_part, .group = 128, .rows = 1,
                                          .defines = DEFINE(GROUP_ROWS)};
static const struct kernel kernel_sum = {SIGNATURE_causal_conv_sum, .host = sum_parts, .group = 64, .rows = 64,
                                         .defines = DEFINE(GROUP_ROWS)};

static enum status shape_bwd(struct program *p, struct node *n)
{
    TRY(sizes(n, BWD_X, BWD_W, BWD_FIRST, BWD_LAST));
    TRY(node_expect(n, BWD_UNTIL, 1, SHAPE(n->size[T])));
    TRY(node_expect(n, BWD_DY, 2, n->in[BWD_X]->shape));
    node_output(p, n, BWD_DX, n->in[BWD_X]->dtype, 2, n->in[BWD_X]->shape);
    if (n->in[BWD_DW]) {
        TRY(node_expect(n, BWD_DW, 2, n->in[BWD_W]->shape));
        node_alias(p, n, BWD_DW_AFTER, BWD_DW);
    }
    return program_status(p);
}

static enum status lower_bwd(struct lowering *l, const struct node *n)
{
    struct value *const *in = n->in;
    enum dtype wide = l->program->types[ROLE_STATISTIC];
    int64_t groups = divide_up(n->size[T], GROUP_ROWS);
    struct value *dz = program_scratch(l->program, wide, 2, in[BWD_X]->shape);
    struct value *z[] = {
        [Z_X] = in[BWD_X],   [Z_W] = in[BWD_W], [Z_FIRST] = in[BWD_FIRST], [Z_LAST] = in[BWD_LAST], [Z_STATE] = NULL,
        [Z_DY] = in[BWD_DY], [Z_OUT] = dz};
    struct value *dx[] = {[DX_W] = in[BWD_W], [DX_UNTIL] = in[BWD_UNTIL], [DX_DZ] = dz, [DX_DX] = n->out[BWD_DX]};
    TRY(program_status(l->program));
    TRY(lower_launch(l, &kernel_z, Z_OPERANDS, z, n->size, n->number, n->rows, n->op->block));
    TRY(lower_launch(l, &kernel_dx, DX_OPERANDS, dx, n->size, n->number, n->rows, n->op->block));
    if (!in[BWD_DW])
        return OK;
    struct value *part = program_scratch(l->program, wide, 3, SHAPE(groups, n->size[N], n->size[C]));
    struct value *parts[] = {[PART_X] = in[BWD_X], [PART_FIRST] = in[BWD_FIRST], [PART_DZ] = dz, [PART_PART] = part};
    struct value *sums[] = {[SUM_PART] = part, [SUM_DW] = in[BWD_DW]};
    TRY(program_status(l->program));
    TRY(lower_launch(l, &kernel_part, PART_OPERANDS, parts, n->size, n->number, groups, 1));
    return lower_launch(l, &kernel_sum, SUM_OPERANDS, sums, n->size, n->number, n->size[C], SUM_BLOCK);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return NODE(p, causal_conv_bwd, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                program_input(p, "w", ROLE_WEIGHT, 2, d[1], d[2]), index_input(p, "first", d[0]), index_input(p, "last", d[0]),
                index_input(p, "until", d[0]), program_input(p, "dy", ROLE_ACTIVATION, 2, d[0], d[1]),
                program_input(p, "dw", ROLE_GRADIENT, 2, d[1], d[2]));
}

static const struct op_example examples_bwd[] = {
    {.build = build_bwd, .fill = fill, .axes = {{"T", {1, 3, 34, 130}}, {"C", {1, 48, 300}}, {"N", {2, 4}}}},
    {0},
};

const struct op OP(causal_conv_bwd) = {
    .name = "causal_conv_bwd",
    .formula = "dx[t] = Σ w[:, N−1−j] · dz[t+j], dw[:, N−1−j] += Σ dz[t] · x[t−j], dz = dy · silu'(z)",
    .inputs = {"x", "w", "first", "last", "until", "dy", "dw?"},
    .outputs = {"dx", "dw"},
    .shape = shape_bwd,
    .lower = lower_bwd,
    .block = 16,
    .examples = examples_bwd,
};
