/* The op driver. Every case is declared once, next to its op, and used in several ways:
 *
 *     ops forward [--device NAME] [OP]     each case in float32, bfloat16 and, where kernels are compiled, float16
 *                                          against the double-precision reference
 *     ops gradient [OP]                    gradients in double against differences of the forward pass
 *     ops gradient --device NAME [OP]      gradients in float32 on a device against the same in double
 *     ops rounding [--device NAME]         linear layers and adapters in 16 bits: the exact result, rounded once (rounding.c)
 *     ops perf [--device NAME] [OP]        the time of each op's largest case
 *     ops docs                             docs/ops.md is what the table of ops says (HONE_UPDATE_DOCS=1 writes it)
 *
 * --pairs, before OP, takes only as many cases as cover every pair of values of two axes, instead of every combination: it misses
 * only edges that need three certain sizes at once. --values takes as many as have every value of each axis once: 841 instead of
 * 2097, which use 413 of 428 variants of kernels.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "case.h"

enum { CASES_MIN = 1000 };

static const double nmse_max[RUN_COUNT] = {[RUN_FLOAT32] = 1e-10, [RUN_BFLOAT16] = 1e-5, [RUN_FLOAT16] = 1e-6};
static const char *const run_names[RUN_COUNT] = {
    [RUN_FLOAT32] = "float32", [RUN_BFLOAT16] = "bfloat16", [RUN_FLOAT16] = "float16", [RUN_FLOAT64] = "float64"};
static const double gradient_rtol = 1e-5, gradient_step = 1e-5;

static struct device *fast, *reference;
static enum { ALL, PAIRS, VALUES } cases;

typedef enum status visit(int op, const struct op_example *example, const int64_t *d);

static void print_case(FILE *to, int op, const struct op_example *e, const int64_t *d)
{
    fprintf(to, "%s", ops_table[op]->name);
    for (int a = 0; a < EXAMPLE_AXES && e->axes[a].name; a++)
        fprintf(to, " %s=%lld", e->axes[a].name, (long long)d[a]);
}

enum { PLACES = 64 }; /* of an axis: UPTO has more than a list; beyond them every case is taken */

/* The pairs of values, of two axes each, that were covered so far. An axis with itself is a pair too. */
struct pairs {
    bool seen[EXAMPLE_AXES][PLACES][EXAMPLE_AXES][PLACES];
};

/* Whether a case, by the places of its values, adds a new pair, or a new value. */
static bool pairs_add(struct pairs *p, const struct op_example *e, const int *at)
{
    bool added = !e->axes[0].name;
    for (int a = 0; a < EXAMPLE_AXES && e->axes[a].name; a++)
        if (at[a] >= PLACES)
            return true;
    for (int a = 0; a < EXAMPLE_AXES && e->axes[a].name; a++)
        for (int b = a; b < (cases == VALUES ? a + 1 : EXAMPLE_AXES) && e->axes[b].name; b++) {
            added |= !p->seen[a][at[a]][b][at[b]];
            p->seen[a][at[a]][b][at[b]] = true;
        }
    return added;
}

/* Every combination of an example's axes, or one for each pair. Returns how many there are; counts those whose visit failed. */
static int64_t visit_example(int op, const struct op_example *e, visit *each, int64_t *failed)
{
    int at[EXAMPLE_AXES] = {0};
    struct pairs pairs = {0};
    for (int64_t count = 0;;) {
        int64_t d[EXAMPLE_AXES] = {0};
        for (int a = 0; a < EXAMPLE_AXES && e->axes[a].name; a++)
            d[a] = example_value(e, a, at[a]);
        bool wanted = cases == ALL || pairs_add(&pairs, e, at);
        count += wanted;
        if (wanted && each && each(op, e, d) != OK) {
            ++*failed;
            printf("FAILED ");
            print_case(stdout, op, e, d);
            printf(": %s\n", status_message());
        }
        int a = 0;
        for (; a < EXAMPLE_AXES && e->axes[a].name; a++) {
            if (example_value(e, a, ++at[a]))
                break;
            at[a] = 0;
        }
        if (a == EXAMPLE_AXES || !e->axes[a].name)
            return count;
    }
}

static int64_t visit_op(int op, visit *each, int64_t *failed)
{
    int64_t count = 0;
    for (const struct op_example *e = ops_table[op]->examples; e && e->build; e++)
        count += visit_example(op, e, each, failed);
    return count;
}

