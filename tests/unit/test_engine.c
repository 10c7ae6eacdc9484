/* The engine: blocks that programs share, one copy in, a leading program, tensors in and out, no allocation in a run. */
#include "test.h"

#include <stdio.h>

#include "failing.h"
#include "program_rig.h"

enum { N = 100, LONG = 1000 };

/* A program on an engine: y = factor · x + d. */
struct part {
    struct program program;
    struct value *x, *d, *y;
    int64_t index, count;
    double factor;
};

struct parts { /* two of them, of different sizes */
    struct device *device;
    struct store store;
    struct engine engine;
    struct part part[2];
};

static enum status part_add(struct parts *a, struct part *p, int64_t count, double factor)
{
    program_init(&p->program, ops_table, RUN_FLOAT32);
    p->count = count;
    p->factor = factor;
    p->x = program_input(&p->program, "x", ROLE_ACTIVATION, 1, count);
    p->d = program_input(&p->program, "d", ROLE_ACTIVATION, 1, count);
    p->y = program_output(&p->program, add(&p->program, scale(&p->program, p->x, factor), p->d), "y");
    TRY(program_status(&p->program));
    return engine_add(&a->engine, &p->program, &p->index);
}

static void parts_open(struct parts *a)
{
    *a = (struct parts){0};
    assert_ok(device_open(&a->device, "cpu"));
    assert_ok(store_init(&a->store));
    engine_init(&a->engine, a->device, &a->store);
}

static void parts_close(struct parts *a)
{
    engine_free(&a->engine);
    for (int i = 0; i < 2; i++)
        program_free(&a->part[i].program);
    store_free(&a->store);
    device_close(a->device);
}

/* The second one leads, so that its inputs lie before those of the first. */
static void parts_prepare(struct parts *a, bool lead)
{
    parts_open(a);
    assert_ok(part_add(a, &a->part[0], LONG, 3));
    assert_ok(part_add(a, &a->part[1], N, 5));
    if (lead)
        engine_lead(&a->engine, a->part[1].index);
    assert_ok(engine_place(&a->engine));
    assert_ok(engine_prepare(&a->engine));
}

static void write_inputs(struct parts *a, const struct part *p, int from)
{
    for (int i = 0; i < p->count; i++) {
        ((float *)engine_input(&a->engine, p->x))[i] = (float)(from + i);
        ((float *)engine_input(&a->engine, p->d))[i] = (float)(2 * from - i);
    }
}

static void assert_result(const struct part *p, const float *y, int from)
{
    for (int i = 0; i < p->count; i++)
        assert_true(y[i] == (float)p->factor * (float)(from + i) + (float)(2 * from - i));
}

static void check_read(struct parts *a, const struct part *p, int from)
{
    float y[LONG];
    assert_ok(engine_read(&a->engine, p->y, y));
    assert_result(p, y, from);
}

/* --- runs ------------------------------------------------------------------------------------------------------------------ */

static void a_run_copies_its_inputs_in_once_and_no_others(void **state)
{
    (void)state;
    struct parts a;
    parts_prepare(&a, false);
    for (int i = 0; i < 2; i++) {
        const struct part *p = &a.part[i];
        struct device_counters before = a.device->counters;
        write_inputs(&a, p, 11 + i);
        assert_ok(engine_run(&a.engine, p->index));
        assert_int_equal(a.device->counters.writes - before.writes, 1);
        assert_int_equal(a.device->counters.written - before.written, 2 * align_up(p->count * 4));
        check_read(&a, p, 11 + i);
    }
    parts_close(&a);
}

static void the_inputs_of_the_program_that_leads_come_along(void **state)
{
    (void)state;
    struct parts a;
    parts_prepare(&a, true);
    struct device_counters before = a.device->counters;
    write_inputs(&a, &a.part[1], 70); /* they do not overlap */
    write_inputs(&a, &a.part[0], 40);
    assert_ok(engine_run(&a.engine, a.part[0].index));
    assert_ok(engine_run_lead(&a.engine));
    assert_int_equal(a.device->counters.writes - before.writes, 1);
    check_read(&a, &a.part[0], 40);
    check_read(&a, &a.part[1], 70);
    assert_int_equal(a.engine.programs[a.part[0].index].runs, 1);
    assert_int_equal(a.engine.programs[a.part[1].index].runs, 1);
    parts_close(&a);
}

