/* The planner: a value keeps its memory until its last reader is done, and no longer. */
#include "test.h"

#include "failing.h"
#include "ops/ops.h"
#include "run/session.h"
#include "tensor/memory_plan.h"
#include "trainer_rig.h"

/* --- the check ------------------------------------------------------------------------------------------------------------- */

struct life {
    struct value *root;
    int64_t first, last; /* commands */
};

enum { LIVES = 4096 };

/* The roots among activations that commands use, and when. */
static int64_t find_lives(const struct lowering *l, struct life *lives)
{
    int64_t count = 0;
    for (int64_t i = 0; i < l->count; i++)
        for (int o = 0; o < OPERANDS; o++) {
            struct value *root = l->list[i].value[o] ? value_root(l->list[i].value[o]) : NULL;
            int64_t at = 0;
            if (!root || root->lifetime != LIFE_ACTIVATIONS)
                continue;
            while (at < count && lives[at].root != root)
                at++;
            assert_true(at < LIVES);
            if (at == count)
                lives[count++] = (struct life){root, i, i};
            lives[at].last = i;
        }
    return count;
}

/* An op that works in place may write its first output over the input that nothing reads again, not even itself. */
static bool handed_over(const struct lowered *c, const struct life *from, const struct life *to)
{
    int readers = 0;
    for (int i = 0; i < c->values; i++)
        readers += c->value[i] && value_root(c->value[i]) == from->root;
    return c->command.kind == COMMAND_LAUNCH && c->in && readers == 1 && c->out == to->root && value_root(c->in) == from->root &&
           from->first < to->first && from->last == to->first && from->root->place.offset == to->root->place.offset &&
           value_bytes(from->root) == value_bytes(to->root);
}

/* Walks through the commands and keeps the owner of every piece of ALIGNMENT bytes. */
static void check_plan(const struct lowering *l, const int64_t bytes[LIFE_COUNT])
{
    static struct life lives[LIVES];
    int64_t count = find_lives(l, lives), pieces = bytes[LIFE_ACTIVATIONS] / ALIGNMENT, end = 0;
    const struct life **owner = test_calloc((size_t)pieces + 1, sizeof(const struct life *));
    assert_int_equal(bytes[LIFE_ACTIVATIONS] % ALIGNMENT, 0);
    for (int64_t i = 0; i < l->count; i++)
        for (int pass = 0; pass < 2; pass++) /* what is read is still there; then what is born takes its place */
            for (const struct life *x = lives; x < lives + count; x++) {
                if (pass ? x->first != i : x->first >= i || x->last < i)
                    continue;
                int64_t begin = x->root->place.offset;
                assert_int_equal(begin % ALIGNMENT, 0);
                assert_in_range(begin, 0, bytes[LIFE_ACTIVATIONS] - value_bytes(x->root));
                for (int64_t at = begin; at < begin + value_bytes(x->root); at += ALIGNMENT) {
                    const struct life **mine = &owner[at / ALIGNMENT];
                    if (pass == 0)
                        assert_ptr_equal(*mine, x);
                    else
                        assert_true(!*mine || (*mine)->last < i || handed_over(&l->list[i], *mine, x));
                    *mine = x;
                }
                end = begin + value_bytes(x->root) > end ? begin + value_bytes(x->root) : end;
            }
    assert_int_equal(align_up(end), bytes[LIFE_ACTIVATIONS]); /* all that is said is used */
    test_free(owner);
}

/* Inputs, and outputs, one after the other. */
static void check_side_by_side(const struct program *p, const int64_t bytes[LIFE_COUNT])
{
    int64_t end[LIFE_COUNT] = {0};
    for (const struct value *v = p->values; v; v = v->next)
        if (!v->tensor && (v->lifetime == LIFE_INPUTS || v->lifetime == LIFE_OUTPUTS)) {
            assert_int_equal(v->place.offset, end[v->lifetime]);
            end[v->lifetime] += align_up(value_bytes(v));
        }
    assert_int_equal(bytes[LIFE_INPUTS], end[LIFE_INPUTS]);
    assert_int_equal(bytes[LIFE_OUTPUTS], end[LIFE_OUTPUTS]);
    for (int life = 0; life < LIFE_INPUTS; life++)
        assert_int_equal(bytes[life], 0); /* tensors are the engine's to place */
}

/* --- programs made by hand ------------------------------------------------------------------------------------------------- */

enum { T = 12, C = 60 }; /* no multiple of ALIGNMENT */

