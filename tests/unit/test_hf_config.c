/* format/hf_config: the keys of real model directories in their old and new layouts, and what is refused. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "format/hf_config.h"

static char dir[64], config_path[128], generation_path[128];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hone-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(config_path, sizeof config_path, "%s/config.json", dir);
    snprintf(generation_path, sizeof generation_path, "%s/generation_config.json", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(config_path);
    unlink(generation_path);
    return rmdir(dir);
}

/* `generation` NULL: no such file. */
static enum status open_texts(struct hf_config *config, const char *text, const char *generation)
{
    assert_ok(file_replace(config_path, text, (int64_t)strlen(text)));
    unlink(generation_path);
    if (generation)
        assert_ok(file_replace(generation_path, generation, (int64_t)strlen(generation)));
    return hf_config_open(config, dir);
}

static void a_llama_config_is_read(void **state)
{
    (void)state;
    struct hf_config config;
    assert_ok(open_texts(&config,
                         "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"torch_dtype\": \"float16\", "
                         "\"dtype\": \"bfloat16\","
                         " \"hidden_size\": 576, \"head_dim\": null, \"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": true, "
                         "\"hidden_act\": \"silu\","
                         " \"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": -1, \"rope_theta\": 100000}",
                         NULL));
    assert_string_equal(config.model_type, "llama");
    assert_string_equal(config.architecture, "LlamaForCausalLM");
    assert_string_equal(config.dtype, "bfloat16");
    assert_null(config.quantization);
    assert_string_equal(config.path, config_path);
    assert_int_equal(config.bos, 1);
    assert_int_equal(config.pad, -1);
    assert_int_equal(config.eos_count, 1);
    assert_int_equal(config.eos[0], 2);
    int64_t size = 0, head = 64;
    double eps = 0, absent = 3;
    bool tie = false, bias = true;
    const char *act = NULL;
    assert_ok(hf_config_need_size(&config, "hidden_size", &size));
    assert_ok(hf_config_size(&config, "head_dim", &head));
    assert_ok(hf_config_need_real(&config, "rms_norm_eps", &eps));
    assert_ok(hf_config_real(&config, "absent", &absent));
    assert_ok(hf_config_bool(&config, "tie_word_embeddings", &tie));
    assert_ok(hf_config_bool(&config, "attention_bias", &bias));
    assert_ok(hf_config_text(&config, "hidden_act", &act));
    assert_int_equal(size, 576);
    assert_int_equal(head, 64);
    assert_true(eps == 1e-5 && absent == 3 && tie && bias);
    assert_string_equal(act, "silu");
    assert_fails(hf_config_need_size(&config, "head_dim", &size), ERR_FORMAT, "config.json: \"head_dim\" is missing");
    assert_fails(hf_config_need_real(&config, "absent", &eps), ERR_FORMAT, "\"absent\" is missing");
    assert_fails(hf_config_int(&config, "hidden_act", &size), ERR_FORMAT, "\"hidden_act\" must be a whole number");
    hf_config_close(&config);
    hf_config_close(&config);
}

static void sizes_have_a_range(void **state)
{
    (void)state;
    struct hf_config config;
    int64_t size = 7;
    assert_ok(open_texts(&config,
                         "{\"model_type\": \"x\", \"zero\": 0, \"minus\": -4, \"big\": 2147483648, \"most\": 2147483647, "
                         "\"real\": 4.0}",
                         NULL));
    assert_fails(hf_config_size(&config, "zero", &size), ERR_FORMAT, "\"zero\" is 0, it must be from 1 to");
    assert_fails(hf_config_size(&config, "minus", &size), ERR_FORMAT, "\"minus\" is -4");
    assert_fails(hf_config_size(&config, "big", &size), ERR_FORMAT, "\"big\" is 2147483648");
    assert_fails(hf_config_size(&config, "real", &size), ERR_FORMAT, "must be a whole number");
    assert_int_equal(size, 7);
    assert_ok(hf_config_size(&config, "most", &size));
    assert_int_equal(size, INT32_MAX);
    hf_config_close(&config);
}

static void generation_config_wins(void **state)
{
    (void)state;
    static const char both[] = "{\"model_type\": \"x\", \"eos_token_id\": 2, \"bos_token_id\": 1}";
    struct hf_config config;
    assert_ok(open_texts(&config, both, "{\"eos_token_id\": [128001, 128008, 128009], \"bos_token_id\": 128000}"));
    assert_int_equal(config.eos_count, 3);
    assert_int_equal(config.eos[2], 128009);
    assert_int_equal(config.bos, 128000);
    hf_config_close(&config);
    assert_ok(open_texts(&config, both, "{\"eos_token_id\": null, \"temperature\": 0.6}"));
    assert_int_equal(config.eos_count, 1);
    assert_int_equal(config.eos[0], 2);
    assert_int_equal(config.bos, 1);
    hf_config_close(&config);
    assert_ok(open_texts(&config, "{\"model_type\": \"x\", \"eos_token_id\": []}", NULL));
    assert_int_equal(config.eos_count, 0);
    assert_int_equal(config.bos, -1);
    hf_config_close(&config);
    assert_fails(open_texts(&config, both, "{\"eos_token_id\": [2, \"x\"]}"), ERR_FORMAT,
                 "generation_config.json: \"eos_token_id\"");
    assert_fails(open_texts(&config, both, "{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}"), ERR_UNSUPPORTED,
                 "17 token ids");
    assert_fails(open_texts(&config, both, "{\"bos_token_id\": 4294967296}"), ERR_FORMAT, "\"bos_token_id\"");
    assert_fails(open_texts(&config, both, "[]"), ERR_FORMAT, "must hold a JSON object");
}