/* By the op's name: an op that is new leaves the cases of others as they are. */
static uint64_t seed_of(int op, const int64_t *d)
{
    uint64_t seed = 1;
    for (const char *c = ops_table[op]->name; *c; c++)
        seed = seed * 31 + (unsigned char)*c;
    for (int a = 0; a < EXAMPLE_AXES; a++)
        seed = seed * 1000003u + (uint64_t)d[a];
    return seed;
}

/* --- forward ------------------------------------------------------------------------------------------------------------ */

static double worst_nmse[RUN_COUNT];

/* NMSE is a mean: cases with few elements are run with several random inputs until there are enough. */
enum { ELEMENTS_MIN = 4096, REPEATS_MAX = 64, DEVICE_REPEATS_MAX = 8, INPUTS_MAX = 1 << 18 };

struct sums {
    double error, size, largest;
};

/* Whether float16 holds the numbers of a result: cases are made for types with float32's range. */
static bool fits(enum run_type run, const struct sums *sums)
{
    return run != RUN_FLOAT16 || (sums->largest > 1e-3 && sums->largest < 65504);
}

static enum status add_value(struct op_case *c, const struct value *v, struct op_case *ref, const struct value *r,
                             struct sums *sums)
{
    double *got = NULL, *want = NULL;
    enum status status = case_read(c, v, &got);
    if (status == OK)
        status = case_read(ref, r, &want);
    for (int64_t i = 0; status == OK && i < value_elements(v); i++) {
        sums->error += (got[i] - want[i]) * (got[i] - want[i]);
        sums->size += want[i] * want[i] + 1e-20; /* what is zero except for rounding */
        sums->largest = fabs(want[i]) > sums->largest ? fabs(want[i]) : sums->largest;
    }
    memory_free(got);
    memory_free(want);
    return status;
}

static enum status run_both(struct op_case *c, struct op_case *ref, struct sums *sums)
{
    case_fill(c);
    case_copy_inputs(ref, c);
    TRY(engine_run(&c->engine, c->index));
    TRY(engine_run(&ref->engine, ref->index));
    const struct node *n = c->result->producer, *r = ref->result->producer;
    for (int i = 0; i < n->out_count; i++) /* what is only rounded has no output of its own in double precision */
        TRY(add_value(c, n->out[i], ref, i < r->out_count ? r->out[i] : ref->result, &sums[i]));
    return OK;
}

static enum status compare_outputs(struct op_case *c, struct op_case *ref, enum run_type run)
{
    struct sums sums[NODE_OUTPUTS] = {0};
    const struct node *n = c->result->producer;
    int64_t elements = value_elements(n->out[0]);
    int64_t inputs = 0;
    enum status status = OK;
    for (int i = 0; i < c->input_count; i++)
        inputs += value_elements(c->input[i]);
    for (int i = 0; i == 0 || (i < REPEATS_MAX && i * elements < ELEMENTS_MIN && i * inputs < INPUTS_MAX); i++, c->seed += 1000)
        TRY(run_both(c, ref, sums));
    for (int i = 0; i < n->out_count; i++) {
        double nmse = sums[i].error / sums[i].size;
        if (!fits(run, &sums[i]))
            continue;
        if (nmse > worst_nmse[run])
            worst_nmse[run] = nmse;
        if (!(nmse <= nmse_max[run]))
            status = fail(ERR_DATA, "%s: output %s is off by NMSE %.2e, at most %.0e", run_names[run], n->op->outputs[i], nmse,
                          nmse_max[run]);
    }
    return status;
}

static enum status forward_run(int op, const struct op_example *e, const int64_t *d, enum run_type run)
{
    struct op_case c, ref = {0};
    enum status status = case_build(&c, e, d, seed_of(op, d), ops_table, run);
    if (status == OK)
        status = case_prepare(&c, fast);
    if (status == OK)
        status = case_build(&ref, e, d, 0, ops_table_double, RUN_FLOAT64);
    if (status == OK)
        status = case_prepare(&ref, reference);
    if (status == OK)
        status = compare_outputs(&c, &ref, run);
    case_free(&c);
    case_free(&ref);
    return status;
}

