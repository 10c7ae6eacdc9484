/* Layers and activations in host memory, on a device that computes nothing: where copies are put, and what stays. */
#define TINY_DEPTH 7
#include "base/number.h"
#include "failing.h"
#include "test.h"
#include "trainer_rig.h"

static void plan_offloading(struct rig *r, const char *device, const char *type, const char *resident, const char *recompute,
                            const char *offloading)
{
    set_options(r, &untied,
                SETTINGS("device", device, "finetuning_type", type, "resident_layers", resident, "recompute", recompute,
                         "activation_offloading", offloading, "micro_batch_tokens", "512", "cuda_graph", "off"));
    assert_ok(trainer_plan(&r->t, &r->options, NULL));
}

static void plan_on(struct rig *r, const char *device, const char *type, const char *resident)
{
    plan_offloading(r, device, type, resident, "full", "off");
}

static int64_t number_of(const struct staged *s, const struct tensor *kept)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->layer[i].kept == kept)
            return i;
    fail_msg("%s is no layer in host memory", kept->name);
    return -1;
}

/* What the stages hold, only by the commands. */
struct stages {
    int64_t holds[STAGES], coming[STAGES], copies;
};

static void follow(struct stages *now, const struct staged *s, const struct lowered *c)
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
        assert_ptr_equal(t->whole, s->stage[number % STAGES]);
        assert_int_equal(now->holds[number % STAGES], number);
        assert_true(t->part + tensor_bytes(t) <= s->layer[number].bytes);
    }
}

