/* Cards that are not there: their table, their rates, and files of measured ones. */
#include "device/kernel_list.h"
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"

/* A row with a rate that is not dense, or in other units, would not pass. */
static void every_card_has_rates_that_belong_together(void **state)
{
    (void)state;
    struct gpu_spec card;
    int count = 0;
    for (; gpu_spec_at(count, &card); count++) {
        double clock = card.peak[CARD_F32] / (card.units * card.lanes * 2e9); /* GHz */
        assert_true(clock > 1.3 && clock < 2.7);
        assert_true(card.peak[CARD_BF16] == 0 || card.peak[CARD_BF16] == card.peak[CARD_F16]);
        assert_true(card.peak[CARD_TF32] == 0 || card.peak[CARD_TF32] > 0.49 * card.peak[CARD_BF16]);
        assert_true(card.bandwidth >= 270e9 && card.bandwidth <= 8e12);
        assert_true(card.link >= 15.7e9 && card.link <= 64e9);
        assert_true(gpu_spec_bytes(&card, WORK_copy) == 0.8 * card.link);
        assert_true(card.matmul >= 0.5 && card.matmul < 1);
        assert_true(card.source[0] && card.matmul_source[0]);
        assert_int_equal(card.bf16, card.target >= 80);
    }
    assert_int_equal(count, 10);
    assert_fails(gpu_spec_open(&card, "rtx9090"), ERR_ARGUMENT, "use one of t4, a10");
    for (int i = 0; i < WORK_COUNT; i++)
        assert_true(work_kinds[i].share > 0 || work_kinds[i].rate <= CARD_F32);
}

/* Tiles of 128 x 128 over 128 multiprocessors: full rounds, half a round, a padded tile, a cut k. */
static void a_matmul_fills_as_much_of_a_card_as_it_has_tiles(void **state)
{
    (void)state;
    struct gpu_spec card;
    assert_ok(gpu_spec_open(&card, "rtx4090"));
    const struct {
        struct gemm gemm;
        double filled;
    } rows[] = {
        {{.m = 4096, .n = 4096, .k = 4096}, 1},
        {{.m = 1024, .n = 1024, .k = 256}, 0.5},
        {{.m = 1024, .n = 1024, .k = 1024}, 1},
        {{.m = 4096, .n = 14336 + 1, .k = 64}, (14336 + 1) / (113.0 * 128) * (32.0 * 113) / (29 * 128)},
        {{.m = 4096, .n = 16, .k = 64}, 0.5 * 0.25},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_float_equal((float)gpu_spec_filled(&card, &rows[i].gemm), (float)rows[i].filled, 1e-6F);
    card.measured = true;
    assert_true(gpu_spec_filled(&card, &rows[1].gemm) == 1);
}

static void a_type_without_tensor_cores_goes_to_the_ordinary_ones(void **state)
{
    (void)state;
    struct gpu_spec t4;
    assert_ok(gpu_spec_open(&t4, "t4"));
    assert_true(gpu_spec_peak(&t4, WORK_matmul_bfloat16, DTYPE_BF16) == t4.peak[CARD_F32]);
    assert_true(gpu_spec_peak(&t4, WORK_matmul_float16, DTYPE_F16) == t4.peak[CARD_F16]);
    assert_true(gpu_spec_peak(&t4, WORK_attention_mma, DTYPE_F16) == t4.peak[CARD_F16]);
    assert_true(gpu_spec_peak(&t4, WORK_memory, DTYPE_F16) == 0);
    assert_true(gpu_spec_bytes(&t4, WORK_expand) < gpu_spec_bytes(&t4, WORK_memory));
    assert_true(gpu_spec_bytes(&t4, WORK_attention) == gpu_spec_bytes(&t4, WORK_memory));
}

static void a_measured_card_comes_back_from_its_file(void **state)
{
    (void)state;
    struct gpu_spec card = {.words = "NVIDIA GeForce RTX 4090 (compute capability 8.9)",
                            .target = 89,
                            .bf16 = true,
                            .memory = 1 << 30,
                            .units = 7,
                            .gap = 2e-6,
                            .measured = true,
                            .stand_in = true},
                    read;
    card.rate[WORK_matmul_bfloat16] = 1e14;
    card.rate[WORK_memory] = 5e11;
    json_t *tree = gpu_spec_json(&card);
    char *text = json_dumps(tree, JSON_REAL_PRECISION(17));
    char path[] = "/tmp/hone-card-XXXXXX";
    close(mkstemp(path));
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
    assert_ok(gpu_spec_open(&read, path));
    assert_string_equal(read.words, card.words);
    assert_memory_equal(read.rate, card.rate, sizeof card.rate);
    assert_true(read.measured && read.stand_in && read.bf16 && read.target == 89 && read.memory == 1 << 30 && read.gap == 2e-6);
    assert_true(read.bandwidth == 1008e9); /* its name is in cards.def */
    assert_true(gpu_spec_flops(&read, WORK_matmul_bfloat16, DTYPE_BF16) == 1e14 &&
                gpu_spec_bytes(&read, WORK_matmul_bfloat16) == 0);
    static const char broken[] = "{\"format\": \"hone calibration 1\", \"memory_bytes\": 0}";
    assert_ok(file_replace(path, broken, sizeof broken - 1));
    assert_fails(gpu_spec_read(&read, path), ERR_FORMAT, "no device can have");
    remove(path);
    free(text);
    json_decref(tree);
}

static void a_device_stands_for_a_card(void **state)
{
    (void)state;
    struct device *device;
    struct device_info info;
    assert_ok(device_open(&device, "kernels:l4"));
    device_info(device, &info);
    assert_true(info.memory == (int64_t)23034 << 20 && info.bf16 && info.max_block > info.memory);
    assert_string_equal(kernel_list_card(device)->name, "l4");
    device_close(device);
    assert_ok(device_open(&device, "kernels"));
    assert_null(kernel_list_card(device));
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_card_has_rates_that_belong_together),
        cmocka_unit_test(a_matmul_fills_as_much_of_a_card_as_it_has_tiles),
        cmocka_unit_test(a_type_without_tensor_cores_goes_to_the_ordinary_ones),
        cmocka_unit_test(a_measured_card_comes_back_from_its_file),
        cmocka_unit_test(a_device_stands_for_a_card),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
