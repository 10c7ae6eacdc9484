/* Differentiation: sums, what gets no gradient, recompute, and the nodes that stay. */
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "failing.h"
#include "processor.h"
#include "program_rig.h"

enum { T = 6, C = 16, LAYERS = 3 };

static struct value *row_input(struct run *r, const char *name)
{
    return program_input(&r->program, name, ROLE_ACTIVATION, 2, (int64_t)T, (int64_t)C);
}

static struct tensor *make_tensor(struct run *r, const char *name, int rank, bool trained)
{
    struct tensor *t;
    char sum[32];
    int64_t shape[] = {C, C};
    snprintf(sum, sizeof sum, "gradient.%s", name);
    assert_ok(store_tensor(&t, &r->store, name, trained ? LIFE_TRAINABLE : LIFE_WEIGHTS, DTYPE_F32, rank, shape));
    if (trained)
        assert_ok(store_tensor(&t->gradient, &r->store, sum, LIFE_GRADIENTS, DTYPE_F32, rank, shape));
    return t;
}

static int count_nodes(const struct program *p, const char *op)
{
    int count = 0;
    for (const struct node *n = p->first; n; n = n->next)
        count += !op || !strcmp(n->op->name, op);
    return count;
}

static float *download(struct run *r, const struct tensor *t)
{
    float *out = test_malloc((size_t)tensor_bytes(t));
    assert_ok(engine_download(&r->engine, t, 0, out, tensor_bytes(t)));
    return out;
}

static struct tensor *diagonal(struct run *r, const char *name)
{
    struct tensor *t;
    assert_ok(store_tensor(&t, &r->store, name, LIFE_WEIGHTS, r->program.types[ROLE_WEIGHT], 2, (int64_t[]){C, C}));
    return t;
}

static void upload_diagonal(struct run *r, const struct tensor *t, float number)
{
    float numbers[C * C] = {0};
    for (int c = 0; c < C; c++)
        numbers[c * C + c] = number;
    assert_ok(engine_upload(&r->engine, t, numbers, DTYPE_F32));
}

/* --- sums ------------------------------------------------------------------------------------------------------------------ */

/* y = 3 x + 5 x + x, so dx = 9 dy; the numbers are such that nothing is rounded. */
static void a_value_that_is_used_often_gets_the_sum_of_its_gradients(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct program *p = &r.program;
    struct value *x = row_input(&r, "x"), *dy = row_input(&r, "dy");
    program_want(p, x);
    struct value *y = add(p, add(p, scale(p, x, 3), scale(p, x, 5)), x);
    assert_ok(program_gradient(p, &y, &dy, 1));
    struct value *dx = program_output(p, x->gradient, "dx");
    run_prepare(&r);
    for (int i = 0; i < T * C; i++)
        ((float *)engine_input(&r.engine, dy))[i] = (float)(i - 40);
    assert_ok(engine_run(&r.engine, r.index));
    float *found = read_value(&r, dx);
    for (int i = 0; i < T * C; i++)
        assert_true(found[i] == 9 * (float)(i - 40));
    test_free(found);
    run_free(&r);
}

/* Gradients that start from two values, with a view between them. */
static void gradients_start_from_several_values_and_pass_views(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct program *p = &r.program;
    struct value *x = row_input(&r, "x"), *d[2] = {row_input(&r, "d0"), row_input(&r, "d1")};
    program_want(p, x);
    struct value *view = program_view(p, scale(p, x, 2), 3, (int64_t)T, (int64_t)2, (int64_t)(C / 2));
    struct value *y[2] = {scale(p, view, 3), scale(p, x, 7)};
    struct value *from[2] = {program_view_as(p, d[0], 3, y[0]->shape), d[1]};
    assert_ok(program_gradient(p, y, from, 2));
    assert_int_equal(x->gradient->rank, 2);
    struct value *dx = program_output(p, x->gradient, "dx");
    run_prepare(&r);
    for (int i = 0; i < T * C; i++) {
        ((float *)engine_input(&r.engine, d[0]))[i] = (float)i;
        ((float *)engine_input(&r.engine, d[1]))[i] = (float)(i % 5);
    }
    assert_ok(engine_run(&r.engine, r.index));
    float *found = read_value(&r, dx);
    for (int i = 0; i < T * C; i++)
        assert_true(found[i] == (float)(6 * i + 7 * (i % 5)));
    test_free(found);
    run_free(&r);
}