static void broken_configs_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "config.json: line"},
        {"{\"model_type\": \"x\"", "config.json: line"},
        {"{\"model_type\": \"x\", \"model_type\": \"y\"}", "duplicate"},
        {"[1]", "must hold a JSON object"},
        {"{}", "\"model_type\" is missing"},
        {"{\"model_type\": 3}", "\"model_type\" must be a string"},
        {"{\"model_type\": \"x\", \"architectures\": \"X\"}", "\"architectures\" must be a list of names"},
        {"{\"model_type\": \"x\", \"architectures\": [1]}", "\"architectures\" must be a list of names"},
        {"{\"model_type\": \"x\", \"dtype\": {}}", "\"dtype\" must be a string"},
        {"{\"model_type\": \"x\", \"eos_token_id\": 1.5}", "\"eos_token_id\" is not a token id"},
        {"{\"model_type\": \"x\", \"eos_token_id\": {}}", "\"eos_token_id\" is not a token id"},
    };
    struct hf_config config;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum status status = open_texts(&config, cases[i][0], NULL);
        if (status != ERR_FORMAT || !strstr(status_message(), cases[i][1]))
            fail_msg("%s: status %d, message: %s", cases[i][0], status, status_message());
    }
    assert_fails(hf_config_open(&config, "/nonexistent"), ERR_IO, "/nonexistent/config.json: no such file");
    assert_ok(
        open_texts(&config, "{\"model_type\": \"x\", \"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}", NULL));
    assert_string_equal(config.quantization, "bitsandbytes");
    hf_config_close(&config);
}

#define LLAMA3 "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0"

#define FACTORS "\"short_factor\": [1, 1.5], \"long_factor\": [2, 3]"

static void rope_has_two_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        struct rope_config want;
    } cases[] = {
        {"\"a\": 1", {.theta = 10000}},
        {"\"rope_theta\": 500000, \"rope_scaling\": null", {.theta = 500000}},
        {"\"rope_scaling\": {}, \"rope_parameters\": {\"rope_theta\": 7.5}", {.theta = 7.5}},
        {"\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 100000.0}", {.theta = 100000}},
        {"\"rope_theta\": 3.0, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 4}", {.theta = 4}},
        {"\"rope_theta\": 3.0, \"rope_parameters\": {\"rope_type\": \"default\"}", {.theta = 3}},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", {.kind = ROPE_LINEAR, .theta = 10000, .factor = 2}},
        {"\"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", \"type\": \"linear\", " LLAMA3
         ", \"original_max_position_embeddings\": 8192}",
         {.kind = ROPE_LLAMA3,
          .theta = 5e5,
          .factor = 8,
          .low_freq_factor = 1,
          .high_freq_factor = 4,
          .original_max_position = 8192}},
        {"\"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"llama3\", " LLAMA3
         ", \"original_max_position_embeddings\": 8192}",
         {.kind = ROPE_LLAMA3,
          .theta = 5e5,
          .factor = 8,
          .low_freq_factor = 1,
          .high_freq_factor = 4,
          .original_max_position = 8192}},
        {"\"max_position_embeddings\": 4096, \"rope_parameters\": {\"rope_type\": \"llama3\", " LLAMA3 "}",
         {.kind = ROPE_LLAMA3,
          .theta = 10000,
          .factor = 8,
          .low_freq_factor = 1,
          .high_freq_factor = 4,
          .original_max_position = 4096}},
        {"\"partial_rotary_factor\": 1.0", {.theta = 10000}},
        {"\"partial_rotary_factor\": 0.5, \"rope_parameters\": {\"partial_rotary_factor\": 0.25}",
         {.theta = 10000, .part = 0.25}},
        {"\"max_position_embeddings\": 64, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}",
         {.kind = ROPE_YARN, .theta = 10000, .factor = 4, .original_max_position = 64, .attention_factor = 1.1386294361119891}},
        {"\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"mscale\": 1, \"mscale_all_dim\": 1, "
         "\"original_max_position_embeddings\": 16}",
         {.kind = ROPE_YARN, .theta = 10000, .factor = 4, .original_max_position = 16}},
        {"\"max_position_embeddings\": 64, \"original_max_position_embeddings\": 16, \"rope_scaling\": {\"type\": "
         "\"su\", " FACTORS "}",
         {.kind = ROPE_LONG, .theta = 10000, .original_max_position = 16, .attention_factor = 1.2247448713915890, .pairs = 2}},
        {"\"max_position_embeddings\": 64, \"rope_scaling\": {\"type\": \"longrope\", \"attention_factor\": 3, " FACTORS "}",
         {.kind = ROPE_LONG, .theta = 10000, .original_max_position = 64, .attention_factor = 3, .pairs = 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\": \"x\", %s}", cases[i].keys);
        struct hf_config config;
        struct rope_config rope;
        const struct rope_config *want = &cases[i].want;
        assert_ok(open_texts(&config, text, NULL));
        if (hf_config_rope(&config, 10000, &rope) != OK)
            fail_msg("%s: %s", text, status_message());
        if (rope.kind != want->kind || rope.theta != want->theta || rope.factor != want->factor ||
            rope.low_freq_factor != want->low_freq_factor || rope.high_freq_factor != want->high_freq_factor ||
            rope.original_max_position != want->original_max_position || rope.pairs != want->pairs ||
            rope.part != (want->part != 0 ? want->part : 1) ||
            fabs(rope.attention_factor - (want->attention_factor != 0 ? want->attention_factor : 1)) > 1e-15)
            fail_msg("%s: kind %d, theta %g, factor %g", text, rope.kind, rope.theta, rope.factor);
        hf_config_close(&config);
    }
}

