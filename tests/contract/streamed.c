/* Layers that lie in host memory and are copied ahead of their use. */
#define TINY_DEPTH 7
#include "contract.h"
#include "failing.h"
#include "trainer_rig.h"

enum { STEPS = 4, PLACING = 64, STRIDE = 7 };

struct method {
    const char *type, *dtype, *tokens; /* tokens: 128 slots are too many for fused NF4 kernels */
    const char *fp8;
};

static const struct method ways[] = {{"lora", "bfloat16", "64", "false"},
                                     {"qlora", "float32", "64", "false"},
                                     {"qlora", "bfloat16", "128", "false"},
                                     {"lora", "bfloat16", "64", "true"}};

static void open_way(struct rig *r, const struct method *m, const char *graph, const char *resident, const char *recompute)
{
    open_rig(r, &untied, 0,
             SETTINGS("device", "cuda", "finetuning_type", m->type, "dtype", m->dtype, "micro_batch_tokens", m->tokens,
                      "cuda_graph", graph, "resident_layers", resident, "recompute", recompute, "load_in_fp8", m->fp8));
}

/* Sequences of other lengths in every step, and so other programs. */
static struct step changing_step(struct rig *r, int number)
{
    struct sequence list[SEQUENCES];
    struct step step;
    double sum, weight;
    int count = 1 + number % SEQUENCES;
    memcpy(list, sequences(), sizeof list);
    for (int i = 0; i < count; i++)
        list[i].count = 2 + (list[i].count * (number + 3 * i + 1)) % (list[i].count - 1);
    assert_ok(stepper_add(&r->t.stepper, list, count, &sum, &weight));
    assert_ok(stepper_step(&r->t.stepper, 0.001 * (1 + number % 7), &step));
    return step;
}

/* Layers that are copied go through both stages in the forward pass and back, where the last two are still there. */
static void compare(const struct method *m, const char *graph, const char *resident, int64_t streamed, const char *recompute)
{
    struct rig all, some;
    open_way(&all, m, graph, "all", recompute);
    open_way(&some, m, graph, resident, recompute);
    const struct device_counters *a = &all.t.build.session.device->counters, *b = &some.t.build.session.device->counters;
    for (int i = 0; i < STEPS; i++) {
        struct step x = changing_step(&all, i), y = changing_step(&some, i);
        assert_same_step(&x, &y);
    }
    assert_same_state(&all.t, &some.t);
    assert_int_equal(a->copies, 0);
    assert_int_equal(b->copies, STEPS * (2 * streamed - 2));
    assert_int_equal(some.t.build.session.engine.streamed.count, streamed);
    assert_true(b->copied > 0);
    if (!strcmp(graph, "on"))
        assert_int_equal(b->launches, 0);
    else
        assert_int_equal(b->graph_launches, 0);
    assert_string_equal(warning, "");
    close_rig(&all);
    close_rig(&some);
}

/* Seen to fail with a copy put one command earlier, with two layers that follow each other in one stage, and with the wait of
 * COMMAND_ARRIVE left out (each time the simulator's "work on … before the copy to it on another stream has ended"), and with the
 * wait of COMMAND_COPY left out ("a copy to …, which another stream may still be using"). */
static void steps_have_the_same_bytes_wherever_layers_lie(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        for (int graph = 0; graph < 2; graph++)
            compare(&ways[i], graph ? "on" : "off", i ? "0" : "3", i ? TINY_LAYERS : TINY_LAYERS - 3, i ? "none" : "full");
}

