/* The backward pass through a low-rank adapter and a head with wide logits, in both run types; and an adapter that is
 * scaled by 0. */
#include "test.h"

#include "processor.h"
#include "program_rig.h"

enum { T = 24, C = 32, R = 4, V = 48, TENSORS = 4 };

static float random_number(uint64_t key, int64_t i)
{
    float pair[2];
    struct philox r = philox(key, 0, (uint64_t)i);
    philox_normal(r.word[0], r.word[1], pair);
    return bf16_to_f32(bf16_from_f32(0.3f * pair[0]));
}

/* h = x · wᵀ + 2 · (x · aᵀ) · bᵀ, logits = h · headᵀ; w is frozen, the gradients of a, b and head come back. */
static void run_adapter(enum run_type type, float gradients[TENSORS][V * C])
{
    static const char *const names[][2] = {{"w", "dw"}, {"a", "da"}, {"b", "db"}, {"head", "dhead"}};
    static const int64_t shapes[][2] = {{C, C}, {R, C}, {C, R}, {V, C}};
    struct device *device;
    struct store store;
    struct program p;
    struct engine e;
    struct tensor *t[TENSORS], *g[TENSORS];
    int64_t index;
    assert_ok(device_open(&device, "cpu"));
    assert_ok(store_init(&store));
    for (int i = 0; i < TENSORS; i++) {
        assert_ok(store_tensor(&t[i], &store, names[i][0], LIFE_TRAINABLE, run_types[type][ROLE_WEIGHT], 2, shapes[i]));
        assert_ok(store_tensor(&g[i], &store, names[i][1], LIFE_GRADIENTS, DTYPE_F32, 2, shapes[i]));
        t[i]->gradient = i ? g[i] : NULL;
    }
    program_init(&p, ops_table, type);
    struct value *x = program_input(&p, "x", ROLE_ACTIVATION, 2, (int64_t)T, (int64_t)C);
    struct value *d = program_input(&p, "d", ROLE_STATISTIC, 2, (int64_t)T, (int64_t)V);
    struct value *w = program_tensor(&p, t[0]), *a = program_tensor(&p, t[1]), *b = program_tensor(&p, t[2]);
    struct value *h = linear_lora(&p, x, w, NULL, x, a, b, 2);
    struct value *logits = linear_wide(&p, h, program_tensor(&p, t[3]));
    assert_ok(program_gradient(&p, &logits, &d, 1));
    engine_init(&e, device, &store);
    assert_ok(engine_add(&e, &p, &index));
    assert_ok(engine_place(&e));
    assert_ok(engine_prepare(&e));
    float values[V * C];
    for (int i = 0; i < TENSORS; i++) {
        for (int64_t k = 0; k < tensor_elements(t[i]); k++)
            values[k] = random_number((uint64_t)i, k);
        assert_ok(engine_upload(&e, t[i], values, DTYPE_F32));
    }
    for (int64_t k = 0; k < T * C; k++)
        values[k] = random_number(8, k);
    assert_int_equal(dtype_convert(engine_input(&e, x), x->dtype, values, DTYPE_F32, T * C), 1);
    for (int64_t k = 0; k < T * V; k++)
        ((float *)engine_input(&e, d))[k] = random_number(9, k);
    assert_ok(engine_run(&e, index));
    for (int i = 0; i < TENSORS; i++) {
        struct operand from = {e.blocks[g[i]->place.block].block, g[i]->place.offset};
        assert_ok(device_read(device, gradients[i], from, tensor_bytes(g[i])));
    }
    engine_free(&e);
    program_free(&p);
    store_free(&store);
    device_close(device);
}

static void gradients_agree_in_both_types(void **state)
{
    (void)state;
    static float wide[TENSORS][V * C], narrow[TENSORS][V * C];
    run_adapter(RUN_FLOAT32, wide);
    run_adapter(processor_has_bf16() ? RUN_BFLOAT16 : RUN_FLOAT32, narrow);
    for (int i = 0; i < TENSORS; i++) {
        double error = 0, size = 0;
        for (int k = 0; k < V * C; k++) {
            error += ((double)wide[i][k] - (double)narrow[i][k]) * ((double)wide[i][k] - (double)narrow[i][k]);
            size += (double)wide[i][k] * (double)wide[i][k];
        }
        assert_true(i ? size > 0.1 && error < 1e-3 * size : size == 0);
    }
}

/* PEFT's files may say lora_alpha 0: the adapter is there and adds nothing, forward and backward. */
static void an_adapter_scaled_by_0_adds_nothing(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct program *p = &r.program;
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, (int64_t)T, (int64_t)C);
    struct value *dy = program_input(p, "dy", ROLE_ACTIVATION, 2, (int64_t)T, (int64_t)C);
    struct value *w = program_input(p, "w", ROLE_WEIGHT, 2, (int64_t)C, (int64_t)C);
    struct value *a = program_input(p, "a", ROLE_WEIGHT, 2, (int64_t)R, (int64_t)C);
    struct value *b = program_input(p, "b", ROLE_WEIGHT, 2, (int64_t)C, (int64_t)R);
    struct value *in[] = {x, dy, w, a, b}, *wanted[] = {a, b}, *out[2], *gradient[2];
    for (int i = 0; i < 2; i++)
        program_want(p, wanted[i]);
    struct value *y = linear_lora(p, x, w, NULL, x, a, b, 0);
    out[0] = program_output(p, y, "y");
    out[1] = program_output(p, linear(p, x, w), "without");
    assert_ok(program_gradient(p, &y, &dy, 1));
    for (int i = 0; i < 2; i++)
        gradient[i] = program_output(p, wanted[i]->gradient, "gradient");
    run_prepare(&r);
    for (uint64_t i = 0; i < 5; i++) {
        float *numbers = random_numbers(i, value_elements(in[i]), 1);
        put(&r, in[i], numbers);
        test_free(numbers);
    }
    assert_ok(engine_run(&r.engine, r.index));
    float *with = read_value(&r, out[0]), *without = read_value(&r, out[1]);
    assert_memory_equal(with, without, T * C * sizeof *with);
    test_free(with);
    test_free(without);
    for (int i = 0; i < 2; i++) {
        float *numbers = read_value(&r, gradient[i]);
        for (int k = 0; k < R * C; k++)
            assert_true(numbers[k] == 0);
        test_free(numbers);
    }
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_in_both_types),
        cmocka_unit_test(an_adapter_scaled_by_0_adds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
