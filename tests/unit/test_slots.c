/* Slots from inside: each is, byte by byte, a trainer of its own, and taking turns prepares nothing. On the CPU, or on
 * $HONE_RIG_DEVICE. */
#include "test.h"

#include <jansson.h>

#include "failing.h"
#include "processor.h"
#include "slots_rig.h"
#include "state/checkpoint.h"
#include "train/slot_image.h"

enum { SLOTS = 5, ROUNDS = 3 };

/* Of sizes and lists that were prepared; what runs and copies is not among them. */
static void assert_nothing_prepared(const struct device_counters *before, const struct trainer *t)
{
    const struct device_counters *now = &t->build.session.device->counters;
    assert_int_equal(now->allocations, before->allocations);
    assert_int_equal(now->bytes, before->bytes);
    assert_int_equal(now->gemms, before->gemms);
    assert_int_equal(now->kernels, before->kernels);
    assert_int_equal(now->prepared, before->prepared);
    assert_int_equal(now->compiled, before->compiled);
    assert_int_equal(now->loaded, before->loaded);
}

static const char *seed_of(int user)
{
    static char text[SLOTS][16];
    snprintf(text[user], sizeof text[user], "%d", 42 + 7 * user);
    return text[user];
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    struct buffer x = {0}, y = {0};
    struct arena arena = {0};
    assert_ok(file_read(&x, file_join(&arena, a, name), 1 << 24));
    assert_ok(file_read(&y, file_join(&arena, b, name), 1 << 24));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, (size_t)x.size);
    buffer_free(&x);
    buffer_free(&y);
    arena_free(&arena);
}

/* All but the id that a run draws, and when it began. */
static void assert_same_saved(const char *a, const char *b)
{
    json_t *tree[2];
    const char *dirs[] = {a, b};
    assert_same_file(a, b, "adapter_model.safetensors");
    assert_same_file(a, b, "adapter_config.json");
    assert_same_file(a, b, "state.safetensors");
    for (int i = 0; i < 2; i++) {
        assert_ok(checkpoint_dir_read(dirs[i], &tree[i]));
        json_object_del(tree[i], "run");
        json_object_del(tree[i], "began");
    }
    assert_true(json_equal(tree[0], tree[1]));
    json_decref(tree[0]);
    json_decref(tree[1]);
}

/* What user `user` gets without slots. */
static void train_alone(struct rig *r, const char *const *settings, int user)
{
    const char *with_seed[24];
    int n = 0;
    for (; settings[n]; n++)
        with_seed[n] = settings[n];
    with_seed[n] = "seed";
    with_seed[n + 1] = seed_of(user);
    with_seed[n + 2] = NULL;
    open_rig(r, &tied, 0, with_seed);
    for (int round = 0; round < ROUNDS; round++) {
        add_half(&r->t, user, 0);
        add_half(&r->t, user, 1);
        step_user(&r->t, user);
    }
}

/* Fails if anything of a slot is left where another one is now: its weights, moments, counts, gradients between two calls, the
 * seed of its dropout, its step, its rate. */
static void slots_are_trainers_of_their_own(void **state)
{
    (void)state;
    const char *const *shapes[] = {SETTINGS("lora_dropout", "0.1", "warmup_steps", "2"),
                                   SETTINGS("lora_r", "8", "optim", "adamw", "lora_target_modules", "q_proj,v_proj"),
                                   SETTINGS("dtype", "bfloat16", "train_norms", "true")};
    int count = !strcmp(rig_device(), "cpu") ? 2 + processor_has_bf16() : 1;
    for (int shape = 0; shape < count; shape++) {
        struct rig shared, alone;
        open_rig(&shared, &tied, 0, shapes[shape]);
        struct trainer *t = &shared.t;
        int64_t slot[SLOTS] = {0};
        const struct device_counters before = t->build.session.device->counters;
        for (int user = 1; user < SLOTS; user++)
            slot[user] = create(t, strtol(seed_of(user), NULL, 10), NULL);
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < SLOTS; i++) {
                int user = (i + round) % SLOTS;
                assert_ok(slots_select(t, slot[user]));
                add_half(t, user, 0); /* and another slot's turn */
                if (i)
                    assert_ok(slots_evict(t, slot[(user + SLOTS - 1) % SLOTS], path_in("evicted")));
            }
            for (int user = SLOTS - 1; user >= 0; user--) {
                assert_ok(slots_select(t, slot[user]));
                add_half(t, user, 1);
                step_user(t, user);
                if (user < SLOTS - 1 && user % 2)
                    assert_ok(slots_evict(t, slot[user + 1], path_in("evicted")));
            }
        }
        assert_nothing_prepared(&before, t);
        for (int user = 0; user < SLOTS; user++) {
            assert_ok(slots_select(t, slot[user]));
            train_alone(&alone, shapes[shape], user);
            assert_same_state(t, &alone.t);
            assert_count(t, ROUNDS, 0);
            assert_ok(trainer_save_state(t, path_in("of-slot")));
            assert_ok(trainer_save_state(&alone.t, path_in("alone")));
            assert_same_saved(path_in("of-slot"), path_in("alone"));
            close_rig(&alone);
        }
        close_rig(&shared);
    }
}

