/* models/family: config.json as published models have it, with what it leaves out to the defaults of their own code. */
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "models/model.h"

static char dir[64], path[128];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hone-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/config.json", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

/* Single quotes stand for double ones. */
static void write_text(const char *text)
{
    char json[4096];
    size_t length = strlen(text);
    for (size_t i = 0; i <= length; i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    assert_ok(file_replace(path, json, (int64_t)length));
}

static enum status read_text(struct model_config *config, const char *text)
{
    write_text(text);
    struct hf_config hf;
    const struct family *family;
    assert_ok(hf_config_open(&hf, dir));
    enum status status = family_read(&family, config, &hf);
    hf_config_close(&hf);
    return status;
}

#define SIZES                                                                                                                    \
    "'hidden_size': 64, 'num_hidden_layers': 4, 'num_attention_heads': 4, 'intermediate_size': 128, 'vocab_size': 100,"          \
    " 'num_key_value_heads': 2"

#define GEMMA4                                                                                                                   \
    "{'model_type': 'gemma4_text', 'hidden_size': 64, 'num_hidden_layers': 12, 'num_attention_heads': 4,"                        \
    " 'intermediate_size': 128, 'vocab_size': 100, 'num_key_value_heads': 2, 'head_dim': 16,"
#define BY_TYPE " 'rope_parameters': {'full_attention': {}, 'sliding_attention': {}},"

/* Gemma 3 of 4, 12 and 27 billion parameters: the text parts name only what differs from the models' code. */
static void a_text_part_leaves_out_what_is_usual(void **state)
{
    (void)state;
    struct model_config c;
    assert_ok(read_text(&c, "{'model_type': 'gemma3', 'text_config': {'model_type': 'gemma3_text', 'hidden_size': 2560,"
                            " 'intermediate_size': 10240, 'num_hidden_layers': 34, 'sliding_window': 1024,"
                            " 'rope_scaling': {'factor': 8.0, 'rope_type': 'linear'}}}"));
    assert_int_equal(c.channels, 2560);
    assert_int_equal(c.heads, 8);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_size, 256);
    assert_int_equal(c.vocabulary, 262208);
    assert_int_equal(c.local, 1024);
    assert_true(c.tied && c.is_local[4] && !c.is_local[5]);
    assert_true(c.attention_scale == 1.0 / 16 && c.rope.kind == ROPE_LINEAR && c.local_rope.kind == ROPE_DEFAULT);
    assert_true(c.rope.theta == 1e6 && c.local_rope.theta == 1e4);
    assert_ok(read_text(&c, "{'model_type': 'gemma3', 'text_config': {'model_type': 'gemma3_text', 'hidden_size': 3840,"
                            " 'intermediate_size': 15360, 'num_hidden_layers': 48, 'num_attention_heads': 16,"
                            " 'num_key_value_heads': 8}}"));
    assert_int_equal(c.head_size, 256);
    assert_int_equal(c.local, 4096);
    assert_ok(read_text(&c, "{'model_type': 'llava', 'tie_word_embeddings': false, 'text_config': {'model_type': 'llama',"
                            " 'max_position_embeddings': 4096, 'rms_norm_eps': 1e-05, 'vocab_size': 32064}}"));
    assert_int_equal(c.feed_forward, 11008);
    assert_int_equal(c.kv_heads, 32);
    assert_int_equal(c.head_size, 128);
    assert_int_equal(c.vocabulary, 32064);
    assert_false(c.tied);
    assert_ok(read_text(&c, "{'model_type': 'qwen3_5_moe', 'text_config': {'model_type': 'qwen3_5_moe_text'}}"));
    assert_int_equal(c.layers, 40);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.experts, 256);
    assert_int_equal(c.experts_chosen, 8);
    assert_int_equal(c.shared_feed_forward, 512);
    assert_true(c.experts_normalised && c.delta.is_linear[38] && !c.delta.is_linear[39]);
    assert_fails(read_text(&c, "{'model_type': 'gemma3_text', 'hidden_size': 2560, 'num_hidden_layers': 34}"), ERR_FORMAT,
                 "\"num_attention_heads\" is missing");
}

