/* Weights that are stored in parts, of every type: results are the same as with its numbers. */
#include "test.h"

#include "ops/op.h"
#include "processor.h"
#include "program_rig.h"

enum { T = 21, BEGIN = 5, END = 66 };

/* Rows and columns: one panel of lower_panels in either direction, and two of which the second is smaller. */
static const int64_t sizes[][2] = {{67, 320}, {4200, 1088}, {67, 80}, {67, 83}};
enum { SMALL, LARGE, SIZES, SIZES_OVER_ROWS = 4 }; /* the last ones are for blocks that run over the ends of rows */

static int sizes_of(enum weight_id type)
{
    return weight_types[type]->block > 1 ? SIZES : SIZES_OVER_ROWS;
}

static const char *const devices[] = {"cpu", "opencl"};

/* What a test of ops runs with: one type with fused kernels, one of blocks of either size, and both of FP8. */
static const enum weight_id samples[] = {WEIGHT_nf4, WEIGHT_q8_0, WEIGHT_q4_k, WEIGHT_fp8, WEIGHT_fp8_block};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

/* The columns of a matrix, as many whole blocks as they touch. */
static int64_t columns_of(enum weight_id type, int size)
{
    int64_t block = weight_types[type]->block;
    return (sizes[size][1] + block - 1) / block * block;
}

/* Random words and numbers for the parts, and what they mean on the host. */
struct stored {
    enum weight_id type;
    int64_t rows, columns;
    void *part[WEIGHT_PARTS];
    float *dense;
};

static void make_stored(struct stored *s, enum weight_id type, int size)
{
    *s = (struct stored){.type = type, .rows = sizes[size][0], .columns = columns_of(type, size)};
    int64_t elements = s->rows * s->columns;
    const struct weight_type *of = weight_types[type];
    for (int i = 0; i < weight_parts(type); i++) {
        int64_t words = weight_words(type, i, s->rows, s->columns);
        if (of->part[i].role == ROLE_INDEX) {
            s->part[i] = test_malloc((size_t)words * 4);
            example_fill_weight(of->part[i].name, s->part[i], words, NULL);
            continue;
        }
        float *numbers = random_numbers((uint64_t)i, words, 1);
        for (int64_t k = 0; k < words; k++)
            numbers[k] = (float)example_adjust_weight(of->part[i].name, k, (double)numbers[k]);
        s->part[i] = numbers;
    }
    s->dense = test_malloc(sizeof(float) * (size_t)elements);
    of->expand((const void *const *)s->part, s->rows, s->columns, s->dense);
}

static void free_stored(struct stored *s)
{
    for (int i = 0; i < weight_parts(s->type); i++)
        test_free(s->part[i]);
    test_free(s->dense);
}

/* A block as llama.cpp writes it: the scale 0.5, then bytes. */
static void a_block_of_q8_0_is_a_scale_and_bytes(void **state)
{
    (void)state;
    uint8_t block[34] = {0x00, 0x38, 1, 0xff, 127, 0x80};
    float w[32];
    weight_types[WEIGHT_q8_0]->expand((const void *const[]){block}, 1, 32, w);
    assert_true(w[0] == 0.5f && w[1] == -0.5f && w[2] == 63.5f && w[3] == -64 && w[4] == 0);
}

/* A weight of the program, and its parts or its numbers once it is prepared. */
static struct value *weight(struct run *r, const struct stored *s, bool dense)
{
    return dense ? program_input(&r->program, "w", ROLE_WEIGHT, 2, s->rows, s->columns)
                 : example_weight(&r->program, 1 + (int64_t)s->type, s->rows, s->columns);
}

static void put_weight(struct run *r, const struct value *w, const struct stored *s)
{
    if (!w->weight)
        put(r, w, s->dense);
    for (int i = 0; w->weight && i < weight_parts(s->type); i++)
        put(r, w->weight->part[i], s->part[i]);
}

static bool there_is(const char *device)
{
    struct device *d;
    if (device_open(&d, device) != OK)
        return false;
    device_close(d);
    return true;
}

/* Seen to fail with one rounding of NF4's absmax instead of two in nf4.kl; and in bfloat16 with the halves of a byte exchanged in
 * nf4_bf16, and with the second scale of each 32 elements taken for both halves in q6_k_expand. */
