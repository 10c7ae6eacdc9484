/* linear_cross_entropy: loss[r] = log Σ exp(z) − z[target], z = x[r] · wᵀ over a vocabulary of V; 0 where the target is −1.
 *
 * The logits of all rows never exist at once: rows are computed in chunks that share one piece of scratch. The backward pass
 * keeps nothing from the forward pass: it computes the logits of a chunk, lse and the loss, then dz = dloss · (exp(z − lse) −
 * onehot), dx = dz · w, dw += dzᵀ · x. Training knows dloss beforehand, so it runs only the backward pass and computes the logits
 * once. linear_loss_bwd does the same for any other loss by row (ops/losses/loss.h), whose op runs on each chunk before its
 * logits are overwritten.
 *
 * Where the logits are capped (ops/attention/softcap.c), a chunk's are capped in place before its loss; the backward pass caps
 * them into scratch of their own, because the cap's gradient needs them as they were.
 *
 * A loss that is not finite can have a finite gradient: that of a target whose logit is −∞ is −1. The loss then takes the place
 * of dloss, so that no step is taken (ops/optimizers/clip.c); the ops of other losses do the same.
 */
#include "ops/losses/loss.h"
#include "ops/op.h"

enum { X, W, TARGETS };
enum { LOSS };
enum { R, C, V };
enum { CAP }; /* number, the place that it has in softcap: of the logits; 0: none */

enum { CHUNK_BYTES = 32 << 20, CHUNK_BYTES_COMPILED = 256 << 20, CHUNK_SHARE = 64, CHUNK_ROWS = 16, SUM_BLOCK = 1024 };

/* The head is read twice for each chunk. On a GPU that takes longer than multiplying unless there are hundreds of rows: the
 * logits take up to 256 MB, but not more than a 64th of its memory. A processor reads them from a cache if they are few. */
static int64_t chunk_bytes(const struct lowering *l)
{
    struct device_info info;
    if (l->device->chunk_bytes || !l->device->class->compiles)
        return l->device->chunk_bytes ? l->device->chunk_bytes : CHUNK_BYTES;
    device_info(l->device, &info);
    int64_t share = info.memory ? info.memory / CHUNK_SHARE : CHUNK_BYTES;
    return share < CHUNK_BYTES ? CHUNK_BYTES : share < CHUNK_BYTES_COMPILED ? share : CHUNK_BYTES_COMPILED;
}

/* Rows of a chunk: a multiple of 16 whose float32 logits fill about so many bytes. */
static int64_t linear_cross_entropy_chunk_rows(const struct lowering *l, int64_t rows, int64_t vocabulary)
{
    int64_t max = chunk_bytes(l) / 4 / vocabulary / CHUNK_ROWS * CHUNK_ROWS;
    max = max < CHUNK_ROWS ? CHUNK_ROWS : max;
    return rows < max ? rows : max;
}

static ALWAYS_INLINE real sum_block(const real *z, int64_t count)
{
    real lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += z[i + l];
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    for (; i < count; i++)
        sum += z[i];
    return sum;
}

/* Writes exp(z − max) of a row's logits to `to`, block by block: in place of the logits, or every block to the same place.
 * Returns the sum of the blocks' sums: one float32 sum over a whole vocabulary would lose the small terms. */
static ALWAYS_INLINE real exponentials(const real *z, int64_t count, real max, real *to, bool in_place)
{
    real total = 0;
    for (int64_t begin = 0; begin < count; begin += SUM_BLOCK) {
        int64_t size = count - begin < SUM_BLOCK ? count - begin : SUM_BLOCK;
        real *block = in_place ? to + begin : to;
        INDEPENDENT
        for (int64_t i = 0; i < size; i++)
            block[i] = real_exp(z[begin + i] - max);
        total += sum_block(block, size);
    }
    return total;
}

