/* export: what is written holds the sum of model and adapter, and is read back. */
#include "test.h"

#include <math.h>
#include <sys/syscall.h>

#include "base/json.h"
#include "export/export.h"
#include "export/gguf_keys.h"
#include "export/modelfile.h"
#include "export_rig.h"
#include "failing.h"
#include "format/gguf.h"
#include "models/gguf_names.h"
#include "models/model_copy.h"

static enum status take_adapter(const struct export_options *o)
{
    json_t *report = NULL;
    enum status status = export_adapter(o, &report);
    json_decref(report);
    return status;
}

static float at(const struct safetensors *files, const char *name, int64_t i)
{
    const struct safetensors_tensor *t = safetensors_find(files, name);
    float value;
    assert_non_null(t);
    memcpy(&value, t->data + i * 4, sizeof value);
    return value;
}

#define Q "model.layers.0.self_attn.q_proj.weight"

/* Fails if the scale is left out, B and A are taken the wrong way round, or a tensor without a pair is changed. */
static void test_merged_weight_is_w_plus_s_b_a(void **state)
{
    (void)state;
    struct safetensors *old, *new;
    struct export_options o = options_of("merged", FILE_TYPE_AUTO);
    assert_ok(merge(&o));
    assert_ok(safetensors_open(&old, model.dir));
    assert_ok(safetensors_open(&new, output));
    for (int64_t row = 0; row < 32; row++)
        for (int64_t column = 0; column < TINY_CHANNELS; column++) {
            float sum = 0;
            for (int64_t r = 0; r < RANK_OF_PAIR; r++)
                sum += entry(row * RANK_OF_PAIR + r, 1) * entry(r * TINY_CHANNELS + column, 0);
            int64_t i = row * TINY_CHANNELS + column;
            assert_true(fabsf(at(new, Q, i) - (at(old, Q, i) + 3 * sum)) < 1e-6f);
        }
    assert_true(at(new, "lm_head.weight", 5) == at(old, "lm_head.weight", 5));
    safetensors_close(old);
    safetensors_close(new);
}

enum { EXPERTS = 3, CHOSEN = 2 };
#define DOWN "model.layers.0.mlp.experts.down_proj"

/* A gpt_oss of one layer in the place of the llama. As in the published ones the matrices of down_proj, (in, out), are square. */
static void make_gpt_oss(void)
{
    enum { C = TINY_CHANNELS, F = TINY_CHANNELS };
    static const struct {
        const char *name;
        int64_t rows, columns;
    } parts[] = {
        {"input_layernorm.weight", C, 0},
        {"post_attention_layernorm.weight", C, 0},
        {"self_attn.q_proj.weight", 32, C},
        {"self_attn.q_proj.bias", 32, 0},
        {"self_attn.k_proj.weight", 16, C},
        {"self_attn.k_proj.bias", 16, 0},
        {"self_attn.v_proj.weight", 16, C},
        {"self_attn.v_proj.bias", 16, 0},
        {"self_attn.o_proj.weight", C, 32},
        {"self_attn.o_proj.bias", C, 0},
        {"self_attn.sinks", 4, 0},
        {"mlp.router.weight", EXPERTS, C},
        {"mlp.router.bias", EXPERTS, 0},
        {"mlp.experts.gate_up_proj_bias", EXPERTS, 2 * F},
        {"mlp.experts.down_proj_bias", EXPERTS, C},
    };
    struct tiny_tensors t = {.count = 0};
    char text[1024], name[64];
    snprintf(text, sizeof text,
             "{\"model_type\": \"gpt_oss\", \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": 1, "
             "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, \"vocab_size\": %d, "
             "\"num_local_experts\": %d, \"num_experts_per_tok\": %d, \"rope_parameters\": {\"rope_type\": \"default\"}, "
             "\"dtype\": \"float32\"}",
             C, F, TINY_VOCABULARY, EXPERTS, CHOSEN);
    tiny_write(&model, "config.json", text);
    tiny_tensor(&t, "model.embed_tokens.weight", TINY_VOCABULARY, C);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(name, sizeof name, "model.layers.0.%s", parts[i].name);
        tiny_tensor(&t, name, parts[i].rows, parts[i].columns);
    }
    tiny_stack(&t, "model.layers.0.mlp.experts.gate_up_proj", EXPERTS, C, 2 * F);
    tiny_stack(&t, DOWN, EXPERTS, F, C);
    tiny_tensor(&t, "model.norm.weight", C, 0);
    tiny_tensor(&t, "lm_head.weight", TINY_VOCABULARY, C);
    tiny_save(&model, &t);
}

