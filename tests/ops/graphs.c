/* Gradients of random graphs.
 *
 *     graphs [FIRST COUNT]     the graphs of these seeds, or 400; prints what fails
 *
 * A graph is a random program of the ops that layers are made of, on values that are read again and again, through views and from
 * other segments. In double its gradients are held against differences of its forward pass, in float32 and bfloat16 against those
 * in double; and every mode of recomputing gives the bytes that keeping all values gives.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "case.h"

enum { T = 3, C = 8, LOW = 2, HEADS = 2, NODES = 20, VALUES = 2 * NODES + 1, WEIGHTS = 4, RESULTS = 8, DIRECTIONS = 3 };
enum { FIRST, LAST, UNTIL, BOUNDS }; /* of attention */

static const double step = 1e-5, gradient_rtol = 1e-6;
static const double nmse_max[RUN_COUNT] = {[RUN_FLOAT32] = 1e-9, [RUN_BFLOAT16] = 1e-2};
static struct device *fast, *reference;

/* --- the graph ------------------------------------------------------------------------------------------------------------- */

struct graph {
    uint64_t seed, drawn;
    struct store store;
    struct program program;
    struct engine engine;
    int64_t index;
    struct tensor *weight[WEIGHTS], *a[WEIGHTS], *b[WEIGHTS], *vector[WEIGHTS];
    struct tensor *all[4 * WEIGHTS];
    int all_count;
    struct value *activation[VALUES], *stream[VALUES]; /* in the type of activations, and of the residual stream */
    int activations, streams;
    struct value *x, *residual, *sequence, *positions, *draw, *bound[BOUNDS];
    struct value *result[RESULTS], *cotangent[RESULTS], *output[RESULTS];
    int results;
};

static uint32_t draw(struct graph *g, uint32_t below)
{
    return philox(g->seed, 1, g->drawn++).word[0] % below;
}

static double number(uint64_t seed, uint64_t what, uint64_t i)
{
    float pair[2];
    struct philox r = philox(seed, 2 + what, i);
    philox_normal(r.word[0], r.word[1], pair);
    return (double)bf16_to_f32(bf16_from_f32(pair[0]));
}

static enum status tensor(struct graph *g, struct tensor **out, char kind, int i, int rank, int64_t rows, int64_t columns)
{
    char name[32], sum[32];
    snprintf(name, sizeof name, "%c%d", kind, i);
    snprintf(sum, sizeof sum, "gradient.%c%d", kind, i);
    const enum dtype *types = g->program.types;
    bool trained = draw(g, 4) > 0;
    int64_t shape[] = {rows, columns};
    TRY(store_tensor(out, &g->store, name, trained ? LIFE_TRAINABLE : LIFE_WEIGHTS, types[ROLE_WEIGHT], rank, shape));
    if (trained)
        TRY(store_tensor(&(*out)->gradient, &g->store, sum, LIFE_GRADIENTS, types[ROLE_GRADIENT], rank, shape));
    g->all[g->all_count++] = *out;
    return OK;
}

static struct value *rows(struct program *p, struct value *v)
{
    return v ? program_view(p, v, 2, (int64_t)T, (int64_t)C) : NULL;
}

/* Often one of the last four. */
static struct value *any(struct graph *g, struct value **of, int count)
{
    int recent = draw(g, 2) && count > 4 ? 4 : count;
    struct value *v = of[count - 1 - (int)draw(g, (uint32_t)recent)];
    return draw(g, 4) ? v : rows(&g->program, v);
}

static struct value *weight_of(struct graph *g, struct tensor **from)
{
    return program_tensor(&g->program, from[draw(g, WEIGHTS)]);
}

static struct value *heads(struct program *p, struct value *v)
{
    return program_view(p, v, 3, (int64_t)T, (int64_t)HEADS, (int64_t)(C / HEADS));
}

static struct value *drop(struct graph *g, struct value *v)
{
    return dropout(&g->program, v, g->sequence, g->positions, g->draw, 0.25, draw(g, 99));
}

enum kind {
    LINEAR,
    BIAS,
    PAIR,
    LORA,         /* z is x */
    LORA_DROPOUT, /* z is x after dropout */
    LORA_OTHER,   /* z is another value */
    ADD,
    SCALE,
    SWIGLU,
    NORM,
    DROPOUT,
    HEADWISE, /* ops on views of another rank */
    ATTENTION,
    NARROWED, /* the stream in the type of activations */
    NORM_OF_STREAM,
    WIDENED, /* from here on the result is of the stream */
    STREAM,
    STREAM_SUM,
    STREAM_DROPOUT,
    STREAM_SCALE,
    KINDS,
};

