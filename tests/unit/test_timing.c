/* Timed runs: the same results, a time for each command, and only the matmuls. */
#include "test.h"

#include "failing.h"
#include "program_rig.h"

enum { T = 6, HEADS = 2, SIZE = 16, CHANNELS = HEADS * SIZE };

struct rig {
    struct run run;
    struct value *x, *w, *first, *last, *y;
};

/* One product of an attention's own: scores. */
static int products(const struct node *n, struct gemm product[TIMING_PRODUCTS])
{
    if (n->op != ops_table[OP_attention])
        return 0;
    product[0] = (struct gemm){.m = T * HEADS, .n = TIMING_KEYS, .k = SIZE, .transpose_b = true, .alpha = 1};
    return 1;
}

/* y = attention of x · wᵀ with itself. */
static enum status rig_add(struct rig *r)
{
    struct program *p = &r->run.program;
    r->x = program_input(p, "x", ROLE_ACTIVATION, 2, (int64_t)T, (int64_t)CHANNELS);
    r->w = program_input(p, "w", ROLE_WEIGHT, 2, (int64_t)CHANNELS, (int64_t)CHANNELS);
    r->first = program_input(p, "first", ROLE_INDEX, 1, (int64_t)T);
    r->last = program_input(p, "last", ROLE_INDEX, 1, (int64_t)T);
    struct value *q = program_view(p, linear(p, r->x, r->w), 3, (int64_t)T, (int64_t)HEADS, (int64_t)SIZE);
    r->y = program_output(p, attention(p, q, q, q, r->first, r->last, NULL, 0.25), "y");
    TRY(program_status(p));
    engine_init(&r->run.engine, r->run.device, &r->run.store);
    r->run.engine.products = products;
    TRY(engine_add(&r->run.engine, p, &r->run.index));
    TRY(engine_place(&r->run.engine));
    return engine_prepare(&r->run.engine);
}

/* Two sequences of three tokens: a query sees 1, 2 or 3 keys. */
static void write_inputs(struct rig *r)
{
    float *x = engine_input(&r->run.engine, r->x), *w = engine_input(&r->run.engine, r->w);
    int32_t *first = engine_input(&r->run.engine, r->first), *last = engine_input(&r->run.engine, r->last);
    for (int i = 0; i < T * CHANNELS; i++)
        x[i] = (float)(i % 7) / 8;
    for (int i = 0; i < CHANNELS * CHANNELS; i++)
        w[i] = (float)(i % 5) / 16;
    for (int t = 0; t < T; t++) {
        first[t] = t / 3 * 3;
        last[t] = t;
    }
}

static const struct timing_command *command_of(const struct rig *r, int op)
{
    const struct timing *t = r->run.engine.programs[r->run.index].timing;
    for (int64_t i = 0; i < t->count; i++)
        if (t->command[i].op == ops_table[op])
            return &t->command[i];
    fail_msg("the program has no command of %s", ops_table[op]->name);
    return NULL;
}

/* Fails if a timed run leaves a command out, or if only the matmuls are run, but without those of attention. */
static void a_timed_run_computes_the_same_and_times_each_command(void **state)
{
    (void)state;
    struct rig r;
    run_init(&r.run, "cpu", RUN_FLOAT32);
    assert_ok(rig_add(&r));
    struct engine *e = &r.run.engine;
    const struct timing *t = e->programs[r.run.index].timing;
    write_inputs(&r);
    assert_ok(engine_run(e, r.run.index));
    void *plain = read_value(&r.run, r.y);
    for (int64_t i = 0; i < t->count; i++)
        assert_true(t->command[i].seconds == 0);
    e->timed = true;
    assert_ok(engine_run(e, r.run.index));
    e->timed = false;
    void *timed = read_value(&r.run, r.y);
    assert_memory_equal(plain, timed, (size_t)value_bytes(r.y));
    for (int64_t i = 0; i < t->count; i++)
        assert_true(t->command[i].seconds > 0 && t->command[i].bare_seconds == 0);
    assert_int_equal(e->programs[r.run.index].runs, 2);
    assert_ok(timing_bare(e, r.run.index));
    assert_ok(timing_bare(e, r.run.index));
    assert_true(command_of(&r, OP_linear)->flops == 2.0 * T * CHANNELS * CHANNELS);
    assert_true(command_of(&r, OP_attention)->flops == 2.0 * T * HEADS * SIZE * 2); /* 2 keys on average */
    assert_true(command_of(&r, OP_linear)->bare_seconds > 0 && command_of(&r, OP_attention)->bare_seconds > 0);
    timing_clear(e->programs[r.run.index].timing);
    assert_true(command_of(&r, OP_linear)->seconds == 0 && command_of(&r, OP_linear)->bare_seconds == 0);
    test_free(plain);
    test_free(timed);
    run_free(&r.run);
}

static enum status time_all(struct rig *r)
{
    TRY(rig_add(r));
    write_inputs(r);
    r->run.engine.timed = true;
    TRY(engine_run(&r->run.engine, r->run.index));
    return timing_bare(&r->run.engine, r->run.index);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct rig r;
        run_init(&r.run, "cpu", RUN_FLOAT32);
        failing_begin(&f);
        enum status status = time_all(&r);
        failing_end(&f, status);
        run_free(&r.run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timed_run_computes_the_same_and_times_each_command),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