/* The pair that all experts of down_proj share, scaled by 3. */
static void make_expert_adapter(void)
{
    enum { RANKS = EXPERTS * RANK_OF_PAIR, N = RANKS * TINY_CHANNELS };
    static const char *const names[] = {ADAPTER_PREFIX "model.layers.0.mlp.experts.lora_A.weight",
                                        ADAPTER_PREFIX "model.layers.0.mlp.experts.lora_B.weight"};
    struct safetensors_tensor list[2];
    float data[2][N];
    char path[128];
    for (int p = 0; p < 2; p++) {
        for (int64_t i = 0; i < N; i++)
            data[p][i] = entry(i, p);
        list[p] = (struct safetensors_tensor){.name = names[p],
                                              .dtype = SAFETENSORS_F32,
                                              .rank = 2,
                                              .shape = {p ? TINY_CHANNELS : RANKS, p ? RANKS : TINY_CHANNELS},
                                              .data = (const uint8_t *)data[p],
                                              .bytes = sizeof data[p]};
    }
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", adapter);
    assert_ok(safetensors_write(path, list, 2, NULL));
    const char *parameters[] = {"mlp.experts.down_proj"};
    struct adapter_config config = {.rank = RANK_OF_PAIR, .alpha = 6, .parameters = parameters, .parameter_count = 1};
    assert_ok(adapter_config_write(&config, adapter));
}

/* Fails if matrices that have their inputs as rows are taken as others. */
static void test_experts_by_input_are_merged_so(void **state)
{
    (void)state;
    enum { C = TINY_CHANNELS };
    struct safetensors *old, *new;
    struct export_options o = options_of("experts", FILE_TYPE_AUTO);
    make_gpt_oss();
    make_expert_adapter();
    assert_ok(merge(&o));
    assert_ok(safetensors_open(&old, model.dir));
    assert_ok(safetensors_open(&new, output));
    for (int64_t i = 0; i < EXPERTS * C * C; i++) {
        int64_t e = i / (C * C), in = i / C % C, out = i % C;
        float sum = 0;
        for (int64_t r = 0; r < RANK_OF_PAIR; r++)
            sum += entry((e * RANK_OF_PAIR + r) * C + in, 0) * entry((out * RANK_OF_PAIR + r) * EXPERTS + e, 1);
        assert_true(fabsf(at(new, DOWN, i) - (at(old, DOWN, i) + 3 * sum)) < 1e-6f);
    }
    safetensors_close(old);
    safetensors_close(new);
}

/* Fails if q's rows are not interleaved in a GGUF file of a llama, or the row is taken the wrong way. */
static void test_rows_of_q_are_permuted_in_gguf(void **state)
{
    (void)state;
    struct gguf *file;
    struct safetensors *old;
    struct export_options o = options_of("base.gguf", FILE_F32);
    o.adapter = NULL;
    assert_ok(merge(&o));
    assert_ok(gguf_open(&file, output));
    assert_ok(safetensors_open(&old, model.dir));
    const struct gguf_tensor *q = gguf_tensor_find(file, "blk.0.attn_q.weight");
    assert_non_null(q);
    for (int64_t row = 0; row < 32; row++) {
        float value;
        memcpy(&value, q->data + row * TINY_CHANNELS * 4, sizeof value);
        int64_t head = row / 8, channel = row % 8, from = head * 8 + (channel % 2) * 4 + channel / 2;
        assert_true(value == at(old, Q, from * TINY_CHANNELS));
        assert_int_equal(gguf_permuted_row(row, 32, 4), from);
    }
    gguf_close(file);
    safetensors_close(old);
    assert_fails(gguf_check_heads(Q, 2, 4), ERR_FORMAT, "2 rows, which cannot be 4 heads");
    assert_fails(gguf_check_heads(Q, 0, 4), ERR_FORMAT, "0 rows, which cannot be 4 heads");
}