static ALWAYS_INLINE real linear_cross_entropy_largest(const real *z, int64_t count)
{
    real lane[LANES], max = z[0];
    int64_t whole = count / LANES * LANES;
    for (int l = 0; l < LANES; l++)
        lane[l] = z[0];
    for (int64_t i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = z[i + l] > lane[l] ? z[i + l] : lane[l];
    for (int l = 0; l < LANES; l++)
        max = lane[l] > max ? lane[l] : max;
    for (int64_t i = whole; i < count; i++)
        max = z[i] > max ? z[i] : max;
    return max;
}

/* One row of the grid is one row of logits, which is not changed. */
enum { ROW_Z, ROW_TARGETS, ROW_LOSS, ROW_OPERANDS };

KERNEL_BODY(linear_cross_entropy_forward)
{
    const int32_t *targets = c->data[ROW_TARGETS];
    real *loss = c->data[ROW_LOSS], block[SUM_BLOCK];
    int64_t vocabulary = c->dim[V];
    for (int64_t r = begin; r < end; r++) {
        const real *z = (const real *)c->data[ROW_Z] + r * vocabulary;
        real max = linear_cross_entropy_largest(z, vocabulary), target = targets[r] < 0 ? 0 : z[targets[r]] - max;
        loss[r] = targets[r] < 0 ? 0 : real_log(exponentials(z, vocabulary, max, block, false)) - target;
    }
}

static const struct kernel kernel = {SIGNATURE_cross_entropy, .host = linear_cross_entropy_forward, .group = 256, .rows = 1};

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    n->size[R] = n->in[X]->shape[0];
    n->size[C] = n->in[X]->shape[1];
    TRY(node_expect(n, W, 2, SHAPE(-1, n->size[C])));
    n->size[V] = n->in[W]->shape[0];
    TRY(node_expect(n, TARGETS, 1, SHAPE(n->size[R])));
    node_output(p, n, LOSS, p->types[ROLE_STATISTIC], 1, SHAPE(n->size[R]));
    return program_status(p);
}

/* to = cap · tanh(z / cap) */
static enum status lower_cap(struct lowering *l, const struct node *n, struct value *z, struct value *to)
{
    const struct op *cap = l->program->ops[OP_softcap];
    return lower_launch(l, &cap->kernel, 2, (struct value *[]){z, to}, n->size, n->number, value_elements(z), cap->block);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    struct program *p = l->program;
    int64_t chunk = linear_cross_entropy_chunk_rows(l, n->size[R], n->size[V]);
    struct value *logits = program_scratch(p, p->types[ROLE_STATISTIC], 2, SHAPE(chunk, n->size[V]));
    for (int64_t r = 0; r < n->size[R]; r += chunk) {
        int64_t rows = n->size[R] - r < chunk ? n->size[R] - r : chunk;
        struct value *z = program_rows(p, logits, 0, rows);
        struct value *values[ROW_OPERANDS] = {z, program_rows(p, n->in[TARGETS], r, rows),
                                              program_rows(p, n->out[LOSS], r, rows)};
        struct value *x = program_rows(p, n->in[X], r, rows);
        TRY(program_status(p));
        TRY(lower_product(l, x, n->in[W], false, z, (struct lower_with){.part = true}));
        if (n->number[CAP] > 0)
            TRY(lower_cap(l, n, z, z));
        TRY(lower_launch(l, &kernel, ROW_OPERANDS, values, n->size, n->number, rows, 1));
    }
    return OK;
}

static enum status gradient(struct program *p, const struct node *n)
{
    struct value *dw = gradient_wanted(n, W) ? gradient_sum(p, n, W) : NULL;
    struct value *dx =
        linear_cross_entropy_capped_both(p, n->in[X], n->in[W], n->in[TARGETS], gradient_of(p, n, LOSS), dw, n->number[CAP]);
    return gradient_add(p, n, X, dx);
}

static double flops(const struct node *n)
{
    return 2.0 * (double)n->size[R] * (double)n->size[C] * (double)n->size[V];
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    if (strcmp(input, "targets") != 0) {
        example_fill_weight(input, to, count, d);
        return;
    }
    for (int64_t r = 0; r < count; r++)
        to[r] = r % 7 == 6 ? -1 : example_number(r, d[2]);
}

#define SIZES                                                                                                                    \
    {                                                                                                                            \
        {"R", {1, 8, 37}}, {"C", {1, 16, 65}},                                                                                   \
        {                                                                                                                        \
            "V",                                                                                                                 \
            {                                                                                                                    \
                1, 17, 512, 1000                                                                                                 \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static struct value *build(struct program *p, const int64_t *d)
{
    return linear_cross_entropy(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                                program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]),
                                program_input(p, "targets", ROLE_INDEX, 1, d[0]));
}

static struct value *build_capped(struct program *p, const int64_t *d)
{
    return linear_cross_entropy_capped(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                                       program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]),
                                       program_input(p, "targets", ROLE_INDEX, 1, d[0]), 1.5);
}