static void other_ropes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        enum status status;
        const char *message;
    } cases[] = {
        {"\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}", ERR_UNSUPPORTED, "\"dynamic\" is not supported"},
        {"\"rope_scaling\": {\"type\": \"yarn\"}", ERR_FORMAT, "\"factor\" is missing"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}", ERR_FORMAT, "\"original_max_position_embeddings\" is missing"},
        {"\"rope_parameters\": {\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 4}", ERR_FORMAT,
         "\"short_factor\""},
        {"\"rope_parameters\": {\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 4, \"short_factor\": [1, 2], "
         "\"long_factor\": [1]}",
         ERR_FORMAT, "\"long_factor\" must be a list"},
        {"\"rope_parameters\": {\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 4, \"short_factor\": [0]}",
         ERR_FORMAT, "must be above 0"},
        {"\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}", ERR_UNSUPPORTED, "\"full_attention\""},
        {"\"partial_rotary_factor\": 0", ERR_FORMAT, "is 0, it must be above 0"},
        {"\"rope_parameters\": {\"partial_rotary_factor\": 1.25}", ERR_FORMAT, "at most 1"},
        {"\"rope_scaling\": 4", ERR_FORMAT, "\"rope_scaling\" must be an object"},
        {"\"rope_scaling\": {\"type\": 4}", ERR_FORMAT, "\"type\" must be a string"},
        {"\"rope_theta\": 0", ERR_FORMAT, "\"rope_theta\" must be above 0"},
        {"\"rope_theta\": \"x\"", ERR_FORMAT, "\"rope_theta\" must be a number"},
        {"\"rope_scaling\": {\"type\": \"linear\"}", ERR_FORMAT, "\"factor\" is missing"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": -1}", ERR_FORMAT, "\"factor\" must be above 0"},
        {"\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4}", ERR_FORMAT,
         "must be below"},
        {"\"rope_scaling\": {\"type\": \"llama3\", " LLAMA3 "}", ERR_FORMAT, "\"original_max_position_embeddings\" is missing"},
        {"\"rope_scaling\": {\"type\": \"llama3\", " LLAMA3 ", \"original_max_position_embeddings\": 0}", ERR_FORMAT, "is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\": \"x\", %s}", cases[i].keys);
        struct hf_config config;
        struct rope_config rope;
        assert_ok(open_texts(&config, text, NULL));
        enum status status = hf_config_rope(&config, 10000, &rope);
        if (status != cases[i].status || !strstr(status_message(), cases[i].message))
            fail_msg("%s: status %d, message: %s", text, status, status_message());
        hf_config_close(&config);
    }
}

/* Fails if numbers come from the whole, or if the text part's own word on the head wins. */
static void the_text_part_of_a_larger_model_is_read(void **state)
{
    (void)state;
    struct hf_config config;
    int64_t size = 0;
    bool tied = false;
    assert_ok(
        open_texts(&config,
                   "{\"model_type\": \"whole\", \"hidden_size\": 3, \"dtype\": \"bfloat16\", \"tie_word_embeddings\": true, "
                   "\"text_config\": {\"model_type\": \"part\", \"hidden_size\": 5, \"eos_token_id\": 7, "
                   "\"tie_word_embeddings\": false}}",
                   NULL));
    assert_string_equal(config.model_type, "part");
    assert_string_equal(config.dtype, "bfloat16");
    assert_non_null(config.root);
    assert_int_equal(config.eos[0], 7);
    assert_ok(hf_config_need_size(&config, "hidden_size", &size));
    assert_ok(hf_config_bool(&config, "tie_word_embeddings", &tied));
    assert_int_equal(size, 5);
    assert_true(tied);
    hf_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_config_is_read),
        cmocka_unit_test(sizes_have_a_range),
        cmocka_unit_test(generation_config_wins),
        cmocka_unit_test(broken_configs_are_refused),
        cmocka_unit_test(the_text_part_of_a_larger_model_is_read),
        cmocka_unit_test(rope_has_two_layouts),
        cmocka_unit_test(other_ropes_are_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