static double real_of(const struct gguf *file, const char *key)
{
    double value = -1;
    assert_ok(gguf_get_real(file, key, &value));
    return value;
}

/* The tiny llama is a granite too. Fails if a factor that config.json leaves out is left out of the file, where llama.cpp has
 * another one. */
static void test_factors_of_a_granite_are_written_out(void **state)
{
    (void)state;
    struct gguf *file;
    struct export_options o = options_of("granite.gguf", FILE_F32);
    o.adapter = NULL;
    tiny_write(&model, "config.json",
               "{\"model_type\": \"granite\", \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "
               "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 259, \"logits_scaling\": 8.0}");
    assert_ok(merge(&o));
    assert_ok(gguf_open(&file, output));
    assert_true(real_of(file, "granite.attention.scale") == 1 && real_of(file, "granite.embedding_scale") == 1);
    assert_true(real_of(file, "granite.residual_scale") == 1 && real_of(file, "granite.logit_scale") == 8);
    gguf_close(file);
    tiny_config(&model, "1e-5", "10000.0");
}

/* Fails if a model without caps becomes a file that llama.cpp reads as one with them. */
static void test_caps_that_a_gguf_file_cannot_say_are_refused(void **state)
{
    (void)state;
    static const char *const caps[] = {"\"gemma2\", \"attn_logit_softcapping\": null",
                                       "\"gemma2\", \"final_logit_softcapping\": null",
                                       "\"gemma3_text\", \"attn_logit_softcapping\": 50.0"};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        struct model m;
        struct gguf_head head = {0};
        const struct gguf_arch *arch;
        char text[512];
        snprintf(text, sizeof text,
                 "{\"model_type\": %s, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "
                 "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, \"vocab_size\": 259}",
                 caps[i]);
        tiny_write(&model, "config.json", text);
        assert_ok(model_open(&m, model.dir, NULL, false));
        assert_ok(gguf_keys_arch(&arch, &m));
        assert_fails(gguf_put_config(&head, &m, arch, model.dir), ERR_UNSUPPORTED, "llama.cpp caps the scores");
        gguf_head_free(&head);
        model_close(&m);
    }
    tiny_config(&model, "1e-5", "10000.0");
}

/* The Modelfile of a model that has this chat template for once. */
static void compose_by(struct buffer *text, const char *chat_template)
{
    char path[128], template[128];
    snprintf(path, sizeof path, "%s/Modelfile", model.dir);
    snprintf(template, sizeof template, "%s/chat_template.jinja", model.dir);
    struct buffer own = {0};
    assert_ok(file_read(&own, template, 1 << 20));
    tiny_write(&model, "chat_template.jinja", chat_template);
    assert_ok(modelfile_compose(text, path, "m.gguf", model.dir));
    assert_ok(buffer_append(text, "", 1));
    tiny_write(&model, "chat_template.jinja", own.data);
    buffer_free(&own);
}

/* Fails if a format is known only by its marker: Qwen3.5 has ChatML's too, and answers that begin with a thought. */
static void test_a_modelfile_writes_the_model_s_own_prompts(void **state)
{
    (void)state;
    static const struct {
        const char *template, *prompt;
    } cases[] = {
        {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
         "{{ end }}{{ end }}<|im_start|>assistant\n\"\"\"\nPARAMETER stop \"<|im_end|>\"\n"},
        {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}",
         NULL},
        {"Chat:\n{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}<|assistant|>",
         "{{ else }}<|user|>{{ .Content }}<|end|>{{ end }}{{ end }}<|assistant|>\"\"\"\n"},
        {"{{ raise_exception('no') }}<|im_start|><|im_end|>", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer text = {0};
        compose_by(&text, cases[i].template);
        assert_true(!strncmp(text.data, "FROM ./m.gguf\n", 14));
        if (!cases[i].prompt != !strstr(text.data, "TEMPLATE") || (cases[i].prompt && !strstr(text.data, cases[i].prompt)))
            fail_msg("%s", text.data);
        buffer_free(&text);
    }
}