/* SmolLM3's published file has no "tie_word_embeddings", and its head is the embedding. */
static void a_missing_tie_is_the_family_s_own(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool tied;
    } cases[] = {
        {"{'model_type': 'smollm3', " SIZES "}", true},
        {"{'model_type': 'smollm3', 'tie_word_embeddings': false, " SIZES "}", false},
        {"{'model_type': 'gemma2', 'head_dim': 16, " SIZES "}", true},
        {"{'model_type': 'llama', " SIZES "}", false},
        {"{'model_type': 'phi3', " SIZES "}", false},
        {"{'model_type': 'olmo2', " SIZES "}", false},
        {"{'model_type': 'granite', 'tie_word_embeddings': true, " SIZES "}", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config c;
        assert_ok(read_text(&c, cases[i].text));
        if (c.tied != cases[i].tied)
            fail_msg("%s: tied %d", cases[i].text, c.tied);
    }
}

/* Which layers are local, as a string with 'l' for each of them, and over how many tokens. */
static void windows_are_those_of_the_models_code(void **state)
{
    (void)state;
    static const struct {
        const char *text, *layers;
        int64_t local;
    } cases[] = {
        {"{'model_type': 'mistral', 'sliding_window': null, " SIZES "}", "gggg", 0},
        {"{'model_type': 'mistral', 'sliding_window': 7, " SIZES "}", "llll", 7},
        {"{'model_type': 'mistral', " SIZES "}", "llll", 4096},
        {"{'model_type': 'mixtral', " SIZES "}", "gggg", 0},
        {"{'model_type': 'phi3', " SIZES "}", "gggg", 0},
        {"{'model_type': 'phi3', 'sliding_window': 2047, " SIZES "}", "llll", 2047},
        {"{'model_type': 'qwen2', 'use_sliding_window': false, 'sliding_window': 7, 'max_window_layers': 2, " SIZES "}", "gggg",
         0},
        {"{'model_type': 'qwen2', 'use_sliding_window': true, 'sliding_window': 7, 'max_window_layers': 2, " SIZES "}", "ggll",
         7},
        {"{'model_type': 'qwen2', 'use_sliding_window': true, 'sliding_window': null, 'max_window_layers': 2, " SIZES "}", "gggg",
         0},
        {"{'model_type': 'qwen3', 'use_sliding_window': true, 'max_window_layers': 3, " SIZES "}", "gggl", 4096},
        {"{'model_type': 'qwen3_moe', 'use_sliding_window': true, 'sliding_window': 7, 'max_window_layers': 2, " SIZES "}",
         "llll", 7},
        {"{'model_type': 'olmo3', " SIZES "}", "lllg", 4096},
        {"{'model_type': 'gemma2', 'head_dim': 16, " SIZES "}", "lglg", 4096},
        {"{'model_type': 'gpt_oss', 'rope_parameters': {}, " SIZES "}", "lglg", 128},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config c;
        char layers[5] = "";
        assert_ok(read_text(&c, cases[i].text));
        for (int l = 0; l < 4; l++)
            layers[l] = c.is_local[l] ? 'l' : 'g';
        if (strcmp(layers, cases[i].layers) || c.local != cases[i].local)
            fail_msg("%s: layers %s, local %lld", cases[i].text, layers, (long long)c.local);
    }
}

/* The models' code stops there too. */
static void a_local_layer_has_a_window(void **state)
{
    (void)state;
    struct model_config c;
    assert_fails(read_text(&c, "{'model_type': 'olmo3', 'sliding_window': null, " SIZES "}"), ERR_FORMAT,
                 "\"sliding_window\" is null");
}