/* Two trainers over one model, with slots in both. */
static void trainers_of_two_shapes_do_not_meet(void **state)
{
    (void)state;
    struct rig shared[2], alone;
    const char *const *shapes[] = {SETTINGS("lora_alpha", "8"), SETTINGS("lora_r", "2")};
    int64_t slot[2] = {0};
    for (int i = 0; i < 2; i++) {
        open_rig(&shared[i], &tied, 0, shapes[i]);
        slot[i] = create(&shared[i].t, strtol(seed_of(1), NULL, 10), NULL);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++) {
            struct trainer *t = &shared[i].t;
            assert_ok(slots_select(t, slot[i]));
            add_half(t, 1, 0);
            add_half(t, 1, 1);
            step_user(t, 1);
            assert_ok(slots_select(t, 0));
            assert_ok(slots_evict(t, slot[i], path_in("evicted")));
        }
    for (int i = 0; i < 2; i++) {
        assert_ok(slots_select(&shared[i].t, slot[i]));
        train_alone(&alone, shapes[i], 1);
        assert_same_state(&shared[i].t, &alone.t);
        close_rig(&alone);
        close_rig(&shared[i]);
    }
}

/* --- beginning -------------------------------------------------------------------------------------------------------------- */

/* As --init-adapter begins a run. */
static void a_slot_begins_with_an_adapter_of_its_shape(void **state)
{
    (void)state;
    struct rig shared, alone;
    int64_t number = -1;
    open_rig(&shared, &tied, 0, SETTINGS("lora_dropout", "0.1"));
    train_round(&shared.t, 0);
    assert_ok(checkpoint_save_result(&shared.t.snap, path_in("first")));
    number = create(&shared.t, 7, path_in("first"));
    set_options(&alone, &tied, SETTINGS("lora_dropout", "0.1", "seed", "7", "init_adapter", path_in("first")));
    alone.options.source[OPTION_lora_r] = NULL;
    assert_ok(trainer_open(&alone.t, &alone.options, NULL));
    assert_same_state(&shared.t, &alone.t);
    train_round(&shared.t, 1);
    train_round(&alone.t, 1);
    assert_same_state(&shared.t, &alone.t);
    assert_ok(identity_hash(&alone.t.snap.identity, &alone.t.build.session.model, alone.t.build.session.tuning.lora,
                            &alone.t.rows.data, &alone.t.rows.eval_data));
    assert_string_equal(shared.t.snap.identity.init_adapter, alone.t.snap.identity.init_adapter);
    assert_ok(trainer_save_state(&shared.t, path_in("saved")));
    close_rig(&alone);
    train_round(&shared.t, 2);
    assert_ok(slots_load(&shared.t, path_in("saved"), &number)); /* where it was before the last round */
    assert_int_equal(number, 2);
    train_round(&shared.t, 2);
    assert_ok(slots_select(&shared.t, 1));
    assert_ok(checkpoint_save_result(&shared.t.snap, path_in("one")));
    assert_ok(slots_select(&shared.t, 2));
    assert_ok(checkpoint_save_result(&shared.t.snap, path_in("two")));
    assert_same_file(path_in("one"), path_in("two"), "adapter_model.safetensors");
    close_rig(&shared);
}

