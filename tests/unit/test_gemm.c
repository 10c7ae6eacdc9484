/* Matmuls on the CPU. */
#include "../device/product.h"

#include "base/parallel.h"

/* Of one row and of few, of many pieces along k and of one, of one tile and of several along rows, along columns and both; the
 * last two for hone's own code: rows of A that are packed, and sums that wait for more terms. */
static const int64_t shapes[][3] = {{1, 64, 64},   {3, 33, 57},    {16, 1, 129},   {16, 48, 128}, {67, 5, 7},
                                    {19, 21, 300}, {128, 65, 33},  {1024, 7, 35},  {300, 20, 40}, {20, 300, 40},
                                    {300, 300, 5}, {35, 50, 1024}, {257, 17, 2100}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* All forms on one device: matmuls that differ in anything have plans of their own. Seen to fail with the bias added by every
 * piece of create_pieces, with alpha in the first, with bfloat16 cut along k too, and without alpha or bias in
 * device_same_gemm; with tiles, with their bias, C or rows of a transposed A taken from the first tile; in gemm_avx512.c, with
 * sums of later terms written, not added, with A's first terms in every part, and with `columns` for `width` in pack_b. */
static void results_are_exact_and_rounded_once(void **state)
{
    (void)state;
    static const enum dtype types[][2] = {{DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F32}};
    struct device *device;
    assert_ok(device_open(&device, "cpu"));
    for (int t = 0; t < 3; t++) {
        struct gemm any = product_form(shapes[0], types[t][0], types[t][1], 0);
        int64_t workspace;
        if (device_gemm_query(device, &any, &workspace) == ERR_UNSUPPORTED) {
            print_message("%s\n", status_message());
            continue;
        }
        for (int s = 0; s < SHAPES; s++)
            for (int form = s % PRODUCT_FORM_STEP; form < PRODUCT_FORMS; form += PRODUCT_FORM_STEP) {
                struct gemm g = product_form(shapes[s], types[t][0], types[t][1], form);
                product_rounds_once(device, &g);
            }
    }
    device_close(device);
}

/* C by this many threads, on a device of its own; false: not on this processor. */
static bool run_with_threads(struct product *p, int threads)
{
    struct device *device;
    int64_t workspace;
    parallel_set_threads(threads);
    assert_ok(device_open(&device, "cpu"));
    bool can = device_gemm_query(device, p->gemm, &workspace) != ERR_UNSUPPORTED;
    if (can)
        product_run(p, device);
    device_close(device);
    return can;
}

static void check_threads(const int64_t size[3], enum dtype from, enum dtype to, int form)
{
    struct gemm g = product_form(size, from, to, form);
    struct product p = product_of(&g);
    int64_t bytes = p.count[GEMM_C] * 4;
    product_fill(&p);
    float *one = memory_alloc(bytes);
    assert_non_null(one);
    bool can = run_with_threads(&p, 1);
    memcpy(one, p.out, (size_t)bytes);
    for (int threads = 2; threads <= 4 && can; threads++) {
        run_with_threads(&p, threads);
        if (memcmp(one, p.out, (size_t)bytes) != 0)
            fail_msg("%lld x %lld x %lld, %s into %s: other bytes by %d threads", (long long)g.m, (long long)g.n, (long long)g.k,
                     dtype_name(g.a), dtype_name(g.c), threads);
    }
    memory_free(one);
    product_free(&p);
}

/* Many rows, few, one, and the gradient of a weight. Fails where oneDNN cuts its work by threads: 4 numbers of the first product
 * differed between one and two. */
static void the_bytes_are_the_same_for_any_number_of_threads(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{600, 300, 200}, {160, 1030, 96}, {1, 1536, 96}, {300, 192, 512}};
    static const int forms[] = {2, 4, 2, 5};
    int before = parallel_threads();
    check_threads((int64_t[]){1024, 576, 1536}, DTYPE_BF16, DTYPE_BF16, 2);
    for (int i = 0; i < 4; i++) {
        check_threads(sizes[i], DTYPE_F32, DTYPE_F32, forms[i]);
        check_threads(sizes[i], DTYPE_BF16, DTYPE_BF16, forms[i]);
        check_threads(sizes[i], DTYPE_BF16, DTYPE_F32, forms[i]);
    }
    parallel_set_threads(before);
}

/* As the head's gradient over a vocabulary. Seen to fail with chains of 65,536 terms in gemm_avx512.c (1.3e-11). */
static void long_float32_sums_keep_their_digits(void **state)
{
    (void)state;
    struct device *device;
    assert_ok(device_open(&device, "cpu"));
    struct gemm g = product_form((int64_t[]){32, 20, 49152}, DTYPE_F32, DTYPE_F32, 2);
    double error = product_nmse(device, &g);
    if (error > 1e-12)
        fail_msg("a normalised mean square error of %g", error);
    device_close(device);
}

/* A bfloat16 B in a float32 matmul: every form and number of rows, and the bytes of B widened beforehand where both take the same
 * code. Seen to fail with the first 8 numbers of a row's end widened as 16, and with ldb in bytes of float32. */