/* A bias that is added twice gets twice the column sums; a second run adds the same again. */
static void the_sum_of_a_weight_adds_up_over_uses_and_runs(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct program *p = &r.program;
    struct tensor *b = make_tensor(&r, "b", 1, true), *one = diagonal(&r, "one");
    struct value *x = row_input(&r, "x"), *dy = row_input(&r, "dy"), *w = program_tensor(p, one);
    struct value *y = linear_bias(p, x, w, program_tensor(p, b));
    y = linear_bias(p, scale(p, y, 2), w, program_tensor(p, b));
    assert_ok(program_gradient(p, &y, &dy, 1));
    run_prepare(&r);
    upload_diagonal(&r, one, 1);
    for (int i = 0; i < T * C; i++)
        ((float *)engine_input(&r.engine, dy))[i] = (float)(i % 11);
    for (int runs = 1; runs <= 3; runs++) {
        assert_ok(engine_run(&r.engine, r.index));
        float *found = download(&r, b->gradient);
        for (int c = 0; c < C; c++) {
            int column = 0;
            for (int t = 0; t < T; t++)
                column += (t * C + c) % 11;
            assert_true(found[c] == (float)(runs * 3 * column));
        }
        test_free(found);
    }
    run_free(&r);
}

/* A 16-bit value that is added to a wider stream: its gradient is rounded when the op that made it reads it. */
static void a_gradient_is_read_in_the_type_of_its_value(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_BFLOAT16);
    struct program *p = &r.program;
    struct value *x = program_input(p, "x", ROLE_RESIDUAL, 2, (int64_t)T, (int64_t)C), *narrow = row_input(&r, "narrow");
    struct value *dy = program_input(p, "dy", ROLE_RESIDUAL, 2, (int64_t)T, (int64_t)C);
    program_want(p, x);
    program_want(p, narrow);
    struct value *y = add(p, x, scale(p, narrow, 2));
    assert_ok(program_gradient(p, &y, &dy, 1));
    assert_ptr_equal(x->gradient, dy);
    assert_int_equal(narrow->gradient->dtype, DTYPE_BF16);
    assert_int_equal(count_nodes(p, "cast"), 1);
    run_free(&r);
}

/* x is multiplied by 256, 1 and 1, and its gradient for dy = 1 is 258: in bfloat16, where numbers of that size are 2 apart, each
 * 1 added to a rounded 256 would be lost. With a second op on the way, the sum is rounded for it, once. */
static void parts_of_a_gradient_are_summed_before_they_are_rounded(void **state)
{
    (void)state;
    static const float numbers[] = {256, 1, 1};
    struct run r;
    if (!processor_has_bf16())
        return;
    run_init(&r, "cpu", RUN_BFLOAT16);
    struct program *p = &r.program;
    struct tensor *w[] = {diagonal(&r, "w0"), diagonal(&r, "w1"), diagonal(&r, "w2")};
    struct value *x = row_input(&r, "x"), *dy = row_input(&r, "dy"), *y[3], *from[3] = {dy, dy, dy};
    program_want(p, x);
    struct value *h = scale(p, x, 1);
    for (int i = 0; i < 3; i++)
        y[i] = linear(p, h, program_tensor(p, w[i]));
    assert_ok(program_gradient(p, y, from, 3));
    assert_int_equal(x->gradient->dtype, DTYPE_BF16);
    assert_int_equal(count_nodes(p, "add"), 0);
    assert_int_equal(count_nodes(p, "cast"), 1);
    struct value *dx = program_output(p, x->gradient, "dx");
    run_prepare(&r);
    for (int i = 0; i < 3; i++)
        upload_diagonal(&r, w[i], numbers[i]);
    for (int i = 0; i < T * C; i++)
        ((uint16_t *)engine_input(&r.engine, dy))[i] = bf16_from_f32(1);
    assert_ok(engine_run(&r.engine, r.index));
    uint16_t found[T * C];
    assert_ok(engine_read(&r.engine, dx, found));
    for (int i = 0; i < T * C; i++)
        assert_true(bf16_to_f32(found[i]) == 258);
    run_free(&r);
}