/* Fails if a slot gets numbers of another shape, another scale or another base, or keeps half of them. */
static void other_adapters_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *const *settings;
        enum status status;
        const char *says;
    } others[] = {{SETTINGS("lora_r", "8", "lora_alpha", "64"), ERR_FORMAT, "has shape (8, 32)"},
                  {SETTINGS("lora_alpha", "5"), ERR_ARGUMENT, "the scale of"},
                  {SETTINGS("lora_target_modules", "q_proj"), ERR_ARGUMENT, "has no tensor"},
                  {SETTINGS("train_norms", "true"), ERR_ARGUMENT, "nothing of the kind"}};
    struct rig shared, other, same;
    int64_t number = 5;
    open_rig(&shared, &tied, 0, SETTINGS("lora_alpha", "32"));
    train_round(&shared.t, 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        open_rig(&other, &tied, 0, others[i].settings);
        assert_ok(checkpoint_save_result(&other.t.snap, path_in("other")));
        close_rig(&other);
        assert_fails(slots_create(&shared.t, &(struct slot_start){1, path_in("other")}, &number), others[i].status,
                     others[i].says);
        assert_ok(directory_remove(path_in("other")));
    }
    assert_fails(slots_create(&shared.t, &(struct slot_start){1, path_in("nowhere")}, &number), ERR_IO, "nowhere");
    assert_int_equal(slots_count(&shared.t), 1);
    open_rig(&same, &tied, 0, SETTINGS("lora_alpha", "32"));
    train_round(&same.t, 0);
    assert_same_state(&shared.t, &same.t);
    close_rig(&same);
    close_rig(&shared);
}

/* A trainer of another seed takes it, and one of another shape does not. */
static void a_saved_slot_is_loaded_with_its_seed(void **state)
{
    (void)state;
    struct rig first, second;
    int64_t number = -1, count;
    struct slot_facts facts;
    open_rig(&first, &tied, 0, SETTINGS("lora_dropout", "0.1"));
    create(&first.t, 11, NULL);
    train_round(&first.t, 3);
    assert_ok(trainer_save_state(&first.t, path_in("state")));
    open_rig(&second, &tied, 0, SETTINGS("lora_dropout", "0.1", "seed", "5"));
    assert_ok(slots_load(&second.t, path_in("state"), &number));
    assert_ok(slots_facts(&second.t, number, &facts));
    assert_true(facts.seed == 11 && facts.step == 1 && facts.selected && facts.tokens > 0);
    train_round(&first.t, 3);
    train_round(&second.t, 3);
    assert_same_state(&first.t, &second.t);
    close_rig(&second);
    open_rig(&second, &tied, 0, /* what is given with each step, and of rows, may be others */
             SETTINGS("lora_dropout", "0.1", "learning_rate", "0.5", "max_steps", "7", "weight_decay", "0.1", "data", data_path));
    assert_ok(slots_load(&second.t, path_in("state"), &number));
    assert_int_equal(facts_of(&second.t, number).step, 1);
    close_rig(&second);
    open_rig(&second, &tied, 0, SETTINGS("lora_dropout", "0.2"));
    train_round(&second.t, 1);
    count = slots_count(&second.t);
    assert_fails(slots_load(&second.t, path_in("state"), &number), ERR_ARGUMENT, "lora_dropout");
    assert_fails(slots_load(&second.t, path_in("nowhere"), &number), ERR_IO, "nowhere");
    assert_int_equal(slots_count(&second.t), count);
    assert_ok(slots_facts(&second.t, -1, &facts));
    assert_true(facts.number == 0 && facts.step == 1);
    assert_int_equal(create(&second.t, 1, NULL), 1); /* the number of the one that failed */
    close_rig(&second);
    close_rig(&first);
}

/* --- mistakes --------------------------------------------------------------------------------------------------------------- */

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct rig r;
    struct step step;
    int64_t number = -1;
    const struct slot_start start = {1, NULL};
    open_rig(&r, &tied, 0, SETTINGS("finetuning_type", "full"));
    assert_fails(slots_create(&r.t, &start, &number), ERR_UNSUPPORTED, "trains all weights");
    close_rig(&r);
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    r.t.build.group = &r.t.build.imagined;
    group_pretend(r.t.build.group, 2);
    assert_fails(slots_create(&r.t, &start, &number), ERR_UNSUPPORTED, "a trainer of 2 ranks has one slot");
    r.t.build.group = NULL;
    assert_ok(slots_select(&r.t, 0));
    assert_fails(slots_select(&r.t, 1), ERR_ARGUMENT, "there is no slot 1: the last that was made is 0");
    assert_fails(slots_evict(&r.t, 0, tied.dir), ERR_ARGUMENT, "slot 0 is selected");
    assert_fails(slots_close(&r.t, 0), ERR_ARGUMENT, "slot 0 is the trainer's own");
    assert_int_equal(create(&r.t, 1, NULL), 1);
    assert_fails(slots_check_run(&r.t), ERR_ARGUMENT, "a run over the trainer's data is of slot 0");
    assert_fails(slots_close(&r.t, -1), ERR_ARGUMENT, "there is no slot -1");
    assert_ok(slots_evict(&r.t, 1, path_in("evicted")));
    assert_fails(slots_evict(&r.t, 0, tied.dir), ERR_ARGUMENT, "slot 0 is selected");
    assert_ok(slots_select(&r.t, 1));
    assert_ok(stepper_queue(&r.t.stepper, sequences(), SEQUENCES, -1));
    assert_fails(slots_select(&r.t, 0), ERR_ARGUMENT, "in flight");
    assert_fails(slots_create(&r.t, &start, &number), ERR_ARGUMENT, "in flight");
    assert_ok(stepper_report(&r.t.stepper, &step));
    assert_ok(slots_close(&r.t, 1));
    assert_ok(slots_check_run(&r.t));
    assert_fails(slots_select(&r.t, 1), ERR_ARGUMENT, "slot 1 was closed");
    assert_fails(slots_evict(&r.t, 1, tied.dir), ERR_ARGUMENT, "slot 1 was closed");
    assert_int_equal(create(&r.t, 1, NULL), 2);
    close_rig(&r);
}

