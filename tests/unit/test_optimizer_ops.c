/* The ops of an optimizer step, run as a program on tensors: against plain loops in double, and where gradients are bad. */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "ops/ops.h"
#include "tensor/engine.h"

enum { N = 40000, CUT = 128 * 100, GROUPS = 2 }; /* elements before CUT are of group 1, the others of group 0 */

static double beta1, beta2, eps; /* of the next step */
static const float rates[GROUPS][2] = {{1e-2f, 0.1f}, {3e-3f, 0}};

struct step {
    struct device *device;
    struct store store;
    struct program program;
    struct engine engine;
    int64_t index;
    struct tensor *w, *g, *m, *v, *copy, *count;
    struct value *hyper, *rates, *ranges, *control;
    double *wd, *md, *vd; /* the same in double */
};

static float random_number(uint64_t key, int64_t i)
{
    float pair[2];
    struct philox r = philox(key, 0, (uint64_t)i);
    philox_normal(r.word[0], r.word[1], pair);
    return pair[0];
}

static void make_tensor(struct step *s, struct tensor **out, const char *name, enum dtype dtype, int64_t count)
{
    assert_ok(store_tensor(out, &s->store, name, LIFE_STATE, dtype, 1, &count));
}

static void step_open(struct step *s, int op)
{
    memset(s, 0, sizeof *s);
    beta1 = 0.9;
    beta2 = 0.95;
    eps = 1e-8;
    assert_ok(device_open(&s->device, "cpu"));
    assert_ok(store_init(&s->store));
    make_tensor(s, &s->w, "w", DTYPE_F32, N);
    make_tensor(s, &s->g, "g", DTYPE_F32, N);
    make_tensor(s, &s->m, "m", DTYPE_F32, N);
    make_tensor(s, &s->v, "v", DTYPE_F32, N);
    make_tensor(s, &s->copy, "copy", DTYPE_BF16, N);
    make_tensor(s, &s->count, "count", DTYPE_I32, 2);
    struct program *p = &s->program;
    program_init(p, ops_table, RUN_BFLOAT16);
    s->hyper = program_input(p, "hyper", ROLE_STATISTIC, 1, (int64_t)STEP_NUMBERS);
    s->rates = program_input(p, "rates", ROLE_STATISTIC, 2, (int64_t)GROUPS, (int64_t)2);
    s->ranges = program_input(p, "ranges", ROLE_INDEX, 2, (int64_t)2, (int64_t)2);
    struct value *g = program_tensor(p, s->g);
    s->control = clip(p, squared_sum(p, g), s->hyper, program_tensor(p, s->count));
    struct value *to_step[] = {
        program_tensor(p, s->w),
        g,
        s->control,
        s->rates,
        s->ranges,
        s->hyper,
        program_tensor(p, s->copy),
        program_tensor(p, s->m),
        program_tensor(p, s->v),
    };
    program_node(p, op, op == OP_adamw ? 9 : 8, to_step, 0, NULL); /* Lion has no v */
    program_output(p, s->control, "control");
    engine_init(&s->engine, s->device, &s->store);
    assert_ok(engine_add(&s->engine, p, &s->index));
    assert_ok(engine_place(&s->engine));
    assert_ok(engine_prepare(&s->engine));
    float *w = test_malloc(N * sizeof *w);
    s->wd = test_calloc(N, sizeof *s->wd);
    s->md = test_calloc(N, sizeof *s->md);
    s->vd = test_calloc(N, sizeof *s->vd);
    for (int64_t i = 0; i < N; i++)
        s->wd[i] = (double)(w[i] = random_number(1, i));
    assert_ok(engine_upload(&s->engine, s->w, w, DTYPE_F32));
    test_free(w);
}

static void step_close(struct step *s)
{
    engine_free(&s->engine);
    program_free(&s->program);
    store_free(&s->store);
    device_close(s->device);
    test_free(s->wd);
    test_free(s->md);
    test_free(s->vd);
}

static void read_tensor(struct step *s, const struct tensor *t, void *to)
{
    struct operand from = {s->engine.blocks[t->place.block].block, t->place.offset};
    assert_ok(device_read(s->device, to, from, tensor_bytes(t)));
}