/* Dropout's backward pass and the products of all layers add to one sum. */
static void dropout_adds_to_the_sum_of_the_products(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_BFLOAT16);
    struct program *p = &r.program;
    struct value *tokens[2], *draw = program_input(p, "draw", ROLE_INDEX, 1, (int64_t)4);
    for (int i = 0; i < 2; i++)
        tokens[i] = program_input(p, i ? "sequence" : "positions", ROLE_INDEX, 1, (int64_t)T);
    struct value *x = row_input(&r, "x"), *dy = row_input(&r, "dy"), *y[3], *from[3] = {dy, dy, dy};
    struct value *w = program_tensor(p, diagonal(&r, "w"));
    program_want(p, x);
    for (int i = 0; i < 3; i++)
        y[i] = linear_lora(p, x, w, NULL, dropout(p, x, tokens[1], tokens[0], draw, 0.1, i), w, w, 2);
    assert_ok(program_gradient(p, y, from, 3));
    assert_int_equal(x->gradient->dtype, DTYPE_F32);
    assert_int_equal(count_nodes(p, "add"), 0);
    assert_int_equal(count_nodes(p, "dropout"), 6);
    run_free(&r);
}

/* y = (x + d) · w, d = 3 b, and z = x · v between them: add gives x and d the same gradient, the product with v adds to x's. */
static void a_sum_that_was_passed_on_is_not_added_to_in_place(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct program *p = &r.program;
    struct tensor *w = diagonal(&r, "w"), *v = diagonal(&r, "v");
    struct value *x = row_input(&r, "x"), *b = row_input(&r, "b"), *dy = row_input(&r, "dy"), *from[2] = {dy, dy};
    program_want(p, x);
    program_want(p, b);
    struct value *d = scale(p, b, 3), *z = linear(p, x, program_tensor(p, v));
    struct value *y[2] = {z, linear(p, add(p, x, d), program_tensor(p, w))};
    assert_ok(program_gradient(p, y, from, 2));
    struct value *dx = program_output(p, x->gradient, "dx"), *db = program_output(p, b->gradient, "db");
    run_prepare(&r);
    upload_diagonal(&r, w, 5);
    upload_diagonal(&r, v, 7);
    for (int i = 0; i < T * C; i++)
        ((float *)engine_input(&r.engine, dy))[i] = (float)i;
    assert_ok(engine_run(&r.engine, r.index));
    float *of_x = read_value(&r, dx), *of_b = read_value(&r, db);
    for (int i = 0; i < T * C; i++)
        assert_true(of_x[i] == (float)(12 * i) && of_b[i] == (float)(15 * i));
    test_free(of_x);
    test_free(of_b);
    run_free(&r);
}

static void a_gradient_for_a_part_of_a_value_is_refused(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct value *x = row_input(&r, "x"), *dy = row_input(&r, "dy");
    program_want(&r.program, x);
    struct value *y = scale(&r.program, program_rows(&r.program, x, 1, 2), 2), *d = program_rows(&r.program, dy, 0, 2);
    assert_fails(program_gradient(&r.program, &y, &d, 1), ERR_INTERNAL, "a gradient for a part of a value");
    run_free(&r);
}

/* --- what gets none -------------------------------------------------------------------------------------------------------- */

/* y = h · wᵀ + 2 z, h = x · vᵀ, and which of x, v, w want a gradient; z never does. */
static void build_products(struct run *r, bool want_x, bool train_v, bool train_w)
{
    struct program *p = &r->program;
    run_init(r, "cpu", RUN_FLOAT32);
    struct value *x = row_input(r, "x"), *z = row_input(r, "z"), *dy = row_input(r, "dy");
    if (want_x)
        program_want(p, x);
    struct value *h = linear(p, x, program_tensor(p, make_tensor(r, "v", 2, train_v)));
    struct value *other = scale(p, z, 2);
    struct value *y = add(p, linear(p, h, program_tensor(p, make_tensor(r, "w", 2, train_w))), other);
    assert_ok(program_gradient(p, &y, &dy, 1));
    assert_true((x->gradient != NULL) == want_x);
    assert_true((h->gradient != NULL) == (want_x || train_v));
    assert_true(!z->gradient && !other->gradient);
}

