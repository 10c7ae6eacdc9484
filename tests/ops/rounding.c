/* Cases that tell one rounding from two: a linear layer, its bias and its adapter, forward and backward, with dropout, and inputs
 * that several layers read.
 *
 * All inputs are small integers or quarters, so that sums are exact in float32, and every part that is rounded at its own size
 * (low, the adapter's product, their gradients) is exact in bfloat16. So the double-precision reference is the exact result, and
 * the op's must be that, rounded once to its type: every bit of it.
 */
#include "case.h"

enum { T, IN, OUT, PARTS }; /* parts: 1 plain, 2 with a bias, 3 with dropout, 4 with both */
enum { RANK_OF_ADAPTER = 4 };

static double exact(const char *input, int64_t index, double random)
{
    (void)random;
    int32_t n = example_number(index * 31 + input[0] * 1009, 1 << 20) >> 4;
    switch (input[0]) {
    case 'a': return n % 16 == 0;
    case 'b': return !strcmp(input, "bias") ? 0.5 * (n % 64) : n % 8 ? 0 : 0.25;
    case 'w': return n % 8;
    case 'r': return 0; /* the residual stream */
    default: return n % 4;
    }
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    for (int64_t i = 0; i < count; i++)
        to[i] = input[0] == 'p' ? (int32_t)i : 5;
}

static struct value *layer(struct program *p, struct value *x, const int64_t *d, bool adapter, double scale, int64_t id)
{
    struct value *w = program_input(p, "w", ROLE_WEIGHT, 2, d[OUT], d[IN]);
    struct value *bias = d[PARTS] % 2 == 0 ? program_input(p, "bias", ROLE_WEIGHT, 1, d[OUT]) : NULL;
    if (!adapter)
        return linear_bias(p, x, w, bias);
    struct value *a = program_input(p, "a", ROLE_WEIGHT, 2, (int64_t)RANK_OF_ADAPTER, d[IN]);
    struct value *b = program_input(p, "b", ROLE_WEIGHT, 2, d[OUT], (int64_t)RANK_OF_ADAPTER);
    struct value *z = x;
    if (d[PARTS] > 2)
        z = dropout(p, x, program_input(p, "sequence", ROLE_INDEX, 1, d[T]), program_input(p, "positions", ROLE_INDEX, 1, d[T]),
                    program_input(p, "draw", ROLE_INDEX, 1, (int64_t)4), 0.5, id);
    return linear_lora(p, x, w, bias, z, a, b, scale);
}

static struct value *build_linear(struct program *p, const int64_t *d)
{
    return layer(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[T], d[IN]), d, false, 0, 0);
}

static struct value *build_lora(struct program *p, const int64_t *d)
{
    return layer(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[T], d[IN]), d, true, 0.5, 1);
}

/* Two layers of one input, as in a decoder layer, summed in the residual stream's type, where nothing is rounded. */
static struct value *build_shared(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[T], d[IN]);
    struct value *sum = program_input(p, "residual", ROLE_RESIDUAL, 2, d[T], d[OUT]);
    for (int64_t i = 0; i < 2; i++)
        sum = add(p, sum, layer(p, x, d, true, 0.5, i));
    return sum;
}

/* Two products with one input, whose gradient is their sum; the residual stream adds the results. */
static struct value *build_pair(struct program *p, const int64_t *d)
{
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, d[T], d[IN]);
    struct value *y = linear_pair(p, x, program_input(p, "w", ROLE_WEIGHT, 2, d[OUT], d[IN]),
                                  program_input(p, "w", ROLE_WEIGHT, 2, d[OUT], d[IN]));
    struct value *sum = program_input(p, "residual", ROLE_RESIDUAL, 2, d[T], d[OUT]);
    return y ? add(p, add(p, sum, y), y->producer->out[1]) : NULL;
}

/* Two layers side by side. */
static struct value *build_loras(struct program *p, const int64_t *d)
{
    struct lora_layer layers[2];
    for (int i = 0; i < 2; i++)
        layers[i] = (struct lora_layer){
            program_input(p, "w", ROLE_WEIGHT, 2, d[OUT], d[IN]),
            d[PARTS] % 2 == 0 ? program_input(p, "bias", ROLE_WEIGHT, 1, d[OUT]) : NULL,
            program_input(p, "b", ROLE_WEIGHT, 2, d[OUT], (int64_t)RANK_OF_ADAPTER),
        };
    return linear_lora_group(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[T], d[IN]),
                             program_input(p, "a", ROLE_WEIGHT, 2, (int64_t)2 * RANK_OF_ADAPTER, d[IN]), layers, 2, 0.5);
}