/* An op of this kind on random values. */
static struct value *op_of(struct graph *g, enum kind kind)
{
    struct program *p = &g->program;
    struct value *x = any(g, g->activation, g->activations), *z = any(g, g->activation, g->activations);
    struct value *s = any(g, g->stream, g->streams), *w = weight_of(g, g->weight), *v = weight_of(g, g->vector);
    struct value *a = weight_of(g, g->a), *b = weight_of(g, g->b), *bias = draw(g, 2) ? v : NULL;
    double factor = 0.5 + draw(g, 8) * 0.25;
    switch (kind) {
    case LINEAR: return linear(p, x, w);
    case BIAS: return linear_bias(p, x, w, v);
    case PAIR: {
        struct value *y = linear_pair(p, x, w, weight_of(g, g->weight));
        if (y && draw(g, 4))
            g->activation[g->activations++] = y->producer->out[1];
        return y;
    }
    case LORA:
    case LORA_DROPOUT:
    case LORA_OTHER:
        z = kind == LORA ? x : kind == LORA_DROPOUT ? drop(g, x) : z;
        return linear_lora(p, x, w, bias, z, a, b, factor);
    case ADD: return add(p, x, z);
    case SCALE: return scale(p, x, -factor);
    case SWIGLU: return swiglu(p, x, z);
    case NORM: return rmsnorm(p, x, v, 1e-2);
    case DROPOUT: return drop(g, x);
    case HEADWISE: return rows(p, add(p, scale(p, heads(p, x), factor), heads(p, z)));
    case ATTENTION:
        return rows(p, attention(p, heads(p, x), heads(p, z), heads(p, any(g, g->activation, g->activations)), g->bound[FIRST],
                                 g->bound[LAST], g->bound[UNTIL], factor));
    case NARROWED: return NODE(p, cast, s, x);
    case NORM_OF_STREAM: return rmsnorm(p, s, v, 1e-2);
    case WIDENED: return NODE(p, cast, x, s);
    case STREAM: return add(p, s, x);
    case STREAM_SUM: return add(p, s, any(g, g->stream, g->streams));
    case STREAM_DROPOUT: return drop(g, s);
    case STREAM_SCALE:
    default: return scale(p, s, factor);
    }
}

/* Attention whose weights are near 1 loses the digits of its gradients in all types but double: half the graphs are without it,
 * and only those are held against double. */
static bool has_attention(uint64_t seed)
{
    return seed % 2;
}

static void add_op(struct graph *g)
{
    enum kind kind = (enum kind)draw(g, KINDS);
    struct value *v = op_of(g, kind == ATTENTION && !has_attention(g->seed) ? LINEAR : kind);
    if (v && kind >= WIDENED)
        g->stream[g->streams++] = v;
    else if (v)
        g->activation[g->activations++] = v;
}

