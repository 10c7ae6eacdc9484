/* Programs of a model: placement, exact sizes, nothing allocated in a run, packing, block limits, broken models. */
#include "test.h"

#include <math.h>

#include "places.h"
#include "run/batch.h"
#include "run/eval.h"
#include "run/generate.h"
#include "run/session.h"
#include "tiny_model.h"
#include "train/micro.h"

static struct tiny_model tied, untied;

static void open_tiny(struct session *s, const struct tiny_model *m, const char *dtype)
{
    struct session_options options = {.dir = m->dir, .device = "cpu", .dtype = dtype, .weights = true};
    assert_ok(session_open(s, &options));
}

static void values_never_overlap(void **state)
{
    (void)state;
    struct session s;
    int64_t index;
    open_tiny(&s, &tied, "float32");
    assert_ok(session_add(&s, NET_LOSS, 48, 24, 0, &index));
    check_places(&s.engine.programs[index].lowering);
    assert_ok(session_add(&s, NET_LOGITS, 7, 1, 20, &index));
    check_places(&s.engine.programs[index].lowering);
    session_close(&s);
}

/* The planner's sum is what the device has allocated, at two batch sizes and in both types. */
static void the_plan_is_what_is_allocated(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"float32", "bfloat16"};
    for (int d = 0; d < 2; d++)
        for (int64_t T = 64; T <= 256; T *= 4) {
            struct session s;
            int64_t index, bytes[LIFE_COUNT], mapped;
            open_tiny(&s, &untied, dtypes[d]);
            assert_ok(eval_add(&s, T, &index));
            assert_ok(session_plan(&s));
            int64_t total = session_bytes(&s, bytes, &mapped);
            assert_int_equal(s.device->counters.bytes, 0);
            assert_ok(session_prepare(&s));
            assert_int_equal(s.device->counters.bytes, total - mapped);
            assert_true(d == 0 ? mapped > 0 : mapped == 0); /* float32 files serve a float32 run in place */
            session_close(&s);
        }
}

static void put_tokens(struct writer *w, int32_t seed, int64_t count)
{
    int32_t ids[512];
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)((seed * 31 + i * 17) % TINY_VOCABULARY);
    struct sequence sequence = {.ids = ids, .count = count};
    batch_place(w, &sequence);
}

/* Counters after the first run of each program stay as they are. */
static void a_run_allocates_nothing(void **state)
{
    (void)state;
    struct session s;
    int64_t loss, index[3];
    struct generator g;
    float losses[64];
    open_tiny(&s, &tied, "float32");
    assert_ok(session_add(&s, NET_LOSS, 64, 64, 0, &loss));
    assert_ok(session_add(&s, NET_LOSS, 32, 8, 0, &index[0]));
    assert_ok(generate_add(&g, &s, 40, 16));
    assert_ok(session_plan(&s));
    assert_ok(session_prepare(&s));
    int64_t memory = 0;
    struct device_counters before = {0};
    for (int round = 0; round < 8; round++) {
        const struct net *n = s.nets[loss];
        struct writer w = {.e = &s.engine, .n = n, .row = 10};
        put_tokens(&w, round, 30);
        for (int r = 0; r < 10; r++) {
            ((int32_t *)engine_input(&s.engine, n->rows))[r] = r;
            ((int32_t *)engine_input(&s.engine, n->targets))[r] = r;
        }
        batch_end(&w);
        assert_ok(engine_run(&s.engine, loss));
        assert_ok(engine_read(&s.engine, n->result, losses));
        generate_reset(&g);
        assert_ok(generate_feed(&g, (int32_t[]){5, 6, 7}, 3));
        assert_ok(generate_feed(&g, (int32_t[]){8}, 1));
        if (round == 0) {
            memory = memory_count();
            before = s.device->counters;
        }
    }
    assert_int_equal(memory_count(), memory);
    assert_int_equal(s.device->counters.allocations, before.allocations);
    assert_int_equal(s.device->counters.gemms, before.gemms);
    assert_int_equal(s.device->counters.kernels, before.kernels);
    assert_int_equal(s.device->counters.prepared, before.prepared);
    assert_true(s.device->counters.runs > before.runs);
    generate_free(&g);
    session_close(&s);
}