/* A factor of 0 is a factor: the adapter adds nothing, and its gradients are 0. */
static struct value *build_zero(struct program *p, const int64_t *d)
{
    return layer(p, program_input(p, "x", ROLE_ACTIVATION, 2, d[T], d[IN]), d, true, 0, 0);
}

#define SIZES                                                                                                                    \
    {"T", {3, 67}}, {"in", {33, 160}},                                                                                           \
    {                                                                                                                            \
        "out",                                                                                                                   \
        {                                                                                                                        \
            64, 129                                                                                                              \
        }                                                                                                                        \
    }

static const struct op_example examples[] = {
    {.build = build_linear, .adjust = exact, .axes = {SIZES, {"parts", {1, 2}}}},
    {.build = build_lora, .adjust = exact, .fill = fill, .axes = {SIZES, {"parts", {1, 2, 3, 4}}}},
    {.build = build_zero, .adjust = exact, .axes = {SIZES, {"parts", {1}}}},
    {.build = build_loras, .adjust = exact, .axes = {SIZES, {"parts", {1, 2}}}},
};

/* Their results are sums of rounded ones: only the gradients are exact. */
static const struct op_example shared[] = {
    {.build = build_shared, .adjust = exact, .fill = fill, .axes = {SIZES, {"parts", {1, 3}}}},
    {.build = build_pair, .adjust = exact, .axes = {SIZES}},
};

const struct op_example *const rounding_examples[] = {&examples[0], &examples[1], &examples[2], &examples[3],
                                                      &shared[0],   &shared[1],   NULL};

/* What a rounding to the type makes of a number. */
static double rounded(enum dtype dtype, double number)
{
    char stored[8];
    double back;
    dtype_convert(stored, dtype, &number, DTYPE_F64, 1);
    dtype_convert(&back, DTYPE_F64, stored, dtype, 1);
    return back;
}

static enum status compare(struct op_case *c, const struct value *v, struct op_case *ref, const struct value *r, const char *what,
                           struct rounding_counts *counts)
{
    double *got = NULL, *want = NULL;
    int64_t wrong = 0;
    enum status status = case_read(c, v, &got);
    if (status == OK)
        status = case_read(ref, r, &want);
    for (int64_t i = 0; status == OK && i < value_elements(v); i++) {
        double once = rounded(v->dtype, want[i]);
        counts->elements++;
        counts->rounded += once != want[i];
        wrong += got[i] != once;
    }
    memory_free(got);
    memory_free(want);
    if (status == OK && wrong)
        return fail(ERR_DATA, "%s in %s: %lld of %lld elements are not the exact result rounded once", what, dtype_name(v->dtype),
                    (long long)wrong, (long long)value_elements(v));
    return status;
}

static enum status compare_all(struct op_case *c, struct op_case *ref, struct rounding_counts *counts)
{
    case_fill(c);
    case_copy_inputs(ref, c);
    TRY(engine_run(&c->engine, c->index));
    TRY(engine_run(&ref->engine, ref->index));
    const struct node *n = c->result->producer;
    for (int i = 0; i < n->out_count && c->example != &shared[0] && c->example != &shared[1]; i++)
        TRY(compare(c, n->out[i], ref, ref->result->producer->out[i], n->op->outputs[i], counts));
    for (int k = 0; k < c->input_count; k++)
        if (c->input[k]->gradient)
            TRY(compare(c, c->input[k]->gradient, ref, ref->input[k]->gradient, c->input[k]->name, counts));
    return OK;
}

enum status rounding_case(struct device *fast, struct device *reference, const struct op_example *e, const int64_t *d,
                          enum run_type run, struct rounding_counts *counts)
{
    struct op_case c, ref = {0};
    enum status status = case_build_gradient(&c, e, d, 1, ops_table, run);
    if (status == OK)
        status = case_prepare(&c, fast);
    if (status == OK)
        status = case_build_gradient(&ref, e, d, 1, ops_table_double, RUN_FLOAT64);
    if (status == OK)
        status = case_prepare(&ref, reference);
    if (status == OK)
        status = compare_all(&c, &ref, counts);
    case_free(&c);
    case_free(&ref);
    return status;
}