struct plan {
    struct device *device;
    struct store store;
    struct program program;
    struct lowering lowering;
    int64_t bytes[LIFE_COUNT];
    struct value *x, *large, *norm; /* (T, C), (2 T, C), (C) */
};

static void plan_open(struct plan *p)
{
    struct tensor *norm;
    *p = (struct plan){0};
    assert_ok(device_open(&p->device, "cpu"));
    assert_ok(store_init(&p->store));
    assert_ok(store_tensor(&norm, &p->store, "norm", LIFE_WEIGHTS, DTYPE_F32, 1, (int64_t[]){C}));
    program_init(&p->program, ops_table, RUN_FLOAT32);
    p->x = program_input(&p->program, "x", ROLE_ACTIVATION, 2, (int64_t)T, (int64_t)C);
    p->large = program_input(&p->program, "large", ROLE_ACTIVATION, 2, (int64_t)(2 * T), (int64_t)C);
    p->norm = program_tensor(&p->program, norm);
}

static void plan_make(struct plan *p)
{
    assert_ok(program_status(&p->program));
    assert_ok(lower_program(&p->lowering, &p->program, p->device));
    assert_ok(plan_program(&p->lowering, p->bytes));
    check_plan(&p->lowering, p->bytes);
    check_side_by_side(&p->program, p->bytes);
}

static void plan_close(struct plan *p)
{
    lower_free(&p->lowering);
    program_free(&p->program);
    store_free(&p->store);
    device_close(p->device);
}

/* The output of an op that does not work in place. */
static struct value *fresh(struct plan *p, struct value *x)
{
    return rmsnorm(&p->program, x, p->norm, 1e-5);
}

static void the_memory_of_dead_values_is_taken_again(void **state)
{
    (void)state;
    for (int length = 2; length < 40; length += 3) {
        struct plan p;
        plan_open(&p);
        struct value *y = p.x;
        for (int i = 0; i < length; i++)
            y = fresh(&p, y);
        program_output(&p.program, fresh(&p, y), "y");
        plan_make(&p);
        assert_true(p.bytes[LIFE_ACTIVATIONS] <=
                    2 * (align_up(value_bytes(y)) + ALIGNMENT)); /* a norm has a small second output */
        plan_close(&p);
    }
}

/* Pieces that died side by side are one piece, and the last one grows where it is too small. */
static void free_memory_is_joined_and_grown(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p;
        plan_open(&p);
        struct value *a = scale(&p.program, p.x, 2), *b = i ? scale(&p.program, p.x, 3) : p.x;
        program_output(&p.program, i == 2 ? add(&p.program, b, a) : add(&p.program, a, b), "small"); /* they die in both orders */
        struct value *large = scale(&p.program, p.large, 2);
        program_output(&p.program, scale(&p.program, large, 2), "large");
        plan_make(&p);
        assert_int_equal(large->place.offset, 0);
        assert_int_equal(p.bytes[LIFE_ACTIVATIONS], i ? 2 * align_up(value_bytes(a)) : align_up(value_bytes(large)));
        plan_close(&p);
    }
}

static void an_op_in_place_takes_the_memory_of_an_input_that_dies(void **state)
{
    (void)state;
    struct plan p;
    plan_open(&p);
    struct value *first = scale(&p.program, p.x, 2), *y = first;
    for (int i = 0; i < 5; i++)
        y = scale(&p.program, y, 2);
    program_output(&p.program, scale(&p.program, y, 2), "y");
    plan_make(&p);
    assert_int_equal(first->place.offset, y->place.offset);
    assert_int_equal(p.bytes[LIFE_ACTIVATIONS], align_up(value_bytes(y)));
    plan_close(&p);
}

/* Seen to fail with a lower_take_back that takes nothing, and with a lower_in_place that does nothing. */
static void a_norm_adds_to_the_stream_where_that_lies(void **state)
{
    (void)state;
    struct plan p;
    plan_open(&p);
    struct value *before = scale(&p.program, p.x, 2), *sum = add(&p.program, before, p.x);
    program_output(&p.program, fresh(&p, sum), "y");
    program_output(&p.program, scale(&p.program, sum, 2), "twice");
    plan_make(&p);
    assert_int_equal(p.lowering.count, 3);
    assert_int_equal(before->place.offset, sum->place.offset);
    plan_close(&p);
    plan_open(&p); /* another launch between the two: they stay apart */
    sum = add(&p.program, scale(&p.program, p.x, 2), p.x);
    program_output(&p.program, scale(&p.program, p.x, 3), "other");
    program_output(&p.program, fresh(&p, sum), "y");
    plan_make(&p);
    assert_int_equal(p.lowering.count, 4);
    plan_close(&p);
}