/* The logits of a sequence do not depend on its neighbours in the slots. */
static void packed_sequences_do_not_see_each_other(void **state)
{
    (void)state;
    struct session s;
    int64_t index, V = TINY_VOCABULARY;
    open_tiny(&s, &untied, "float32");
    assert_ok(session_add(&s, NET_LOGITS, 96, 96, 0, &index));
    assert_ok(session_plan(&s));
    assert_ok(session_prepare(&s));
    const struct net *n = s.nets[index];
    float *alone = test_malloc(sizeof(float) * 96 * TINY_VOCABULARY), *packed = test_malloc(sizeof(float) * 96 * TINY_VOCABULARY);
    for (int t = 0; t < 96; t++)
        ((int32_t *)engine_input(&s.engine, n->rows))[t] = t;
    struct writer one = {.e = &s.engine, .n = n, .row = 96}, three = one;
    put_tokens(&one, 3, 20);
    batch_end(&one);
    assert_ok(engine_run(&s.engine, index));
    assert_ok(engine_read(&s.engine, n->result, alone));
    put_tokens(&three, 9, 41);
    put_tokens(&three, 3, 20);
    put_tokens(&three, 8, 35);
    batch_end(&three);
    assert_ok(engine_run(&s.engine, index));
    assert_ok(engine_read(&s.engine, n->result, packed));
    for (int64_t i = 0; i < 20 * V; i++)
        assert_true(fabsf(alone[i] - packed[41 * V + i]) < 1e-4f);
    test_free(alone);
    test_free(packed);
    session_close(&s);
}

static const struct device_class *real_class;

static void small_info(struct device *device, struct device_info *info)
{
    real_class->info(device, info);
    info->most_block = 20000;
}

/* A device with a small largest allocation gets the weights in several blocks, and a tensor beyond it is refused. */
static void blocks_respect_the_largest_allocation(void **state)
{
    (void)state;
    struct session s;
    int64_t index;
    open_tiny(&s, &tied, "bfloat16");
    struct device_class small = *s.device->class;
    real_class = s.device->class;
    small.info = small_info;
    s.device->class = &small;
    assert_ok(session_add(&s, NET_LOSS, 16, 16, 0, &index));
    assert_ok(model_attach(&s.model, &s.info));
    assert_fails(engine_place(&s.engine), ERR_DEVICE, "activations take");
    int64_t blocks = 0;
    for (int64_t i = 0; i < s.engine.block_count; i++) {
        blocks += s.engine.blocks[i].lifetime == LIFE_WEIGHTS;
        if (s.engine.blocks[i].lifetime == LIFE_WEIGHTS)
            assert_true(s.engine.blocks[i].bytes <= 20000);
    }
    assert_true(blocks >= 3);
    s.device->class = real_class;
    session_close(&s);
}

/* The size of a micro-batch, too, follows what the device allocates in one piece. Seen to fail without that in add_largest. */
static void micro_batches_respect_the_largest_allocation(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct options options;
    int64_t most = INT64_MAX;
    options_init(&options, &arena);
    for (int pass = 0; pass < 2; pass++) {
        struct trainer t = {.options = &options};
        open_tiny(&t.session, &untied, "float32");
        t.session.tuning.train = true;
        t.session.info.most_block = most;
        assert_ok(micro_size(&t));
        int64_t activations = t.session.engine.programs[t.micro.program[0][0]].bytes[LIFE_ACTIVATIONS];
        if (pass == 0) {
            assert_int_equal(t.place.slots, 1024);
            most = activations / 5;
        } else
            assert_true(activations <= most && activations > 0 && (t.place.slots < 1024 || t.session.tuning.recompute));
        session_close(&t.session);
    }
    arena_free(&arena);
}