/* There is no bfloat16 on a processor without AVX-512. */
static bool has_bfloat16(void)
{
    return device_multiplies(fast, DTYPE_BF16);
}

/* Every kernel's text is one for all devices, and the simulator runs all of them in float16. So with each size once OpenCL has
 * only ops here that show how it reads, computes and writes float16: compiling all takes a third of the time. */
static bool has_float16(int op)
{
    bool shows = op == OP_add || op == OP_cast || op == OP_linear || op == OP_rmsnorm;
    return fast->class->compiles && (shows || cases != VALUES || strcmp(fast->class->name, "opencl"));
}

static enum status forward_case(int op, const struct op_example *e, const int64_t *d)
{
    TRY(forward_run(op, e, d, RUN_FLOAT32));
    struct device_info info;
    device_info(fast, &info);
    if (has_bfloat16())
        TRY(forward_run(op, e, d, RUN_BFLOAT16));
    else if (info.bf16 || fast->class->compiles)
        return fail(ERR_INTERNAL, "this device has units for bfloat16, and no matmul");
    return has_float16(op) ? forward_run(op, e, d, RUN_FLOAT16) : OK;
}

/* --- gradient ----------------------------------------------------------------------------------------------------------- */

static double worst_gradient;
static int64_t gradient_checks;

/* Σ of the result times the cotangent, with one input moved by `step` along a direction. */
static enum status loss_at(struct op_case *c, const struct value *moved, const double *at, const double *direction, double step,
                           const double *cotangent, double *loss)
{
    double *input = engine_input(&c->engine, moved), *y = NULL;
    for (int64_t i = 0; i < value_elements(moved); i++)
        input[i] = at[i] + step * direction[i];
    TRY(engine_run(&c->engine, c->index));
    enum status status = case_read(c, c->result, &y);
    *loss = 0;
    for (int64_t i = 0; status == OK && i < value_elements(c->result); i++)
        *loss += y[i] * cotangent[i];
    memory_free(y);
    return status;
}

static double looser(const struct op_case *c)
{
    return c->example->looser > 0 ? (double)c->example->looser : 1;
}

static enum status check_input(struct op_case *c, const struct value *v, const double *cotangent, uint64_t seed)
{
    int64_t n = value_elements(v);
    double *at = case_input_values(c, v), *direction = memory_alloc(n * 8), *gradient = NULL, up, down, along = 0, size = 0;
    enum status status = at && direction ? OK : ERR_MEMORY;
    if (status == OK)
        status = engine_run(&c->engine, c->index);
    if (status == OK)
        status = case_read(c, v->gradient, &gradient);
    for (int64_t i = 0; status == OK && i < n; i++) {
        float pair[2];
        struct philox r = philox(seed, 77, (uint64_t)i);
        philox_normal(r.word[0], r.word[1], pair);
        direction[i] = (double)pair[0];
        along += gradient[i] * direction[i];
        size += fabs(gradient[i] * direction[i]);
    }
    if (status == OK)
        status = loss_at(c, v, at, direction, gradient_step, cotangent, &up);
    if (status == OK)
        status = loss_at(c, v, at, direction, -gradient_step, cotangent, &down);
    if (status == OK) {
        size += 1e-6 * (fabs(up) + fabs(down)); /* a gradient that is zero except for rounding */
        double error = fabs((up - down) / (2 * gradient_step) - along) / (size + 1e-300);
        gradient_checks++;
        if (error > worst_gradient)
            worst_gradient = error;
        double most = gradient_rtol * looser(c);
        if (!(error <= most))
            status = fail(ERR_DATA, "the gradient of %s is off by %.2e, at most %.0e", v->name, error, most);
        memcpy(engine_input(&c->engine, v), at, (size_t)n * 8);
    }
    memory_free(at);
    memory_free(direction);
    memory_free(gradient);
    return status;
}

static enum status gradient_case(int op, const struct op_example *e, const int64_t *d)
{
    if (!ops_table[op]->gradient || e->forward_only)
        return OK;
    struct op_case c;
    double *cotangent = NULL;
    enum status status = case_build_gradient(&c, e, d, seed_of(op, d), ops_table_double, RUN_FLOAT64);
    if (status == OK)
        status = case_prepare(&c, reference);
    if (status == OK) {
        case_fill(&c);
        cotangent = case_input_values(&c, c.input[c.input_count - 1]);
    }
    for (int k = 0; k < c.input_count && status == OK; k++)
        if (c.input[k]->gradient)
            status = check_input(&c, c.input[k], cotangent, seed_of(op, d));
    memory_free(cotangent);
    case_free(&c);
    return status;
}

