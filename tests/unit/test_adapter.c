/* format/adapter: what an adapter_config.json says about a module, what is refused, and that what is written is read again. */
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "failing.h"
#include "format/adapter.h"

#define Q0 "model.layers.0.self_attn.q_proj"
#define UP0 "model.layers.0.mlp.up_proj"
#define EXPERT "model.layers.31.mlp.experts.7.down_proj"
#define UP10 "model.layers.10.mlp.up_proj"

static char dir[64], path[128], warned[512];

static void remember(void *context, enum log_level level, const char *message)
{
    (void)context;
    if (level == LOG_WARNING)
        snprintf(warned, sizeof warned, "%s", message);
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hone-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    log_set_sink(remember, NULL);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    return directory_remove(dir) == OK ? 0 : -1;
}

static enum status open_text(struct adapter_config *config, const char *text)
{
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
    return adapter_config_open(config, dir);
}

/* A config of these members, after a type and targets. */
static enum status open_members(struct adapter_config *config, const char *members)
{
    char text[16384];
    snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", %s%s}",
             strstr(members, "target_modules") ? "" : "\"target_modules\": [\"q_proj\"], ", members);
    return open_text(config, text);
}

static const char FULL[] =
    "{\"alora_invocation_tokens\": null, \"alpha_pattern\": {\"up_proj\": 24, \"q_proj\": 0.1}, \"auto_mapping\": null,\n"
    " \"base_model_name_or_path\": \"/models/\\u00e9 \\\"x\\\"\", \"bias\": \"none\", \"corda_config\": null,\n"
    " \"exclude_modules\": null, \"fan_in_fan_out\": false, \"inference_mode\": true, \"init_lora_weights\": true,\n"
    " \"eva_config\": null, \"layer_replication\": null, \"layers_pattern\": null, \"layers_to_transform\": [],\n"
    " \"loftq_config\": {}, \"lora_alpha\": 32, \"lora_bias\": false, \"lora_dropout\": 0.05, \"megatron_config\": null,\n"
    " \"megatron_core\": \"megatron.core\", \"modules_to_save\": [\"input_layernorm\", \"model.norm\"],\n"
    " \"peft_type\": \"LORA\", \"peft_version\": \"0.21.2\", \"qalora_group_size\": 16, \"r\": 16,\n"
    " \"rank_pattern\": {\"up_proj\": 4, \"^" UP10 "\": 2}, \"revision\": null,\n"
    " \"target_modules\": [\"q_proj\", \"mlp.up_proj\", \"lm_head\"], \"task_type\": \"CAUSAL_LM\", \"use_dora\": false,\n"
    " \"use_rslora\": false}";

static void check_full(const struct adapter_config *c)
{
    assert_string_equal(c->base_model, "/models/\xc3\xa9 \"x\"");
    assert_int_equal(c->rank, 16);
    assert_true(c->alpha == 32 && c->dropout == 0.05 && !c->rslora && !c->all_linear && !c->whole);
    assert_int_equal(c->target_count, 3);
    assert_string_equal(c->targets[1], "mlp.up_proj");
    assert_int_equal(c->saved_count, 2);
    assert_string_equal(c->saved[0], "input_layernorm");
    assert_int_equal(c->rank_patterns, 2);
    assert_string_equal(c->rank_pattern[0].module, "up_proj");
    assert_int_equal(adapter_rank(c, Q0), 16);
    assert_int_equal(adapter_rank(c, UP10), 4);
    assert_true(adapter_scale(c, Q0) == 0.1 / 16 && adapter_scale(c, UP0) == 24.0 / 4);
    assert_true(adapter_scale(c, "model.layers.0.self_attn.k_proj") == 2);
}