/* Seen to fail with a copy that is put before the last use of what it overwrites, and with an ARRIVE that is left out. */
static void every_command_finds_its_layer(void **state)
{
    (void)state;
    static const char *const types[] = {"lora", "qlora"};
    for (int type = 0; type < 2; type++)
        for (int resident = 0; resident <= TINY_LAYERS - 4; resident++) { /* with one more, what is to spare is enough for all */
            struct rig r;
            char text[8];
            snprintf(text, sizeof text, "%d", resident);
            plan_on(&r, "kernels", types[type], text);
            const struct engine *e = &r.t.build.session.engine;
            const struct staged *s = &e->streamed;
            assert_int_equal(s->count, TINY_LAYERS - resident);
            for (int64_t p = 0; p < e->program_count; p++) {
                const struct lowering *l = &e->programs[p].lowering;
                struct stages now = {.holds = {-1, -1}, .coming = {-1, -1}};
                for (int64_t i = 0; i < l->count; i++)
                    follow(&now, s, &l->list[i]);
                assert_int_equal(now.coming[0], -1);
                assert_int_equal(now.coming[1], -1);
                assert_int_equal(now.copies, p == r.t.build.optimizer.index ? 0 : 2 * s->count - 2);
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
    const struct store *store = &r.t.build.session.model.store;
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
        {"cpu", "3", "only to CUDA cards; leave it out with --device cpu", ERR_UNSUPPORTED},
        {"kernels", "5", "--resident-layers 5 saves no memory: the model has 7 layers", ERR_ARGUMENT},
        {"kernels", "half", "--resident-layers cannot be 'half'", ERR_ARGUMENT},
        {"kernels", "-1", "--resident-layers cannot be '-1'", ERR_ARGUMENT},
        {"kernels", "", "--resident-layers cannot be ''", ERR_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_options(&r, &untied, SETTINGS("device", rows[i].device));
        r.options.resident_layers = rows[i].resident;
        assert_fails(trainer_plan(&r.t, &r.options, NULL), rows[i].status, rows[i].says);
        arena_free(&r.arena);
    }
    static const char *const fine[][2] = {
        {"cpu", "auto"}, {"cpu", "all"}, {"kernels", "7"}, {"kernels", "100"}, {"kernels", "auto"}};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        plan_on(&r, fine[i][0], "lora", fine[i][1]);
        assert_int_equal(r.t.build.session.engine.streamed.count, 0);
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

/* What a driver may take besides what the plan says: it rounds allocations up, and the card has page tables of what is pinned. */
static int64_t spare(const struct session *s)
{
    int64_t bytes[LIFE_COUNT], mapped;
    return session_bytes(s, bytes, &mapped) / 64 + (s->engine.streamed.bytes - s->engine.streamed.stage_bytes) / 512;
}

/* The memory of each plan, and what is to spare, is enough for its number of layers, and a byte less for one fewer. Seen to fail
 * with nothing to spare: one layer too many stayed. */
static void as_many_layers_stay_as_fit(void **state)
{
    (void)state;
    char path[128], device[160];
    snprintf(path, sizeof path, "%s/card.json", untied.dir);
    snprintf(device, sizeof device, "kernels:%s", path);
    for (int resident = 0; resident <= TINY_LAYERS - 4; resident++) { /* with one more, what is to spare is enough for all */
        struct rig r;
        char text[8];
        snprintf(text, sizeof text, "%d", resident);
        write_card(path, INT64_C(1) << 40);
        plan_on(&r, device, "lora", text);
        int64_t memory = needs(&r.t.build.session) + spare(&r.t.build.session);
        close_rig(&r);
        for (int less = 0; less < 2; less++) {
            write_card(path, memory - less);
            plan_on(&r, device, "lora", "auto");
            const struct staged *s = &r.t.build.session.engine.streamed;
            assert_int_equal(s->layers - s->count, resident > less ? resident - less : 0);
            assert_true(needs(&r.t.build.session) <= memory - less || (less && !resident));
            close_rig(&r);
        }
    }
    assert_int_equal(unlink(path), 0);
}

/* --- activations ---------------------------------------------------------------------------------------------------------- */

struct span {
    int64_t begin, end;
};

enum { FLYING = 16, COPIES = 1024 };

struct flights { /* bytes of the card by lane, and what has gone to which bytes of the host */
    struct span card[DEVICE_LANES][FLYING];
    int flying[DEVICE_LANES];
    struct span out[COPIES];
    int outs, ins;
};

static struct span on_card(const struct value *v)
{
    const struct value *root = value_root((struct value *)v);
    return (struct span){root->place.offset, root->place.offset + value_bytes(root)};
}

static bool is_activation(const struct value *v)
{
    const struct value *root = v ? value_root((struct value *)v) : NULL;
    return root && !root->tensor && root->lifetime == LIFE_ACTIVATIONS;
}

static void fly(struct flights *f, const struct lowered *c)
{
    bool in = is_activation(c->value[COPY_TO]);
    int lane = c->command.copy.lane;
    struct span host = {.begin = c->value[in ? COPY_FROM : COPY_TO]->base_offset};
    host.end = host.begin + c->command.copy.bytes;
    assert_int_equal(c->command.copy.bytes, value_bytes(c->value[in ? COPY_TO : COPY_FROM]));
    f->card[lane][f->flying[lane]++] = on_card(c->value[in ? COPY_TO : COPY_FROM]);
    assert_in_range(f->flying[lane], 1, FLYING);
    int found = 0;
    for (int i = 0; i < f->outs; i++)
        if (in)
            found += f->out[i].begin == host.begin && f->out[i].end == host.end;
        else
            assert_true(host.begin >= f->out[i].end || host.end <= f->out[i].begin);
    assert_int_equal(found, in);
    f->ins += in;
    if (!in) {
        assert_true(f->outs < COPIES);
        f->out[f->outs++] = host;
    }
}

/* Commands leave alone what a copy reads or writes until it has arrived. */
static void follow_flights(struct flights *f, const struct lowered *c)
{
    if (c->command.kind == COMMAND_ARRIVE) {
        f->flying[c->command.copy.lane] = 0;
        return;
    }
    for (int o = 0; o < c->values; o++)
        for (int lane = 0; lane < DEVICE_LANES && is_activation(c->value[o]); lane++)
            for (int k = 0; k < f->flying[lane]; k++) {
                struct span a = on_card(c->value[o]), b = f->card[lane][k];
                assert_true(a.begin >= b.end || b.begin >= a.end);
            }
    if (c->command.kind == COMMAND_COPY && (is_activation(c->value[COPY_FROM]) || is_activation(c->value[COPY_TO])))
        fly(f, c);
}

static int64_t largest_activations(const struct rig *r)
{
    return r->t.build.session.engine.programs[r->t.build.micro.program[0][0][0]].bytes[LIFE_ACTIVATIONS];
}

/* All layers but the last two go and come back: of each its input and attention's two results, if it is computed again. Seen to
 * fail with an ARRIVE that is left out, of copies to the host and of those back, and with one of the former without values. */
static void activations_go_and_come_back(void **state)
{
    (void)state;
    static const char *const ways[][3] = {{"lora", "all", "full"}, {"lora", "2", "full"},        {"qlora", "all", "full"},
                                          {"full", "all", "full"}, {"lora", "all", "selective"}, {"lora", "all", "none"}};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        struct rig r, stays;
        plan_offloading(&r, "kernels", ways[w][0], ways[w][1], ways[w][2], "on");
        plan_offloading(&stays, "kernels", ways[w][0], ways[w][1], ways[w][2], "off");
        const struct engine *e = &r.t.build.session.engine;
        for (int64_t p = 0; p < e->program_count; p++) {
            const struct lowering *l = &e->programs[p].lowering;
            struct flights f = {0};
            int64_t bytes = 0;
            for (int64_t i = 0; i < l->count; i++)
                follow_flights(&f, &l->list[i]);
            for (int lane = 0; lane < DEVICE_LANES; lane++)
                assert_int_equal(f.flying[lane], 0);
            for (int i = 0; i < f.outs; i++)
                bytes = max(bytes, f.out[i].end);
            assert_int_equal(f.outs, f.ins);
            assert_true(bytes <= session_offloaded(&r.t.build.session) && align_up(bytes) == e->programs[p].offloaded);
            if (p != r.t.build.optimizer.index)
                assert_true(strcmp(ways[w][2], "full") ? f.outs > TINY_LAYERS : f.outs == 3 * (TINY_LAYERS - 2));
        }
        assert_true(largest_activations(&r) < largest_activations(&stays));
        assert_int_equal(session_offloaded(&stays.t.build.session), 0);
        close_rig(&r);
        close_rig(&stays);
    }
}

static int64_t copied(const struct rig *r)
{
    const struct lowering *l = &r->t.build.session.engine.programs[r->t.build.micro.program[0][0][0]].lowering;
    int64_t bytes = 0;
    for (int64_t i = 0; i < l->count; i++)
        bytes += l->list[i].command.kind == COMMAND_COPY ? l->list[i].command.copy.bytes : 0;
    return bytes;
}

static bool fits(const struct rig *r, int64_t memory)
{
    return needs(&r->t.build.session) <= memory;
}

/* From a card on which all fits to one on which nothing does. Seen to fail with what copies more taken instead. */
static void what_copies_less_is_in_host_memory(void **state)
{
    (void)state;
    char path[128], device[160];
    struct rig r;
    int seen[4] = {0};
    snprintf(path, sizeof path, "%s/card.json", untied.dir);
    snprintf(device, sizeof device, "kernels:%s", path);
    write_card(path, INT64_C(1) << 40);
    plan_offloading(&r, device, "lora", "all", "full", "off");
    int64_t most = needs(&r.t.build.session), bytes[LIFE_COUNT], mapped,
            part = session_bytes(&r.t.build.session, bytes, &mapped) / 32;
    close_rig(&r);
    for (int i = -8; i < 12; i++) {
        struct rig chosen, layers, activations;
        int64_t memory = most - i * part;
        write_card(path, memory);
        plan_offloading(&layers, device, "lora", "auto", "full", "off");
        plan_offloading(&activations, device, "lora", "all", "full", "on");
        plan_offloading(&chosen, device, "lora", "auto", "full", "auto");
        bool offloads = session_offloaded(&chosen.t.build.session) > 0,
             streams = chosen.t.build.session.engine.streamed.count > 0;
        seen[offloads + 2 * streams]++;
        assert_true(fits(&chosen, memory) || !fits(&layers, memory));
        if (offloads && !streams)
            assert_true(!copied(&layers) || copied(&activations) <= copied(&layers) || !fits(&layers, memory));
        if (!offloads)
            assert_int_equal(copied(&chosen), copied(&layers));
        close_rig(&layers);
        close_rig(&activations);
        close_rig(&chosen);
    }
    print_message("all stays %d times, activations go %d, layers %d, both %d\n", seen[0], seen[1], seen[2], seen[3]);
    assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
    assert_int_equal(unlink(path), 0);
}

static void offloading_is_refused_elsewhere(void **state)
{
    (void)state;
    struct rig r;
    set_options(&r, &untied, SETTINGS("device", "cpu", "activation_offloading", "on"));
    assert_fails(trainer_plan(&r.t, &r.options, NULL), ERR_UNSUPPORTED,
                 "--activation-offloading on: activations are copied to host memory only from CUDA cards; leave it out with "
                 "--device cpu");
    arena_free(&r.arena);
    plan_offloading(&r, "cpu", "lora", "auto", "full", "auto");
    assert_int_equal(session_offloaded(&r.t.build.session), 0);
    close_rig(&r);
}

/* Under sanitizers: seen to fail with the new list of commands not freed. */
static void every_allocation_of_lowering_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    struct rig r;
    int64_t index;
    plan_offloading(&r, "kernels", "lora", "all", "full", "on");
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = session_add(&r.t.build.session, NET_TRAIN, 32, 32, 0, &index);
        failing_end(&f, status);
        if (status == OK)
            session_drop(&r.t.build.session);
    }
    assert_true(f.failed > 10 && !f.done_without);
    close_rig(&r);
}