static void rotations_are_not_guessed(void **state)
{
    (void)state;
    struct model_config c;
#define LONG                                                                                                                     \
    "'max_position_embeddings': 64, 'rope_scaling': {'type': 'longrope', 'short_factor': [1, 1, 1, 1, 1, 1, 1, 1],"              \
    " 'long_factor': [2, 2, 2, 2, 2, 2, 2, 2]}"
    assert_fails(read_text(&c, "{'model_type': 'phi3', " SIZES ", " LONG "}"), ERR_FORMAT,
                 "\"original_max_position_embeddings\" is missing");
    assert_ok(read_text(&c, "{'model_type': 'phi3', 'original_max_position_embeddings': 16, " SIZES ", " LONG "}"));
    assert_int_equal(c.rope.original_max_position, 16);
    assert_fails(read_text(&c, "{'model_type': 'ministral3', " SIZES "}"), ERR_FORMAT, "\"rope_parameters\" is missing");
    assert_fails(read_text(&c, "{'model_type': 'gpt_oss', 'rope_scaling': null, " SIZES "}"), ERR_FORMAT, "a gpt_oss has YaRN");
    assert_fails(read_text(&c, "{'model_type': 'gpt_oss', 'rope_scaling': {}, 'rope_parameters': null, " SIZES "}"), ERR_FORMAT,
                 "a gpt_oss has YaRN");
#define YARN "{'rope_type': 'yarn', 'factor': 8.0, 'original_max_position_embeddings': 64}"
    assert_fails(read_text(&c, "{'model_type': 'olmo3', 'rope_parameters': " YARN ", " SIZES "}"), ERR_UNSUPPORTED,
                 "an object for each type of layers");
    assert_fails(
        read_text(&c, "{'model_type': 'olmo3', 'rope_parameters': {'full_attention': {}}, 'rope_scaling': " YARN ", " SIZES "}"),
        ERR_UNSUPPORTED, "leave one of them out");
    assert_ok(read_text(&c, "{'model_type': 'olmo3', 'rope_parameters': {'full_attention': " YARN
                            ", 'sliding_attention': null, 'rope_theta': null}, " SIZES "}"));
    assert_true(c.rope.kind == ROPE_YARN && c.local_rope.kind == ROPE_DEFAULT);
    assert_fails(read_text(&c, GEMMA4 " 'rope_parameters': {'rope_type': 'default', 'rope_theta': 10000.0}}"), ERR_FORMAT,
                 "must have \"full_attention\" and \"sliding_attention\"");
}

/* Fails if what finish reads of rotations is not checked: factors are read as far as pairs go. */
static void every_kind_of_layer_has_pairs_that_turn(void **state)
{
    (void)state;
    struct model_config c;
    assert_fails(read_text(&c, "{'model_type': 'gemma3_text', 'head_dim': 1024, " SIZES ", " LONG "}"), ERR_UNSUPPORTED,
                 "\"longrope\" for one type of layers");
    assert_fails(read_text(&c, "{'model_type': 'qwen3_5_text', 'head_dim': 4, " SIZES "}"), ERR_FORMAT, "leaves no pair");
    assert_fails(read_text(&c, "{'model_type': 'llama', 'head_dim': 1024, " SIZES ", " LONG "}"), ERR_FORMAT,
                 "have 8 numbers, a head has 512 pairs");
}

/* transformers writes "05" next to "11". */
static void numbers_of_layers_may_be_padded(void **state)
{
    (void)state;
    struct model_config c;
    assert_ok(read_text(&c, GEMMA4 BY_TYPE " 'per_layer_config': {'05': {'head_dim': 32}, '11': {'head_dim': 32}}}"));
    assert_int_equal(c.global_head_size, 32);
    assert_int_equal(c.local, 512);
    assert_fails(read_text(&c, GEMMA4 BY_TYPE " 'per_layer_config': {'05': {'head_dim': 8}, '11': {'head_dim': 32}}}"),
                 ERR_UNSUPPORTED, "layer 11 differs");
    assert_fails(read_text(&c, GEMMA4 BY_TYPE " 'per_layer_config': {'05': {'sliding_window': 8}}}"), ERR_UNSUPPORTED,
                 "layer 5 has a \"sliding_window\" of its own");
    assert_fails(read_text(&c, "{'model_type': 'llama', 'per_layer_config': {'1': {'rms_norm_eps': 1.0}}, " SIZES "}"),
                 ERR_UNSUPPORTED, "\"per_layer_config\"");
}