static void step_run(struct step *s, const float *g, float divisor, float most, float control[5])
{
    float *hyper = engine_input(&s->engine, s->hyper);
    double numbers[STEP_NUMBERS];
    step_numbers(numbers, (double)divisor, (double)most, beta1, beta2, eps);
    for (int i = 0; i < STEP_NUMBERS; i++)
        hyper[i] = (float)numbers[i];
    memcpy(engine_input(&s->engine, s->rates), rates, sizeof rates);
    memcpy(engine_input(&s->engine, s->ranges), (int32_t[]){CUT / 128, 1, (N + 127) / 128, 0}, 4 * sizeof(int32_t));
    assert_ok(engine_upload(&s->engine, s->g, g, DTYPE_F32));
    assert_ok(engine_run(&s->engine, s->index));
    assert_ok(engine_read(&s->engine, s->control, control));
}

/* The norm of g / divisor, and what clipping multiplies g by. */
static double expect_norm(const float *g, double divisor, double most, double *scale)
{
    double norm = 0;
    for (int64_t i = 0; i < N; i++)
        norm += (double)g[i] * (double)g[i];
    norm = sqrt(norm) / divisor;
    *scale = (most > 0 && most / (norm + 1e-6) < 1 ? most / (norm + 1e-6) : 1) / divisor;
    return norm;
}

/* The norm, and AdamW's step in double. */
static double expect_step(struct step *s, const float *g, double divisor, double most, int t)
{
    double scale, norm = expect_norm(g, divisor, most, &scale);
    for (int64_t i = 0; i < N; i++) {
        const float *rate = rates[i < CUT ? 1 : 0];
        double lr = (double)rate[0], x = scale * (double)g[i];
        s->wd[i] *= 1 - lr * (double)rate[1];
        s->md[i] = beta1 * s->md[i] + (1 - beta1) * x;
        s->vd[i] = beta2 * s->vd[i] + (1 - beta2) * x * x;
        s->wd[i] -= lr / (1 - pow(beta1, t)) * s->md[i] / (sqrt(s->vd[i]) / sqrt(1 - pow(beta2, t)) + eps);
    }
    return norm;
}

