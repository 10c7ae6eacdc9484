/* Slots through hone.h, as a server uses them. */
#include "test.h"

#include "api/handles.h"
#include "hone_calls.h"
#include "host_json.h"
#include "tiny_model.h"

enum { USERS = 5, ROUNDS = 2, LENGTH = 20, SHAPES = 2 };

static struct tiny_model tiny;
static const char *const ranks[SHAPES] = {"4", "2"};

#define check(call)                                                                                                              \
    do {                                                                                                                         \
        if ((call) != HONE_OK)                                                                                                   \
            fail_msg("%s: %s", #call, hone_error());                                                                             \
    } while (0)

#define check_fails(call, code, text)                                                                                            \
    do {                                                                                                                         \
        hone_status check_status = (call);                                                                                       \
        if (check_status != (code) || !strstr(hone_error(), (text)))                                                             \
            fail_msg("%s: status %d, message: %s", #call, (int)check_status, hone_error());                                      \
    } while (0)

static hone_trainer *open_shape(int shape, int64_t seed)
{
    hone_options *o = NULL;
    hone_trainer *t = NULL;
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)seed);
    const char *const settings[][2] = {{"model", tiny.dir},         {"cache_dir", tiny.dir}, {"dtype", "float32"},
                                       {"lora_r", ranks[shape]},    {"seed", text},          {"sample_length", "32"},
                                       {"micro_batch_tokens", "64"}};
    check(hone_options_create(&o, "train"));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(hone_options_set(o, settings[i][0], settings[i][1]));
    const hone_trainer_uses uses = {.size = sizeof uses, .samples = 1, .logprobs = 1};
    check(hone_trainer_open(&t, o, &uses));
    hone_options_destroy(o);
    return t;
}

static hone_sequence row_of(int user)
{
    static int32_t ids[USERS][LENGTH];
    for (int i = 0; i < LENGTH; i++)
        ids[user][i] = 5 + (user * 17 + i * i) % 200;
    return (hone_sequence){.ids = ids[user], .count = LENGTH};
}

static void add_row(hone_trainer *t, int user)
{
    hone_loss_sum sum = {.size = sizeof sum};
    hone_sequence row = row_of(user);
    check(add_sequences(t, &row, 1, &sum));
}

static void take_step(hone_trainer *t, int user, int64_t number)
{
    hone_step done = {.size = sizeof done};
    check(step_at(t, 0.01 / (user + 1), &done));
    assert_true(done.applied && done.step == number);
}

static const char *place(const char *name, int shape, int user)
{
    static char path[4][160];
    static int next;
    char *at = path[next++ % 4];
    snprintf(at, sizeof path[0], "%s/%s-%d-%d", tiny.dir, name, shape, user);
    return at;
}

static void same_files(const char *a, const char *b)
{
    static const char *const names[] = {"adapter_model.safetensors", "adapter_config.json", "state.safetensors"};
    for (int i = 0; i < 3; i++) {
        struct buffer x = {0}, y = {0};
        struct arena arena = {0};
        assert_ok(file_read(&x, file_join(&arena, a, names[i]), 1 << 24));
        assert_ok(file_read(&y, file_join(&arena, b, names[i]), 1 << 24));
        assert_int_equal(x.size, y.size);
        assert_memory_equal(x.data, y.data, (size_t)x.size);
        buffer_free(&x);
        buffer_free(&y);
        arena_free(&arena);
    }
}

/* What grows where something is prepared or compiled. */
static int64_t prepared(hone_trainer *t)
{
    assert_ok(trainer_enter(&t, __func__));
    const struct device_counters *c = &t->trainer.build.session.device->counters;
    int64_t sum = c->allocations + c->gemms + c->kernels + c->prepared + c->compiled + c->loaded + c->bytes;
    check(trainer_leave(t, OK));
    return sum;
}