static void the_card_holds_as_much_less_as_the_plan_says(void **state)
{
    (void)state;
    static const char *const resident[] = {"0", "2", "4"};
    for (int i = 0; i < 3; i++) {
        struct rig all, some;
        int64_t layers, saved, bytes[LIFE_COUNT], mapped;
        long long pinned = simulator_count("pinned_allocs");
        open_way(&all, &ways[0], "on", "all", "none");
        long long usual = simulator_count("pinned_allocs") - pinned;
        assert_ok(staged_saves(&all.t.build.session.model.store, 2 * i, &layers, &saved));
        assert_int_equal(layers, TINY_LAYERS);
        assert_true(saved > 0);
        pinned = simulator_count("pinned_allocs");
        open_way(&some, &ways[0], "on", resident[i], "none");
        const struct staged *s = &some.t.build.session.engine.streamed;
        assert_int_equal(simulator_count("pinned_allocs") - pinned, usual + layers - 2 * i);
        assert_int_equal(all.t.build.session.device->counters.bytes - some.t.build.session.device->counters.bytes, saved);
        assert_int_equal(session_bytes(&some.t.build.session, bytes, &mapped), some.t.build.session.device->counters.bytes);
        assert_int_equal(s->bytes - s->stage_bytes, saved);
        step_once(&some.t, 0.01);
        close_rig(&all);
        close_rig(&some);
    }
}

/* --- activations ------------------------------------------------------------------------------------------------------------ */

static void open_offloading(struct rig *r, const char *graph, const char *resident, const char *recompute, const char *offload)
{
    open_rig(r, &untied, 0,
             SETTINGS("device", "cuda", "dtype", "bfloat16", "cuda_graph", graph, "resident_layers", resident, "recompute",
                      recompute, "activation_offloading", offload));
}

/* With layers that are copied too, and with all that the backward pass needs. Seen to fail with the wait of COMMAND_ARRIVE left
 * out of copies to the host ("work on … before the copy out of it on another stream has ended") and of those back ("… the copy to
 * it …"), with that of COMMAND_COPY left out of either, and with an ARRIVE left out. */
static void steps_have_the_same_bytes_wherever_activations_wait(void **state)
{
    (void)state;
    static const char *const ways_of[][3] = {
        {"on", "all", "full"}, {"off", "all", "full"}, {"on", "2", "full"}, {"off", "0", "none"}, {"on", "3", "selective"}};
    for (size_t i = 0; i < sizeof ways_of / sizeof ways_of[0]; i++) {
        struct rig stays, leaves;
        open_offloading(&stays, ways_of[i][0], ways_of[i][1], ways_of[i][2], "off");
        open_offloading(&leaves, ways_of[i][0], ways_of[i][1], ways_of[i][2], "on");
        const struct device_counters *a = &stays.t.build.session.device->counters, *b = &leaves.t.build.session.device->counters;
        assert_true(session_offloaded(&leaves.t.build.session) > 0);
        assert_true(b->bytes < a->bytes);
        for (int k = 0; k < STEPS; k++) {
            struct step x = changing_step(&stays, k), y = changing_step(&leaves, k);
            assert_same_step(&x, &y);
        }
        assert_same_state(&stays.t, &leaves.t);
        assert_true(b->copies > a->copies && (b->copies - a->copies) % (2 * STEPS) == 0); /* as many come back as went */
        assert_int_equal(!strcmp(ways_of[i][0], "on"), b->launches == 0);
        assert_string_equal(warning, "");
        close_rig(&stays);
        close_rig(&leaves);
    }
}

/* --- memory that runs out ------------------------------------------------------------------------------------------------- */

static int64_t calls, fails_at;

static bool runs_out(void)
{
    return calls++ == fails_at;
}

static CUresult host_alloc(void **out, size_t bytes, unsigned flags)
{
    return runs_out() ? CUDA_ERROR_OUT_OF_MEMORY : genuine.cuMemHostAlloc(out, bytes, flags);
}

static CUresult mem_alloc(CUdeviceptr *out, size_t bytes)
{
    return runs_out() ? CUDA_ERROR_OUT_OF_MEMORY : genuine.cuMemAlloc(out, bytes);
}

static CUresult event_create(CUevent *out, unsigned flags)
{
    return runs_out() ? CUDA_ERROR_OUT_OF_MEMORY : genuine.cuEventCreate(out, flags);
}