static struct value *build_stored(struct program *p, const int64_t *d)
{
    return linear_cross_entropy(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), example_weight(p, d[3], d[2], d[1]),
                                program_input(p, "targets", ROLE_INDEX, 1, d[0]));
}

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .axes = SIZES},
    {.build = build_capped, .fill = fill, .axes = {{"R", {1, 37}}, {"C", {65}}, {"V", {17, 1000}}}},
    {.build = build_stored,
     .fill = fill,
     .adjust = example_adjust_weight,
     .axes = {{"R", {1, 37}}, {"C", {64, 192}}, {"V", {17, 1000}}, {"type", {UPTO(WEIGHT_SAMPLES)}}}},
    {.build = build, .fill = fill, .forward_only = true, .axes = {{"R", {35}}, {"C", {2}}, {"V", {300000}}}},
    {0},
};

const struct op OP(linear_cross_entropy) = {
    .name = "linear_cross_entropy",
    .formula = "loss[r] = lse[r] − z[r, targets[r]], lse = log Σ exp(z), z = x · wᵀ, capped as softcap does if a cap is given",
    .inputs = {"x", "w", "targets"},
    .outputs = {"loss"},
    .shape = shape,
    .gradient = gradient,
    .lower = lower,
    .flops = flops,
    .examples = examples,
};

/* --- backward ----------------------------------------------------------------------------------------------------------- */

enum { BWD_X, BWD_W, BWD_TARGETS, BWD_DLOSS, BWD_DW, BWD_OLD, BWD_ADVANTAGES, BWD_SETTINGS }; /* from old on: of another loss */
enum { BWD_DX, BWD_LOSS, BWD_NLL };                                                           /* the last one of another loss */
enum { BWD_CAP, BWD_OP }; /* numbers: of the logits, as CAP; the loss's op */

/* The probabilities are exponentials divided by their own sum, not exp(z − log Σ): they must add up to 1 to the last digit,
 * because the excess has the same sign in every row and does not average out in the weights' gradients. Overwrites the logits. */
enum { ROW_BWD_Z, ROW_BWD_TARGETS, ROW_BWD_DLOSS, ROW_BWD_DZ, ROW_BWD_LOSS, ROW_BWD_OPERANDS };

static ALWAYS_INLINE void body_bwd(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const int32_t *targets = c->data[ROW_BWD_TARGETS];
    real *loss = c->data[ROW_BWD_LOSS];
    void *dz = c->data[ROW_BWD_DZ];
    int64_t vocabulary = c->dim[V];
    for (int64_t r = begin; r < end; r++) {
        real *z = (real *)c->data[ROW_BWD_Z] + r * vocabulary, max = linear_cross_entropy_largest(z, vocabulary);
        real target = targets[r] < 0 ? 0 : z[targets[r]] - max; /* dz may be in the memory of z */
        real dloss = targets[r] < 0 ? 0 : ((const real *)c->data[ROW_BWD_DLOSS])[r];
        real total = exponentials(z, vocabulary, max, z, true), share = 1 / total;
        loss[r] = targets[r] < 0 ? 0 : real_log(total) - target;
        dloss = isfinite(loss[r]) ? dloss : loss[r]; /* so that the step is skipped */
        real at_target = targets[r] < 0 ? 0 : z[targets[r]] * share - 1;
        INDEPENDENT
        for (int64_t i = 0; i < vocabulary; i++)
            store(dt, dz, r * vocabulary + i, dloss * (z[i] * share));
        if (targets[r] >= 0)
            store(dt, dz, r * vocabulary + targets[r], dloss * at_target);
    }
}

KERNEL_BODY(linear_cross_entropy_backward)
{
    SPECIALISE(c->dtype[ROW_BWD_DZ], body_bwd, c, begin, end);
}

static const struct kernel kernel_bwd = {SIGNATURE_cross_entropy_bwd, .host = linear_cross_entropy_backward, .group = 256,
                                         .rows = 1};

static enum status shape_bwd(struct program *p, struct node *n)
{
    TRY(node_expect(n, BWD_X, 2, SHAPE(-1, -1)));
    n->size[R] = n->in[BWD_X]->shape[0];
    n->size[C] = n->in[BWD_X]->shape[1];
    TRY(node_expect(n, BWD_W, 2, SHAPE(-1, n->size[C])));
    n->size[V] = n->in[BWD_W]->shape[0];
    TRY(node_expect(n, BWD_TARGETS, 1, SHAPE(n->size[R])));
    TRY(node_expect(n, BWD_DLOSS, 1, SHAPE(n->size[R])));
    if (n->in[BWD_DW])
        TRY(node_expect(n, BWD_DW, 2, SHAPE(n->size[V], n->size[C])));
    for (int i = BWD_OLD; i < n->in_count; i++)
        TRY(node_expect(n, i, 1, SHAPE(i == BWD_SETTINGS ? LOSS_NUMBERS : n->size[R])));
    node_output(p, n, BWD_DX, p->types[ROLE_ACTIVATION], 2, n->in[BWD_X]->shape);
    node_output(p, n, BWD_LOSS, p->types[ROLE_STATISTIC], 1, SHAPE(n->size[R]));
    if (n->in_count > BWD_OLD)
        node_output(p, n, BWD_NLL, p->types[ROLE_STATISTIC], 1, SHAPE(n->size[R]));
    return program_status(p);
}