/* The gradients of one round of random inputs, by input; the cotangent's is its own size. */
static enum status compare_gradients(struct op_case *c, struct op_case *ref, struct sums *sums)
{
    int last = ref->input_count - 1;
    case_fill(c);
    case_copy_inputs(ref, c);
    TRY(engine_run(&c->engine, c->index));
    TRY(engine_run(&ref->engine, ref->index));
    for (int k = 0; k < c->input_count; k++)
        if (c->input[k]->gradient)
            TRY(add_value(c, c->input[k]->gradient, ref, ref->input[k]->gradient, &sums[k]));
    double *cotangent = case_input_values(ref, ref->input[last]);
    for (int64_t i = 0; cotangent && i < value_elements(ref->input[last]); i++)
        sums[last].size += cotangent[i] * cotangent[i];
    memory_free(cotangent);
    return cotangent ? OK : ERR_MEMORY;
}

/* NMSE of a gradient. Where its squares are 1e-2 of those that flow in or less (the softmax of one key, the norm of one channel),
 * it is the rounding of larger terms that cancel, on every device: it is measured relative to those. */
static double gradient_nmse(const struct op_case *c, const struct sums *sums, int k)
{
    int last = c->input_count - 1;
    double flow = sums[last].size / (double)value_elements(c->input[last]) * (double)value_elements(c->input[k]);
    return sums[k].error / fmax(sums[k].size, 1e-2 * flow);
}

static enum status compare_to_reference(struct op_case *c, struct op_case *ref)
{
    struct sums sums[CASE_VALUES] = {0};
    int64_t elements = value_elements(c->result);
    enum status status = OK;
    for (int i = 0; i == 0 || (i < DEVICE_REPEATS_MAX && i * elements < ELEMENTS_MIN); i++, c->seed += 1000)
        TRY(compare_gradients(c, ref, sums));
    for (int k = 0; k < c->input_count; k++) {
        if (!c->input[k]->gradient)
            continue;
        double nmse = gradient_nmse(c, sums, k);
        gradient_checks++;
        worst_nmse[RUN_FLOAT32] = nmse > worst_nmse[RUN_FLOAT32] ? nmse : worst_nmse[RUN_FLOAT32];
        double most = nmse_max[RUN_FLOAT32] * looser(c);
        if (!(nmse <= most))
            status = fail(ERR_DATA, "the gradient of %s is off by NMSE %.2e, at most %.0e", c->input[k]->name, nmse, most);
    }
    return status;
}

/* Devices have no doubles to take differences in: their gradients are compared with those of the reference, which has. */
static enum status device_gradient_case(int op, const struct op_example *e, const int64_t *d)
{
    if (!ops_table[op]->gradient || e->forward_only)
        return OK;
    struct op_case c, ref = {0};
    enum status status = case_build_gradient(&c, e, d, seed_of(op, d), ops_table, RUN_FLOAT32);
    if (status == OK)
        status = case_prepare(&c, fast);
    if (status == OK)
        status = case_build_gradient(&ref, e, d, seed_of(op, d), ops_table_double, RUN_FLOAT64);
    if (status == OK)
        status = case_prepare(&ref, reference);
    if (status == OK)
        status = compare_to_reference(&c, &ref);
    case_free(&c);
    case_free(&ref);
    return status;
}

/* --- rounding ----------------------------------------------------------------------------------------------------------- */

static struct rounding_counts roundings[RUN_COUNT];

static enum status rounding_both(int op, const struct op_example *e, const int64_t *d)
{
    (void)op;
    TRY(rounding_case(fast, reference, e, d, RUN_FLOAT32, &roundings[RUN_FLOAT32]));
    TRY(rounding_case(fast, reference, e, d, RUN_BFLOAT16, &roundings[RUN_BFLOAT16]));
    return fast->class->compiles ? rounding_case(fast, reference, e, d, RUN_FLOAT16, &roundings[RUN_FLOAT16]) : OK;
}