static void check_expand(const char *device, enum weight_id type, int size, enum run_type run)
{
    struct run r;
    struct stored s;
    make_stored(&s, type, size);
    run_init(&r, device, run);
    struct value *w = weight(&r, &s, false), *y = program_output(&r.program, expand(&r.program, w, BEGIN, END), "w");
    assert_ok(program_status(&r.program));
    run_prepare(&r);
    put_weight(&r, w, &s);
    assert_ok(engine_run(&r.engine, r.index));
    void *got = read_value(&r, y);
    int64_t count = (END - BEGIN) * s.columns;
    for (int64_t i = 0; i < count && run == RUN_BFLOAT16; i++)
        assert_int_equal(((uint16_t *)got)[i], bf16_from_f32(s.dense[BEGIN * s.columns + i]));
    if (run == RUN_FLOAT32)
        assert_memory_equal(got, s.dense + BEGIN * s.columns, sizeof(float) * (size_t)count);
    test_free(got);
    free_stored(&s);
    run_free(&r);
}

static void every_device_expands_to_the_bits_of_the_host(void **state)
{
    (void)state;
    for (int type = 0; type < WEIGHT_COUNT; type++)
        for (int d = 0; d < 2; d++)
            for (int size = 0; size < sizes_of((enum weight_id)type) && there_is(devices[d]); size++)
                for (int run = RUN_FLOAT32; run <= (d ? RUN_FLOAT32 : RUN_BFLOAT16) && size != LARGE; run++)
                    check_expand(devices[d], (enum weight_id)type, size, (enum run_type)run);
}

static void put_rounded(struct run *r, const struct value *v, const float *from)
{
    assert_int_equal(dtype_convert(engine_input(&r->engine, v), v->dtype, from, DTYPE_F32, value_elements(v)), 1);
}

/* Decoding's product: one token, in every type. Weights may be rounded to bfloat16 and sums have an order of their own, so a
 * result may be off by some hundredths of what its terms are in the mean. Seen to fail with the halves of 32 elements exchanged
 * in q4_1_dot and in q6_k_dot, and with a tail of blocks left out in SMALL_BLOCKS. */
static void one_token_meets_every_element(void **state)
{
    (void)state;
    for (int type = 0; type < WEIGHT_COUNT; type++) {
        struct run r;
        struct stored s;
        make_stored(&s, (enum weight_id)type, SMALL);
        run_init(&r, "cpu", RUN_BFLOAT16);
        struct value *w = weight(&r, &s, false), *x = program_input(&r.program, "x", ROLE_ACTIVATION, 2, (int64_t)1, s.columns);
        struct value *y = program_output(&r.program, linear_wide(&r.program, x, w), "y");
        assert_ok(program_status(&r.program));
        run_prepare(&r);
        put_weight(&r, w, &s);
        float *numbers = random_numbers(3, s.columns, 1);
        put_rounded(&r, x, numbers);
        assert_ok(engine_run(&r.engine, r.index));
        float *got = read_value(&r, y);
        for (int64_t j = 0; j < s.rows; j++) {
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < s.columns; i++) {
                double term = (double)bf16_to_f32(bf16_from_f32(numbers[i])) * (double)s.dense[j * s.columns + i];
                sum += term;
                squares += term * term;
            }
            assert_true(fabs((double)got[j] - sum) <= 0.01 * sqrt(squares));
        }
        test_free(got);
        test_free(numbers);
        free_stored(&s);
        run_free(&r);
    }
}

enum { EMBEDDED, LINEAR, LINEAR_DX, LOSS, LOSS_DX, WIDE, RESULTS };