static void what_wants_no_gradient_gets_none_and_no_work(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct run r;
        bool want_x = i & 1, train_v = i & 2, train_w = i & 4;
        build_products(&r, want_x, train_v, train_w);
        assert_int_equal(count_nodes(&r.program, "linear_bwd_w"), train_v + train_w);
        assert_int_equal(count_nodes(&r.program, "linear_bwd_x"), want_x + (want_x || train_v));
        assert_int_equal(count_nodes(&r.program, NULL), 4 + train_v + train_w + want_x + (want_x || train_v));
        run_free(&r);
    }
}

static void nodes_that_nobody_reads_are_taken_out(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, "cpu", RUN_FLOAT32);
    struct program *p = &r.program;
    struct tensor *b = make_tensor(&r, "b", 1, true);
    struct value *x = row_input(&r, "x");
    struct value *kept = scale(p, scale(p, x, 2), 3);
    scale(p, scale(p, kept, 4), 5);                       /* two whose results are not used, the second reads the first */
    NODE(p, bias_bwd, x, program_tensor(p, b->gradient)); /* its result outlives the run */
    program_output(p, kept, "kept");
    scale(p, x, 6); /* the very last */
    assert_int_equal(count_nodes(p, NULL), 6);
    program_prune(p);
    assert_int_equal(count_nodes(p, "scale"), 2);
    assert_int_equal(count_nodes(p, "bias_bwd"), 1);
    assert_ptr_equal(p->first, kept->producer->previous);
    assert_string_equal(p->last->op->name, "bias_bwd");
    assert_null(p->last->next);
    run_free(&r);
}

/* --- recompute ------------------------------------------------------------------------------------------------------------- */

/* A bias, then layers x + down · swiglu(gate · norm(x), up · norm(x)), each a segment. */
struct layers {
    struct run run;
    struct tensor *first, *bias, *weights[LAYERS][4];
    struct value *x, *dy;
};

static void build_layers(struct layers *l, enum recompute recompute)
{
    static const char *const names[] = {"norm", "gate", "up", "down"};
    struct program *p = &l->run.program;
    run_init(&l->run, "cpu", RUN_FLOAT32);
    p->recompute = recompute;
    l->x = row_input(&l->run, "x");
    l->dy = row_input(&l->run, "dy");
    l->bias = make_tensor(&l->run, "bias", 1, true);
    l->first = make_tensor(&l->run, "first", 2, false);
    struct value *x = linear_bias(p, l->x, program_tensor(p, l->first), program_tensor(p, l->bias));
    for (int layer = 0; layer < LAYERS; layer++) {
        struct value *w[4];
        for (int i = 0; i < 4; i++) {
            char name[16];
            snprintf(name, sizeof name, "%d.%s", layer, names[i]);
            l->weights[layer][i] = make_tensor(&l->run, name, i ? 2 : 1, true);
            w[i] = program_tensor(p, l->weights[layer][i]);
        }
        p->segment = 1 + layer;
        struct value *h = rmsnorm(p, x, w[0], 1e-5);
        x = add(p, x, linear(p, swiglu(p, linear(p, h, w[1]), linear(p, h, w[2])), w[3]));
    }
    p->segment = 0;
    struct value *last = x->producer->in[1]; /* of the last segment, and read by two products after it */
    struct value *w = program_tensor(p, l->first), *y = add(p, add(p, scale(p, x, 2), linear(p, last, w)), linear(p, last, w));
    program_output(p, y, "y");
    assert_ok(program_gradient(p, &y, &l->dy, 1));
}

static void run_layers(struct layers *l)
{
    run_prepare(&l->run);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < 4; i++) {
            float *numbers = random_numbers((uint64_t)(layer * 4 + i), C * C, 0.4f);
            assert_ok(engine_upload(&l->run.engine, l->weights[layer][i], numbers, DTYPE_F32));
            test_free(numbers);
        }
    float *first = random_numbers(90, C * C, 0.4f);
    assert_ok(engine_upload(&l->run.engine, l->first, first, DTYPE_F32));
    test_free(first);
    float *x = random_numbers(91, T * C, 1), *dy = random_numbers(92, T * C, 1);
    put(&l->run, l->x, x);
    put(&l->run, l->dy, dy);
    test_free(x);
    test_free(dy);
    assert_ok(engine_run(&l->run.engine, l->run.index));
}