/* One read has the outputs of both, and stays as it is while the next one is in flight. */
static void reads_that_do_not_wait_keep_what_they_read(void **state)
{
    (void)state;
    struct parts a;
    const void *outputs[DEVICE_LATER];
    parts_prepare(&a, true);
    assert_ok(engine_later_open(&a.engine, a.part[0].index));
    int64_t reads = a.device->counters.reads;
    for (int slot = 0; slot < DEVICE_LATER; slot++) {
        write_inputs(&a, &a.part[0], slot);
        write_inputs(&a, &a.part[1], 100 + slot);
        assert_ok(engine_run(&a.engine, a.part[0].index));
        assert_ok(engine_run_lead(&a.engine));
        assert_ok(engine_read_later(&a.engine, slot, a.part[0].y));
    }
    for (int slot = 0; slot < DEVICE_LATER; slot++)
        assert_ok(engine_read_wait(&a.engine, slot, &outputs[slot]));
    assert_int_equal(a.device->counters.reads - reads, DEVICE_LATER);
    for (int slot = 0; slot < DEVICE_LATER; slot++) {
        assert_result(&a.part[0], engine_output(outputs[slot], a.part[0].y), slot);
        assert_result(&a.part[1], engine_output(outputs[slot], a.part[1].y), 100 + slot);
    }
    parts_close(&a);
}

static void a_run_after_prepare_allocates_nothing(void **state)
{
    (void)state;
    struct parts a;
    parts_prepare(&a, true);
    assert_ok(engine_later_open(&a.engine, a.part[0].index));
    engine_shrink(&a.engine);
    int64_t memory = memory_count();
    struct device_counters before = a.device->counters;
    for (int round = 0; round < 5; round++) {
        const void *outputs;
        write_inputs(&a, &a.part[1], 3);
        write_inputs(&a, &a.part[0], round); /* inputs and outputs outlive the memory of building */
        assert_ok(engine_run(&a.engine, a.part[0].index));
        assert_ok(engine_run_lead(&a.engine));
        assert_ok(engine_read_later(&a.engine, round % DEVICE_LATER, a.part[0].y));
        assert_ok(engine_read_wait(&a.engine, round % DEVICE_LATER, &outputs));
        assert_result(&a.part[0], engine_output(outputs, a.part[0].y), round);
        check_read(&a, &a.part[1], 3);
    }
    const struct device_counters *now = &a.device->counters;
    assert_int_equal(memory_count(), memory);
    assert_int_equal(now->allocations, before.allocations);
    assert_int_equal(now->kernels, before.kernels);
    assert_int_equal(now->prepared, before.prepared);
    assert_int_equal(now->bytes, before.bytes);
    assert_int_equal(now->runs, before.runs + 10);
    parts_close(&a);
}

/* --- blocks ---------------------------------------------------------------------------------------------------------------- */

static void programs_share_blocks_as_large_as_the_largest_needs(void **state)
{
    (void)state;
    int64_t input = 2 * align_up(LONG * 4), ahead = 2 * align_up(N * 4);
    for (int lead = 0; lead < 2; lead++) {
        struct parts a;
        int64_t bytes[LIFE_COUNT], mapped, sum = 0;
        parts_prepare(&a, lead);
        engine_bytes(&a.engine, bytes, &mapped);
        assert_int_equal(mapped, 0);
        assert_int_equal(bytes[LIFE_INPUTS], input + (lead ? ahead : 0));
        assert_int_equal(bytes[LIFE_OUTPUTS], input / 2 + (lead ? ahead / 2 : 0));
        assert_int_equal(bytes[LIFE_ACTIVATIONS], align_up(LONG * 4));
        for (int life = 0; life < LIFE_COUNT; life++)
            sum += bytes[life];
        assert_int_equal(a.device->counters.bytes, sum);
        parts_close(&a);
    }
}

static void a_program_that_was_dropped_takes_nothing(void **state)
{
    (void)state;
    struct parts a;
    int64_t bytes[LIFE_COUNT], mapped;
    parts_open(&a);
    assert_ok(part_add(&a, &a.part[0], N, 3));
    assert_ok(part_add(&a, &a.part[1], LONG, 5));
    engine_drop(&a.engine);
    assert_ok(engine_place(&a.engine));
    engine_bytes(&a.engine, bytes, &mapped);
    assert_int_equal(bytes[LIFE_INPUTS], 2 * align_up(N * 4));
    assert_ok(engine_prepare(&a.engine));
    write_inputs(&a, &a.part[0], 9);
    assert_ok(engine_run(&a.engine, a.part[0].index));
    check_read(&a, &a.part[0], 9);
    parts_close(&a);
}