static void a_bfloat16_b_is_widened_exactly(void **state)
{
    (void)state;
    struct device *device;
    struct device_info info;
    assert_ok(device_open(&device, "cpu"));
    device_info(device, &info);
    for (int s = 0; s < SHAPES && info.widens; s++)
        for (int form = s % PRODUCT_FORM_STEP; form < PRODUCT_FORMS; form += PRODUCT_FORM_STEP) {
            struct gemm narrow = product_form(shapes[s], DTYPE_F32, DTYPE_F32, form), wide = narrow;
            narrow.b = DTYPE_BF16;
            product_rounds_once(device, &narrow);
            struct product p = product_of(&narrow), q = product_of(&wide);
            product_fill(&p);
            for (int m = 0; m < MATRICES; m++)
                memcpy(q.in[m], p.in[m], (size_t)p.count[m] * sizeof(float));
            product_run(&p, device);
            product_run(&q, device);
            assert_memory_equal(p.out, q.out, (size_t)p.count[GEMM_C] * sizeof(float));
            product_free(&p);
            product_free(&q);
        }
    device_close(device);
}

/* A weight's matmul and its adapter's, into the same C. */
static void check_joined(struct device *device, const int64_t size[4], enum dtype from, enum dtype to, int form)
{
    struct gemm g = product_form(size, from, to, form), second = g;
    g.k2 = second.k = size[3];
    second.lda = g.lda2 = g.lda ? size[3] + 6 : 0; /* B2 has no gaps */
    g.ldb = second.ldb = 0;
    if (!device_gemm_joins(device, &g))
        return;
    struct product p[2] = {product_of(&g), product_of(&second)};
    struct command command = {.kind = COMMAND_GEMM, .gemm = g};
    struct prepared *prepared;
    int64_t workspace, elements = size[0] * gemm_ldc(&g);
    assert_ok(device_gemm_query(device, &g, &workspace));
    product_fill(&p[0]);
    product_fill(&p[1]);
    for (int i = 0; i < GEMM_OPERANDS; i++) {
        const struct product *of = &p[i > GEMM_WORKSPACE];
        int m = i > GEMM_WORKSPACE ? i - GEMM_A2 : i;
        int64_t bytes = i == GEMM_WORKSPACE ? workspace : of->count[m] * dtype_size(of->dtype[m]);
        command.operand[i] = (struct operand){-1, 0};
        if (bytes)
            assert_ok(device_alloc(device, bytes, &command.operand[i].block));
        if (bytes && i != GEMM_WORKSPACE)
            assert_ok(device_write(device, command.operand[i], of->dtype[m], of->in[m], DTYPE_F32, of->count[m]));
    }
    assert_ok(device_prepare(device, &command, 1, &prepared));
    assert_ok(device_run(device, prepared));
    device_discard(device, prepared);
    char *raw = memory_alloc(elements * dtype_size(to));
    assert_non_null(raw);
    assert_ok(device_read(device, raw, command.operand[GEMM_C], elements * dtype_size(to)));
    dtype_convert(p[0].out, DTYPE_F32, raw, to, elements);
    double error = 0, all = 0;
    for (int64_t i = 0; i < elements; i++) {
        int64_t row = i / gemm_ldc(&g), column = i % gemm_ldc(&g);
        if (column >= size[1] || (row + column) % PRODUCT_STEP)
            continue;
        double right = (g.accumulate ? (double)p[0].in[GEMM_C][i] : 0) + (g.bias ? (double)p[0].in[GEMM_BIAS][column] : 0) +
                       product_sum(&p[0], row, column) + product_sum(&p[1], row, column);
        error += ((double)p[0].out[i] - right) * ((double)p[0].out[i] - right);
        all += right * right;
    }
    if (error > (to == DTYPE_F32 ? 1e-12 : 1e-5) * all)
        fail_msg("%lld x %lld x (%lld + %lld), %s into %s: a normalised mean square error of %g", (long long)size[0],
                 (long long)size[1], (long long)size[2], (long long)size[3], dtype_name(from), dtype_name(to), error / all);
    memory_free(raw);
    for (int i = 0; i < GEMM_OPERANDS; i++)
        if (command.operand[i].block >= 0)
            device_release(device, command.operand[i].block);
    product_free(&p[0]);
    product_free(&p[1]);
}

/* Seen to fail with the second product's columns packed over the first's, with its rows from the first on in every piece, with it
 * in every part of long sums, with C not added, and with the upper tile's rows in place of the lower's where A is read as it
 * lies. */
static void matmuls_are_joined(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{96, 70, 96, 16}, {70, 50, 40, 8}, {64, 33, 2112, 64}, {300, 70, 700, 33}};
    static const enum dtype types[][2] = {{DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F32}};
    struct device *device;
    assert_ok(device_open(&device, "cpu"));
    for (int t = 0; t < 3; t++)
        for (int s = 0; s < 4; s++)
            for (int form = 0; form < PRODUCT_FORMS; form += 2) /* A as it is: with nothing, C, a bias, both; then with gaps */
                if (form % 20 < 16)
                    check_joined(device, sizes[s], types[t][0], types[t][1], form);
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bfloat16_b_is_widened_exactly),
        cmocka_unit_test(long_float32_sums_keep_their_digits),
        cmocka_unit_test(matmuls_are_joined),
        cmocka_unit_test(results_are_exact_and_rounded_once),
        cmocka_unit_test(the_bytes_are_the_same_for_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