/* PaliGemma 2: its own code sets what its config.json leaves out. */
static void a_prompt_that_is_seen_whole_is_refused(void **state)
{
    (void)state;
    struct model_config c;
#define GEMMA2 "'text_config': {'model_type': 'gemma2', 'head_dim': 16, " SIZES
    assert_fails(read_text(&c, "{'model_type': 'paligemma', " GEMMA2 "}}"), ERR_UNSUPPORTED,
                 "\"use_bidirectional_attention\" of a paligemma");
    assert_ok(read_text(&c, "{'model_type': 'paligemma', " GEMMA2 ", 'use_bidirectional_attention': false}}"));
    assert_ok(read_text(&c, "{'model_type': 'other', " GEMMA2 "}}"));
}

/* Fails if the whole's "quantization_config" is looked for in the text part, or the other way round. */
static void a_text_part_may_be_quantised(void **state)
{
    (void)state;
#define TEXT "{'model_type': 'llama', " SIZES
#define NF4 "'quantization_config': {'quant_method': 'bitsandbytes', 'load_in_4bit': true, 'bnb_4bit_quant_type': 'nf4'}"
    static const char *const texts[] = {
        "{'model_type': 'llava', " NF4 ", 'text_config': " TEXT "}}",
        "{'model_type': 'llava', 'text_config': " TEXT ", " NF4 "}}",
        TEXT ", " NF4 "}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct model m;
        write_text(texts[i]);
        assert_ok(model_open(&m, dir, NULL, false));
        assert_int_equal(m.weights.quantise, WEIGHT_nf4_single);
        model_close(&m);
    }
}