static void a_config_is_read_and_written(void **state)
{
    (void)state;
    struct adapter_config c;
    warned[0] = 0;
    assert_ok(open_text(&c, FULL));
    check_full(&c);
    assert_ok(adapter_config_write(&c, dir));
    adapter_config_free(&c);
    assert_null(c.targets);
    struct buffer text = {0};
    assert_ok(file_read(&text, path, 1 << 20));
    assert_string_equal(text.data,
                        "{\n  \"alpha_pattern\": {\n    \"up_proj\": 24,\n    \"q_proj\": 0.1\n  },\n  \"auto_mapping\": null,\n"
                        "  \"base_model_name_or_path\": \"/models/\\u00E9 \\\"x\\\"\",\n  \"bias\": \"none\",\n"
                        "  \"fan_in_fan_out\": false,\n  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
                        "  \"layer_replication\": null,\n  \"layers_pattern\": null,\n  \"layers_to_transform\": null,\n"
                        "  \"loftq_config\": {},\n  \"lora_alpha\": 32,\n  \"lora_dropout\": 0.05,\n"
                        "  \"megatron_config\": null,\n  \"megatron_core\": \"megatron.core\",\n"
                        "  \"modules_to_save\": [\n    \"input_layernorm\",\n    \"model.norm\"\n  ],\n"
                        "  \"peft_type\": \"LORA\",\n  \"r\": 16,\n  \"rank_pattern\": {\n"
                        "    \"up_proj\": 4,\n    \"^" UP10 "\": 2\n  },\n  \"revision\": null,\n  \"target_modules\": [\n"
                        "    \"q_proj\",\n    \"mlp.up_proj\",\n    \"lm_head\"\n  ],\n  \"task_type\": \"CAUSAL_LM\",\n"
                        "  \"use_dora\": false,\n  \"use_rslora\": false\n}\n");
    buffer_free(&text);
    assert_ok(adapter_config_open(&c, dir));
    check_full(&c);
    adapter_config_free(&c);
    assert_string_equal(warned, "");
}

static void a_missing_key_has_the_default_of_peft(void **state)
{
    (void)state;
    struct adapter_config c;
    assert_ok(open_members(&c, "\"modules_to_save\": null, \"rank_pattern\": null"));
    assert_true(c.rank == 8 && c.alpha == 8 && c.dropout == 0 && !c.rslora && !c.base_model && !c.saved_count);
    assert_true(adapter_scale(&c, Q0) == 1);
    assert_ok(adapter_config_write(&c, dir));
    adapter_config_free(&c);
    assert_ok(adapter_config_open(&c, dir));
    assert_true(!c.base_model && !c.saved_count && !c.rank_patterns);
    adapter_config_free(&c);
    assert_fails(adapter_config_open(&c, "/nonexistent"), ERR_IO, "/nonexistent: no adapter there");
}