static void wrong_files_are_named(void **state)
{
    (void)state;
    struct tiny_model m;
    struct session s;
    int64_t index;
    tiny_model_make(&m, true);
    tiny_write(&m, "config.json", "{\"model_type\": \"gpt9\"}");
    struct session_options options = {.dir = m.dir, .device = "cpu", .dtype = "auto", .weights = true};
    assert_fails(session_open(&s, &options), ERR_UNSUPPORTED, "no model family \"gpt9\"; it has: llama");
    tiny_write(&m, "config.json",
               "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "
               "\"num_attention_heads\": 4, "
               "\"num_key_value_heads\": 2, \"vocab_size\": 300, \"tie_word_embeddings\": true}");
    assert_ok(session_open(&s, &options));
    assert_ok(session_add(&s, NET_LOSS, 16, 16, 0, &index));
    assert_fails(session_plan(&s), ERR_FORMAT, "model.embed_tokens.weight");
    session_close(&s);
    tiny_write(
        &m, "config.json",
        "{\"model_type\": \"llama\", \"hidden_size\": 2147483644, \"intermediate_size\": 2147483647, \"num_hidden_layers\": 999, "
        "\"num_attention_heads\": 2, \"vocab_size\": 2147483647}");
    options.weights = false;
    assert_ok(session_open(&s, &options));
    assert_fails(session_add(&s, NET_LOSS, 1 << 24, 1 << 24, 0, &index), ERR_ARGUMENT, "beyond 16 TB");
    session_close(&s);
    tiny_write(&m, "config.json",
               "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 64, \"num_hidden_layers\": 2147483647, "
               "\"num_attention_heads\": 2, \"vocab_size\": 64}");
    assert_fails(session_open(&s, &options), ERR_FORMAT, "num_hidden_layers");
    options.device = "cuda";
    assert_fails(session_open(&s, &options), ERR_DEVICE, "--device cpu");
    tiny_model_remove(&m);
}

/* A weight that is no number: the error names the row, and no figure comes out. */
static void a_loss_that_is_not_finite_is_an_error(void **state)
{
    (void)state;
    struct tiny_model m;
    struct session s;
    struct chat *chat = NULL;
    struct data data;
    struct evaluation v;
    double loss;
    char path[128];
    tiny_model_make(&m, true);
    snprintf(path, sizeof path, "%s/model.safetensors", m.dir);
    struct buffer file = {0};
    assert_ok(file_read(&file, path, 1 << 20));
    float nan = NAN;
    memcpy(file.data + file.size - 4 * TINY_CHANNELS, &nan, sizeof nan);
    assert_ok(file_replace(path, file.data, file.size));
    buffer_free(&file);
    tiny_write(&m, "chats.jsonl",
               "\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n");
    snprintf(path, sizeof path, "%s/chats.jsonl", m.dir);
    open_tiny(&s, &m, "float32");
    struct data_limits limits = {.most_tokens = 512, .vocabulary = TINY_VOCABULARY, .model_dir = m.dir};
    assert_ok(data_open(&data, path, &chat, &limits));
    assert_ok(eval_open(&v, &s, &data, 64));
    assert_ok(session_plan(&s));
    assert_ok(session_prepare(&s));
    assert_fails(eval_run(&v, &s, NULL, NULL, &loss), ERR_DATA, "chats.jsonl:2: the loss of token");
    eval_close(&v);
    data_close(&data);
    chat_close(chat);
    session_close(&s);
    tiny_model_remove(&m);
}