/* Seen to fail without the check in lower_launch. */
static void columns_are_only_for_matmuls(void **state)
{
    (void)state;
    struct plan p;
    plan_open(&p);
    struct value *y = scale(&p.program, p.x, 2), *some = program_columns(&p.program, y, 4, 8);
    assert_true(some->stride == C && some->shape[1] == 8 && some->base_offset == 16 && value_root(some) == y);
    assert_ptr_equal(program_columns(&p.program, y, 0, C), y);
    struct lowering l = {.program = &p.program, .device = p.device, .node = y->producer};
    assert_fails(lower_launch(&l, &y->producer->op->kernel, 3, (struct value *[]){some, NULL, some}, y->producer->size,
                              y->producer->number, 1, 1),
                 ERR_INTERNAL, "gets a value with gaps");
    lower_free(&l);
    assert_null(program_columns(&p.program, y, C - 3, 4));
    plan_close(&p);
}

static void an_input_that_is_read_once_more_keeps_its_memory(void **state)
{
    (void)state;
    struct plan p;
    plan_open(&p);
    struct value *a = scale(&p.program, p.x, 2), *b = scale(&p.program, a, 2); /* a is read again below */
    struct value *c = swiglu(&p.program, b, a), *d = swiglu(&p.program, c, c); /* c twice by the same launch */
    program_output(&p.program, scale(&p.program, d, 2), "y");
    plan_make(&p);
    assert_int_not_equal(a->place.offset, b->place.offset);
    assert_int_not_equal(c->place.offset, d->place.offset);
    assert_int_equal(p.bytes[LIFE_ACTIVATIONS], 2 * align_up(value_bytes(a)));
    plan_close(&p);
}

static void a_view_keeps_its_base_alive(void **state)
{
    (void)state;
    struct plan p;
    plan_open(&p);
    struct value *base = scale(&p.program, p.x, 2), *view = program_rows(&p.program, base, 3, 4);
    struct value *other = scale(&p.program, p.x, 3);
    for (int i = 0; i < 4; i++)
        other = fresh(&p, other);
    program_output(&p.program, scale(&p.program, view, 2), "rows");
    program_output(&p.program, other, "other");
    plan_make(&p);
    assert_true(p.bytes[LIFE_ACTIVATIONS] >= 3 * align_up(value_bytes(base)));
    plan_close(&p);
}

/* What is added in place has no memory of its own, and what it was added into lives as long as the sum. */
static void an_alias_lies_where_its_input_does(void **state)
{
    (void)state;
    struct plan p;
    struct tensor *w;
    plan_open(&p);
    assert_ok(store_tensor(&w, &p.store, "w", LIFE_WEIGHTS, DTYPE_F32, 2, (int64_t[]){C, C}));
    struct value *y = scale(&p.program, p.x, 2), *sum = NODE(&p.program, linear_bwd_x, p.x, program_tensor(&p.program, w), y);
    struct value *other = fresh(&p, p.x);
    program_output(&p.program, add(&p.program, fresh(&p, other), sum), "out");
    plan_make(&p);
    assert_ptr_equal(value_root(sum), y);
    assert_int_equal(sum->base_offset, 0);
    assert_int_not_equal(y->place.offset, other->place.offset);
    plan_close(&p);
}

/* --- random programs ------------------------------------------------------------------------------------------------------- */

static uint32_t draw(uint64_t program, uint64_t *drawn, uint32_t below)
{
    return philox(program, 7, (*drawn)++).word[0] % below;
}

/* A random op on random ones of the values so far, which are all (1 … T, C). */
static struct value *random_op(struct plan *p, struct value **values, uint32_t count, struct value *w, uint64_t seed,
                               uint64_t *drawn)
{
    struct program *q = &p->program;
    struct value *x = values[draw(seed, drawn, count)], *y = values[draw(seed, drawn, count)];
    bool same_rows = x->shape[0] == y->shape[0];
    switch (draw(seed, drawn, 7)) {
    case 0: return scale(q, x, 2);
    case 1: return fresh(p, x);
    case 2: return add(q, x, same_rows ? y : x);
    case 3: return swiglu(q, x, same_rows ? y : x);
    case 4: return linear(q, x, w);
    case 5: return NODE(q, linear_bwd_x, x, w, linear(q, x, w));
    default: return program_rows(q, x, x->shape[0] / 3, x->shape[0] - x->shape[0] / 3);
    }
}

