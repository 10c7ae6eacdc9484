/* Programs of a model: exact sizes, nothing allocated in a run, broken models, very large ones. */
#include "test.h"

#include <fcntl.h>
#include <math.h>

#include "base/clock.h"
#include "processor.h"
#include "run/batch.h"
#include "run/evaluation.h"
#include "run/generation.h"
#include "run/session.h"
#include "tiny_model.h"

#ifdef HONE_SANITIZED
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static struct tiny_model tied, untied;

static void open_tiny(struct session *s, const struct tiny_model *m, const char *dtype)
{
    struct session_options options = {
        .dir = m->dir, .device = "cpu", .run = strcmp(dtype, "float32") ? RUN_BFLOAT16 : RUN_FLOAT32, .weights = true};
    assert_ok(session_open(s, &options));
}

/* The planner's sum equals what the device has allocated, at two batch sizes and in both types. */
static void the_plan_is_what_is_allocated(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"float32", "bfloat16"};
    int types = processor_has_bf16() ? 2 : 1;
    for (int d = 0; d < types; d++)
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

/* Of ranks on one machine each has a part of the memory, and all of them the page cache. Seen to fail: each compared its need
 * with all of the memory, and the system killed them. */
static void a_rank_has_its_part_of_the_memory(void **state)
{
    (void)state;
    struct session s;
    int64_t index;
    open_tiny(&s, &untied, "float32");
    s.neighbours = 4;
    s.room.allocate = s.info.memory_free = 1000;
    s.room.resident = 1 << 20;
    assert_ok(session_add(&s, NET_LOSS, 16, 16, 0, &index));
    assert_ok(session_plan(&s));
    assert_fails(session_prepare(&s), ERR_MEMORY, "for each rank of this machine");
    assert_int_equal(session_cache(&s, 1 << 19, &(struct device_costs){0}), 4 << 19);
    session_close(&s);
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

static void wrong_files_are_named(void **state)
{
    (void)state;
    struct tiny_model m;
    struct session s;
    int64_t index;
    tiny_model_make(&m, true);
    tiny_write(&m, "config.json", "{\"model_type\": \"gpt9\"}");
    struct session_options options = {.dir = m.dir, .device = "cpu", .run = RUN_AUTO, .weights = true};
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

static void assert_loss_fails(float weight, enum status status, const char *message)
{
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
    for (int i = 0; i < TINY_CHANNELS; i++) /* the last tensor: model.norm.weight */
        memcpy(file.data + file.size - 4 * (TINY_CHANNELS - i), &weight, sizeof weight);
    assert_ok(file_replace(path, file.data, file.size));
    buffer_free(&file);
    tiny_write(&m, "chats.jsonl",
               "\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n");
    snprintf(path, sizeof path, "%s/chats.jsonl", m.dir);
    open_tiny(&s, &m, "float32");
    struct data_limits limits = {.max_tokens = 512, .vocabulary = TINY_VOCABULARY, .model_dir = m.dir};
    assert_ok(data_open(&data, path, &chat, &limits));
    assert_ok(eval_open(&v, &s, &data, 64));
    assert_ok(session_plan(&s));
    assert_ok(session_prepare(&s));
    assert_fails(eval_run(&v, &s, NULL, NULL, &loss), status, message);
    eval_close(&v);
    data_close(&data);
    chat_close(chat);
    session_close(&s);
    tiny_model_remove(&m);
}

/* Weights of the last norm that overflow: the error names the row, and there is no result. One that is NaN: the error names the
 * tensor, where without model_check_finite it blames the row. */
static void a_loss_that_is_not_finite_is_an_error(void **state)
{
    (void)state;
    static const struct {
        float weight;
        enum status status;
        const char *message;
    } cases[] = {{3e38f, ERR_DATA, "chats.jsonl:2: the loss of token"},
                 {NAN, ERR_FORMAT, "model.safetensors: tensor model.norm.weight of the base has NaN at element 0"},
                 {-INFINITY, ERR_FORMAT, "tensor model.norm.weight of the base has an infinite number at element 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_loss_fails(cases[i].weight, cases[i].status, cases[i].message);
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

/* Writes the weights again, with the embedding as the head. */
static void copy_embedding(const struct tiny_model *m)
{
    struct safetensors *files;
    struct safetensors_tensor list[TINY_TENSORS];
    char path[128];
    assert_ok(safetensors_open(&files, m->dir));
    int64_t count = safetensors_count(files);
    for (int64_t i = 0; i < count; i++) {
        list[i] = *safetensors_at(files, i);
        if (!strcmp(list[i].name, "lm_head.weight"))
            list[i].data = safetensors_find(files, "model.embed_tokens.weight")->data;
    }
    snprintf(path, sizeof path, "%s/model.safetensors", m->dir);
    assert_ok(safetensors_write(path, list, count, NULL));
    safetensors_close(files);
}

/* As in transformers, whatever config.json says. Fails if the head of the files is left out without a look at it. */
static void a_head_that_is_not_the_embedding_is_used(void **state)
{
    (void)state;
    struct tiny_model two;
    struct session s;
    tiny_model_make(&two, false);
    two.tied = true;
    tiny_config(&two, "1e-5", "10000.0");
    open_tiny(&s, &two, "float32");
    assert_false(s.model.config.tied);
    session_close(&s);
    copy_embedding(&two);
    open_tiny(&s, &two, "float32");
    assert_true(s.model.config.tied);
    session_close(&s);
    tiny_model_remove(&two);
}

/* The file of a model of Llama 3.1 70B's shapes: a header, and 141 GB, of which a fiftieth is on the disk, without having been
 * written: a file of only holes is refused (file_check_holes). */
static void write_holes(const char *path)
{
    enum { C = 8192, KV = 1024, F = 28672, V = 128256, LAYERS = 80 };
    static const struct {
        const char *name;
        int64_t rows, columns;
    } of_layer[] = {{"self_attn.q_proj", C, C}, {"self_attn.k_proj", KV, C}, {"self_attn.v_proj", KV, C},
                    {"self_attn.o_proj", C, C}, {"mlp.gate_proj", F, C},     {"mlp.up_proj", F, C},
                    {"mlp.down_proj", C, F},    {"input_layernorm", C, 0},   {"post_attention_layernorm", C, 0}},
      at_ends[] = {{"model.embed_tokens", V, C}, {"model.norm", C, 0}, {"lm_head", V, C}};
    enum { IN_LAYER = sizeof of_layer / sizeof *of_layer, AT_ENDS = sizeof at_ends / sizeof *at_ends };
    struct buffer header = {0};
    int64_t end = 0;
    for (int i = 0; i < LAYERS * IN_LAYER + AT_ENDS; i++) {
        bool inside = i < LAYERS * IN_LAYER;
        int64_t rows = inside ? of_layer[i % IN_LAYER].rows : at_ends[i - LAYERS * IN_LAYER].rows;
        int64_t columns = inside ? of_layer[i % IN_LAYER].columns : at_ends[i - LAYERS * IN_LAYER].columns, begin = end;
        char name[64];
        if (inside)
            snprintf(name, sizeof name, "model.layers.%d.%s", i / IN_LAYER, of_layer[i % IN_LAYER].name);
        else
            snprintf(name, sizeof name, "%s", at_ends[i - LAYERS * IN_LAYER].name);
        end += 2 * rows * (columns ? columns : 1);
        assert_ok(buffer_format(&header, "%s\"%s.weight\": {\"dtype\": \"BF16\", \"shape\": [%lld", i ? ", " : "{", name,
                                (long long)rows));
        if (columns)
            assert_ok(buffer_format(&header, ", %lld", (long long)columns));
        assert_ok(buffer_format(&header, "], \"data_offsets\": [%lld, %lld]}", (long long)begin, (long long)end));
    }
    assert_ok(buffer_format(&header, "}%*s", (int)(7 - header.size % 8), "")); /* tensors are aligned */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    uint64_t size = (uint64_t)header.size;
    assert_int_equal(fwrite(&size, sizeof size, 1, file) + fwrite(header.data, 1, (size_t)header.size, file), 1 + header.size);
    int64_t bytes = (int64_t)sizeof size + header.size + end;
    assert_int_equal(posix_fallocate(fileno(file), 0, bytes / 50), 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, bytes), 0);
    buffer_free(&header);
}

/* Opens a model of 70 billion weights, and builds, plans and prepares the program of a LoRA step. */
static void make_ready(const struct tiny_model *m, struct adapter_config *lora)
{
    struct session s;
    int64_t index, bytes[LIFE_COUNT], mapped;
    open_tiny(&s, m, "bfloat16");
    s.tuning = (struct tuning){.lora = lora, .train = true, .recompute = RECOMPUTE_FULL};
    assert_ok(session_add(&s, NET_TRAIN, 64, 64, 0, &index));
    assert_ok(model_place(&s.model, &s.info));
    assert_ok(session_plan(&s));
    session_bytes(&s, bytes, &mapped);
    assert_int_equal(mapped, 2 * 70553706496);
    assert_ok(engine_prepare(&s.engine));
    session_close(&s);
}

/* Fails if opening, planning or preparing reads the weights, or if a step's work on a tensor looks at all others. */
static void seventy_billion_weights_are_ready_within_a_second(void **state)
{
    (void)state;
    struct tiny_model m;
    struct adapter_config lora = {.rank = 16, .alpha = 32};
    double best = 1e9;
    char path[128];
    if (!processor_has_bf16())
        return;
    tiny_model_make(&m, false);
    tiny_write(&m, "config.json",
               "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 8192, \"intermediate_size\": 28672, "
               "\"num_hidden_layers\": 80, \"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-5, "
               "\"max_position_embeddings\": 131072, \"rope_theta\": 500000.0, \"tie_word_embeddings\": false}");
    snprintf(path, sizeof path, "%s/model.safetensors", m.dir);
    write_holes(path);
    assert_ok(adapter_parse_targets(&lora, "all-linear", "--lora-target-modules"));
    for (int i = 0; i < 3; i++) { /* other programs may have the processor in one of them */
        double begin = clock_seconds();
        make_ready(&m, &lora);
        best = fmin(best, clock_seconds() - begin);
    }
    print_message("70 billion weights are ready after %.0f ms\n", 1e3 * best);
    assert_true(best < (SANITIZED ? 10 : 1));
    adapter_config_free(&lora);
    tiny_model_remove(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_what_is_allocated),
        cmocka_unit_test(a_rank_has_its_part_of_the_memory),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(wrong_files_are_named),
        cmocka_unit_test(a_loss_that_is_not_finite_is_an_error),
        cmocka_unit_test(a_head_that_is_not_the_embedding_is_used),
        cmocka_unit_test(seventy_billion_weights_are_ready_within_a_second),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
