/* Layers in host memory, on a device that computes nothing: where copies are put, and how many layers stay. */
#define TINY_DEPTH 7
#include "test.h"
#include "trainer_rig.h"

static void plan_on(struct rig *r, const char *device, const char *type, const char *resident)
{
    set_options(r, &untied,
                SETTINGS("device", device, "finetuning_type", type, "resident_layers", resident, "recompute", "full",
                         "cuda_graph", "off"));
    assert_ok(trainer_open(&r->t, &r->options, TRAINER_PLAN));
}

static int64_t number_of(const struct streamed *s, const struct tensor *kept)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->layer[i].kept == kept)
            return i;
    fail_msg("%s is no layer in host memory", kept->name);
    return -1;
}

/* What the stages hold, by the commands alone. */
struct stages {
    int64_t holds[STREAMED_STAGES], coming[STREAMED_STAGES], copies;
};

static void follow(struct stages *now, const struct streamed *s, const struct lowered *c)
{
    int lane = c->command.kind == COMMAND_COPY || c->command.kind == COMMAND_ARRIVE ? c->command.copy.lane : 0;
    if (c->command.kind == COMMAND_COPY) {
        assert_int_equal(now->coming[lane], -1);
        now->holds[lane] = -1;
        now->coming[lane] = number_of(s, c->value[COPY_FROM]->tensor);
        assert_ptr_equal(value_root(c->value[COPY_TO])->tensor, s->stage[lane]);
        assert_int_equal(c->command.copy.bytes, s->layer[now->coming[lane]].bytes);
        now->copies++;
    } else if (c->command.kind == COMMAND_ARRIVE) {
        assert_true(now->coming[lane] >= 0);
        now->holds[lane] = now->coming[lane];
        now->coming[lane] = -1;
    }
    for (int i = 0; i < c->values && c->command.kind != COMMAND_COPY; i++) {
        const struct tensor *t = c->value[i] ? value_root(c->value[i])->tensor : NULL;
        if (!t || !t->kept)
            continue;
        int64_t number = number_of(s, t->kept);
        assert_ptr_equal(t->whole, s->stage[number % STREAMED_STAGES]);
        assert_int_equal(now->holds[number % STREAMED_STAGES], number);
        assert_true(t->part + tensor_bytes(t) <= s->layer[number].bytes);
    }
}

/* Seen to fail with a copy that is put before the last use of what it overwrites, and with an ARRIVE that is left out. */
static void every_command_finds_its_layer(void **state)
{
    (void)state;
    static const char *const types[] = {"lora", "qlora"};
    for (int type = 0; type < 2; type++)
        for (int resident = 0; resident <= TINY_LAYERS - 3; resident++) {
            struct rig r;
            char text[8];
            snprintf(text, sizeof text, "%d", resident);
            plan_on(&r, "kernels", types[type], text);
            const struct engine *e = &r.t.session.engine;
            const struct streamed *s = &e->streamed;
            assert_int_equal(s->count, TINY_LAYERS - resident);
            for (int64_t p = 0; p < e->program_count; p++) {
                const struct lowering *l = &e->programs[p].lowering;
                struct stages now = {.holds = {-1, -1}, .coming = {-1, -1}};
                for (int64_t i = 0; i < l->count; i++)
                    follow(&now, s, &l->list[i]);
                assert_int_equal(now.coming[0], -1);
                assert_int_equal(now.coming[1], -1);
                assert_int_equal(now.copies, p == r.t.optimizer.index ? 0 : 2 * s->count - 2);
            }
            close_rig(&r);
        }
}