static const struct device_class *real_class;

static void small_info(struct device *device, struct device_info *info)
{
    real_class->info(device, info);
    info->max_block = 20000;
}

/* A device with a small largest allocation gets tensors in several blocks; a larger tensor is refused. */
static void blocks_respect_the_largest_allocation(void **state)
{
    (void)state;
    enum { TENSORS = 7 };
    static const int64_t sizes[] = {1000, 3000, 1000, 2000, 4000, 900, 90}; /* floats */
    for (int large = 0; large < 3; large++) {
        struct parts a;
        struct tensor *t[TENSORS], *more;
        parts_open(&a);
        struct device_class small = *a.device->class;
        real_class = a.device->class;
        small.info = small_info;
        a.device->class = &small;
        for (int i = 0; i < TENSORS; i++) {
            char name[8];
            snprintf(name, sizeof name, "t%d", i);
            assert_ok(store_tensor(&t[i], &a.store, name, LIFE_WEIGHTS, DTYPE_F32, 1, &sizes[i]));
        }
        if (large == 1)
            assert_ok(store_tensor(&more, &a.store, "more", LIFE_WEIGHTS, DTYPE_F32, 1, (int64_t[]){5001}));
        assert_ok(part_add(&a, &a.part[0], large == 2 ? 5001 : N, 3));
        if (large == 1)
            assert_fails(engine_place(&a.engine), ERR_DEVICE, "tensor more has 20004 bytes");
        else if (large == 2)
            assert_fails(engine_place(&a.engine), ERR_DEVICE, "inputs take");
        else
            assert_ok(engine_place(&a.engine));
        int64_t blocks = 0;
        for (int64_t i = 0; i < a.engine.block_count; i++) {
            blocks += a.engine.blocks[i].lifetime == LIFE_WEIGHTS;
            assert_true(a.engine.blocks[i].bytes <= 20000);
        }
        assert_int_equal(blocks, 4); /* 1000 and 3000 · 1000 and 2000 · 4000 and 900 · 90 */
        for (int i = 0; i < TENSORS; i++)
            for (int k = 0; k < i; k++)
                assert_true(t[k]->place.block != t[i]->place.block ||
                            t[k]->place.offset + tensor_bytes(t[k]) <= t[i]->place.offset);
        a.device->class = real_class;
        parts_close(&a);
    }
}

/* --- tensors --------------------------------------------------------------------------------------------------------------- */

static void tensors_come_back_as_they_were_put_in(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
    struct parts a;
    struct tensor *t[2];
    float numbers[2][N];
    parts_open(&a);
    assert_ok(store_tensor(&t[0], &a.store, "wide", LIFE_WEIGHTS, types[0], 1, (int64_t[]){N}));
    assert_ok(store_tensor(&t[1], &a.store, "narrow", LIFE_STATE, types[1], 1, (int64_t[]){N}));
    assert_ok(part_add(&a, &a.part[0], N, 3));
    assert_ok(engine_place(&a.engine));
    assert_ok(engine_prepare(&a.engine));
    for (int i = 0; i < 2 * N; i++)
        numbers[i / N][i % N] = (float)(i - 37) * 0.5f; /* all of them bfloat16 numbers */
    for (int i = 0; i < 2; i++)
        assert_ok(engine_upload(&a.engine, t[i], numbers[i], DTYPE_F32));
    float wide[N];
    uint16_t narrow[N];
    assert_ok(engine_download(&a.engine, t[0], 0, wide, sizeof wide));
    assert_memory_equal(wide, numbers[0], sizeof wide);
    assert_ok(engine_download(&a.engine, t[1], 0, narrow, sizeof narrow));
    for (int i = 0; i < N; i++)
        assert_true(bf16_to_f32(narrow[i]) == numbers[1][i]);
    assert_ok(engine_download(&a.engine, t[0], 20 * 4, wide, 3 * 4));
    assert_memory_equal(wide, numbers[0] + 20, 3 * 4);
    parts_close(&a);
}

