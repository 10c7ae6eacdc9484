/* The list of kernels that programs need, as hone kernels shows it. */
#include "test.h"

#include "device/kernel_list.h"
#include "device/kernel_signatures.h"
#include "failing.h"
#include "hone.h"
#include "ops/ops.h"
#include "tensor/lower.h"
#include "tiny_model.h"

static struct tiny_model model;

static int set_up(void **state)
{
    *state = &model;
    tiny_model_make(&model, false);
    return 0;
}

static hone_options *make_options(void)
{
    hone_options *o;
    assert_int_equal(hone_options_create(&o, "kernels"), HONE_OK);
    assert_int_equal(hone_options_set(o, "model", model.dir), HONE_OK);
    return o;
}

static struct command launch_of(const struct kernel *kernel, enum dtype dtype)
{
    struct command c = {.kind = COMMAND_LAUNCH, .launch = {.kernel = kernel, .dtype = {dtype, dtype}, .rows = 1, .block = 1}};
    for (int i = 2; i < OPERANDS; i++)
        c.operand[i].block = -1;
    return c;
}

static void a_variant_is_listed_once_and_nothing_runs(void **state)
{
    (void)state;
    static const struct kernel cast = {SIGNATURE_cast, .group = 256, .rows = 256};
    static const struct kernel nowhere = {"nowhere", NULL, .file = "nowhere", .group = 64, .rows = 1};
    struct device *device;
    struct prepared *prepared;
    int32_t block;
    int64_t workspace = 1;
    assert_ok(device_open(&device, "kernels"));
    assert_ok(device_alloc(device, INT64_MAX, &block));
    struct command commands[] = {launch_of(&cast, DTYPE_F32),
                                 launch_of(&cast, DTYPE_BF16),
                                 launch_of(&cast, DTYPE_F32),
                                 {.kind = COMMAND_FILL},
                                 {.kind = COMMAND_GEMM, .gemm = {.m = 1, .n = 9, .k = 9, .alpha = 1}},
                                 {.kind = COMMAND_GEMM, .gemm = {.m = 2, .n = 7, .k = 5, .alpha = 2}},
                                 {.kind = COMMAND_GEMM, .gemm = {.m = 99, .n = 9, .k = 9}}};
    assert_ok(device_prepare(device, commands, 7, &prepared));
    const struct kernel_list *list = kernel_list_of(device);
    assert_int_equal(list->count, 4); /* two casts, and the product of few rows and of many */
    assert_string_equal(list->need[1].kernel->name, "cast");
    assert_non_null(strstr(list->need[1].options, "-DTYPE_0=bf16"));
    assert_string_equal(list->need[2].kernel->name, "gemm");
    assert_ok(device_gemm_query(device, &commands[4].gemm, &workspace));
    assert_int_equal(workspace, 0);
    struct command missing = launch_of(&nowhere, DTYPE_F32);
    struct operand at = {block, 0};
    float x = 0;
    assert_fails(device_prepare(device, &missing, 1, &prepared), ERR_UNSUPPORTED, "nowhere");
    assert_fails(device_write(device, at, DTYPE_F32, &x, DTYPE_F32, 1), ERR_INTERNAL, "only lists");
    assert_fails(device_read(device, &x, at, 4), ERR_INTERNAL, "only lists");
    assert_fails(device_run(device, NULL), ERR_INTERNAL, "only lists");
    device_release(device, block);
    device_close(device);
}

/* Seen to fail without kernel_of_bias in add_gemm, and with a workspace of 0 in gemm_query. */
static void a_bias_needs_a_kernel_after_a_librarys_product(void **state)
{
    (void)state;
    struct device *device;
    struct prepared *prepared;
    int64_t workspace;
    struct command command = {.kind = COMMAND_GEMM,
                              .gemm = {.m = 5, .n = 9, .k = 9, .bias = true, .a = DTYPE_BF16, .b = DTYPE_BF16, .c = DTYPE_BF16}};
    assert_ok(device_open(&device, "kernels"));
    assert_ok(device_gemm_query(device, &command.gemm, &workspace));
    assert_int_equal(workspace, 5 * 9 * 4);
    assert_ok(device_prepare(device, &command, 1, &prepared));
    const struct kernel_list *list = kernel_list_of(device);
    assert_int_equal(list->count, 2);
    assert_string_equal(list->need[0].kernel->name, "gemm");
    assert_non_null(strstr(list->need[0].options, "-DTYPE_3=bf16 -DHAS_3=1"));
    assert_string_equal(list->need[1].kernel->name, "gemm_bias");
    assert_non_null(strstr(list->need[1].options, "-DTYPE_0=f32 -DHAS_0=1 -DTYPE_1=bf16 -DHAS_1=1 -DTYPE_2=bf16 -DHAS_2=1"));
    device_close(device);
}