static enum status build(struct graph *g, uint64_t seed, const struct op *const *table, enum run_type run, enum recompute mode)
{
    struct program *p = &g->program;
    *g = (struct graph){.seed = seed};
    TRY(store_init(&g->store));
    program_init(p, table, run);
    p->recompute = mode;
    for (int i = 0; i < WEIGHTS; i++) {
        TRY(tensor(g, &g->weight[i], 'w', i, 2, C, C));
        TRY(tensor(g, &g->a[i], 'a', i, 2, LOW, C));
        TRY(tensor(g, &g->b[i], 'b', i, 2, C, LOW));
        TRY(tensor(g, &g->vector[i], 'v', i, 1, C, 0));
    }
    g->x = program_input(p, "x", ROLE_ACTIVATION, 2, (int64_t)T, (int64_t)C);
    g->residual = program_input(p, "residual", ROLE_RESIDUAL, 2, (int64_t)T, (int64_t)C);
    g->sequence = program_input(p, "sequence", ROLE_INDEX, 1, (int64_t)T);
    g->positions = program_input(p, "positions", ROLE_INDEX, 1, (int64_t)T);
    g->draw = program_input(p, "draw", ROLE_INDEX, 1, (int64_t)4);
    for (int i = 0; i < BOUNDS; i++)
        g->bound[i] = program_input(p, "bound", ROLE_INDEX, 1, (int64_t)T);
    g->activation[g->activations++] = linear(p, g->x, program_tensor(p, g->weight[0]));
    g->stream[g->streams++] = add(p, g->residual, g->activation[0]);
    uint32_t nodes = 1 + draw(g, NODES), segments = draw(g, 4);
    for (uint32_t i = 0; i < nodes; i++) {
        if (segments && draw(g, 4) == 0) /* the next segment, or nodes of none */
            p->segment = draw(g, 4) ? (int64_t)i + 1 : 0;
        add_op(g);
    }
    p->segment = 0;
    g->results = 1 + (int)draw(g, RESULTS);
    for (int i = 0; i < g->results; i++) {
        bool wide = draw(g, 2);
        struct value *v = wide ? any(g, g->stream, g->streams) : any(g, g->activation, g->activations);
        g->result[i] = v = draw(g, 2) ? scale(p, v, 1) : v;
        g->cotangent[i] = program_input(p, "cotangent", wide ? ROLE_RESIDUAL : ROLE_ACTIVATION, 2, (int64_t)T, (int64_t)C);
        g->output[i] = program_output(p, v, "y");
    }
    TRY(program_status(p));
    return program_gradient(p, g->result, g->cotangent, g->results);
}

/* --- running it --------------------------------------------------------------------------------------------------------------
 */

static void fill(struct graph *g, struct value *v, uint64_t what)
{
    for (int64_t i = 0; i < value_elements(v); i++) {
        double x = number(g->seed, what, (uint64_t)i);
        dtype_convert((char *)engine_input(&g->engine, v) + i * dtype_size(v->dtype), v->dtype, &x, DTYPE_F64, 1);
    }
}

/* Element i of tensor k in direction d. */
static double direction(const struct graph *g, uint64_t d, int k, uint64_t i)
{
    return number(g->seed, 1000 + 100 * d + (uint64_t)k, i);
}

/* The weights, moved by `by` along direction d. */
static enum status upload(struct graph *g, double by, uint64_t d)
{
    for (int k = 0; k < g->all_count; k++) {
        double numbers[C * C];
        for (int64_t i = 0; i < tensor_elements(g->all[k]); i++)
            numbers[i] = 0.5 * number(g->seed, 100 + (uint64_t)k, (uint64_t)i) +
                         (g->all[k]->gradient ? by * direction(g, d, k, (uint64_t)i) : 0);
        TRY(engine_upload(&g->engine, g->all[k], numbers, DTYPE_F64));
    }
    return OK;
}

static enum status prepare(struct graph *g)
{
    TRY(engine_add(&g->engine, &g->program, &g->index));
    TRY(engine_place(&g->engine));
    TRY(engine_prepare(&g->engine));
    fill(g, g->x, 0);
    fill(g, g->residual, 1);
    for (int i = 0; i < g->results; i++)
        fill(g, g->cotangent[i], 2 + (uint64_t)i);
    for (int t = 0; t < T; t++) {
        ((int32_t *)engine_input(&g->engine, g->sequence))[t] = t / 2;
        ((int32_t *)engine_input(&g->engine, g->positions))[t] = t % 2;
        for (int i = 0; i < BOUNDS; i++)
            ((int32_t *)engine_input(&g->engine, g->bound[i]))[t] = (int32_t[]){[FIRST] = 0, [LAST] = t, [UNTIL] = T - 1}[i];
    }
    memcpy(engine_input(&g->engine, g->draw), (int32_t[]){7, 0, 1, 0}, 16);
    return upload(g, 0, 0);
}

/* Σ y · cotangent, with the weights moved. */
static enum status loss(struct graph *g, double by, uint64_t d, double *sum)
{
    TRY(upload(g, by, d));
    TRY(engine_run(&g->engine, g->index));
    *sum = 0;
    for (int i = 0; i < g->results; i++) {
        double y[T * C];
        TRY(engine_read(&g->engine, g->output[i], y));
        for (uint64_t k = 0; k < T * C; k++)
            *sum += y[k] * number(g->seed, 2 + (uint64_t)i, k);
    }
    return OK;
}

/* All gradients as bytes and as doubles, one after the other; a tensor without one has zeros. */
struct gradients {
    double numbers[4 * WEIGHTS][C * C];
    char bytes[4 * WEIGHTS][C * C * 8];
};