/* Cases that are all exact already would tell nothing. */
static enum status rounding_all(int64_t *count, int64_t *failed)
{
    const struct rounding_counts *c = &roundings[RUN_BFLOAT16];
    for (int i = 0; rounding_examples[i]; i++)
        *count += visit_example(OP_linear_lora, rounding_examples[i], rounding_both, failed);
    return c->rounded > c->elements / 16
               ? OK
               : fail(ERR_DATA, "only %lld of %lld elements need a rounding", (long long)c->rounded, (long long)c->elements);
}

/* --- perf --------------------------------------------------------------------------------------------------------------- */

static const struct op_example *largest;
static int64_t largest_d[EXAMPLE_AXES];

static enum status find_largest(int op, const struct op_example *e, const int64_t *d)
{
    (void)op;
    double size = 1, best = 1;
    for (int a = 0; a < EXAMPLE_AXES; a++) {
        size *= d[a] ? (double)d[a] : 1;
        best *= largest && largest_d[a] ? (double)largest_d[a] : 1;
    }
    if (!largest || size >= best) {
        largest = e;
        memcpy(largest_d, d, sizeof largest_d);
    }
    return OK;
}

static enum status time_case(struct op_case *c, double *best)
{
    TRY(case_prepare(c, fast));
    case_fill(c);
    struct operand inputs = {c->engine.blocks[c->engine.life_block[LIFE_INPUTS]].block, 0};
    *best = 1e9;
    for (int i = 0; i < 7; i++) {
        int32_t word;
        double start = clock_seconds();
        TRY(engine_run(&c->engine, c->index));
        TRY(device_read(fast, &word, inputs, sizeof word)); /* waits for the run */
        double time = clock_seconds() - start;
        *best = time < *best ? time : *best;
    }
    return OK;
}

static void print_time(int op, enum run_type run, const struct op_case *c, double best)
{
    double flops = 0;
    for (const struct node *n = c->program.first; n; n = n->next)
        flops += n->op->flops ? n->op->flops(n) : 0;
    print_case(stdout, op, largest, largest_d);
    printf(" %s: %.1f us", run_names[run], best * 1e6);
    if (flops > 0)
        printf(", %.1f GFLOP/s", flops / best * 1e-9);
    printf("\n");
}

static enum status time_op(int op, enum run_type run)
{
    struct op_case c;
    double best = 0;
    enum status status = case_build(&c, largest, largest_d, 1, ops_table, run);
    if (status == OK)
        status = time_case(&c, &best);
    if (status == OK)
        print_time(op, run, &c, best);
    case_free(&c);
    return status;
}

static enum status perf_op(int op)
{
    int64_t failed = 0;
    largest = NULL;
    visit_op(op, find_largest, &failed);
    TRY(time_op(op, RUN_FLOAT32));
    return time_op(op, RUN_BFLOAT16);
}

/* --- docs --------------------------------------------------------------------------------------------------------------- */

static enum status names(struct buffer *b, const char *const *list)
{
    for (int i = 0; list[i]; i++)
        TRY(buffer_format(b, "%s%s", i ? ", " : "", list[i]));
    return OK;
}

/* A bar of the formula would end the table's cell. */
static enum status put_formula(struct buffer *b, const char *formula)
{
    for (const char *bar; (bar = strchr(formula, '|')); formula = bar + 1)
        TRY(buffer_format(b, "%.*s\\|", (int)(bar - formula), formula));
    return buffer_format(b, "%s | ", formula);
}

static enum status write_docs(struct buffer *b)
{
    TRY(buffer_format(b, "# Ops\n\nMade from `src/ops/ops.def` by `make docs`. An optional input ends with `?`; an output that "
                         "has an input's name is added to in place.\n\n"
                         "| op | formula | inputs | outputs | gradient | cases |\n|---|---|---|---|---|---|\n"));
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op *o = ops_table[op];
        int64_t failed = 0;
        TRY(buffer_format(b, "| %s | ", o->name));
        TRY(put_formula(b, o->formula));
        TRY(names(b, o->inputs));
        TRY(buffer_format(b, " | "));
        TRY(names(b, o->outputs));
        TRY(buffer_format(b, " | %s | %lld |\n", o->gradient ? "yes" : "", (long long)visit_op(op, NULL, &failed)));
    }
    return OK;
}

