/* models/gguf_base: the head of a GGUF file is read as a config.json, its tensors have Hugging Face's names, and what cannot be a
 * base is refused with its name. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "failing.h"
#include "gguf_rig.h"
#include "models/model.h"

enum { C = 32, V = 4, F = 64, ROWS_F32 = 0, ROWS_Q8_0 = 8, ROWS_IQ2_XXS = 16 };

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/hone-base-XXXXXX.gguf");
    int fd = mkstemps(path, 5);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void put_key_text(struct buffer *b, const char *key, const char *text)
{
    put_key(b, key, GGUF_TEXT);
    put_text(b, text);
}

static void put_key_int(struct buffer *b, const char *key, uint64_t number)
{
    put_key(b, key, GGUF_U32);
    put(b, number, 4);
}

static void put_key_real(struct buffer *b, const char *key, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    put_key(b, key, GGUF_F32);
    put(b, bits, 4);
}

/* What a file has that none should have. */
enum fault { NO_FAULT, TWO_NORMS, Q_WITHOUT_ROWS, EPS_NAN, SCALING_NOT_UTF8, IS_ADAPTER, IS_SPLIT };

/* Tensors of one layer; matrices of `type`. Returns their bytes. */
static uint64_t put_tensors(struct buffer *b, uint32_t type, enum fault fault)
{
    static const struct {
        const char *name;
        int64_t columns, rows;
    } tensors[] = {{"token_embd.weight", C, V},      {"output_norm.weight", C, 0},    {"rope_freqs.weight", 8, 0},
                   {"blk.0.attn_norm.weight", C, 0}, {"blk.0.ffn_norm.weight", C, 0}, {"blk.0.attn_q.weight", C, C},
                   {"blk.0.attn_k.weight", C, C},    {"blk.0.attn_v.weight", C, C},   {"blk.0.attn_output.weight", C, C},
                   {"blk.0.ffn_gate.weight", C, F},  {"blk.0.ffn_up.weight", C, F},   {"blk.0.ffn_down.weight", F, C}};
    uint64_t at = 0;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        uint64_t columns = (uint64_t)tensors[i].columns, rows = (uint64_t)tensors[i].rows;
        bool blocks = rows && type == ROWS_Q8_0, twin = fault == TWO_NORMS && !strcmp(tensors[i].name, "blk.0.ffn_norm.weight");
        put_text(b, twin ? "blk.00.attn_norm.weight" : tensors[i].name);
        if (fault == Q_WITHOUT_ROWS && !strcmp(tensors[i].name, "blk.0.attn_q.weight")) {
            put(b, 0, 4);
            put(b, 0, 4);
            put(b, at, 8);
            at += 32;
            continue;
        }
        put(b, rows ? 2 : 1, 4);
        put(b, rows && type == ROWS_IQ2_XXS ? 256 : columns, 8);
        if (rows)
            put(b, rows, 8);
        put(b, rows ? type : 0, 4);
        put(b, at, 8);
        at += (rows ? rows : 1) * (rows && type == ROWS_IQ2_XXS ? 66 : blocks ? columns / 32 * 34 : columns * 4);
        at = (at + 31) / 32 * 32;
    }
    return at;
}

static void write_faulty(const char *arch, uint32_t type, enum fault fault)
{
    struct buffer b = start_gguf(12, fault >= SCALING_NOT_UTF8 ? 11 : 10);
    put_key_text(&b, "general.architecture", arch);
    put_key_int(&b, "llama.block_count", 1);
    put_key_int(&b, "llama.context_length", 64);
    put_key_int(&b, "llama.embedding_length", C);
    put_key_int(&b, "llama.feed_forward_length", F);
    put_key_int(&b, "llama.attention.head_count", 2);
    put_key_int(&b, "llama.attention.head_count_kv", 2);
    put_key_int(&b, "llama.rope.dimension_count", 16);
    put_key_real(&b, "llama.rope.freq_base", 500000);
    put_key_real(&b, "llama.attention.layer_norm_rms_epsilon", fault == EPS_NAN ? NAN : 1e-5f);
    if (fault == SCALING_NOT_UTF8)
        put_key_text(&b, "llama.rope.scaling.type", "yarn\xff");
    if (fault == IS_ADAPTER)
        put_key_text(&b, "general.type", "adapter");
    if (fault == IS_SPLIT)
        put_key_int(&b, "split.count", 2);
    uint64_t bytes = put_tensors(&b, type, fault);
    while (b.size % 32)
        put(&b, 0, 1);
    for (uint64_t i = 0; i < bytes; i += 4)
        put(&b, 0x3c000000u + i, 4);
    assert_ok(file_replace(path, b.data, b.size));
    buffer_free(&b);
}

static void write_model(const char *arch, uint32_t type)
{
    write_faulty(arch, type, NO_FAULT);
}