/* Every op that takes such a weight, forward and backward; the results are allocated. */
static void run_all(const char *device, const struct stored *s, bool dense, float *results[RESULTS], int64_t counts[RESULTS])
{
    struct run r;
    int64_t V = s->rows, C = s->columns;
    run_init(&r, device, RUN_FLOAT32);
    struct program *p = &r.program;
    struct value *w = weight(&r, s, dense);
    struct value *ids = program_input(p, "ids", ROLE_INDEX, 1, (int64_t)T);
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, (int64_t)T, C);
    struct value *dy = program_input(p, "dy", ROLE_ACTIVATION, 2, (int64_t)T, V);
    struct value *dloss = program_input(p, "dloss", ROLE_STATISTIC, 1, (int64_t)T);
    struct value *out[RESULTS] = {[EMBEDDED] = embedding(p, ids, w, NULL, -1)};
    program_want(p, x);
    out[LINEAR] = linear(p, x, w);
    out[WIDE] = linear_wide(p, x, w);
    out[LOSS_DX] = linear_cross_entropy_both(p, x, w, ids, dloss, NULL);
    assert_ok(program_status(p));
    out[LOSS] = out[LOSS_DX]->producer->out[1];
    assert_ok(program_gradient(p, &out[LINEAR], &dy, 1));
    out[LINEAR_DX] = x->gradient;
    for (int i = 0; i < RESULTS; i++)
        out[i] = program_output(p, out[i], "result");
    run_prepare(&r);
    put_weight(&r, w, s);
    float *numbers = random_numbers(7, T * (C > V ? C : V) + 11, 1);
    put(&r, x, numbers);
    put(&r, dy, numbers + 11);
    put(&r, dloss, numbers + 5);
    for (int t = 0; t < T; t++)
        ((int32_t *)engine_input(&r.engine, ids))[t] = example_number(t, V);
    assert_ok(engine_run(&r.engine, r.index));
    for (int i = 0; i < RESULTS; i++) {
        counts[i] = value_elements(out[i]);
        results[i] = read_value(&r, out[i]);
    }
    test_free(numbers);
    run_free(&r);
}

/* On the CPU a matmul is the engine's with the panel, the same bits; fused kernels sum in their own order. */
static void check_ops(const char *device, enum weight_id type, int size)
{
    struct stored s;
    float *stored[RESULTS], *dense[RESULTS];
    int64_t counts[RESULTS];
    make_stored(&s, type, size);
    run_all(device, &s, false, stored, counts);
    run_all(device, &s, true, dense, counts);
    for (int i = 0; i < RESULTS; i++) {
        double error = 0, sum = 0;
        for (int64_t k = 0; k < counts[i]; k++) {
            error += ((double)stored[i][k] - (double)dense[i][k]) * ((double)stored[i][k] - (double)dense[i][k]);
            sum += (double)dense[i][k] * (double)dense[i][k];
        }
        assert_true(sum > 0 && error <= 1e-11 * sum);
        assert_true(i != EMBEDDED || error == 0);
        test_free(stored[i]);
        test_free(dense[i]);
    }
    free_stored(&s);
}

/* Seen to fail with panels that all expand the weight's first rows, or its first columns (lower_panels). */
static void every_op_computes_what_it_does_with_the_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++)
        for (int d = 0; d < 2; d++)
            for (int size = 0; size < sizes_of(samples[i]) && there_is(devices[d]); size++)
                check_ops(devices[d], samples[i], size);
}

enum { RANK_OF_ADAPTER = 4 };

/* A layer with an adapter and a bias in bfloat16: y, and the dx that its two parts are summed in; both are allocated. */
/* Of an adapter: each feature has a number in one of the ranks, in turn. Its products need no rounding then, so that it does not
 * matter whether they are rounded by themselves, as they are where they meet the weight's in memory. */
static void put_turns(struct run *r, const struct value *v)
{
    int64_t count = value_elements(v), across = v->shape[1];
    float *numbers = test_malloc((size_t)count * sizeof *numbers);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / across, column = i % across;
        numbers[i] = (across == RANK_OF_ADAPTER ? row % RANK_OF_ADAPTER == column : column % RANK_OF_ADAPTER == row) ? 0.5f : 0;
    }
    put_rounded(r, v, numbers);
    test_free(numbers);
}

