/* NF4: quantising, and the ops on it, on the CPU and where there is one on an OpenCL device. */
#include "test.h"

#include <math.h>

#include "base/memory.h"
#include "base/rng.h"
#include "format/nf4.h"
#include "ops/ops.h"
#include "tensor/engine.h"

static float *random_numbers(uint64_t seed, int64_t count, float scale)
{
    float *x = test_malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        float pair[2];
        struct philox r = philox(seed, 0, (uint64_t)i);
        philox_normal(r.word[0], r.word[1], pair);
        x[i] = scale * pair[0];
    }
    return x;
}

static void quantised_values_stay_near(void **state)
{
    (void)state;
    int64_t count = 64 * 700;
    float *w = random_numbers(1, count, 0.02f), *back = test_malloc((size_t)count * sizeof *back), map[NF4_MAP];
    struct nf4 nf4;
    nf4_map(map);
    for (int i = 1; i < NF4_MAP; i++)
        assert_true(map[i] > map[i - 1]);
    assert_ok(nf4_quantise(w, count, &nf4));
    nf4_dequantise(&nf4, map, back);
    double error = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        error += (double)(w[i] - back[i]) * (double)(w[i] - back[i]);
        size += (double)w[i] * (double)w[i];
    }
    assert_true(error / size < 0.01);   /* four bits of a normal distribution: 0.0087 */
    nf4_free(&nf4);
    test_free(w);
    test_free(back);
}

static void what_cannot_be_quantised_is_refused(void **state)
{
    (void)state;
    float w[128] = {0};
    struct nf4 nf4;
    assert_fails(nf4_quantise(w, 100, &nf4), ERR_ARGUMENT, "64");
    w[77] = NAN;
    assert_fails(nf4_quantise(w, 128, &nf4), ERR_DATA, "77");
    w[77] = 1;
    enum status status = ERR_MEMORY;
    int64_t failed = 0;
    for (; status != OK; failed++) {
        memory_fail_after(failed);
        status = nf4_quantise(w, 128, &nf4);
        assert_true(status == OK || status == ERR_MEMORY);
    }
    memory_fail_after(-1);
    assert_int_equal(failed, 5);
    nf4_free(&nf4);
}

/* --- ops ---------------------------------------------------------------------------------------------------------------- */

struct run {
    struct device *device;
    struct store store;
    struct program program;
    struct engine engine;
    int64_t index;
};

static void run_init(struct run *r, const char *device, enum run_type type)
{
    memset(r, 0, sizeof *r);
    assert_ok(device_open(&r->device, device));
    assert_ok(store_init(&r->store));
    program_init(&r->program, ops_table, type);
}

static void run_prepare(struct run *r)
{
    engine_init(&r->engine, r->device, &r->store);
    assert_ok(engine_add(&r->engine, &r->program, &r->index));
    assert_ok(engine_place(&r->engine));
    assert_ok(engine_prepare(&r->engine));
}

static void run_free(struct run *r)
{
    engine_free(&r->engine);
    program_free(&r->program);
    store_free(&r->store);
    device_close(r->device);
}

/* What the value holds, as bytes. */
static void *read_value(struct run *r, const struct value *v)
{
    void *out = test_malloc((size_t)value_bytes(v));
    assert_ok(engine_read(&r->engine, v, out));
    return out;
}

static struct nf4_weight weight(struct run *r, int64_t out, int64_t in, struct value *map)
{
    struct program *p = &r->program;
    return (struct nf4_weight){
        program_input(p, "packed", ROLE_INDEX, 2, out, in / 8),
        program_input(p, "codes", ROLE_INDEX, 1, nf4_code_words(out * in)),
        program_input(p, "scales", ROLE_STATISTIC, 1, nf4_scales(out * in)),
        map ? map : program_input(p, "map", ROLE_STATISTIC, 1, (int64_t)NF4_MAP),
    };
}

static void put(struct run *r, const struct value *v, const void *from)
{
    memcpy(engine_input(&r->engine, v), from, (size_t)value_bytes(v));
}

static void put_weight(struct run *r, const struct nf4_weight *to, const struct nf4 *from)
{
    float map[NF4_MAP];
    nf4_map(map);
    put(r, to->packed, from->packed);
    put(r, to->codes, from->codes);
    put(r, to->scales, from->scales);
    put(r, to->map, map);
}

static void make_weight(struct nf4 *nf4, uint64_t seed, int64_t count)
{
    float *w = random_numbers(seed, count, 0.02f);
    assert_ok(nf4_quantise(w, count, nf4));
    test_free(w);
}