/* Fails if eps keeps the float32's own digits, or if q may be used in place in the file's order. */
static void a_file_is_a_model(void **state)
{
    (void)state;
    struct model m;
    write_model("llama", ROWS_Q8_0);
    assert_ok(model_open(&m, path, NULL, false));
    assert_string_equal(m.family->model_type, "llama");
    assert_true(m.config.layers == 1 && m.config.channels == C && m.config.head_size == 16 && m.config.vocabulary == V);
    assert_true(m.config.tied && m.config.eps == 1e-5 && m.config.rope.theta == 500000);
    const struct stored *q = weights_find(&m.weights, "model.layers.0.self_attn.q_proj.weight");
    const struct stored *down = weights_find(&m.weights, "model.layers.0.mlp.down_proj.weight");
    assert_true(q && q->type == WEIGHT_q8_0 && q->heads == 2 && !q->in_place);
    assert_true(down && down->type == WEIGHT_q8_0 && !down->heads && down->in_place);
    assert_true(down->shape[0] == C && down->shape[1] == F);
    assert_non_null(weights_find(&m.weights, NET_FREQUENCIES));
    model_close(&m);
}

/* Row 1 of the file is the second channel of the first pair: row 8 of a head of 16. */
static void rows_of_q_are_put_back(void **state)
{
    (void)state;
    struct model m;
    const void *data;
    void *copy;
    enum dtype dtype;
    write_model("llama", ROWS_F32);
    assert_ok(model_open(&m, path, NULL, true));
    const struct stored *q = weights_find(&m.weights, "model.layers.0.self_attn.q_proj.weight");
    assert_ok(weights_read(q, 0, &data, &dtype, &copy));
    const char *from = q->part[0].data, *to = data;
    assert_memory_equal(to + 8 * C * 4, from + 1 * C * 4, C * 4);
    assert_memory_equal(to + 1 * C * 4, from + 2 * C * 4, C * 4);
    assert_memory_equal(to + 16 * C * 4, from + 16 * C * 4, C * 4);
    memory_free(copy);
    model_close(&m);
}

static void what_cannot_be_a_base_is_named(void **state)
{
    (void)state;
    struct model m;
    write_model("mamba", ROWS_F32);
    assert_fails(model_open(&m, path, NULL, true), ERR_UNSUPPORTED, "\"mamba\"; hone reads");
    write_model("llama", ROWS_IQ2_XXS);
    assert_fails(model_open(&m, path, NULL, true), ERR_UNSUPPORTED, "is of type IQ2_XXS");
    write_model("qwen2", ROWS_F32);
    assert_fails(model_open(&m, path, NULL, true), ERR_FORMAT, "is missing");
}

/* Fails if a key or a tensor that no program writes is taken as it stands, or stops the process. */
static void a_broken_file_is_refused(void **state)
{
    (void)state;
    struct model m;
    const void *data;
    void *copy;
    enum dtype dtype;
    write_faulty("llama", ROWS_F32, TWO_NORMS);
    assert_fails(model_open(&m, path, NULL, true), ERR_FORMAT, "two tensors for model.layers.0.input_layernorm.weight");
    write_faulty("llama", ROWS_F32, EPS_NAN);
    assert_fails(model_open(&m, path, NULL, true), ERR_FORMAT, "must be a finite number");
    write_faulty("llama", ROWS_F32, SCALING_NOT_UTF8);
    assert_fails(model_open(&m, path, NULL, true), ERR_FORMAT, "rope.scaling.type is not UTF-8");
    write_faulty("llama", ROWS_F32, IS_ADAPTER);
    assert_fails(model_open(&m, path, NULL, true), ERR_FORMAT, "is an adapter, not a model");
    write_faulty("llama", ROWS_F32, Q_WITHOUT_ROWS);
    assert_ok(model_open(&m, path, NULL, true));
    const struct stored *q = weights_find(&m.weights, "model.layers.0.self_attn.q_proj.weight");
    assert_fails(weights_read(q, 0, &data, &dtype, &copy), ERR_FORMAT, "has 0 rows, which cannot be 2 heads");
    model_close(&m);
}

/* Fails if any file of the right name is taken for a part of a split model. */
static void a_part_of_another_model_is_refused(void **state)
{
    (void)state;
    struct model m;
    char old[sizeof path], second[sizeof path + 32];
    strcpy(old, path);
    snprintf(second, sizeof second, "%.*s-00002-of-00002.gguf", (int)(strlen(old) - strlen(".gguf")), old);
    snprintf(path, sizeof path, "%.*s-00001-of-00002.gguf", (int)(strlen(old) - strlen(".gguf")), old);
    write_faulty("llama", ROWS_F32, IS_SPLIT);
    assert_ok(file_copy(path, second));
    assert_fails(model_open(&m, path, NULL, true), ERR_FORMAT, "says that it is not file 2 of 2");
    unlink(second);
    unlink(path);
    strcpy(path, old);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    write_model("llama", ROWS_Q8_0);
    struct failing f = {0};
    while (failing_next(&f)) {
        struct model m;
        failing_begin(&f);
        enum status status = model_open(&m, path, NULL, true);
        failing_end(&f, status);
        if (status == OK)
            model_close(&m);
    }
    assert_true(f.failed > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_a_model),
        cmocka_unit_test(rows_of_q_are_put_back),
        cmocka_unit_test(what_cannot_be_a_base_is_named),
        cmocka_unit_test(a_broken_file_is_refused),
        cmocka_unit_test(a_part_of_another_model_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