/* What a model in FP8 is without its files: its scales are by tile, or by row. Seen to fail with "block_structure" unread. */
static void a_model_in_fp8_says_how_it_is_scaled(void **state)
{
    (void)state;
#define FP8(more) TEXT ", 'quantization_config': {'quant_method': " more "}}"
#define GROUP(weights) "'compressed-tensors', 'config_groups': {'g': {'weights': {" weights "}}}"
#define CHANNEL GROUP("'type': 'float', 'num_bits': 8, 'strategy': 'channel'")
    static const struct {
        const char *text;
        int type;
        const char *message;
    } cases[] = {
        {FP8("'fp8', 'weight_block_size': [128, 128], 'fmt': 'e4m3'"), WEIGHT_fp8_block, NULL},
        {FP8("'fp8', 'weight_block_size': null, 'modules_to_not_convert': ['lm_head']"), WEIGHT_fp8, NULL},
        {FP8("'fbgemm_fp8'"), WEIGHT_fp8, NULL},
        {FP8(CHANNEL), WEIGHT_fp8, NULL},
        {FP8(GROUP("'type': 'float', 'num_bits': 8, 'strategy': 'tensor'")), WEIGHT_fp8, NULL},
        {FP8(GROUP("'type': 'float', 'num_bits': 8, 'strategy': 'block', 'block_structure': [128, 128]")), WEIGHT_fp8_block,
         NULL},
        {FP8(GROUP("'type': 'int', 'num_bits': 4, 'strategy': 'group'")), 0, "FP8 by tensor, channel or block; g has another"},
        {FP8(GROUP("'type': 'float', 'num_bits': 4, 'strategy': 'channel'")), 0, "g has another"},
        {FP8("'compressed-tensors'"), 0, "has another"},
        {FP8(CHANNEL ", 'transform_config': {'config_groups': {}}, 'sparsity_config': {'format': 'dense'}"), WEIGHT_fp8, NULL},
        {FP8(CHANNEL ", 'transform_config': {'config_groups': {'R4': {'type': 'hadamard'}}}"), 0, "turns the weights"},
        {FP8(CHANNEL ", 'sparsity_config': {'format': 'sparse-24-bitmask'}"), 0, "sparse weights (sparse-24-bitmask)"},
        {FP8("'fp8', 'weight_block_size': [1, 32]"), 0, "other blocks than 128 x 128"},
        {FP8("'fp8', 'weight_block_size': [128]"), 0, "other blocks than 128 x 128"},
        {FP8("'fp8', 'fmt': 'e5m2'"), 0, "of format e5m2 are not supported"},
        {FP8("'fp8', 'modules_to_not_convert': [7]"), 0, "must be a list of names"},
        {FP8("'gptq'"), 0, "quantised by \"gptq\" are not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model m;
        write_text(cases[i].text);
        enum status status = model_open(&m, dir, NULL, false);
        if (cases[i].message) {
            assert_int_not_equal(status, OK);
            assert_non_null(strstr(status_message(), cases[i].message));
            continue;
        }
        assert_ok(status);
        assert_int_equal(m.weights.quantise, cases[i].type);
        model_close(&m);
    }
}

/* Numbers with which no model can compute: a negative epsilon makes the root of a negative number where a row is small. The
 * checks in families_read_row, family_read, read_rope and the families' own. */
static void impossible_numbers_are_refused(void **state)
{
    (void)state;
    struct model_config c;
    static const struct {
        const char *model_type, *more, *message;
    } cases[] = {
        {"llama", "'rms_norm_eps': -1", "\"rms_norm_eps\" is -1, it must be above 0"},
        {"llama", "'rms_norm_eps': 0", "\"rms_norm_eps\" is 0, it must be above 0"},
        {"llama", "'rms_norm_eps': 100000", "\"rms_norm_eps\" is 100000, it must be below 1"},
        {"granite", "'residual_multiplier': 1e300", "\"residual_multiplier\" is 1e+300, it must be above 0"},
        {"granite", "'attention_multiplier': -0.5", "\"attention_multiplier\" is -0.5, it must be above 0"},
        {"llama", "'rope_theta': 0", "\"rope_theta\" must be above 0"},
        {"llama",
         "'rope_scaling': {'rope_type': 'yarn', 'factor': 4, 'original_max_position_embeddings': 64, 'attention_factor': 0}",
         "is 0, it must be above 0"},
        {"llama",
         "'rope_scaling': {'rope_type': 'yarn', 'factor': 4, 'original_max_position_embeddings': 64, 'mscale': -90,"
         " 'mscale_all_dim': 1}",
         "it must be above 0"},
        {"ministral3",
         "'rope_parameters': {'rope_type': 'yarn', 'factor': 4, 'original_max_position_embeddings': 64,"
         " 'llama_4_scaling_beta': -1}",
         "\"llama_4_scaling_beta\" is -1, it must be at least 0"},
        {"gemma4_text", "'head_dim': 16, 'rope_parameters': {}, 'hidden_size_per_layer_input': -8",
         "\"hidden_size_per_layer_input\" is -8, it must be at least 0"},
        {"gpt_oss", "'rope_scaling': {'rope_type': 'default'}, 'swiglu_limit': 0", "\"swiglu_limit\" is 0, it must be above 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{'model_type': '%s', " SIZES ", %s}", cases[i].model_type, cases[i].more);
        assert_fails(read_text(&c, text), ERR_FORMAT, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_part_leaves_out_what_is_usual),
        cmocka_unit_test(a_missing_tie_is_the_family_s_own),
        cmocka_unit_test(windows_are_those_of_the_models_code),
        cmocka_unit_test(a_local_layer_has_a_window),
        cmocka_unit_test(rotations_are_not_guessed),
        cmocka_unit_test(every_kind_of_layer_has_pairs_that_turn),
        cmocka_unit_test(numbers_of_layers_may_be_padded),
        cmocka_unit_test(a_prompt_that_is_seen_whole_is_refused),
        cmocka_unit_test(a_text_part_may_be_quantised),
        cmocka_unit_test(a_model_in_fp8_says_how_it_is_scaled),
        cmocka_unit_test(impossible_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