static void assert_same_numbers(float *a, float *b, int64_t count)
{
    double size = 0;
    for (int64_t i = 0; i < count; i++)
        size += fabs((double)a[i]);
    assert_true(size > 0);
    assert_memory_equal(a, b, (size_t)count * sizeof *a);
    test_free(a);
    test_free(b);
}

static void every_way_of_recomputing_gives_the_same_gradients(void **state)
{
    (void)state;
    struct layers all[RECOMPUTE_COUNT], *none = &all[RECOMPUTE_NONE];
    for (int mode = 0; mode < RECOMPUTE_COUNT; mode++) {
        build_layers(&all[mode], (enum recompute)mode);
        run_layers(&all[mode]);
    }
    for (int mode = 1; mode < RECOMPUTE_COUNT; mode++) {
        assert_same_numbers(download(&none->run, none->bias->gradient), download(&all[mode].run, all[mode].bias->gradient), C);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int i = 0; i < 4; i++)
                assert_same_numbers(download(&none->run, none->weights[layer][i]->gradient),
                                    download(&all[mode].run, all[mode].weights[layer][i]->gradient), i ? C * C : C);
        const struct engine_program *now = &all[mode].run.engine.programs[0], *before = &all[mode - 1].run.engine.programs[0];
        assert_true(now->bytes[LIFE_ACTIVATIONS] < before->bytes[LIFE_ACTIVATIONS]);
    }
    for (int mode = 0; mode < RECOMPUTE_COUNT; mode++)
        run_free(&all[mode].run);
}

/* Selective recomputes what is cheap, full everything that the backward pass reads; what it does not read (down's matmul, the
 * add) is not computed again. */
static void recompute_makes_again_what_it_says_and_no_more(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        int count[RECOMPUTE_COUNT];
    } expected[] = {
        {"rmsnorm", {LAYERS, 2 * LAYERS, 2 * LAYERS}},
        {"swiglu", {LAYERS, 2 * LAYERS, 2 * LAYERS}},
        {"linear", {3 + 3 * LAYERS, 3 + 3 * LAYERS, 3 + 5 * LAYERS}},
        {"linear_bwd_w", {3 * LAYERS, 3 * LAYERS, 3 * LAYERS}},
        {"scale", {2, 2, 2}},
    };
    for (int mode = 0; mode < RECOMPUTE_COUNT; mode++) {
        struct layers l;
        build_layers(&l, (enum recompute)mode);
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
            assert_int_equal(count_nodes(&l.run.program, expected[i].op), expected[i].count[mode]);
        run_free(&l.run);
    }
}

/* --- both types ------------------------------------------------------------------------------------------------------------ */