/* Fails if a user of a shared trainer gets other bytes than from a trainer alone, or if a slot costs more than copies. */
static void two_shapes_of_five_users_train_in_turn(void **state)
{
    (void)state;
    hone_trainer *trainer[SHAPES];
    int64_t slot[SHAPES][USERS], before[SHAPES];
    for (int shape = 0; shape < SHAPES; shape++) {
        trainer[shape] = open_shape(shape, 1);
        before[shape] = prepared(trainer[shape]);
        for (int user = 0; user < USERS; user++) {
            const int64_t seed = 50 + user;
            hone_slot_start start = {.size = sizeof start, .seed = &seed};
            check(hone_trainer_slot_create(trainer[shape], &start, &slot[shape][user]));
            assert_int_equal(slot[shape][user], user + 1);
        }
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < SHAPES * USERS; i++) {
                int shape = i % SHAPES, user = half ? USERS - 1 - i / SHAPES : i / SHAPES;
                hone_trainer *t = trainer[shape];
                check(hone_trainer_slot_select(t, slot[shape][user]));
                add_row(t, user);
                if (half)
                    take_step(t, user, round + 1);
                check(hone_trainer_slot_evict(t, slot[shape][(user + half) % USERS], place("evicted", 0, 0)));
            }
    for (int i = 0; i < SHAPES * USERS; i++) {
        int shape = i % SHAPES, user = i / SHAPES;
        check(hone_trainer_slot_select(trainer[shape], slot[shape][user]));
        check(hone_trainer_save_state(trainer[shape], place("slot", shape, user)));
        hone_trainer *alone = open_shape(shape, 50 + user);
        for (int round = 0; round < ROUNDS; round++) {
            add_row(alone, user);
            add_row(alone, user);
            take_step(alone, user, round + 1);
        }
        check(hone_trainer_save_state(alone, place("alone", shape, user)));
        hone_trainer_close(alone);
        same_files(place("slot", shape, user), place("alone", shape, user));
    }
    for (int shape = 0; shape < SHAPES; shape++) {
        assert_int_equal(prepared(trainer[shape]), before[shape]);
        hone_trainer_close(trainer[shape]);
    }
}

static double logprob(hone_trainer *t)
{
    float each[LENGTH];
    hone_sequence row = row_of(0);
    check(score_trainer(t, &row, 1, each));
    return (double)each[LENGTH - 1];
}

static int32_t sampled;

static int keep_token(void *context, const hone_token *token)
{
    (void)context;
    sampled = token->id >= 0 ? token->id : sampled;
    return 0;
}

static enum status refuse_to_write(struct device *device, struct operand to, enum dtype to_type, const void *from,
                                   enum dtype from_type, int64_t count)
{
    (void)device, (void)to, (void)to_type, (void)from, (void)from_type, (void)count;
    return fail(ERR_DEVICE, "the device is lost");
}

static int no_gradient(void *context, int64_t datum, int64_t first, int64_t rows, int64_t vocabulary, const float *logits,
                       float *gradient, double *loss)
{
    (void)context, (void)datum, (void)first, (void)rows, (void)vocabulary, (void)logits, (void)gradient, (void)loss;
    return 0;
}