static void targets_are_names_or_ends_at_a_dot(void **state)
{
    (void)state;
    static const struct {
        const char *members, *module;
        bool targeted;
    } cases[] = {
        {"\"target_modules\": [\"q_proj\"]", Q0, true},
        {"\"target_modules\": [\"q_proj\"]", "q_proj", true},
        {"\"target_modules\": [\"proj\"]", Q0, false},
        {"\"target_modules\": [\"v_proj\", \"0.self_attn.q_proj\"]", Q0, true},
        {"\"target_modules\": [\"0.mlp.up_proj\"]", UP10, false},
        {"\"target_modules\": [\"mlp.up.proj\"]", UP0, false}, /* a list is no regular expression */
        {"\"target_modules\": [\"" Q0 "\"]", Q0, true},
        {"\"target_modules\": [\"x." Q0 "\"]", Q0, false},
        {"\"target_modules\": \"" Q0 "\"", Q0, true},
        {"\"target_modules\": \"model.layers.0.self_attn.q.proj\"", Q0, true},
        {"\"target_modules\": \"q_proj\"", Q0, false}, /* a text is matched as a whole */
        {"\"target_modules\": \"ALL-Linear\"", Q0, true},
        {"\"target_modules\": \"all-linear\"", "lm_head", false},
        {"\"target_modules\": \"all-linear\"", EXPERT, true},
        {"\"target_modules\": [\"down_proj\"]", EXPERT, true},
        {"\"target_modules\": [\"experts.7.down_proj\"]", EXPERT, true},
        {"\"target_modules\": [\"experts.77.down_proj\"]", EXPERT, false},
        {"\"target_modules\": [\"7.down_proj\"]", EXPERT, true},
        {"\"target_modules\": [\"1.mlp.experts.7.down_proj\"]", EXPERT, false},
        {"\"target_modules\": [\"lm_head\"]", "lm_head", true},
        {"\"target_modules\": \"all-linear\", \"modules_to_save\": [\"self_attn\"]", Q0, false},
        {"\"target_modules\": \"all-linear\", \"modules_to_save\": [\"0.mlp\"]", UP0, false},
        {"\"target_modules\": \"all-linear\", \"modules_to_save\": [\"0.mlp\"]", UP10, true},
        {"\"target_modules\": \"all-linear\", \"modules_to_save\": [\"self.attn\"]", Q0, false},
        {"\"target_modules\": \"all-linear\", \"modules_to_save\": [\"attn\"]", Q0, true},
        {"\"target_modules\": [\"lm_head\"], \"modules_to_save\": [\"lm_head\"]", "lm_head", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct adapter_config c;
        assert_ok(open_members(&c, cases[i].members));
        if (adapter_targets(&c, cases[i].module, "lm_head") != cases[i].targeted)
            fail_msg("%s: %s", cases[i].members, cases[i].module);
        assert_ok(adapter_config_write(&c, dir));
        adapter_config_free(&c);
        assert_ok(adapter_config_open(&c, dir));
        if (adapter_targets(&c, cases[i].module, "lm_head") != cases[i].targeted)
            fail_msg("written again, %s: %s", cases[i].members, cases[i].module);
        adapter_config_free(&c);
    }
}

static void saved_modules_are_any_ends(void **state)
{
    (void)state;
    struct adapter_config c;
    assert_ok(open_members(&c, "\"modules_to_save\": [\"norm\"]"));
    assert_true(adapter_saves(&c, "model.norm") && adapter_saves(&c, "model.layers.0.input_layernorm"));
    assert_false(adapter_saves(&c, "norm.x"));
    adapter_config_free(&c);
    assert_ok(open_members(&c, "\"modules_to_save\": [\"model.norm\"]"));
    assert_true(adapter_saves(&c, "model.norm"));
    assert_false(adapter_saves(&c, "model.layers.0.input_layernorm") || adapter_saves(&c, "norm") || adapter_saves(&c, ""));
    adapter_config_free(&c);
    assert_ok(open_members(&c, "\"modules_to_save\": [\"language_model.norm\"]"));
    assert_false(adapter_saves(&c, "model.norm"));
    c.nested = true; /* there it is called so */
    assert_true(adapter_saves(&c, "model.norm"));
    adapter_config_free(&c);
}

/* Fails if only a weight of the module itself counts, and not one of the modules inside it. */
static void weights_are_of_saved_modules_around_them(void **state)
{
    (void)state;
    struct adapter_config c;
    assert_ok(open_members(&c, "\"modules_to_save\": [\"lm_head\", \"0.mlp\"]"));
    assert_true(adapter_saves_weight(&c, "lm_head.weight") && adapter_saves_weight(&c, UP0 ".weight"));
    assert_true(adapter_saves_by(&c, 0, "lm_head.weight") && !adapter_saves_by(&c, 1, "lm_head.weight"));
    assert_false(adapter_saves_weight(&c, "model.layers.1.mlp.up_proj.weight") || adapter_saves_weight(&c, "lm_head"));
    adapter_config_free(&c);
}

static void more_saved_modules_than_any_adapter_has_are_refused(void **state)
{
    (void)state;
    struct adapter_config c;
    struct buffer text = {0};
    assert_ok(buffer_format(&text, "\"modules_to_save\": [\"a\""));
    for (int i = 0; i < ADAPTER_SAVED_MAX; i++)
        assert_ok(buffer_format(&text, ", \"a%d\"", i));
    assert_ok(buffer_format(&text, "]"));
    assert_fails(open_members(&c, text.data), ERR_LIMIT, "\"modules_to_save\" has 1025 names, at most 1024");
    buffer_free(&text);
}

static void the_first_pattern_wins(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *module;
        int rank;
    } cases[] = {
        {"\"up_proj\": 1, \"0.mlp.up_proj\": 2", UP0, 1},
        {"\"0.mlp.up_proj\": 2, \"up_proj\": 1", UP0, 2},
        {"\"0.mlp.up_proj\": 2, \"up_proj\": 1", UP10, 1},
        {"\"proj\": 1", UP0, 8},
        {"\"^up_proj\": 1", UP0, 8},
        {"\"^" UP0 "\": 1", UP0, 1},
        {"\"" UP0 "\": 1", UP0, 1},
        {"\"mlp.up.proj\": 1", UP0, 1},
        {"\"x" UP0 "\": 1", UP0, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char members[256];
        struct adapter_config c;
        snprintf(members, sizeof members, "\"rank_pattern\": {%s}, \"use_rslora\": true", cases[i].pattern);
        assert_ok(open_members(&c, members));
        if (adapter_rank(&c, cases[i].module) != cases[i].rank || adapter_scale(&c, cases[i].module) != 8 / sqrt(cases[i].rank))
            fail_msg("%s: rank %d", members, (int)adapter_rank(&c, cases[i].module));
        adapter_config_free(&c);
    }
}

static void what_is_not_computed_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"bias\": \"all\"", "\"bias\" must be \"none\""},
        {"\"bias\": \"nonE\"", "\"bias\""},
        {"\"task_type\": \"SEQ_CLS\"", "\"task_type\" must be \"CAUSAL_LM\""},
        {"\"use_dora\": true", "an adapter with \"use_dora\" is not supported"},
        {"\"fan_in_fan_out\": true", "\"fan_in_fan_out\""},
        {"\"layers_to_transform\": 0", "\"layers_to_transform\""},
        {"\"layers_to_transform\": [0]", "\"layers_to_transform\""},
        {"\"layer_replication\": [[0, 4]]", "\"layer_replication\""},
        {"\"megatron_config\": {\"a\": 1}", "\"megatron_config\""},
        {"\"exclude_modules\": \"x\"", "\"exclude_modules\""},
        {"\"init_lora_weights\": \"pissa\"", "\"init_lora_weights\" is \"pissa\""},
        {"\"init_lora_weights\": \"OLoRA\"", "\"init_lora_weights\""},
        {"\"target_modules\": \".*q_proj\"", "\"target_modules\": \".*q_proj\" is a regular expression"},
        {"\"target_modules\": null", "\"target_modules\" is missing"},
        {"\"modules_to_save\": [\"a|b\"]", "\"modules_to_save\": \"a|b\" is a regular expression"},
        {"\"rank_pattern\": {\"(a)\": 4}", "\"rank_pattern\": \"(a)\" is a regular expression"},
        {"\"alpha_pattern\": {\"a$\": 4}", "\"alpha_pattern\": \"a$\" is a regular expression"},
        {"\"alpha_pattern\": {\"^\": 4}", "\"alpha_pattern\": \"^\" is a regular expression"},
    };
    struct adapter_config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum status status = open_members(&c, cases[i][0]);
        if (status != ERR_UNSUPPORTED || !strstr(status_message(), cases[i][1]))
            fail_msg("%s: status %d, message: %s", cases[i][0], status, status_message());
    }
    assert_fails(open_text(&c, "{\"peft_type\": \"IA3\", \"target_modules\": [\"a\"]}"), ERR_UNSUPPORTED,
                 "\"peft_type\" must be \"LORA\"");
    assert_ok(open_members(&c, "\"init_lora_weights\": \"gaussian\", \"eva_config\": {\"rho\": 2.0}, \"task_type\": null"));
    adapter_config_free(&c);
}