static void check_tensor(struct step *s, const struct tensor *t, const double *want)
{
    float *got = test_malloc(N * sizeof *got);
    double error = 0, size = 0;
    read_tensor(s, t, got);
    for (int64_t i = 0; i < N; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    assert_true(error <= 1e-12 * size);
    test_free(got);
}

static void check_all(struct step *s, int32_t applied, int32_t skipped)
{
    float *w = test_malloc(N * sizeof *w), *g = test_malloc(N * sizeof *g);
    uint16_t *copy = test_malloc(N * sizeof *copy);
    int32_t count[2];
    check_tensor(s, s->w, s->wd);
    check_tensor(s, s->m, s->md);
    check_tensor(s, s->v, s->vd);
    read_tensor(s, s->w, w);
    read_tensor(s, s->g, g);
    read_tensor(s, s->copy, copy);
    read_tensor(s, s->count, count);
    for (int64_t i = 0; i < N; i++) {
        assert_true(g[i] == 0);
        assert_int_equal(copy[i], applied ? bf16_from_f32(w[i]) : 0);
    }
    assert_int_equal(count[0], applied);
    assert_int_equal(count[1], skipped);
    test_free(w);
    test_free(g);
    test_free(copy);
}

static bool near(double got, double want)
{
    return fabs(got - want) <= 1e-5 * fabs(want);
}

/* Clipped, below the limit, and without one. */
static void three_steps_are_those_of_plain_loops(void **state)
{
    (void)state;
    static const float most[] = {0.5f, 1e3f, 0};
    struct step s;
    float *g = test_malloc(N * sizeof *g), control[5];
    step_open(&s, OP_adamw);
    for (int t = 1; t <= 3; t++) {
        for (int64_t i = 0; i < N; i++)
            g[i] = random_number((uint64_t)t + 1, i);
        double norm = expect_step(&s, g, 37, (double)most[t - 1], t);
        step_run(&s, g, 37, most[t - 1], control);
        assert_true(near((double)control[0], (t == 1 ? 0.5 / (norm + 1e-6) : 1) / 37));
        assert_true(near((double)control[1], norm) && control[2] == 1);
        assert_true(near((double)control[3], 1 - pow(beta1, t)) && near((double)control[4], sqrt(1 - pow(beta2, t))));
        check_all(&s, t, 0);
    }
    test_free(g);
    step_close(&s);
}

static void a_bad_step_changes_nothing_but_its_count(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    struct step s;
    float *g = test_malloc(N * sizeof *g), control[5];
    step_open(&s, OP_adamw);
    for (int64_t i = 0; i < N; i++)
        g[i] = random_number(9, i);
    for (int k = 0; k < 4; k++) {
        float was = g[777];
        g[777] = bad[k];
        step_run(&s, g, 5, 1, control);
        assert_true(control[0] == 0 && control[2] == 0 && !isfinite(control[1]));
        assert_true(near((double)control[3], 1 - beta1) && near((double)control[4], sqrt(1 - beta2)));
        check_all(&s, 0, k + 1);
        g[777] = was;
    }
    step_run(&s, g, 0, 1, control);
    assert_true(control[0] == 0 && control[2] == 0);
    check_all(&s, 0, 5);
    expect_step(&s, g, 5, 1, 1); /* the first update that applies is number 1 */
    step_run(&s, g, 5, 1, control);
    check_all(&s, 1, 5);
    test_free(g);
    step_close(&s);
}

static void a_zero_gradient_only_decays(void **state)
{
    (void)state;
    struct step s;
    float *g = test_calloc(N, sizeof *g), control[5];
    step_open(&s, OP_adamw);
    for (int t = 1; t <= 2; t++) {
        expect_step(&s, g, 5, 1, t);
        step_run(&s, g, 5, 1, control);
        assert_true(near((double)control[0], 0.2) && control[1] == 0 && control[2] == 1);
        check_all(&s, t, 0);
    }
    for (int64_t i = 0; i < N; i++)
        assert_true(i < CUT ? s.wd[i] == (double)random_number(1, i) : fabs(s.wd[i]) < fabs((double)random_number(1, i)));
    test_free(g);
    step_close(&s);
}

static void every_step_may_have_other_hyper_parameters(void **state)
{
    (void)state;
    static const double others[][3] = {{0.9, 0.95, 1e-8}, {0.5, 0.999, 1e-2}, {0, 0.9, 0.5}};
    struct step s;
    float *g = test_malloc(N * sizeof *g), control[5];
    step_open(&s, OP_adamw);
    for (int t = 1; t <= 3; t++) {
        beta1 = others[t - 1][0];
        beta2 = others[t - 1][1];
        eps = others[t - 1][2];
        for (int64_t i = 0; i < N; i++)
            g[i] = random_number((uint64_t)t + 20, i);
        expect_step(&s, g, 3, 1, t);
        step_run(&s, g, 3, 1, control);
        check_all(&s, t, 0);
    }
    test_free(g);
    step_close(&s);
}

/* Lion's step in double. */
static void expect_lion(struct step *s, const float *g, double divisor, double most)
{
    double scale;
    expect_norm(g, divisor, most, &scale);
    for (int64_t i = 0; i < N; i++) {
        const float *rate = rates[i < CUT ? 1 : 0];
        double lr = (double)rate[0], x = scale * (double)g[i], way = beta1 * s->md[i] + (1 - beta1) * x;
        s->wd[i] -= lr * ((double)rate[1] * s->wd[i] + (way > 0) - (way < 0));
        s->md[i] = beta2 * s->md[i] + (1 - beta2) * x;
    }
}

/* The second gradient is zero in places: what it says there is the mean of before, or nothing. */
static void lion_steps_by_signs(void **state)
{
    (void)state;
    struct step s;
    float *g = test_malloc(N * sizeof *g), control[5];
    step_open(&s, OP_lion);
    for (int t = 1; t <= 3; t++) {
        for (int64_t i = 0; i < N; i++)
            g[i] = i % 7 == 0 || (t == 2 && i % 3 == 0) ? 0 : random_number((uint64_t)t + 40, i);
        expect_lion(&s, g, 37, t == 1 ? 0.5 : 0);
        step_run(&s, g, 37, t == 1 ? 0.5f : 0, control);
        check_all(&s, t, 0);
    }
    g[5] = NAN;
    step_run(&s, g, 37, 0, control);
    check_all(&s, 3, 1);
    test_free(g);
    step_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_steps_are_those_of_plain_loops),
        cmocka_unit_test(a_bad_step_changes_nothing_but_its_count),
        cmocka_unit_test(a_zero_gradient_only_decays),
        cmocka_unit_test(every_step_may_have_other_hyper_parameters),
        cmocka_unit_test(lion_steps_by_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