static void run_adapter(const char *device, const struct stored *s, bool dense, uint16_t *results[2], int64_t counts[2])
{
    struct run r;
    int64_t V = s->rows, C = s->columns;
    run_init(&r, device, RUN_BFLOAT16);
    struct program *p = &r.program;
    struct value *w = weight(&r, s, dense), *x = program_input(p, "x", ROLE_ACTIVATION, 2, (int64_t)T, C);
    struct value *in[] = {x, program_input(p, "bias", ROLE_WEIGHT, 1, V),
                          program_input(p, "a", ROLE_WEIGHT, 2, (int64_t)RANK_OF_ADAPTER, C),
                          program_input(p, "b", ROLE_WEIGHT, 2, V, (int64_t)RANK_OF_ADAPTER),
                          program_input(p, "dy", ROLE_ACTIVATION, 2, (int64_t)T, V)};
    program_want(p, x);
    struct value *y = linear_lora(p, x, w, in[1], x, in[2], in[3], 0.01), *out[2];
    assert_ok(program_gradient(p, &y, &in[4], 1));
    out[0] = program_output(p, y, "y");
    out[1] = program_output(p, x->gradient, "dx");
    run_prepare(&r);
    if (dense)
        put_rounded(&r, w, s->dense);
    else
        put_weight(&r, w, s);
    float *numbers = random_numbers(7, V * C, 1);
    for (int i = 0; i < 5; i++) {
        if (i == 2 || i == 3)
            put_turns(&r, in[i]);
        else
            put_rounded(&r, in[i], numbers + 3 * i);
    }
    test_free(numbers);
    assert_ok(engine_run(&r.engine, r.index));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(out[i]->dtype, DTYPE_BF16);
        counts[i] = value_elements(out[i]);
        results[i] = read_value(&r, out[i]);
    }
    run_free(&r);
}

/* Sums in another order round differently only where they come close to the middle of two numbers; a second rounding does so in
 * one of a few elements. Seen to fail with scratch of y's type in lower_panels, and in nf4.kl with a product that is rounded
 * before it is added. */
static void check_rounding(const char *device, enum weight_id type, int size)
{
    struct stored s;
    uint16_t *stored[2], *dense[2];
    int64_t counts[2];
    if (!strcmp(device, "cpu") && !processor_has_bf16())
        return;
    make_stored(&s, type, size);
    run_adapter(device, &s, false, stored, counts);
    run_adapter(device, &s, true, dense, counts);
    for (int i = 0; i < 2; i++) {
        int64_t differ = 0;
        for (int64_t k = 0; k < counts[i]; k++)
            differ += stored[i][k] != dense[i][k];
        assert_in_range(differ, 0, counts[i] / 100);
        test_free(stored[i]);
        test_free(dense[i]);
    }
    free_stored(&s);
}

static void a_layer_with_an_adapter_is_rounded_once(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++)
        for (int d = 0; d < 2; d++)
            for (int size = 0; size < sizes_of(samples[i]) && there_is(devices[d]); size++)
                check_rounding(devices[d], samples[i], size);
}

static void an_op_that_cannot_read_parts_says_so(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    scale(&r.program, example_weight(&r.program, 1, sizes[SMALL][0], sizes[SMALL][1]), 2);
    engine_init(&r.engine, r.device, &r.store);
    assert_fails(engine_add(&r.engine, &r.program, &r.index), ERR_INTERNAL,
                 "scale: cannot read a weight that is stored in parts");
    run_free(&r);
}

static void parts_of_the_wrong_size_are_refused(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct value *w = example_weight(&r.program, 1, sizes[SMALL][0], sizes[SMALL][1]);
    weight_value(&r.program, w->weight->type, w->weight->part, sizes[SMALL][0] + 1, sizes[SMALL][1]);
    assert_int_equal(program_status(&r.program), ERR_INTERNAL);
    assert_non_null(strstr(status_message(), "of a weight (68, 320) has"));
    program_free(&r.program);
    store_free(&r.store);
    device_close(r.device);
}

static void rows_that_are_no_whole_blocks_are_refused(void **state)
{
    (void)state;
    for (int type = 0; type < WEIGHT_COUNT; type++) {
        struct run r;
        if (weight_types[type]->block == 1)
            continue;
        run_init(&r, "cpu", RUN_FLOAT32);
        assert_null(example_weight(&r.program, 1 + type, 4, weight_types[type]->block + 8));
        assert_int_equal(program_status(&r.program), ERR_UNSUPPORTED);
        assert_non_null(strstr(status_message(), weight_types[type]->name));
        program_free(&r.program);
        store_free(&r.store);
        device_close(r.device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_of_q8_0_is_a_scale_and_bytes),
        cmocka_unit_test(every_device_expands_to_the_bits_of_the_host),
        cmocka_unit_test(one_token_meets_every_element),
        cmocka_unit_test(every_op_computes_what_it_does_with_the_numbers),
        cmocka_unit_test(a_layer_with_an_adapter_is_rounded_once),
        cmocka_unit_test(an_op_that_cannot_read_parts_says_so),
        cmocka_unit_test(parts_of_the_wrong_size_are_refused),
        cmocka_unit_test(rows_that_are_no_whole_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