static void values_of_random_programs_never_overlap(void **state)
{
    (void)state;
    enum { PROGRAMS = 400, NODES = 48 };
    int64_t reused = 0;
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        struct plan p;
        struct tensor *w;
        struct value *values[NODES + 1];
        uint64_t drawn = 0;
        uint32_t count = 0, nodes = 1 + draw(seed, &drawn, NODES);
        plan_open(&p);
        assert_ok(store_tensor(&w, &p.store, "w", LIFE_WEIGHTS, DTYPE_F32, 2, (int64_t[]){C, C}));
        values[count++] = p.x;
        for (uint32_t i = 0; i < nodes; i++) {
            struct value *v = random_op(&p, values, count, program_tensor(&p.program, w), seed, &drawn);
            assert_ok(program_status(&p.program));
            values[count++] = v;
            if (value_root(v)->lifetime == LIFE_ACTIVATIONS && draw(seed, &drawn, 16) == 0)
                program_output(&p.program, v, "out");
        }
        plan_make(&p);
        int64_t sum = 0;
        for (const struct value *v = p.program.values; v; v = v->next)
            sum += v->lifetime == LIFE_ACTIVATIONS ? align_up(value_bytes(v)) : 0;
        assert_true(p.bytes[LIFE_ACTIVATIONS] <= sum);
        reused += p.bytes[LIFE_ACTIVATIONS] * 2 < sum;
        plan_close(&p);
    }
    assert_true(reused > PROGRAMS / 4);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct plan p;
    plan_open(&p);
    struct value *list[20], *sum = p.x;
    for (int i = 0; i < 20; i++)
        list[i] = scale(&p.program, p.x, i);
    for (int i = 0; i < 20; i++)
        sum = add(&p.program, sum, list[i * 7 % 20]); /* they die in another order than they are placed in */
    program_output(&p.program, sum, "sum");
    assert_ok(lower_program(&p.lowering, &p.program, p.device));
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        failing_end(&f, plan_program(&p.lowering, p.bytes));
    }
    assert_true(f.failed > 0);
    check_plan(&p.lowering, p.bytes);
    plan_close(&p);
}

/* --- programs of models ---------------------------------------------------------------------------------------------------- */

static void check_program(const struct session *s, int64_t index)
{
    const struct engine_program *ep = &s->engine.programs[index];
    assert_true(ep->lowering.count > 20);
    check_plan(&ep->lowering, ep->bytes);
}

static void values_of_forward_programs_never_overlap(void **state)
{
    (void)state;
    struct session s;
    int64_t index;
    struct session_options options = {.dir = tied.dir, .device = "cpu", .run = RUN_FLOAT32, .weights = true};
    assert_ok(session_open(&s, &options));
    assert_ok(session_add(&s, NET_LOSS, 48, 24, 0, &index));
    check_program(&s, index);
    assert_ok(session_add(&s, NET_LOGITS, 7, 1, 20, &index));
    check_program(&s, index);
    session_close(&s);
}

static void values_of_training_programs_never_overlap(void **state)
{
    (void)state;
    for (int method = 0; method < METHODS; method++)
        for (int mode = 0; mode < RECOMPUTE_COUNT; mode++) {
            struct rig r;
            plan_rig(&r, &untied, method ? &LOGITS : NULL,
                     join(method, SETTINGS("recompute", recompute_name((enum recompute)mode))));
            for (int size = 0; size < 4 * 4; size++) {
                int64_t index, slots = 64 * (size / 4 + 1), rows = slots / 4 * (size % 4 + 1);
                assert_ok(session_add(&r.t.build.session, NET_TRAIN, slots, rows, 0, &index));
            }
            for (int64_t i = 0; i < r.t.build.session.net_count; i++)
                if (r.t.build.session.nets[i])
                    check_program(&r.t.build.session, i);
            close_rig(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_memory_of_dead_values_is_taken_again),
        cmocka_unit_test(free_memory_is_joined_and_grown),
        cmocka_unit_test(an_op_in_place_takes_the_memory_of_an_input_that_dies),
        cmocka_unit_test(a_norm_adds_to_the_stream_where_that_lies),
        cmocka_unit_test(columns_are_only_for_matmuls),
        cmocka_unit_test(an_input_that_is_read_once_more_keeps_its_memory),
        cmocka_unit_test(a_view_keeps_its_base_alive),
        cmocka_unit_test(an_alias_lies_where_its_input_does),
        cmocka_unit_test(values_of_random_programs_never_overlap),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(values_of_forward_programs_never_overlap),
        cmocka_unit_test(values_of_training_programs_never_overlap),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