/* Fails if Ollama is not told the message of the system that the template writes by itself, or told one of today. */
static void test_a_modelfile_has_the_default_message_of_the_system(void **state)
{
    (void)state;
#define CHATML                                                                                                                   \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"                       \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    static const struct {
        const char *template, *system;
    } cases[] = {
        {"{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are \"Tiny\".<|im_end|>\n' }}{% endif %}" CHATML,
         "PARAMETER stop \"<|im_end|>\"\nSYSTEM \"\"\"You are \"Tiny\".\"\"\"\n"},
        {"{{ bos_token }}{{ '<|im_start|>system\nTwo\nlines<|im_end|>\n' }}" CHATML, "\nSYSTEM \"\"\"Two\nlines\"\"\"\n"},
        {"{{ '<|im_start|>system\nYou are OneAI.<|im_end|>\n' }}" CHATML, "\nSYSTEM \"\"\"You are OneAI.\"\"\"\n"},
        {"{{ '<|im_start|>system\nIt is ' + strftime_now('%d %B') + '.<|im_end|>\n' }}" CHATML, NULL},
        {"{{ '<|im_start|>system\nA<|im_end|>\n<|im_start|>tool\nB<|im_end|>\n' }}" CHATML, NULL},
        {"{{ '<|im_start|>system\n\"\"\"<|im_end|>\n' }}" CHATML, NULL},
        {"{{ bos_token }}" CHATML, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer text = {0};
        compose_by(&text, cases[i].template);
        if (!strstr(text.data, "TEMPLATE") || !cases[i].system != !strstr(text.data, "SYSTEM") ||
            (cases[i].system && !strstr(text.data, cases[i].system)))
            fail_msg("%s", text.data);
        buffer_free(&text);
    }
}

/* Fails if a program that reads the merged weights would take them for codes. */
static void test_a_copy_is_not_called_quantised(void **state)
{
    (void)state;
    char to[160], path[192];
    json_t *config;
    options_of("quantised", FILE_F16);
    assert_ok(directory_make(output));
    put_file("config.json", "{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}");
    snprintf(to, sizeof to, "%s-copy", output);
    assert_ok(directory_make(to));
    assert_ok(model_copy(output, to, "float16"));
    snprintf(path, sizeof path, "%s/config.json", to);
    assert_ok(json_parse_file(&config, path, 4096));
    assert_null(json_object_get(config, "quantization_config"));
    assert_string_equal(json_string_value(json_object_get(config, "dtype")), "float16");
    json_decref(config);
}

/* Fails if trained norms are dropped from a GGUF adapter in silence. */
static void test_gguf_adapter_refuses_what_it_cannot_carry(void **state)
{
    (void)state;
    make_adapter(true);
    struct export_options o = options_of("adapter.gguf", FILE_TYPE_AUTO);
    assert_fails(take_adapter(&o), ERR_UNSUPPORTED, "hone merge");
    assert_false(file_exists(output));
    make_adapter(false);
    assert_ok(take_adapter(&o));
}

/* Fails if half a pair, or none at all, is taken for an adapter. */
static void test_an_adapter_has_pairs(void **state)
{
    (void)state;
    static const float b[32 * RANK_OF_PAIR];
    struct safetensors_tensor half = {.name = ADAPTER_PREFIX "model.layers.0.self_attn.q_proj.lora_B.weight",
                                      .dtype = SAFETENSORS_F32,
                                      .rank = 2,
                                      .shape = {32, RANK_OF_PAIR},
                                      .data = (const uint8_t *)b,
                                      .bytes = sizeof b};
    char path[128];
    struct export_options o = options_of("half.gguf", FILE_TYPE_AUTO);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", adapter);
    assert_ok(safetensors_write(path, &half, 1, NULL));
    assert_fails(take_adapter(&o), ERR_FORMAT, "q_proj.lora_B.weight does not fit");
    assert_ok(safetensors_write(path, &half, 0, NULL));
    assert_fails(take_adapter(&o), ERR_FORMAT,
                 "there is no tensor " ADAPTER_PREFIX "model.layers.0.self_attn.q_proj.lora_A.weight");
    make_adapter(false);
    assert_ok(take_adapter(&o));
}