/* The loss's op on the rows [r, r + rows): from nll to the losses and dnll. */
static enum status lower_loss(struct lowering *l, const struct node *n, int64_t r, int64_t rows, struct value *nll,
                              struct value *dnll)
{
    struct program *p = l->program;
    const struct op *loss = p->ops[(int)n->number[BWD_OP]];
    struct value *values[LOSS_INPUTS + LOSS_OUTPUTS] = {
        [LOSS_NLL] = nll,
        [LOSS_WEIGHTS] = program_rows(p, n->in[BWD_DLOSS], r, rows),
        [LOSS_OLD] = program_rows(p, n->in[BWD_OLD], r, rows),
        [LOSS_ADVANTAGES] = program_rows(p, n->in[BWD_ADVANTAGES], r, rows),
        [LOSS_SETTINGS] = n->in[BWD_SETTINGS],
        [LOSS_INPUTS + LOSS_LOSS] = program_rows(p, n->out[BWD_LOSS], r, rows),
        [LOSS_INPUTS + LOSS_DNLL] = dnll,
    };
    TRY(program_status(p));
    return lower_launch(l, &loss->kernel, LOSS_INPUTS + LOSS_OUTPUTS, values, n->size, n->number, rows, loss->block);
}

/* From dy of capped logits to dz of the logits z as they were, which it may overwrite. */
static enum status lower_cap_bwd(struct lowering *l, const struct node *n, struct value *z, struct value *dy, struct value *dz)
{
    const struct op *cap = l->program->ops[OP_softcap_bwd];
    return lower_launch(l, &cap->kernel, 3, (struct value *[]){z, dy, dz}, n->size, n->number, value_elements(z), cap->block);
}

static enum status lower_bwd(struct lowering *l, const struct node *n)
{
    struct program *p = l->program;
    int64_t chunk = linear_cross_entropy_chunk_rows(l, n->size[R], n->size[V]);
    enum dtype type = p->types[ROLE_ACTIVATION];
    bool other = n->in_count > BWD_OLD, capped = n->number[BWD_CAP] > 0;
    struct value *dnll = other ? program_scratch(p, p->types[ROLE_STATISTIC], 1, SHAPE(chunk)) : NULL;
    struct value *logits = program_scratch(p, p->types[ROLE_STATISTIC], 2, SHAPE(chunk, n->size[V]));
    struct value *limited = capped ? program_scratch(p, p->types[ROLE_STATISTIC], 2, SHAPE(chunk, n->size[V])) : logits;
    struct value *dlogits = type == p->types[ROLE_STATISTIC] ? logits : program_scratch(p, type, 2, SHAPE(chunk, n->size[V]));
    for (int64_t r = 0; r < n->size[R]; r += chunk) {
        int64_t rows = n->size[R] - r < chunk ? n->size[R] - r : chunk;
        struct value *x = program_rows(p, n->in[BWD_X], r, rows), *dx = program_rows(p, n->out[BWD_DX], r, rows);
        struct value *z = program_rows(p, logits, 0, rows), *dz = program_rows(p, dlogits, 0, rows);
        struct value *y = program_rows(p, limited, 0, rows), *dy = capped ? y : dz;
        struct value *targets = program_rows(p, n->in[BWD_TARGETS], r, rows);
        struct value *dloss = program_rows(p, n->in[BWD_DLOSS], r, rows), *loss = program_rows(p, n->out[BWD_LOSS], r, rows);
        TRY(program_status(p));
        TRY(lower_product(l, x, n->in[BWD_W], false, z, (struct lower_with){.part = true}));
        if (capped)
            TRY(lower_cap(l, n, z, y));
        if (other) {
            loss = program_rows(p, n->out[BWD_NLL], r, rows);
            dloss = program_rows(p, dnll, 0, rows);
            TRY(program_status(p));
            TRY(lower_launch(l, &kernel, ROW_OPERANDS, (struct value *[]){y, targets, loss}, n->size, n->number, rows, 1));
            TRY(lower_loss(l, n, r, rows, loss, dloss));
        }
        TRY(lower_launch(l, &kernel_bwd, ROW_BWD_OPERANDS, (struct value *[]){y, targets, dloss, dy, loss}, n->size, n->number,
                         rows, 1));
        if (capped)
            TRY(lower_cap_bwd(l, n, z, dy, dz));
        TRY(lower_product(l, dz, n->in[BWD_W], true, dx, (struct lower_with){0}));
        if (n->in[BWD_DW])
            TRY(lower_gemm(l, dz, true, x, false, n->in[BWD_DW], (struct lower_with){.accumulate = true}));
    }
    return OK;
}