static void a_tensor_that_is_a_part_lies_in_its_whole(void **state)
{
    (void)state;
    struct parts a;
    struct tensor *whole, *part;
    float numbers[N], found[N] = {0};
    parts_open(&a);
    assert_ok(store_tensor(&part, &a.store, "part", LIFE_STATE, DTYPE_F32, 1, (int64_t[]){10}));
    assert_ok(store_tensor(&whole, &a.store, "whole", LIFE_STATE, DTYPE_F32, 1, (int64_t[]){N}));
    part->whole = whole;
    part->part = 30 * 4;
    assert_ok(part_add(&a, &a.part[0], N, 3));
    assert_ok(engine_place(&a.engine));
    int64_t bytes[LIFE_COUNT], mapped;
    engine_bytes(&a.engine, bytes, &mapped);
    assert_int_equal(bytes[LIFE_STATE], align_up(N * 4));
    assert_ok(engine_prepare(&a.engine));
    for (int i = 0; i < N; i++)
        numbers[i] = (float)i;
    assert_ok(engine_upload(&a.engine, part, numbers + 1, DTYPE_F32));
    assert_ok(engine_download(&a.engine, whole, 0, found, sizeof found));
    for (int i = 0; i < N; i++)
        assert_true(found[i] == (i >= 30 && i < 40 ? (float)(i - 29) : 0)); /* blocks are zeroed */
    parts_close(&a);
}

/* Used where it stands: nothing is copied, and the bytes count as mapped. */
static void a_tensor_in_a_file_stays_there(void **state)
{
    (void)state;
    struct parts a;
    struct tensor *t;
    _Alignas(ALIGNMENT) static float file[N];
    float found[N];
    parts_open(&a);
    assert_ok(store_tensor(&t, &a.store, "t", LIFE_WEIGHTS, DTYPE_F32, 1, (int64_t[]){N}));
    t->in_file = true;
    t->mapped = file;
    assert_ok(part_add(&a, &a.part[0], N, 3));
    assert_ok(engine_place(&a.engine));
    int64_t bytes[LIFE_COUNT], mapped;
    engine_bytes(&a.engine, bytes, &mapped);
    assert_int_equal(mapped, N * 4);
    assert_int_equal(bytes[LIFE_WEIGHTS], 0);
    assert_ok(engine_prepare(&a.engine));
    for (int i = 0; i < N; i++)
        file[i] = (float)(i * i);
    assert_ok(engine_download(&a.engine, t, 0, found, sizeof found));
    assert_memory_equal(found, file, sizeof found);
    parts_close(&a);
}

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

static enum status parts_try(struct parts *a)
{
    TRY(part_add(a, &a->part[0], N, 3));
    TRY(part_add(a, &a->part[1], LONG, 5));
    engine_lead(&a->engine, a->part[1].index);
    TRY(engine_place(&a->engine));
    TRY(engine_prepare(&a->engine));
    return engine_later_open(&a->engine, a->part[0].index);
}

/* A device may do without some, such as those for its name. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct parts a;
        struct tensor *t;
        parts_open(&a);
        assert_ok(store_tensor(&t, &a.store, "t", LIFE_WEIGHTS, DTYPE_F32, 1, (int64_t[]){N}));
        failing_begin(&f);
        enum status status = parts_try(&a);
        failing_end(&f, status);
        assert_true(status == OK || f.made == f.after + 1); /* a failure is the end */
        if (status == OK) {
            write_inputs(&a, &a.part[0], 1);
            assert_ok(engine_run(&a.engine, a.part[0].index));
            check_read(&a, &a.part[0], 1);
        }
        parts_close(&a);
    }
    assert_true(f.made > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_copies_its_inputs_in_once_and_no_others),
        cmocka_unit_test(the_inputs_of_the_program_that_leads_come_along),
        cmocka_unit_test(reads_that_do_not_wait_keep_what_they_read),
        cmocka_unit_test(a_run_after_prepare_allocates_nothing),
        cmocka_unit_test(programs_share_blocks_as_large_as_the_largest_needs),
        cmocka_unit_test(a_program_that_was_dropped_takes_nothing),
        cmocka_unit_test(blocks_respect_the_largest_allocation),
        cmocka_unit_test(tensors_come_back_as_they_were_put_in),
        cmocka_unit_test(a_tensor_that_is_a_part_lies_in_its_whole),
        cmocka_unit_test(a_tensor_in_a_file_stays_there),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
