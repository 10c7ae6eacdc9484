/* Matmuls: which code makes them, in which precision, and what must equal what. */
#include "contract.h"
#include "nf4_rig.h"
#include "product.h"
#include "trainer_rig.h"

/* --- y = x · wᵀ with its gradient ------------------------------------------------------------------------------------------- */

enum { TOKENS = 2, IN = 4, OUT = 3 };

struct linear_result {
    float y[TOKENS * OUT], dw[OUT * IN], dx[TOKENS * IN];
    int64_t kernels;
};

static float x_at(int i)
{
    return (float)i - 2;
}

/* TF32 keeps 11 bits of these. */
static float w_at(int i)
{
    return 0.5f + (float)i / 4096;
}

static float dy_at(int i)
{
    return 1e5f * (float)(1 + i) + 1.25f;
}

static void run_linear(bool tf32, struct linear_result *result)
{
    struct run r;
    run_init(&r, "cuda", RUN_FLOAT32);
    struct program *p = &r.program;
    p->tf32 = tf32;
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, (int64_t)TOKENS, (int64_t)IN);
    struct value *w = program_input(p, "w", ROLE_WEIGHT, 2, (int64_t)OUT, (int64_t)IN);
    struct value *dy = program_input(p, "dy", ROLE_STATISTIC, 2, (int64_t)TOKENS, (int64_t)OUT);
    program_want(p, w);
    program_want(p, x);
    struct value *y = linear(p, x, w);
    assert_ok(program_gradient(p, &y, &dy, 1));
    y = program_output(p, y, "y");
    struct value *dw = program_output(p, w->gradient, "dw"), *dx = program_output(p, x->gradient, "dx");
    run_prepare(&r);
    float *xs = engine_input(&r.engine, x), *ws = engine_input(&r.engine, w), *ds = engine_input(&r.engine, dy);
    for (int i = 0; i < TOKENS * IN; i++)
        xs[i] = x_at(i);
    for (int i = 0; i < OUT * IN; i++)
        ws[i] = w_at(i);
    for (int i = 0; i < TOKENS * OUT; i++)
        ds[i] = dy_at(i);
    assert_ok(engine_run(&r.engine, r.index));
    assert_ok(engine_read(&r.engine, y, result->y));
    assert_ok(engine_read(&r.engine, dw, result->dw));
    assert_ok(engine_read(&r.engine, dx, result->dx));
    result->kernels = kernels_of(r.device);
    run_free(&r);
}

static int with_tf32, without_tf32;

static cublasStatus_t see_product(cublasHandle_t handle, int operation_a, int operation_b, int m, int n, int k, const void *alpha,
                                  const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta,
                                  void *c, int type_c, int ldc, int compute, int algorithm)
{
    ++*(compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? &with_tf32 : &without_tf32);
    return genuine.cublasGemmEx(handle, operation_a, operation_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c,
                                ldc, compute, algorithm);
}

/* Seen to fail with op->gradient left out of lower_gemm: "without_tf32 > 0". */
static void tf32_is_for_the_forward_pass_and_gradients_of_1e5_stay_right(void **state)
{
    (void)state;
    for (int tf32 = 0; tf32 < 2; tf32++) {
        struct linear_result got;
        find_libraries();
        with_tf32 = without_tf32 = 0;
        cu.cublasGemmEx = see_product;
        run_linear(tf32, &got);
        cu = genuine;
        assert_true(without_tf32 > 0);
        assert_int_equal(with_tf32 > 0, tf32);
        for (int o = 0; o < OUT; o++)
            for (int i = 0; i < IN; i++) {
                double exact = 0;
                for (int t = 0; t < TOKENS; t++)
                    exact += (double)dy_at(t * OUT + o) * (double)x_at(t * IN + i);
                assert_true(fabs((double)got.dw[o * IN + i] - exact) <= 1e-6 * fabs(exact));
            }
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; i < IN; i++) {
                double exact = 0;
                for (int o = 0; o < OUT; o++)
                    exact += (double)dy_at(t * OUT + o) * (double)w_at(o * IN + i);
                assert_true(fabs((double)got.dx[t * IN + i] - exact) <= 1e-6 * fabs(exact));
            }
    }
}