static void unknown_keys_are_said(void **state)
{
    (void)state;
    struct adapter_config c;
    warned[0] = 0;
    assert_ok(open_members(&c, "\"new_config\": null, \"new_flag\": false, \"new_map\": {}"));
    adapter_config_free(&c);
    assert_string_equal(warned, "");
    assert_ok(open_members(&c, "\"new_size\": 16"));
    adapter_config_free(&c);
    assert_non_null(strstr(warned, "\"new_size\" is not a key that hone knows"));
}

static void broken_configs_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"r\": 0", "a rank of 0, it must be a whole number from 1 to 65536"},
        {"\"r\": -1", "a rank of -1"},
        {"\"r\": 65537", "a rank of 65537"},
        {"\"r\": 8.0", "\"r\" must be a whole number"},
        {"\"rank_pattern\": {\"a\": 0}", "a rank of 0 for a"},
        {"\"rank_pattern\": {\"a\": 1.5}", "a rank of 1.5 for a"},
        {"\"rank_pattern\": {\"a\": \"8\"}", "\"rank_pattern\": \"a\" must be a number"},
        {"\"rank_pattern\": [8]", "\"rank_pattern\" must be an object of numbers"},
        {"\"lora_alpha\": \"16\"", "\"lora_alpha\" must be a number"},
        {"\"lora_alpha\": 1e999", "line 1"},
        {"\"lora_dropout\": 1.0", "a dropout of 1, it must be from 0 to below 1"},
        {"\"lora_dropout\": -0.1", "a dropout of -0.1"},
        {"\"use_rslora\": 1", "\"use_rslora\" must be true or false"},
        {"\"target_modules\": []", "no module is targeted"},
        {"\"target_modules\": \"\"", "\"target_modules\" must hold names"},
        {"\"target_modules\": [\"\"]", "\"target_modules\" must hold names"},
        {"\"target_modules\": [\"a\\u0000b\"]", "\"target_modules\" must hold names"},
        {"\"target_modules\": [8]", "\"target_modules\" must hold names"},
        {"\"target_modules\": {}", "\"target_modules\" must be a list of names"},
        {"\"modules_to_save\": \"norm\"", "\"modules_to_save\" must be a list of names"},
        {"\"base_model_name_or_path\": 1", "\"base_model_name_or_path\" must be a string"},
    };
    struct adapter_config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum status status = open_members(&c, cases[i][0]);
        if (status != ERR_FORMAT || !strstr(status_message(), cases[i][1]))
            fail_msg("%s: status %d, message: %s", cases[i][0], status, status_message());
    }
    assert_fails(open_text(&c, "[]"), ERR_FORMAT, "adapter_config.json: the file must hold a JSON object");
    assert_fails(open_text(&c, "{\"r\": 8}"), ERR_FORMAT, "\"peft_type\" is missing");
}