/* Fails if a call sees another slot than the selected one; the cache of samples too. */
static void calls_are_for_the_selected_slot(void **state)
{
    (void)state;
    hone_trainer *t = open_shape(0, 1);
    int64_t slot, loaded;
    hone_slot_info info = {.size = sizeof info};
    hone_trainer_info whole = {.size = sizeof whole};
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 1};
    hone_generate_result result = {.size = sizeof result};
    hone_sequence row = row_of(0);
    check(hone_trainer_slot_create(t, NULL, &slot));
    double begun = logprob(t);
    for (int i = 0; i < 30; i++) {
        add_row(t, 0);
        take_step(t, 0, i + 1);
    }
    double trained = logprob(t);
    assert_true(trained > begun + 1);
    check(hone_trainer_sample_tokens(t, row.ids, LENGTH - 1, &sampling, keep_token, NULL, &result));
    assert_int_equal(sampled, row.ids[LENGTH - 1]);
    check(hone_trainer_slot_select(t, 0));
    assert_true(logprob(t) == begun);
    check(hone_trainer_sample_tokens(t, row.ids, LENGTH - 1, &sampling, keep_token, NULL, &result));
    assert_int_not_equal(sampled, row.ids[LENGTH - 1]);
    check(hone_trainer_get_info(t, &whole));
    assert_int_equal(whole.step, 0);
    check(hone_trainer_slot_get_info(t, slot, &info));
    assert_true(info.slot == 1 && info.slots == 2 && info.seed == 1 && info.step == 30 && info.tokens == 30 * LENGTH);
    assert_true(!info.selected && info.waiting == 0 && info.host_bytes == info.slot_bytes && info.disk_bytes == 0);
    check(hone_trainer_slot_select(t, slot));
    check(hone_trainer_save_state(t, place("thirty", 0, 0)));
    check(hone_trainer_save(t, place("adapter", 0, 0)));
    check(hone_trainer_slot_load(t, place("thirty", 0, 0), &loaded));
    assert_true(logprob(t) == trained);
    check(hone_trainer_slot_get_info(t, HONE_SLOT_SELECTED, &info));
    assert_true(info.slot == loaded && info.selected && info.step == 30);
    check(hone_trainer_slot_close(t, loaded));
    hone_slot_start start = {.size = sizeof start, .adapter = place("adapter", 0, 0)};
    check(hone_trainer_slot_create(t, &start, &loaded));
    assert_true(logprob(t) == trained);
    check(hone_trainer_slot_evict(t, loaded, place("evicted", 0, 0)));
    assert_true(logprob(t) == begun); /* slot 0 */
    hone_trainer_close(t);
    const char **names;
    int64_t count;
    struct arena arena = {0};
    assert_ok(directory_list(&arena, place("evicted", 0, 0), &names, &count));
    assert_int_equal(count, 0);
    arena_free(&arena);
}

/* What a run that failed has left on the device is no sum of gradients. */
static void gradients_that_are_read_are_those_that_were_added(void **state)
{
    (void)state;
    static const char name[] = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    hone_trainer *t = open_shape(0, 1), *inside = t;
    int64_t count = 0;
    check(hone_trainer_read_tensor(t, name, HONE_TENSOR_GRADIENT, NULL, &count));
    assert_ok(trainer_enter(&inside, __func__));
    struct build *b = &inside->trainer.build;
    float *ones = test_malloc((size_t)tensor_bytes(b->optimizer.gradients));
    for (int64_t i = 0; i < tensor_elements(b->optimizer.gradients); i++)
        ones[i] = 1;
    assert_ok(engine_upload(&b->session.engine, b->optimizer.gradients, ones, DTYPE_F32));
    inside->trainer.stepper.stale = true;
    check(trainer_leave(inside, OK));
    check(hone_trainer_read_tensor(t, name, HONE_TENSOR_GRADIENT, ones, &count));
    for (int64_t i = 0; i < count; i++)
        assert_true(ones[i] == 0);
    test_free(ones);
    hone_trainer_close(t);
}

/* Fails if a call goes to the device's arrays while they are nobody's. */
static void calls_wait_for_a_slot_to_be_selected(void **state)
{
    (void)state;
    hone_trainer *t = open_shape(0, 1), *inside = t;
    int64_t slot, count = 0;
    double loss;
    float each[LENGTH], *arrays[] = {each};
    hone_sequence row = row_of(0);
    hone_loss_sum sum = {.size = sizeof sum};
    hone_step step = {.size = sizeof step};
    hone_optim optim = {.size = sizeof optim};
    hone_slot_info info = {.size = sizeof info};
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 1};
    hone_generate_result result = {.size = sizeof result};
    hone_train_result trained = {.size = sizeof trained};
    check(hone_trainer_slot_create(t, NULL, &slot));
    assert_ok(trainer_enter(&inside, __func__));
    const struct device_class *sound = inside->trainer.build.session.device->class;
    struct device_class broken = *sound;
    broken.write = refuse_to_write;
    inside->trainer.build.session.device->class = &broken;
    check(trainer_leave(inside, OK));
    check_fails(hone_trainer_slot_select(t, 0), HONE_ERR_DEVICE, "slot 1, which was selected, is in host memory");
    inside->trainer.build.session.device->class = sound;
    const char *const none = "no slot is selected";
    check_fails(add_sequences(t, &row, 1, &sum), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_forward_backward_with(t, as_data(&row, 1), 1, no_gradient, NULL, &sum), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_optim_defaults(t, &optim), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_optim_step(t, NULL, &step), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_read_tensor(t, "x", HONE_TENSOR_WEIGHT, NULL, &count), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_eval(t, &loss), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_logprobs(t, as_data(&row, 1), 1, 0, arrays), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_sample_tokens(t, row.ids, 4, &sampling, NULL, NULL, &result), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_sample(t, "Hi", 1, NULL, NULL, &result), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_save(t, place("none", 0, 0)), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_save_state(t, place("none", 0, 0)), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_load_state(t, place("none", 0, 0)), HONE_ERR_ARGUMENT, none);
    check_fails(hone_train(t, NULL, NULL, &trained), HONE_ERR_ARGUMENT, none);
    check_fails(hone_trainer_slot_get_info(t, HONE_SLOT_SELECTED, &info), HONE_ERR_ARGUMENT, none);
    check(hone_trainer_slot_get_info(t, slot, &info));
    assert_true(!info.selected && info.host_bytes == info.slot_bytes);
    check(hone_trainer_slot_select(t, slot));
    add_row(t, 0);
    take_step(t, 0, 1);
    hone_trainer_close(t);
}

