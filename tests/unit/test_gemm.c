/* Matmuls on the CPU. */
#include "../device/product.h"

/* Of one row and of few, of many pieces along k and of one. */
static const int64_t shapes[][3] = {{1, 64, 64}, {3, 33, 57},   {16, 1, 129},  {16, 48, 128},
                                    {67, 5, 7},  {19, 21, 300}, {128, 65, 33}, {1024, 7, 35}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* All forms on one device: matmuls that differ in anything have plans of their own. Seen to fail with the bias added by every
 * piece of create_pieces, with alpha in the first, with bfloat16 cut along k too, and without alpha or bias in
 * device_same_gemm. */
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
            for (int form = 0; form < PRODUCT_FORMS; form++) {
                struct gemm g = product_form(shapes[s], types[t][0], types[t][1], form);
                product_rounds_once(device, &g);
            }
    }
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_exact_and_rounded_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