/* A small layer, forward and backward: a norm, a matmul with a bias, the residual add, a tied table as embedding and head. */
static void chain_gradients(enum run_type run, float *table, float *weight)
{
    enum { N = 2 * T, V = 24 };
    struct run r;
    struct tensor *t[4], *g[4];
    static const char *const names[] = {"table", "norm", "w", "b"};
    static const int64_t shapes[][2] = {{V, C}, {C}, {C, C}, {C}};
    static const int ranks[] = {2, 1, 2, 1};
    run_init(&r, "cpu", run);
    struct program *p = &r.program;
    struct engine *e = &r.engine;
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%s", names[i]);
        assert_ok(store_tensor(&t[i], &r.store, names[i], LIFE_TRAINABLE, run_types[run][ROLE_WEIGHT], ranks[i], shapes[i]));
        assert_ok(store_tensor(&g[i], &r.store, name, LIFE_GRADIENTS, DTYPE_F32, ranks[i], shapes[i]));
        t[i]->gradient = g[i];
    }
    struct value *ids = program_input(p, "ids", ROLE_INDEX, 1, (int64_t)N),
                 *order = program_input(p, "order", ROLE_INDEX, 1, (int64_t)N);
    struct value *targets = program_input(p, "targets", ROLE_INDEX, 1, (int64_t)N),
                 *d = program_input(p, "d", ROLE_STATISTIC, 1, (int64_t)N);
    struct value *x = embedding(p, ids, program_tensor(p, t[0]), order, -1);
    struct value *h = rmsnorm(p, x, program_tensor(p, t[1]), 1e-5);
    x = add(p, x, linear_bias(p, h, program_tensor(p, t[2]), program_tensor(p, t[3])));
    struct value *y = rmsnorm(p, x, program_tensor(p, t[1]), 1e-5);
    struct value *loss = linear_cross_entropy(p, y, program_tensor(p, t[0]), targets);
    assert_ok(program_gradient(p, &loss, &d, 1));
    run_prepare(&r);
    for (int i = 0; i < 4; i++) {
        float values[V * C], pair[2];
        for (int64_t k = 0; k < tensor_elements(t[i]); k++) {
            struct philox drawn = philox(5, (uint64_t)i, (uint64_t)k);
            philox_normal(drawn.word[0], drawn.word[1], pair);
            values[k] = (i == 1 ? 1 : 0) + 0.3f * bf16_to_f32(bf16_from_f32(pair[0]));
        }
        assert_ok(engine_upload(e, t[i], values, DTYPE_F32));
    }
    for (int i = 0; i < N; i++) {
        ((int32_t *)engine_input(e, ids))[i] = i; /* all different, so that their order is their own */
        ((int32_t *)engine_input(e, order))[i] = i;
        ((int32_t *)engine_input(e, targets))[i] = (i * 7 + 3) % V;
        ((float *)engine_input(e, d))[i] = 1;
    }
    assert_ok(engine_run(e, r.index));
    assert_ok(engine_run(e, r.index)); /* sums add up over runs */
    assert_ok(engine_download(e, g[0], 0, table, tensor_bytes(g[0])));
    assert_ok(engine_download(e, g[2], 0, weight, tensor_bytes(g[2])));
    run_free(&r);
}

static void gradients_agree_in_both_types(void **state)
{
    (void)state;
    float wide[2][24 * 16], narrow[2][24 * 16];
    chain_gradients(RUN_FLOAT32, wide[0], wide[1]);
    chain_gradients(processor_has_bf16() ? RUN_BFLOAT16 : RUN_FLOAT32, narrow[0], narrow[1]);
    for (int which = 0; which < 2; which++) {
        double error = 0, size = 0;
        for (int i = 0; i < (which ? 16 : 24) * 16; i++) {
            error += pow((double)(wide[which][i] - narrow[which][i]), 2);
            size += pow((double)wide[which][i], 2);
        }
        assert_true(size > 1 && error < 1e-3 * size);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct run r;
        run_init(&r, "cpu", RUN_FLOAT32);
        struct program *p = &r.program;
        p->recompute = RECOMPUTE_FULL;
        struct value *x = row_input(&r, "x"), *d = row_input(&r, "d");
        program_want(p, x);
        p->segment = 1;
        struct value *y = x;
        for (int i = 0; i < 10000; i++)
            y = swiglu(p, y, x);
        failing_begin(&f);
        enum status status = program_gradient(p, &y, &d, 1);
        failing_end(&f, status);
        assert_true(status != OK || x->gradient);
        run_free(&r);
    }
    assert_true(f.failed > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_that_is_used_often_gets_the_sum_of_its_gradients),
        cmocka_unit_test(gradients_start_from_several_values_and_pass_views),
        cmocka_unit_test(the_sum_of_a_weight_adds_up_over_uses_and_runs),
        cmocka_unit_test(a_gradient_is_read_in_the_type_of_its_value),
        cmocka_unit_test(parts_of_a_gradient_are_summed_before_they_are_rounded),
        cmocka_unit_test(dropout_adds_to_the_sum_of_the_products),
        cmocka_unit_test(a_sum_that_was_passed_on_is_not_added_to_in_place),
        cmocka_unit_test(a_gradient_for_a_part_of_a_value_is_refused),
        cmocka_unit_test(what_wants_no_gradient_gets_none_and_no_work),
        cmocka_unit_test(nodes_that_nobody_reads_are_taken_out),
        cmocka_unit_test(every_way_of_recomputing_gives_the_same_gradients),
        cmocka_unit_test(recompute_makes_again_what_it_says_and_no_more),
        cmocka_unit_test(gradients_agree_in_both_types),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