/* The row of a matmul for a CPU, which has vectors, and of one for a GPU. */
static void a_processor_has_its_own_product(void **state)
{
    (void)state;
    struct command launch, product = {.kind = COMMAND_GEMM, .gemm = {.m = 5, .n = 9, .k = 9}};
    kernel_of_gemm(&launch, &product, 0, true);
    assert_string_equal(launch.launch.kernel->name, "gemm_processor");
    kernel_of_gemm(&launch, &product, 0, false);
    assert_string_equal(launch.launch.kernel->name, "gemm");
}

/* Seen to fail without the comparison in lower_launch. */
static void an_op_that_does_not_fit_its_kernel_is_refused(void **state)
{
    (void)state;
    const struct op *table[OP_COUNT];
    struct op wrong = *ops_table[OP_add];
    struct device *device;
    struct program program;
    struct lowering lowering;
    memcpy(table, ops_table, sizeof table);
    table[OP_add] = &wrong;
    assert_ok(device_open(&device, "kernels"));
    for (int extra = -1; extra <= 1; extra++) {
        wrong.kernel.operands = ops_table[OP_add]->kernel.operands + extra;
        program_init(&program, table, RUN_FLOAT32);
        struct value *x = program_input(&program, "x", ROLE_ACTIVATION, 1, (int64_t)8);
        add(&program, x, x);
        if (extra)
            assert_fails(lower_program(&lowering, &program, device), ERR_INTERNAL, "add: kernel add takes");
        else
            assert_ok(lower_program(&lowering, &program, device));
        lower_free(&lowering);
        program_free(&program);
    }
    device_close(device);
}

static void what_a_model_needs_is_told_as_json(void **state)
{
    (void)state;
    hone_options *o = make_options();
    char *json = NULL;
    assert_int_equal(hone_kernels_list(o, &json), HONE_OK);
    assert_non_null(strstr(json, "\"attention_bwd_kv\""));
    assert_non_null(strstr(json, "\"attention_split\""));
    hone_text_destroy(json);
    assert_int_equal(hone_kernels_build(o, &json), HONE_ERR_ARGUMENT);
    assert_non_null(strstr(hone_error(), "--output"));
    assert_int_equal(hone_options_set(o, "output", "/nowhere/kernels"), HONE_OK);
    assert_int_equal(hone_kernels_build(o, &json), HONE_ERR_ARGUMENT);
    assert_non_null(strstr(hone_error(), "--target"));
    hone_options_destroy(o);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    hone_options *o = make_options();
    char *json = NULL;
    assert_int_equal(hone_options_set(o, "dtype", "float32"), HONE_OK);
    struct failing f = {0};
    while (failing_next(&f)) {
        f.after += f.after / 50;
        failing_begin(&f);
        failing_end(&f, (enum status)hone_kernels_list(o, &json));
        hone_text_destroy(json);
    }
    print_message("of %lld allocations %lld can be done without\n", (long long)f.made, (long long)f.done_without);
    assert_true(f.failed > 20 && f.done_without <= 10); /* of the limits of memory, which are read from files */
    hone_options_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_variant_is_listed_once_and_nothing_runs),
        cmocka_unit_test(a_bias_needs_a_kernel_after_a_librarys_product),
        cmocka_unit_test(a_processor_has_its_own_product),
        cmocka_unit_test(an_op_that_does_not_fit_its_kernel_is_refused),
        cmocka_unit_test(what_a_model_needs_is_told_as_json),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, set_up, tiny_model_teardown);
}