/* Which layers stay changes nothing of a weight's bytes: each is in one place, and no two overlap. */
static void weights_of_a_layer_lie_side_by_side(void **state)
{
    (void)state;
    struct rig r;
    plan_on(&r, "kernels", "lora", "3");
    const struct store *store = &r.t.session.model.store;
    int64_t moved = 0;
    for (int64_t i = 0; i < store->count; i++)
        for (int64_t k = 0; k < store->count; k++) {
            const struct tensor *a = store->tensor[i], *b = store->tensor[k];
            if (i == k || !a->kept || a->kept != b->kept || a->assembled || b->assembled)
                continue;
            assert_true(a->part >= b->part + tensor_bytes(b) || b->part >= a->part + tensor_bytes(a));
            moved++;
        }
    assert_int_equal(moved, (TINY_LAYERS - 3) * 9 * 8);
    close_rig(&r);
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    struct rig r;
    static const struct {
        const char *device, *resident, *says;
        enum status status;
    } rows[] = {
        {"cpu", "3", "to CUDA cards alone; leave it out with --device cpu", ERR_UNSUPPORTED},
        {"kernels", "5", "--resident-layers 5 saves no memory: the model has 7 layers", ERR_ARGUMENT},
        {"kernels", "half", "--resident-layers cannot be 'half'", ERR_ARGUMENT},
        {"kernels", "-1", "--resident-layers cannot be '-1'", ERR_ARGUMENT},
        {"kernels", "", "--resident-layers cannot be ''", ERR_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_options(&r, &untied, SETTINGS("device", rows[i].device));
        r.options.resident_layers = rows[i].resident;
        assert_fails(trainer_open(&r.t, &r.options, TRAINER_PLAN), rows[i].status, rows[i].says);
        arena_free(&r.arena);
    }
    static const char *const fine[][2] = {
        {"cpu", "auto"}, {"cpu", "all"}, {"kernels", "7"}, {"kernels", "100"}, {"kernels", "auto"}};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        plan_on(&r, fine[i][0], "lora", fine[i][1]);
        assert_int_equal(r.t.session.engine.streamed.count, 0);
        close_rig(&r);
    }
}

/* A card with so much memory. */
static void write_card(const char *path, int64_t memory)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"format\": \"hone calibration 1\", \"name\": \"a card\", \"target\": 89, \"units\": 8, \"bfloat16\": true, "
             "\"memory_bytes\": %lld, \"rates\": {}}",
             (long long)memory);
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
}

static int64_t needs(const struct session *s)
{
    int64_t bytes[LIFE_COUNT], mapped, total = session_bytes(s, bytes, &mapped);
    struct device_costs costs;
    session_costs(s, &costs);
    return total + costs.context + costs.workspace + costs.modules + costs.graphs;
}

/* The memory of each plan is enough for its number of layers, and a byte less for one fewer. */
static void as_many_layers_stay_as_fit(void **state)
{
    (void)state;
    char path[128], device[160];
    snprintf(path, sizeof path, "%s/card.json", untied.dir);
    snprintf(device, sizeof device, "kernels:%s", path);
    for (int resident = 0; resident <= TINY_LAYERS - 3; resident++) {
        struct rig r;
        char text[8];
        snprintf(text, sizeof text, "%d", resident);
        write_card(path, INT64_C(1) << 40);
        plan_on(&r, device, "lora", text);
        int64_t memory = needs(&r.t.session);
        close_rig(&r);
        for (int less = 0; less < 2; less++) {
            write_card(path, memory - less);
            plan_on(&r, device, "lora", "auto");
            const struct streamed *s = &r.t.session.engine.streamed;
            assert_int_equal(s->layers - s->count, resident > less ? resident - less : 0);
            assert_true(needs(&r.t.session) <= memory - less || (less && !resident));
            close_rig(&r);
        }
    }
    assert_int_equal(unlink(path), 0);
}

/* Of which each rank of a machine has its part: so many that a few bytes are left for each. */
static void the_host_must_have_the_memory(void **state)
{
    (void)state;
    struct rig r;
    plan_on(&r, "kernels", "lora", "2");
    r.t.session.neighbours = 1 << 30;
    assert_fails(session_prepare(&r.t.session), ERR_MEMORY, "GB are free for each rank of this machine by ");
    r.t.session.neighbours = 1;
    assert_fails(session_prepare(&r.t.session), ERR_INTERNAL, "a device that only lists kernels"); /* it has come so far */
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_finds_its_layer), cmocka_unit_test(weights_of_a_layer_lie_side_by_side),
        cmocka_unit_test(what_cannot_be_is_said),        cmocka_unit_test(as_many_layers_stay_as_fit),
        cmocka_unit_test(the_host_must_have_the_memory),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