/* --- the host --------------------------------------------------------------------------------------------------------------- */

/* Of which each rank of a machine has its part, as it was before any of them took some: what others take since is not counted
 * twice. */
static void the_host_must_have_the_memory(void **state)
{
    (void)state;
    struct rig r;
    plan_on(&r, "kernels", "lora", "2");
    struct session *one = &r.t.build.session;
    int64_t all = one->host.allocate;
    assert_true(all > one->engine.streamed.bytes);
    one->neighbours = 2;
    one->host.allocate = 64;
    assert_fails(session_prepare(&r.t.build.session), ERR_MEMORY, "GB are free for each rank of this machine by ");
    one->host.allocate = all;
    assert_fails(session_prepare(&r.t.build.session), ERR_INTERNAL, "a device that only lists kernels"); /* it has come so far */
    close_rig(&r);
    plan_offloading(&r, "kernels", "lora", "all", "full", "on");
    r.t.build.session.host.allocate = session_offloaded(&r.t.build.session); /* the driver and the page cache need some too */
    assert_fails(session_prepare(&r.t.build.session), ERR_MEMORY,
                 "GB of activations and 0.00 GB of weights are to lie in host memory");
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_finds_its_layer),   cmocka_unit_test(weights_of_a_layer_lie_side_by_side),
        cmocka_unit_test(what_cannot_be_is_said),          cmocka_unit_test(as_many_layers_stay_as_fit),
        cmocka_unit_test(activations_go_and_come_back),    cmocka_unit_test(what_copies_less_is_in_host_memory),
        cmocka_unit_test(offloading_is_refused_elsewhere), cmocka_unit_test(every_allocation_of_lowering_may_fail),
        cmocka_unit_test(the_host_must_have_the_memory),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