/* The same bits as the plain C. Seen to fail with one rounding of absmax instead of two in nf4.kl. */
static void check_expand(const char *device)
{
    enum { OUT = 67, IN = 320, BEGIN = 5, END = 66 };
    struct run r;
    struct nf4 nf4;
    float map[NF4_MAP], *want = test_malloc(sizeof(float) * OUT * IN);
    make_weight(&nf4, 2, OUT * IN);
    nf4_map(map);
    nf4_dequantise(&nf4, map, want);
    run_init(&r, device, RUN_FLOAT32);
    struct nf4_weight w = weight(&r, OUT, IN, NULL);
    struct value *y = nf4_expand(&r.program, w, BEGIN, END);
    assert_ok(program_status(&r.program));
    y = program_output(&r.program, y, "w");
    run_prepare(&r);
    put_weight(&r, &w, &nf4);
    assert_ok(engine_run(&r.engine, r.index));
    float *got = read_value(&r, y);
    assert_memory_equal(got, want + BEGIN * IN, sizeof(float) * (END - BEGIN) * IN);
    test_free(got);
    test_free(want);
    nf4_free(&nf4);
    run_free(&r);
}

/* PMAT-475, PMAT-478: one program with the pair and the two products by themselves. Seen to fail with scales1 in place of scales2
 * in nf4.kl's linear_nf4_pair. */
static void check_pair(const char *device, enum run_type type, int64_t T, int64_t in, int64_t out1, int64_t out2)
{
    struct run r;
    struct nf4 nf4[2];
    make_weight(&nf4[0], 3, out1 * in);
    make_weight(&nf4[1], 4, out2 * in);
    float *x = random_numbers(5, T * in, 1);
    run_init(&r, device, type);
    struct program *p = &r.program;
    struct value *input = program_input(p, "x", ROLE_ACTIVATION, 2, T, in);
    struct nf4_weight w1 = weight(&r, out1, in, NULL), w2 = weight(&r, out2, in, w1.map);
    struct value *y = linear_nf4_pair(p, input, w1, w2);
    assert_ok(program_status(p));
    struct value *results[] = {y, y->producer->out[1], linear_nf4(p, input, w1), linear_nf4(p, input, w2)};
    for (int i = 0; i < 4; i++)
        results[i] = program_output(p, results[i], "y");
    run_prepare(&r);
    put_weight(&r, &w1, &nf4[0]);
    put_weight(&r, &w2, &nf4[1]);
    assert_true(dtype_convert(engine_input(&r.engine, input), input->dtype, x, DTYPE_F32, T * in));
    assert_ok(engine_run(&r.engine, r.index));
    for (int i = 0; i < 2; i++) {
        void *fused = read_value(&r, results[i]), *single = read_value(&r, results[2 + i]);
        assert_memory_equal(fused, single, (size_t)value_bytes(results[i]));
        test_free(fused);
        test_free(single);
    }
    test_free(x);
    nf4_free(&nf4[0]);
    nf4_free(&nf4[1]);
    run_free(&r);
}

static void check_device(const char *device)
{
    check_expand(device);
    for (enum run_type type = RUN_FLOAT32; type <= RUN_BFLOAT16; type++) {
        check_pair(device, type, 17, 192, 129, 70);
        check_pair(device, type, 1, 320, 64, 200);
        check_pair(device, type, 3, 2560, 4096, 1024);
    }
}

static void fused_products_equal_single_ones_on_the_cpu(void **state)
{
    (void)state;
    check_device("cpu");
}

static void fused_products_equal_single_ones_on_opencl(void **state)
{
    (void)state;
    struct device *device;
    if (device_open(&device, "opencl") != OK)
        skip();
    device_close(device);
    check_device("opencl");
}

static void rows_of_no_whole_blocks_are_refused(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct value *x = program_input(&r.program, "x", ROLE_ACTIVATION, 2, (int64_t)2, (int64_t)96);
    linear_nf4(&r.program, x, weight(&r, 4, 96, NULL));
    assert_int_equal(program_status(&r.program), ERR_UNSUPPORTED);
    assert_non_null(strstr(status_message(), "rows of 96 are no multiple"));
    program_free(&r.program);
    store_free(&r.store);
    device_close(r.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_values_stay_near),
        cmocka_unit_test(what_cannot_be_quantised_is_refused),
        cmocka_unit_test(rows_of_no_whole_blocks_are_refused),
        cmocka_unit_test(fused_products_equal_single_ones_on_the_cpu),
        cmocka_unit_test(fused_products_equal_single_ones_on_opencl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