static CUresult stream_create(CUstream *out, unsigned flags)
{
    return runs_out() ? CUDA_ERROR_OUT_OF_MEMORY : genuine.cuStreamCreate(out, flags);
}

static void set_way(struct rig *r)
{
    set_options(r, &untied,
                SETTINGS("device", "cuda", "dtype", "bfloat16", "cuda_graph", "on", "resident_layers", "2", "recompute", "full",
                         "activation_offloading", "on"));
}

/* Each of the driver's: the card's memory, pinned memory, streams, events. Nothing that was freed is used: the simulator would
 * say so. */
static void a_driver_without_memory_is_reported(void **state)
{
    (void)state;
    struct rig r;
    int64_t all;
    find_libraries();
    cu.cuMemHostAlloc = host_alloc, cu.cuMemAlloc = mem_alloc, cu.cuEventCreate = event_create, cu.cuStreamCreate = stream_create;
    calls = 0, fails_at = -1;
    set_way(&r);
    assert_ok(trainer_open(&r.t, &r.options, 0));
    all = calls;
    close_rig(&r);
    assert_true(all > TINY_LAYERS);
    for (fails_at = 0; fails_at < all; fails_at++) {
        calls = 0;
        set_way(&r);
        assert_fails(trainer_open(&r.t, &r.options, 0), ERR_MEMORY, "out of memory");
        arena_free(&r.arena);
    }
}

enum { ALREADY_MAPPED = 208 }; /* what NVIDIA's driver under Windows has answered where the limit of pinned memory was reached */

static CUresult host_alloc_of_few(void **out, size_t bytes, unsigned flags)
{
    return bytes != CUDA_PINNED && calls++ == 1 ? ALREADY_MAPPED : genuine.cuMemHostAlloc(out, bytes, flags);
}

/* A system may have much free memory and pin little of it. Seen to fail without the advice, and with the driver's code. */
static void a_system_that_pins_too_little_is_told_with_what_helps(void **state)
{
    (void)state;
    struct rig r;
    find_libraries();
    cu.cuMemHostAlloc = host_alloc_of_few;
    calls = 0;
    set_way(&r);
    assert_fails(trainer_open(&r.t, &r.options, 0), ERR_MEMORY, "more layers on the card (--resident-layers)");
    arena_free(&r.arena);
}

/* Allocations of hone itself, from where programs are placed on: those before have tests of their own. Every seventh: with a
 * STRIDE of 1 all of them have been through, which takes minutes. Seen to fail with the matrices of a first matmul freed while
 * the stream may still fill them: "a memset: … which was freed". */
static void every_allocation_of_preparing_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    struct rig r;
    int64_t before = memory_count();
    set_way(&r);
    assert_ok(trainer_plan(&r.t, &r.options, NULL));
    f.after = memory_count() - before - PLACING;
    close_rig(&r);
    for (bool hit = true; hit; f.after += STRIDE) {
        set_way(&r);
        failing_begin(&f);
        enum status status = trainer_open(&r.t, &r.options, 0);
        failing_end(&f, status);
        hit = f.made > f.after;
        if (status == OK)
            close_rig(&r);
        else
            arena_free(&r.arena);
    }
    assert_true(f.failed > PLACING / STRIDE);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CONTRACT("streamed-steps-equal-resident-ones", steps_have_the_same_bytes_wherever_layers_lie),
        CONTRACT("streamed-layers-save-what-the-plan-says", the_card_holds_as_much_less_as_the_plan_says),
        CONTRACT("offloaded-steps-equal-resident-ones", steps_have_the_same_bytes_wherever_activations_wait),
        CONTRACT("running-out-of-memory-is-reported", a_driver_without_memory_is_reported),
        CONTRACT("running-out-of-memory-is-reported", a_system_that_pins_too_little_is_told_with_what_helps),
        CONTRACT("running-out-of-memory-is-reported", every_allocation_of_preparing_may_fail),
    };
    return CONTRACT_MAIN(tests, make_models, remove_models);
}