static enum status collect(struct graph *g, struct gradients *out)
{
    memset(out, 0, sizeof *out);
    for (int k = 0; k < g->all_count; k++) {
        const struct tensor *t = g->all[k]->gradient;
        if (!t)
            continue;
        TRY(engine_download(&g->engine, t, 0, out->bytes[k], tensor_bytes(t)));
        dtype_convert(out->numbers[k], DTYPE_F64, out->bytes[k], t->dtype, tensor_elements(t));
    }
    return OK;
}

/* The gradients along random directions of all weights, against differences of the loss. */
static enum status compare_differences(struct graph *g, const struct gradients *gradients)
{
    for (uint64_t d = 0; d < DIRECTIONS; d++) {
        double above, below, along = 0, size = 0;
        TRY(loss(g, step, d, &above));
        TRY(loss(g, -step, d, &below));
        for (int k = 0; k < g->all_count; k++)
            for (uint64_t i = 0; i < C * C; i++) {
                double part = gradients->numbers[k][i] * direction(g, d, k, i);
                along += part;
                size += fabs(part);
            }
        double found = (above - below) / (2 * step);
        if (!(fabs(found - along) <= gradient_rtol * (size + 1)))
            return fail(ERR_DATA, "a gradient of %.9g along a direction in which differences say %.9g", along, found);
    }
    return OK;
}

static enum status run_graph(uint64_t seed, enum run_type run, enum recompute mode, struct gradients *out)
{
    struct graph g;
    bool exact = run == RUN_FLOAT64;
    enum status status = build(&g, seed, exact ? ops_table_double : ops_table, run, mode);
    engine_init(&g.engine, exact ? reference : fast, &g.store);
    if (status == OK)
        status = prepare(&g);
    if (status == OK)
        status = engine_run(&g.engine, g.index);
    if (status == OK)
        status = collect(&g, out);
    if (status == OK && exact && mode == RECOMPUTE_NONE)
        status = compare_differences(&g, out);
    engine_free(&g.engine);
    program_free(&g.program);
    store_free(&g.store);
    return status;
}

static double nmse(const struct gradients *a, const struct gradients *b)
{
    double error = 0, size = 0;
    for (int k = 0; k < 4 * WEIGHTS; k++)
        for (int i = 0; i < C * C; i++) {
            error += pow(a->numbers[k][i] - b->numbers[k][i], 2);
            size += pow(b->numbers[k][i], 2);
        }
    return size > 0 ? error / size : error;
}

/* Prints what is wrong; returns how much. */
static int check(uint64_t seed, enum run_type run, const char *name, struct gradients *none, const struct gradients *exact)
{
    static const char *const modes[RECOMPUTE_COUNT] = {"none", "selective", "full"};
    static struct gradients other;
    int failed = 0;
    for (int mode = 0; mode < RECOMPUTE_COUNT; mode++) {
        if (run_graph(seed, run, (enum recompute)mode, mode ? &other : none) != OK)
            failed += printf("graph %d, %s, recompute %s: %s\n", (int)seed, name, modes[mode], status_message()) > 0;
        else if (mode && memcmp(none->bytes, other.bytes, sizeof other.bytes))
            failed += printf("graph %d, %s: recompute %s gives other bytes than none, NMSE %.1e\n", (int)seed, name, modes[mode],
                             nmse(&other, none)) > 0;
    }
    if (exact && !has_attention(seed) && !(nmse(none, exact) <= nmse_max[run]))
        failed += printf("graph %d, %s: NMSE %.1e against double\n", (int)seed, name, nmse(none, exact)) > 0;
    return failed;
}

int main(int argc, char **argv)
{
    static struct gradients exact, found;
    uint64_t first = argc > 2 ? strtoull(argv[1], NULL, 10) : 0, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 400;
    int failed = 0;
    if (device_open(&fast, "cpu") != OK || cpu_open(&reference, &gemm_double) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    for (uint64_t seed = first; seed < first + count; seed++) {
        failed += check(seed, RUN_FLOAT64, "float64", &exact, NULL);
        failed += check(seed, RUN_FLOAT32, "float32", &found, &exact);
        failed += check(seed, RUN_BFLOAT16, "bfloat16", &found, &exact);
    }
    printf("%d graphs, %d failures\n", (int)count, failed);
    device_close(fast);
    device_close(reference);
    return failed > 0;
}