/* Products of a whole training run by their forms: x · wᵀ, dy · w, dyᵀ · x, each with and without TF32; and those over the
 * vocabulary, which are the head's. */
static int forms[3][2], head[2];

static cublasStatus_t see_form(cublasHandle_t handle, int operation_a, int operation_b, int m, int n, int k, const void *alpha,
                               const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,
                               int type_c, int ldc, int compute, int algorithm)
{
    bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    forms[operation_b ? 2 : !operation_a][tf32]++;
    head[tf32] += m == TINY_VOCABULARY || n == TINY_VOCABULARY || k == TINY_VOCABULARY;
    return genuine.cublasGemmEx(handle, operation_a, operation_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c,
                                ldc, compute, algorithm);
}

/* Training computes the head's logits within its backward pass: none of its products is rounded. Seen to fail with op->gradient
 * left out of lower_gemm: dy · w with TF32. */
static void tf32_is_in_no_gradient_of_a_training_step(void **state)
{
    (void)state;
    static const char *const ways[] = {"lora", "full"};
    assert_int_equal(make_models(NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct rig r;
        find_libraries();
        memset(forms, 0, sizeof forms);
        memset(head, 0, sizeof head);
        cu.cublasGemmEx = see_form;
        open_rig(&r, &tied, 0, SETTINGS("device", "cuda", "tf32", "true", "finetuning_type", ways[i]));
        step_once(&r.t, 0.01);
        cu = genuine;
        assert_true(forms[0][1] > 0 && forms[1][0] > 0 && forms[2][0] > 0 && head[0] > 0);
        assert_int_equal(forms[1][1], 0);
        assert_int_equal(forms[2][1], 0);
        assert_int_equal(head[1], 0);
        close_rig(&r);
    }
    remove_models(NULL);
}

/* Seen to fail with cuda_gemm_takes always false: one kernel with cuBLAS too, "0x1 != 0". */
static void with_cublas_no_plain_product_is_compiled_and_the_result_is_the_same(void **state)
{
    (void)state;
    struct linear_result got[2];
    char *library = strdup(getenv("HONE_CUBLAS_LIBRARY"));
    find_libraries();
    for (int without = 0; without < 2; without++) {
        if (without) {
            setenv("HONE_CUBLAS_LIBRARY", "none", 1);
            cu.cublasGemmEx = NULL;
        }
        run_linear(false, &got[without]);
        assert_int_equal(warnings, without);
    }
    setenv("HONE_CUBLAS_LIBRARY", library, 1);
    free(library);
    assert_int_equal(got[0].kernels, 0); /* all of it is matmuls and zeros */
    assert_true(got[1].kernels > 0);
    assert_memory_equal(got[0].y, got[1].y, sizeof got[0].y);
    assert_memory_equal(got[0].dw, got[1].dw, sizeof got[0].dw);
}

/* Quantised matmuls are ours for up to 64 tokens even with cuBLAS; for more, only the weight is expanded by us. */
static void with_cublas_quantised_products_stay(void **state)
{
    (void)state;
    static const int64_t tokens[] = {1, 64, 65};
    for (int i = 0; i < 3; i++) {
        struct run r;
        run_init(&r, "cuda", RUN_FLOAT32);
        struct value *x = program_input(&r.program, "x", ROLE_ACTIVATION, 2, tokens[i], (int64_t)64);
        program_output(&r.program, linear(&r.program, x, weight(&r, 4, 64)), "y");
        run_prepare(&r);
        assert_int_equal(has_kernel(r.device, "linear_nf4"), tokens[i] <= 64);
        assert_int_equal(has_kernel(r.device, "nf4_expand"), tokens[i] > 64);
        assert_false(has_kernel(r.device, "gemm"));
        assert_int_equal(warnings, 0);
        run_free(&r);
    }
}

/* --- C += A · B is C + (A · B) ---------------------------------------------------------------------------------------------- */

enum { M = 37, N = 29, K = 70, SIDE = 70 * 70 };

static struct command sum_of(int32_t block, int a, int b, int c, int form, bool accumulate)
{
    return (struct command){
        .kind = COMMAND_GEMM,
        .operand = {{block, 4 * SIDE * a}, {block, 4 * SIDE * b}, {block, 4 * SIDE * c}, {-1, 0}, {-1, 0}},
        .gemm = {M, N, K, form & 1, form & 2, accumulate, .a = DTYPE_F32, .b = DTYPE_F32, .c = DTYPE_F32, .alpha = 1},
    };
}

/* Matrices 0 and 2 times 1 and 3, once into 4 and 5, once both into 6. Numbers are small and whole: every sum is exact. */
static void check_accumulation(const char *name, int form)
{
    struct device *device;
    struct prepared *prepared;
    int32_t block;
    static float in[4 * SIDE], out[3][SIDE];
    assert_ok(device_open(&device, name));
    assert_ok(device_alloc(device, 4 * 8 * SIDE, &block));
    struct command list[] = {sum_of(block, 0, 1, 4, form, false), sum_of(block, 2, 3, 5, form, false),
                             sum_of(block, 0, 1, 6, form, false), sum_of(block, 2, 3, 6, form, true)};
    for (int i = 0; i < 4; i++) {
        int64_t workspace = 0;
        assert_ok(device_gemm_query(device, &list[i].gemm, &workspace));
        if (workspace)
            assert_ok(device_alloc(device, workspace, &list[i].operand[GEMM_WORKSPACE].block));
    }
    assert_ok(device_prepare(device, list, 4, &prepared));
    for (int i = 0; i < 4 * SIDE; i++)
        in[i] = (float)(i * 7 % 23 - 11);
    assert_ok(device_write(device, (struct operand){block, 0}, DTYPE_F32, in, DTYPE_F32, 4 * SIDE));
    assert_ok(device_run(device, prepared));
    for (int i = 0; i < 3; i++)
        assert_ok(device_read(device, out[i], (struct operand){block, 4 * SIDE * (4 + i)}, sizeof out[i]));
    bool any = false;
    for (int i = 0; i < M * N; i++) {
        any |= out[0][i] != 0 && out[1][i] != 0;
        if (out[2][i] != out[0][i] + out[1][i])
            fail_msg("%s, form %d, element %d: %g + %g gave %g", name, form, i, (double)out[0][i], (double)out[1][i],
                     (double)out[2][i]);
    }
    assert_true(any);
    device_discard(device, prepared);
    device_close(device);
}

/* Seen to fail with `beta` always 0 in cuda_gemm_run ("cuda, form 0, element 0: -232 + 237 gave 237"), and without
 * `accumulate` in gemm.kl's last statement ("opencl, form 0, element 0: …"). */
static void accumulating_equals_the_sum_of_two_products(void **state)
{
    (void)state;
    char *library = strdup(getenv("HONE_CUBLAS_LIBRARY"));
    for (int form = 0; form < 4; form++) {
        check_accumulation("cpu", form);
        check_accumulation("opencl", form);
        setenv("HONE_CUBLAS_LIBRARY", library, 1);
        cu = genuine.cuInit ? genuine : cu;
        find_libraries();
        check_accumulation("cuda", form);
        setenv("HONE_CUBLAS_LIBRARY", "none", 1);
        cu.cublasGemmEx = NULL;
        check_accumulation("cuda", form);
    }
    setenv("HONE_CUBLAS_LIBRARY", library, 1);
    free(library);
}

static int adding; /* products with beta = 1 */

static cublasStatus_t see_beta(cublasHandle_t handle, int operation_a, int operation_b, int m, int n, int k, const void *alpha,
                               const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,
                               int type_c, int ldc, int compute, int algorithm)
{
    adding += *(const float *)beta == 1;
    return genuine.cublasGemmEx(handle, operation_a, operation_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c,
                                ldc, compute, algorithm);
}

/* Where x is read by two layers, the second part of dx is added by its product: no launch of an add. Seen to fail with `own`
 * false in gradient_products: "adding > 0". */
static void the_second_part_of_dx_is_added_by_its_product(void **state)
{
    (void)state;
    struct run r;
    find_libraries();
    run_init(&r, "cuda", RUN_FLOAT32);
    struct program *p = &r.program;
    struct value *x = program_input(p, "x", ROLE_ACTIVATION, 2, (int64_t)TOKENS, (int64_t)IN), *w[2], *dy[2], *y[2];
    program_want(p, x);
    for (int i = 0; i < 2; i++) {
        w[i] = program_input(p, i ? "w1" : "w0", ROLE_WEIGHT, 2, (int64_t)OUT, (int64_t)IN);
        dy[i] = program_input(p, i ? "dy1" : "dy0", ROLE_STATISTIC, 2, (int64_t)TOKENS, (int64_t)OUT);
        y[i] = linear(p, x, w[i]);
    }
    assert_ok(program_gradient(p, y, dy, 2));
    struct value *dx = program_output(p, x->gradient, "dx");
    adding = 0;
    cu.cublasGemmEx = see_beta;
    run_prepare(&r);
    for (int i = 0; i < 2; i++) {
        float *ws = engine_input(&r.engine, w[i]), *ds = engine_input(&r.engine, dy[i]);
        for (int j = 0; j < OUT * IN; j++)
            ws[j] = (float)(j * 7 % 11 - 5 + i);
        for (int j = 0; j < TOKENS * OUT; j++)
            ds[j] = (float)(j * 5 % 7 - 3 - i);
    }
    memset(engine_input(&r.engine, x), 0, TOKENS * IN * sizeof(float));
    assert_ok(engine_run(&r.engine, r.index));
    float *got = read_value(&r, dx);
    assert_true(adding > 0);
    assert_false(has_kernel(r.device, "add"));
    for (int t = 0; t < TOKENS; t++)
        for (int j = 0; j < IN; j++) {
            float want = 0;
            for (int i = 0; i < 2; i++)
                for (int o = 0; o < OUT; o++)
                    want += (float)((t * OUT + o) * 5 % 7 - 3 - i) * (float)((o * IN + j) * 7 % 11 - 5 + i);
            assert_float_equal(got[t * IN + j], want, 0);
        }
    test_free(got);
    cu = genuine;
    run_free(&r);
}

/* --- C is rounded once ------------------------------------------------------------------------------------------------------ */

static void check_rounding(const char *name)
{
    static const int64_t shapes[][3] = {{1, 129, 70}, {37, 29, 70}};
    static const enum dtype types[][2] = {
        {DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F32}, {DTYPE_F16, DTYPE_F16}};
    struct device *device;
    assert_ok(device_open(&device, name));
    for (int t = 0; t < 4; t++)
        for (int form = 0; form < 2 * PRODUCT_FORMS; form++) {
            struct gemm g = product_form(shapes[form % 2], types[t][0], types[t][1], form / 2);
            int64_t workspace;
            if (device_gemm_query(device, &g, &workspace) != ERR_UNSUPPORTED) /* as processors do not have every type */
                product_rounds_once(device, &g);
        }
    device_close(device);
}

/* Seen to fail with the sum rounded to C's type before alpha and the rest in gemm.kl's KEEP ("cuda, 37 x 83 x 53 into bfloat16 +
 * C, alpha 1: (0, 2) is -2544, want -2528"), with beta C added to a C that was stored in cublassim.c, with a bias that is added
 * to a bfloat16 C by kernel_of_bias, and without the launch of the bias on either device. */
static void a_result_is_rounded_once(void **state)
{
    (void)state;
    char *library = strdup(getenv("HONE_CUBLAS_LIBRARY"));
    check_rounding("cpu");
    setenv("HONE_CLBLAST_FROM", "0", 1);
    check_rounding("opencl");
    unsetenv("HONE_CLBLAST_FROM");
    check_rounding("opencl");
    find_libraries();
    check_rounding("cuda");
    setenv("HONE_CUBLAS_LIBRARY", "none", 1);
    cu.cublasGemmEx = NULL;
    check_rounding("cuda");
    setenv("HONE_CUBLAS_LIBRARY", library, 1);
    free(library);
}

/* --- Fused matmuls of quantised weights ------------------------------------------------------------------------------------- */

/* One program with the pair and the two matmuls by themselves. */
static void check_pair(const char *device, enum run_type type, int64_t T, int64_t in, int64_t out1, int64_t out2)
{
    struct run r;
    struct nf4 nf4[2];
    make_weight(&nf4[0], 3, out1 * in);
    make_weight(&nf4[1], 4, out2 * in);
    float *x = random_numbers(5, T * in, 1);
    run_init(&r, device, type);
    struct program *p = &r.program;
    struct value *input = program_input(p, "x", ROLE_ACTIVATION, 2, T, in);
    struct value *w1 = weight(&r, out1, in), *w2 = weight(&r, out2, in);
    struct value *y = linear_pair(p, input, w1, w2);
    assert_ok(program_status(p));
    struct value *results[] = {y, y->producer->out[1], linear(p, input, w1), linear(p, input, w2)};
    for (int i = 0; i < 4; i++)
        results[i] = program_output(p, results[i], "y");
    run_prepare(&r);
    put_weight(&r, w1, &nf4[0]);
    put_weight(&r, w2, &nf4[1]);
    assert_true(dtype_convert(engine_input(&r.engine, input), input->dtype, x, DTYPE_F32, T * in));
    assert_ok(engine_run(&r.engine, r.index));
    for (int i = 0; i < 2; i++) {
        void *fused = read_value(&r, results[i]), *single = read_value(&r, results[2 + i]);
        assert_memory_equal(fused, single, (size_t)value_bytes(results[i]));
        test_free(fused);
        test_free(single);
    }
    test_free(x);
    free_weight(&nf4[0]);
    free_weight(&nf4[1]);
    run_free(&r);
}

/* Gate and up, K and V; q_dim is not the number of channels. Seen to fail with scales1 in place of
 * scales2 in nf4.kl's linear_nf4_pair: "difference at offset 0". */
static void fused_quantised_products_equal_single_ones(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "opencl", "cuda"};
    for (int d = 0; d < 3; d++)
        for (enum run_type type = RUN_FLOAT32; type <= RUN_BFLOAT16; type++) {
            check_pair(devices[d], type, 17, 192, 129, 70);
            check_pair(devices[d], type, 1, 320, 64, 200);
            if (d < 2)
                check_pair(devices[d], type, 3, 2560, 4096, 1024); /* Qwen3-4B's; too large for the simulator */
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CONTRACT("with-cublas-no-plain-matmul-is-compiled", with_cublas_no_plain_product_is_compiled_and_the_result_is_the_same),
        CONTRACT("with-cublas-no-plain-matmul-is-compiled", with_cublas_quantised_products_stay),
        CONTRACT("gradients-never-use-tf32", tf32_is_for_the_forward_pass_and_gradients_of_1e5_stay_right),
        CONTRACT("gradients-never-use-tf32", tf32_is_in_no_gradient_of_a_training_step),
        CONTRACT("accumulating-equals-adding-the-product", the_second_part_of_dx_is_added_by_its_product),
        CONTRACT("accumulating-equals-adding-the-product", accumulating_equals_the_sum_of_two_products),
        CONTRACT("a-matmul-is-rounded-once", a_result_is_rounded_once),
        CONTRACT("fused-nf4-matmuls-equal-single-ones", fused_quantised_products_equal_single_ones),
    };
    return CONTRACT_MAIN(tests, NULL, NULL);
}