static void options_give_patterns_and_targets(void **state)
{
    (void)state;
    struct adapter_config c = {.rank = 8, .alpha = 16};
    struct adapter_pattern *patterns;
    int64_t count;
    assert_ok(adapter_parse_patterns(&c.arena, "q_proj=8, ^layers.0.mlp.up_proj=4.5", "--alpha_pattern", &patterns, &count));
    assert_int_equal(count, 2);
    assert_string_equal(patterns[0].module, "q_proj");
    assert_true(patterns[0].value == 8 && patterns[1].value == 4.5);
    assert_ok(adapter_parse_patterns(&c.arena, "", "--alpha_pattern", &patterns, &count));
    assert_int_equal(count, 0);
    static const char *const bad[][2] = {
        {"q_proj", "--x: \"q_proj\" must be a module's name, '=' and a number"},
        {"q_proj=", "--x: \"q_proj=\""},
        {"a=1,q_proj=8x", "--x: \"q_proj=8x\""},
        {"q_proj=inf", "--x: \"q_proj=inf\""},
        {"a=1,", "--x: \"\" must be a module's name"},
        {"=4", "--x: \"\" is not a module's name"},
        {"q.*=4", "--x: \"q.*\" is not a module's name"},
        {"a=1,a=2", "--x: \"a\" is there twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (adapter_parse_patterns(&c.arena, bad[i][0], "--x", &patterns, &count) != ERR_ARGUMENT ||
            !strstr(status_message(), bad[i][1]))
            fail_msg("%s: %s", bad[i][0], status_message());

    assert_ok(adapter_parse_targets(&c, "All-linear", "--t"));
    assert_true(c.all_linear && adapter_targets(&c, Q0, "lm_head") && !adapter_targets(&c, "lm_head", "lm_head"));
    assert_ok(adapter_parse_targets(&c, "up_proj, 0.self_attn.q_proj", "--t"));
    assert_true(!c.all_linear && c.target_count == 2 && adapter_targets(&c, Q0, "lm_head") &&
                adapter_targets(&c, UP10, "lm_head"));
    assert_fails(adapter_parse_targets(&c, "q_proj,,v_proj", "--t"), ERR_ARGUMENT, "--t: \"\" is not a module's name");
    assert_fails(adapter_parse_targets(&c, "", "--t"), ERR_ARGUMENT, "--t: \"\"");
    assert_fails(adapter_parse_targets(&c, "q_proj,.*", "--t"), ERR_ARGUMENT, "--t: \".*\" is not a module's name");

    assert_ok(adapter_parse_targets(&c, "q_proj", "--t"));
    assert_ok(adapter_config_check(&c, ERR_ARGUMENT, "lora"));
    c.alpha = NAN;
    assert_fails(adapter_config_write(&c, dir), ERR_ARGUMENT, "an alpha of nan, it must be a finite number");
    c.alpha = 1e39; /* finite, but infinite in what it multiplies */
    assert_fails(adapter_config_check(&c, ERR_FORMAT, "lora"), ERR_FORMAT, "lora: an alpha of 1e+39, it must be a finite number");
    c.alpha = 16;
    c.base_model = "/models/\xff";
    assert_ok(adapter_config_write(&c, dir));
    c.targets[0] = "\xff";
    assert_fails(adapter_config_write(&c, dir), ERR_ARGUMENT, "adapter_config.json: a name cannot be written: it is not UTF-8");
    assert_ok(adapter_parse_patterns(&c.arena, "q_proj=1.5", "--rank_pattern", &c.rank_pattern, &c.rank_patterns));
    assert_fails(adapter_config_check(&c, ERR_ARGUMENT, "lora"), ERR_ARGUMENT, "lora: a rank of 1.5 for q_proj");
    adapter_config_free(&c);
}

static void numbers_are_written_exactly(void **state)
{
    (void)state;
    static const double numbers[] = {0.1, 1.0 / 3, 1e-7, -2.5, 1e15, 1e38, 123456789012345678.0, 5e-324, 0};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct adapter_config c = {.rank = 1, .alpha = numbers[i], .all_linear = true}, again;
        assert_ok(adapter_config_write(&c, dir));
        assert_ok(adapter_config_open(&again, dir));
        assert_true(again.alpha == numbers[i] && again.all_linear);
        adapter_config_free(&again);
    }
}