/* Fails if v is not treated as llama.cpp treats it: joined with q and k, or that of a model of 70B. */
static void test_types_are_mixed_as_llama_cpp_mixes_them(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t columns, layer;
        bool shared;
        enum out_id type;
    } cases[] = {
        {"blk.0.attn_qkv.weight", 256, 0, false, OUT_q6_k},  {"blk.10.attn_qkv.weight", 256, 10, false, OUT_q4_k},
        {"blk.10.attn_qkv.weight", 64, 10, false, OUT_q5_0}, {"blk.10.attn_v.weight", 256, 10, true, OUT_q5_k},
        {"blk.10.attn_v.weight", 64, 10, true, OUT_q5_1},    {"blk.12.attn_v.weight", 256, 12, true, OUT_q6_k},
        {"blk.10.attn_q.weight", 256, 10, true, OUT_q4_k},   {"blk.10.attn_q.weight", 8, 10, true, OUT_f16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensor_place place = {.layer = cases[i].layer, .layers = 80, .shared = cases[i].shared};
        assert_int_equal(file_tensor_type(FILE_Q4_K_M, cases[i].name, 2, cases[i].columns, &place), cases[i].type);
    }
}

static bool touches; /* the model, whenever a file is written out */

int fsync(int fd) /* in place of the C library's */
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", model.dir);
    if (touches)
        file_touch(path);
    return (int)syscall(SYS_fsync, fd);
}

/* Fails if the files are compared after the model was closed: then none of them is known any more. */
static void test_what_a_changed_model_gave_is_not_kept(void **state)
{
    (void)state;
    static const char *const names[] = {"changed", "changed.gguf", "changed-adapter"};
    for (int i = 0; i < 3; i++) {
        struct export_options o = options_of(names[i], FILE_F16);
        touches = true;
        enum status status = i < 2 ? merge(&o) : take_adapter(&o);
        touches = false;
        assert_int_equal(status, ERR_IO);
        assert_non_null(strstr(status_message(), "model.safetensors was changed while it was in use"));
        assert_false(file_exists(output));
    }
}

/* Fails if a failed export leaves a file, or memory that is missing is not noticed. */
static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    struct export_options o = options_of("failing.gguf", FILE_Q8_0);
    while (failing_next(&f)) {
        o.overwrite = true;
        failing_begin(&f);
        enum status status = merge(&o);
        failing_end(&f, status);
        f.after += f.after / 16; /* the later ones are many and the same: rows of the session that reads the file back */
    }
    assert_true(f.failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged_weight_is_w_plus_s_b_a),
        cmocka_unit_test(test_rows_of_q_are_permuted_in_gguf),
        cmocka_unit_test(test_factors_of_a_granite_are_written_out),
        cmocka_unit_test(test_caps_that_a_gguf_file_cannot_say_are_refused),
        cmocka_unit_test(test_a_modelfile_writes_the_model_s_own_prompts),
        cmocka_unit_test(test_a_modelfile_has_the_default_message_of_the_system),
        cmocka_unit_test(test_a_copy_is_not_called_quantised),
        cmocka_unit_test(test_gguf_adapter_refuses_what_it_cannot_carry),
        cmocka_unit_test(test_an_adapter_has_pairs),
        cmocka_unit_test(test_types_are_mixed_as_llama_cpp_mixes_them),
        cmocka_unit_test(test_what_a_changed_model_gave_is_not_kept),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_experts_by_input_are_merged_so), /* the last: it makes another model of this one */
    };
    return cmocka_run_group_tests(tests, make, clean);
}