/* --- memory ----------------------------------------------------------------------------------------------------------------- */

static enum status take_turns(struct trainer *t, const char *dir, const char *adapter, int64_t number[2])
{
    TRY(slots_create(t, &(struct slot_start){9, NULL}, &number[0]));
    TRY(slots_select(t, 0));
    TRY(slots_evict(t, number[0], dir));
    TRY(slots_create(t, &(struct slot_start){9, adapter}, &number[1]));
    TRY(slots_select(t, number[0]));
    TRY(slots_load(t, adapter, &number[1]));
    return slots_select(t, 0);
}

/* Each allocation fails once: the selected slot stays what it was, and the same can be done again. */
static void memory_may_run_out(void **state)
{
    (void)state;
    struct rig r, same;
    struct failing f = {0};
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    open_rig(&same, &tied, 0, SETTINGS("lora_r", "4"));
    train_round(&r.t, 0);
    train_round(&same.t, 0);
    assert_ok(trainer_save_state(&r.t, path_in("whole")));
    add_half(&r.t, 0, 0);
    add_half(&same.t, 0, 0);
    while (failing_next(&f)) {
        int64_t number[2];
        failing_begin(&f);
        enum status status = take_turns(&r.t, path_in("evicted"), path_in("whole"), number);
        failing_end(&f, status);
        assert_ok(slots_select(&r.t, 0));
        assert_same_state(&r.t, &same.t);
        for (int64_t n = 1; slots_count(&r.t) > 1; n++)
            (void)slots_close(&r.t, n);
    }
    assert_true(f.failed > 20);
    add_half(&r.t, 0, 1);
    add_half(&same.t, 0, 1);
    step_user(&r.t, 0);
    step_user(&same.t, 0);
    assert_same_state(&r.t, &same.t);
    close_rig(&r);
    close_rig(&same);
}

/* What the plan says of a slot is what one takes. */
static void a_slot_takes_what_is_planned(void **state)
{
    (void)state;
    struct rig r, planned;
    struct slot_facts facts;
    int64_t sums, plan_sums;
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    plan_rig(&planned, &tied, 0, SETTINGS("lora_r", "4"));
    int64_t bytes = slot_image_bytes(&r.t.build, &sums), elements = r.t.build.optimizer.elements;
    assert_int_equal(bytes, slot_image_bytes(&planned.t.build, &plan_sums));
    assert_int_equal(sums, plan_sums);
    assert_int_equal(bytes, 3 * 4 * elements + 8); /* weights, two moments, two counts */
    assert_int_equal(sums, 4 * elements);
    create(&r.t, 3, NULL);
    add_half(&r.t, 0, 0);
    create(&r.t, 4, NULL);
    assert_ok(slots_facts(&r.t, 0, &facts));
    assert_true(facts.host_bytes == bytes && facts.disk_bytes == 0 && facts.waiting == 0 && !facts.selected);
    assert_ok(slots_facts(&r.t, 1, &facts));
    assert_true(facts.host_bytes == bytes + sums && facts.waiting == 2);
    assert_ok(slots_evict(&r.t, 1, path_in("evicted")));
    assert_ok(slots_facts(&r.t, 1, &facts));
    assert_true(facts.host_bytes == 0 && facts.disk_bytes == bytes + sums && facts.waiting == 2);
    assert_fails(slots_facts(&r.t, 3, &facts), ERR_ARGUMENT, "there is no slot 3");
    close_rig(&planned);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_trainers_of_their_own),
        cmocka_unit_test(trainers_of_two_shapes_do_not_meet),
        cmocka_unit_test(a_slot_begins_with_an_adapter_of_its_shape),
        cmocka_unit_test(other_adapters_are_refused),
        cmocka_unit_test(a_saved_slot_is_loaded_with_its_seed),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(a_slot_takes_what_is_planned),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