static enum status write_and_parse(const struct adapter_config *c, struct adapter_config *options)
{
    TRY(adapter_config_write(c, dir));
    TRY(adapter_parse_targets(options, "q_proj,v_proj", "--t"));
    return adapter_parse_patterns(&options->arena, "q_proj=4", "--p", &options->rank_pattern, &options->rank_patterns);
}

static enum status all_calls(void)
{
    struct adapter_config c, options = {.rank = 8, .alpha = 8};
    TRY(adapter_config_open(&c, dir));
    enum status status = write_and_parse(&c, &options);
    adapter_config_free(&options);
    adapter_config_free(&c);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_ok(file_replace(path, FULL, (int64_t)strlen(FULL)));
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        failing_end(&f, all_calls());
        struct adapter_config c;
        assert_ok(adapter_config_open(&c, dir));
        check_full(&c);
        adapter_config_free(&c);
    }
    assert_true(f.failed > 5 && !f.done_without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_is_read_and_written),
        cmocka_unit_test(a_missing_key_has_the_default_of_peft),
        cmocka_unit_test(targets_are_names_or_ends_at_a_dot),
        cmocka_unit_test(saved_modules_are_any_ends),
        cmocka_unit_test(weights_are_of_saved_modules_around_them),
        cmocka_unit_test(more_saved_modules_than_any_adapter_has_are_refused),
        cmocka_unit_test(the_first_pattern_wins),
        cmocka_unit_test(what_is_not_computed_is_refused_by_name),
        cmocka_unit_test(unknown_keys_are_said),
        cmocka_unit_test(broken_configs_are_refused),
        cmocka_unit_test(options_give_patterns_and_targets),
        cmocka_unit_test(numbers_are_written_exactly),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