/* A layer in small, forward and back: a norm, a product with a bias, the residual add, a tied table as embedding and head. */
static void chain_gradients(enum run_type run, float *table, float *weight)
{
    enum { T = 12, C = 16, V = 24 };
    struct device *device;
    struct store store;
    struct program p;
    struct engine e;
    int64_t index;
    struct tensor *t[4], *g[4];
    static const char *const names[] = {"table", "norm", "w", "b"};
    static const int64_t shapes[][2] = {{V, C}, {C}, {C, C}, {C}};
    static const int ranks[] = {2, 1, 2, 1};
    assert_ok(device_open(&device, "cpu"));
    assert_ok(store_init(&store));
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%s", names[i]);
        assert_ok(store_tensor(&t[i], &store, names[i], LIFE_TRAINABLE, run_types[run][ROLE_WEIGHT], ranks[i], shapes[i]));
        assert_ok(store_tensor(&g[i], &store, name, LIFE_GRADIENTS, DTYPE_F32, ranks[i], shapes[i]));
        t[i]->gradient = g[i];
    }
    program_init(&p, ops_table, run);
    struct value *ids = program_input(&p, "ids", ROLE_INDEX, 1, (int64_t)T),
                 *order = program_input(&p, "order", ROLE_INDEX, 1, (int64_t)T);
    struct value *targets = program_input(&p, "targets", ROLE_INDEX, 1, (int64_t)T),
                 *d = program_input(&p, "d", ROLE_STATISTIC, 1, (int64_t)T);
    struct value *x = embedding(&p, ids, program_tensor(&p, t[0]), order, -1);
    struct value *h = rmsnorm(&p, x, program_tensor(&p, t[1]), 1e-5);
    x = add(&p, x, bias(&p, linear(&p, h, program_tensor(&p, t[2])), program_tensor(&p, t[3])));
    struct value *y = rmsnorm(&p, x, program_tensor(&p, t[1]), 1e-5);
    struct value *loss = linear_cross_entropy(&p, y, program_tensor(&p, t[0]), targets);
    assert_ok(program_gradient(&p, &loss, &d, 1));
    engine_init(&e, device, &store);
    assert_ok(engine_add(&e, &p, &index));
    assert_ok(engine_place(&e));
    assert_ok(engine_prepare(&e));
    for (int i = 0; i < 4; i++) {
        float values[V * C], pair[2];
        for (int64_t k = 0; k < tensor_elements(t[i]); k++) {
            struct philox r = philox(5, (uint64_t)i, (uint64_t)k);
            philox_normal(r.word[0], r.word[1], pair);
            values[k] = (i == 1 ? 1 : 0) + 0.3f * bf16_to_f32(bf16_from_f32(pair[0]));
        }
        assert_ok(engine_upload(&e, t[i], values, DTYPE_F32));
    }
    for (int i = 0; i < T; i++) {
        ((int32_t *)engine_input(&e, ids))[i] = i; /* all different, so that their order is their own */
        ((int32_t *)engine_input(&e, order))[i] = i;
        ((int32_t *)engine_input(&e, targets))[i] = (i * 7 + 3) % V;
        ((float *)engine_input(&e, d))[i] = 1;
    }
    assert_ok(engine_run(&e, index));
    assert_ok(engine_run(&e, index)); /* sums add up over runs */
    assert_ok(device_read(device, table, (struct operand){e.blocks[g[0]->place.block].block, g[0]->place.offset}, V * C * 4));
    assert_ok(device_read(device, weight, (struct operand){e.blocks[g[2]->place.block].block, g[2]->place.offset}, C * C * 4));
    engine_free(&e);
    program_free(&p);
    store_free(&store);
    device_close(device);
}

static void gradients_agree_in_both_types(void **state)
{
    (void)state;
    float wide[2][24 * 16], narrow[2][24 * 16];
    chain_gradients(RUN_FLOAT32, wide[0], wide[1]);
    chain_gradients(RUN_BFLOAT16, narrow[0], narrow[1]);
    for (int which = 0; which < 2; which++) {
        double error = 0, size = 0;
        for (int i = 0; i < (which ? 16 : 24) * 16; i++) {
            error += pow((double)(wide[which][i] - narrow[which][i]), 2);
            size += pow((double)wide[which][i], 2);
        }
        assert_true(size > 1 && error < 1e-3 * size);
    }
}

static int make_models(void **state)
{
    (void)state;
    tiny_model_make(&tied, true);
    tiny_model_make(&untied, false);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    tiny_model_remove(&tied);
    tiny_model_remove(&untied);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_never_overlap),
        cmocka_unit_test(the_plan_is_what_is_allocated),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(packed_sequences_do_not_see_each_other),
        cmocka_unit_test(blocks_respect_the_largest_allocation),
        cmocka_unit_test(micro_batches_respect_the_largest_allocation),
        cmocka_unit_test(wrong_files_are_named),
        cmocka_unit_test(a_loss_that_is_not_finite_is_an_error),
        cmocka_unit_test(gradients_agree_in_both_types),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