static double flops_bwd(const struct node *n)
{
    return (n->in[BWD_DW] ? 3 : 2) * flops(n);
}

static struct value *build_bwd(struct program *p, const int64_t *d)
{
    return NODE(p, linear_cross_entropy_bwd, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]),
                program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]), program_input(p, "targets", ROLE_INDEX, 1, d[0]),
                program_input(p, "dloss", ROLE_STATISTIC, 1, d[0]),
                d[3] > 1 ? program_input(p, "dw", ROLE_GRADIENT, 2, d[2], d[1]) : NULL);
}

static struct value *build_bwd_capped(struct program *p, const int64_t *d)
{
    return linear_cross_entropy_capped_both(
        p, program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]), program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]),
        program_input(p, "targets", ROLE_INDEX, 1, d[0]), program_input(p, "dloss", ROLE_STATISTIC, 1, d[0]),
        program_input(p, "dw", ROLE_GRADIENT, 2, d[2], d[1]), 1.5);
}

static const struct op_example examples_bwd[] = {
    {.build = build_bwd, .fill = fill, .axes = {{"R", {1, 8, 37}}, {"C", {8, 16, 65}}, {"V", {2, 17, 512}}, {"parts", {1, 2}}}},
    {.build = build_bwd_capped, .fill = fill, .axes = {{"R", {8, 37}}, {"C", {65}}, {"V", {17, 512}}}},
    {0},
};

/* Ratios on both sides of the clipping limits. */
static double adjust_loss(const char *input, int64_t index, double random)
{
    return !strcmp(input, "settings")  ? 0.2 + 0.1 * (double)index
           : !strcmp(input, "old")     ? -fabs(random) - 2
           : !strcmp(input, "weights") ? fabs(random)
                                       : random;
}

static struct value *build_loss(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[0], d[1]);
    struct value *w = program_input(p, "w", ROLE_WEIGHT, 2, d[2], d[1]);
    struct value *dw = d[3] > 1 ? program_input(p, "dw", ROLE_GRADIENT, 2, d[2], d[1]) : NULL;
    struct loss_inputs in = {.weights = program_input(p, "weights", ROLE_STATISTIC, 1, d[0]),
                             .old = program_input(p, "old", ROLE_STATISTIC, 1, d[0]),
                             .advantages = program_input(p, "advantages", ROLE_STATISTIC, 1, d[0]),
                             .settings = program_input(p, "settings", ROLE_STATISTIC, 1, (int64_t)LOSS_NUMBERS),
                             .cap = d[4] > 1 ? 1.5 : 0};
    struct loss_outputs out;
    return linear_loss(p, loss_of(LOSS_ppo), x, w, program_input(p, "targets", ROLE_INDEX, 1, d[0]), &in, dw, &out);
}

static const struct op_example examples_loss[] = {
    {.build = build_loss,
     .fill = fill,
     .adjust = adjust_loss,
     .axes = {{"R", {8, 37}}, {"C", {16}}, {"V", {17}}, {"parts", {1, 2}}, {"capped", {1, 2}}}},
    {0},
};

const struct op OP(linear_cross_entropy_bwd) = {
    .name = "linear_cross_entropy_bwd",
    .formula = "loss as above; dz = dloss · (exp(z − lse) − onehot), through the cap, dx = dz · w, dw += dzᵀ · x",
    .inputs = {"x", "w", "targets", "dloss", "dw?"},
    .outputs = {"dx", "loss"},
    .shape = shape_bwd,
    .lower = lower_bwd,
    .flops = flops_bwd,
    .examples = examples_bwd,
};

const struct op OP(linear_loss_bwd) = {
    .name = "linear_loss_bwd",
    .formula = "nll = lse − z[r, targets[r]], and from it loss, dnll of another loss by row; "
               "dz = dnll · (exp(z − lse) − onehot), through the cap, dx = dz · w, dw += dzᵀ · x",
    .inputs = {"x", "w", "targets", "weights", "dw?", "old", "advantages", "settings"},
    .outputs = {"dx", "loss", "nll"},
    .shape = shape_bwd,
    .lower = lower_bwd,
    .flops = flops_bwd,
    .examples = examples_loss,
};