static enum status docs(void)
{
    struct buffer made = {0}, there = {0};
    enum status status = write_docs(&made);
    if (status == OK && getenv("HONE_UPDATE_DOCS"))
        status = file_replace("docs/ops.md", made.data, made.size);
    if (status == OK)
        status = file_read(&there, "docs/ops.md", 1 << 20);
    if (status == OK && (made.size != there.size || memcmp(made.data, there.data, (size_t)made.size)))
        status = fail(ERR_DATA, "docs/ops.md is not what the table of ops says: run `make docs` and commit the result");
    buffer_free(&made);
    buffer_free(&there);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------ */

static void print_counts(const char *mode, const char *device, int64_t count)
{
    const struct device_counters *c = &fast->counters;
    if (!strcmp(mode, "forward"))
        printf("%lld cases of %d ops, each in float32 (worst NMSE %.1e) and bfloat16 (%s%.1e), ", (long long)count, (int)OP_COUNT,
               worst_nmse[RUN_FLOAT32], has_bfloat16() ? "worst " : "not on this processor, ", worst_nmse[RUN_BFLOAT16]);
    if (!strcmp(mode, "forward") && fast->class->compiles)
        printf("in float16 too (worst %.1e), ", worst_nmse[RUN_FLOAT16]);
    if (!strcmp(mode, "gradient") && device)
        printf("%lld gradients in float32, worst NMSE %.1e, ", (long long)gradient_checks, worst_nmse[RUN_FLOAT32]);
    if (!strcmp(mode, "gradient") && !device)
        printf("%lld gradients, worst off by %.1e, ", (long long)gradient_checks, worst_gradient);
    if (!strcmp(mode, "rounding"))
        printf("%lld cases; %lld of %lld elements in bfloat16 rounded once, ", (long long)count,
               (long long)roundings[RUN_BFLOAT16].rounded, (long long)roundings[RUN_BFLOAT16].elements);
    if (device)
        printf("on %s with %lld kernels compiled and %lld from the cache, ", device, (long long)c->compiled,
               (long long)c->loaded);
}

static enum status run_mode(const char *mode, const char *device, const char *only, int64_t *failed)
{
    if (!strcmp(mode, "docs"))
        return docs();
    bool rounds = !strcmp(mode, "rounding");
    visit *each = !strcmp(mode, "forward")   ? forward_case
                  : strcmp(mode, "gradient") ? NULL
                  : device                   ? device_gradient_case
                                             : gradient_case;
    if (!each && !rounds && strcmp(mode, "perf"))
        return fail(ERR_ARGUMENT, "usage: ops forward|gradient|rounding|perf|docs [--device NAME] [--pairs|--values] [OP]");
    TRY(device ? device_open(&fast, device) : cpu_open(&fast, &gemm_onednn));
    fast->panel_bytes = CASE_PANEL_BYTES;
    fast->chunk_bytes = CASE_CHUNK_BYTES;
    TRY(cpu_open(&reference, &gemm_double));
    double start = clock_seconds();
    int64_t count = 0;
    if (rounds)
        TRY(rounding_all(&count, failed));
    for (int op = 0; op < OP_COUNT && !rounds; op++) {
        if (only && strcmp(only, ops_table[op]->name))
            continue;
        if (each)
            count += visit_op(op, each, failed);
        else
            TRY(perf_op(op));
    }
    print_counts(mode, device, count);
    printf("%.1f s\n", clock_seconds() - start);
    if (each == forward_case && !only && cases == ALL && count < CASES_MIN)
        return fail(ERR_DATA, "%lld cases, at least %d are wanted", (long long)count, CASES_MIN);
    return *failed ? fail(ERR_DATA, "%lld cases failed", (long long)*failed) : OK;
}

int main(int argc, char **argv)
{
    int64_t failed = 0;
    bool named = argc > 3 && !strcmp(argv[2], "--device");
    int rest = named ? 4 : 2;
    if (argc > rest)
        cases = !strcmp(argv[rest], "--pairs") ? PAIRS : !strcmp(argv[rest], "--values") ? VALUES : ALL;
    rest += cases != ALL;
    enum status status = run_mode(argc > 1 ? argv[1] : "", named ? argv[3] : NULL, argc > rest ? argv[rest] : NULL, &failed);
    device_close(fast);
    device_close(reference);
    if (status != OK)
        printf("%s\n", status_message());
    return (int)status;
}