static void wrong_calls_say_what_is_wrong(void **state)
{
    (void)state;
    hone_trainer *t = open_shape(0, 1);
    int64_t slot = 7;
    const int64_t below = -2;
    hone_slot_start start = {.size = sizeof start, .seed = &below}, unsized = {.seed = &below};
    hone_slot_info info = {0};
    check_fails(hone_trainer_slot_create(t, &start, &slot), HONE_ERR_ARGUMENT, "seed is -2");
    assert_int_equal(slot, -1);
    check_fails(hone_trainer_slot_create(t, &unsized, &slot), HONE_ERR_ARGUMENT, "the size of start is not set");
    check_fails(hone_trainer_slot_create(t, NULL, NULL), HONE_ERR_ARGUMENT, "slot is NULL");
    start = (hone_slot_start){.size = sizeof start, .adapter = ""};
    check_fails(hone_trainer_slot_create(t, &start, &slot), HONE_ERR_ARGUMENT, "adapter is empty");
    check_fails(hone_trainer_slot_load(t, "", &slot), HONE_ERR_ARGUMENT, "dir is empty");
    check_fails(hone_trainer_slot_evict(t, 0, NULL), HONE_ERR_ARGUMENT, "dir is NULL");
    check_fails(hone_trainer_slot_get_info(t, 0, &info), HONE_ERR_ARGUMENT, "the size of info is not set");
    check_fails(hone_trainer_slot_select(t, 3), HONE_ERR_ARGUMENT, "there is no slot 3");
    check_fails(hone_trainer_slot_close(t, 0), HONE_ERR_ARGUMENT, "slot 0 is the trainer's own");
    start = (hone_slot_start){.size = sizeof start}; /* nothing of it is set: as the trainer began */
    check(hone_trainer_slot_create(t, &start, &slot));
    hone_slot_info made = {.size = sizeof made, .reserved = 7};
    check(hone_trainer_slot_get_info(t, slot, &made));
    assert_true(made.seed == 1 && made.selected && made.reserved == 0);
    hone_train_result result = {.size = sizeof result};
    check_fails(hone_train(t, NULL, NULL, &result), HONE_ERR_ARGUMENT, "a run over the trainer's data is of slot 0");
    check(hone_trainer_slot_close(t, slot));
    check_fails(hone_trainer_slot_select(t, slot), HONE_ERR_ARGUMENT, "slot 1 was closed");
    hone_trainer_close(t);
}

static int make_model(void **state)
{
    *state = &tiny;
    host_json();
    tiny_model_make(&tiny, true);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_shapes_of_five_users_train_in_turn),
        cmocka_unit_test(calls_are_for_the_selected_slot),
        cmocka_unit_test(gradients_that_are_read_are_those_that_were_added),
        cmocka_unit_test(calls_wait_for_a_slot_to_be_selected),
        cmocka_unit_test(wrong_calls_say_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, make_model, tiny_model_teardown);
}
