/* The CUDA device on the simulator (tools/cudasim): lists, copies, the cache of compiled kernels. What the reference promises is
 * tested in tests/contract. */
#include "cuda_rig.h"
#include "product.h"

/* --- opening -------------------------------------------------------------------------------------------------------------- */

static void open_number(const char *name, const char *says)
{
    struct device *device;
    struct device_info info;
    assert_ok(device_open(&device, name));
    device_info(device, &info);
    assert_non_null(strstr(info.name, says));
    device_close(device);
}

/* Seen to fail with cuDeviceGet asked for device 0, and without the comparison with the count. */
static void a_number_chooses_among_the_cards(void **state)
{
    (void)state;
    struct device *device;
    open_number("cuda:0", "cudasim 8.9 (");
    assert_fails(device_open(&device, "cuda:1"), ERR_DEVICE, "there is no device cuda:1: this machine has 1 of them");
    setenv("CUDASIM_DEVICES", "3", 1);
    open_number("cuda", "cudasim 8.9 (");
    open_number("cuda:2", "cudasim 8.9, number 2 (");
    assert_fails(device_open(&device, "cuda:3"), ERR_DEVICE, "this machine has 3 of them");
    unsetenv("CUDASIM_DEVICES");
}

static void an_id_chooses_among_the_cards(void **state)
{
    (void)state;
    struct device *device;
    struct device_info info;
    setenv("CUDASIM_DEVICES", "3", 1);
    assert_int_equal(device_count("cuda"), 3);
    assert_ok(device_open(&device, "cuda:2"));
    device_info(device, &info);
    device_close(device);
    assert_string_equal(info.id, "GPU-0c1c2c3c-4c5c-6c7c-8c9c-acbcccdcec02");
    char name[64];
    snprintf(name, sizeof name, "cuda:%s", info.id);
    open_number(name, "number 2 (");
    open_number("cuda:gpu-0C1C2C3C-4c5c-6c7c-8c9c-acbcccdcec01", "number 1 (");
    assert_fails(device_open(&device, "cuda:GPU-0c1c"), ERR_DEVICE, "the ids of 3 cards begin with GPU-0c1c");
    assert_fails(device_open(&device, "cuda:GPU-77"), ERR_DEVICE, "hone devices prints them");
    assert_fails(device_open(&device, "cuda:GPU-"), ERR_DEVICE, "0 cards");
    assert_fails(device_open(&device, "cuda:x"), ERR_ARGUMENT, "or an id that hone devices prints");
    unsetenv("CUDASIM_DEVICES");
}

/* --- graphs --------------------------------------------------------------------------------------------------------------- */

static void a_list_is_one_launch_unless_told_otherwise(void **state)
{
    (void)state;
    static const struct {
        enum device_graph option;
        const char *environment;
        int graphs;
    } cases[] = {{DEVICE_GRAPH_AUTO, NULL, 1},
                 {DEVICE_GRAPH_AUTO, "0", 0},
                 {DEVICE_GRAPH_AUTO, "1", 1},
                 {DEVICE_GRAPH_ON, "0", 1},
                 {DEVICE_GRAPH_OFF, "1", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sums s;
        struct device *device = open_device();
        device->options.cuda_graph = cases[i].option;
        if (cases[i].environment)
            setenv("CUDA_GRAPH", cases[i].environment, 1);
        prepare_sums(&s, device);
        run_sums(&s, 1);
        assert_int_equal(device->counters.graph_launches, cases[i].graphs);
        assert_int_equal(device->counters.launches, cases[i].graphs ? 0 : 2);
        drop_sums(&s);
        unsetenv("CUDA_GRAPH");
    }
    assert_int_equal(warnings, 0);
}

/* Seen to fail with cuda_wait called from run. */
static void a_run_allocates_loads_and_waits_for_nothing(void **state)
{
    (void)state;
    static const char *const still[] = {"allocs", "pinned_allocs", "modules", "captures", "frees"};
    long long before[5], syncs, copies;
    struct sums s;
    prepare_sums(&s, open_device());
    run_sums(&s, 1);
    for (int i = 0; i < 5; i++)
        before[i] = simulator_count(still[i]);
    struct device_counters counters = s.device->counters;
    float x[2 * SUMS] = {0};
    syncs = simulator_count("syncs");
    copies = simulator_count("copies_h2d");
    assert_ok(device_write(s.device, (struct operand){s.block, 0}, DTYPE_F32, x, DTYPE_F32, 2 * SUMS));
    assert_ok(device_run(s.device, s.prepared));
    assert_int_equal(simulator_count("syncs"), syncs);
    run_sums(&s, 2);
    assert_int_equal(simulator_count("copies_h2d"), copies + 2);
    for (int i = 0; i < 5; i++)
        assert_int_equal(simulator_count(still[i]), before[i]);
    assert_int_equal(s.device->counters.allocations, counters.allocations);
    assert_int_equal(s.device->counters.compiled + s.device->counters.loaded, counters.compiled + counters.loaded);
    assert_int_equal(s.device->counters.reads, counters.reads + 1);
    drop_sums(&s);
}

/* --- modules -------------------------------------------------------------------------------------------------------------- */

/* Flips a bit of the only entry, so many fifths into it. */
static void damage_entry(int fifths)
{
    struct arena arena = {0};
    struct buffer bytes = {0};
    const char **names;
    int64_t count;
    assert_ok(directory_list(&arena, kernels_dir, &names, &count));
    assert_int_equal(count, 1);
    const char *file = file_join(&arena, kernels_dir, names[0]);
    assert_ok(file_read(&bytes, file, 1 << 24));
    bytes.data[fifths * (bytes.size - 1) / 5] ^= 4;
    assert_ok(file_replace(file, bytes.data, bytes.size));
    buffer_free(&bytes);
    arena_free(&arena);
}

/* Seen to fail without the comparison of contents in is_right of kernel_cache.c: a damaged entry was loaded. */
static void a_second_start_compiles_nothing_and_a_damaged_entry_is_made_again(void **state)
{
    (void)state;
    own_cache();
    for (int pass = 0; pass < 14; pass++) {
        struct sums s;
        bool damaged = pass >= 2 && pass % 2 == 0;
        if (damaged)
            damage_entry(pass / 2 - 1);
        warnings = 0;
        prepare_sums(&s, open_device());
        run_sums(&s, 1);
        assert_int_equal(s.device->counters.compiled, pass % 2 == 0);
        assert_int_equal(s.device->counters.loaded, pass % 2 == 1);
        assert_int_equal(warnings, damaged);
        drop_sums(&s);
    }
}

/* --- copies --------------------------------------------------------------------------------------------------------------- */

static void writes_larger_than_the_ring_arrive_whole(void **state)
{
    (void)state;
    enum { COUNT = 3 * CUDA_PINNED / 4 + 5 };
    struct device *device = open_device();
    int32_t block, *from = memory_alloc(COUNT * 4), *back = memory_alloc(COUNT * 4);
    assert_ok(device_alloc(device, COUNT * 4, &block));
    for (int i = 0; i < COUNT; i++)
        from[i] = i * 7;
    assert_ok(device_write(device, (struct operand){block, 0}, DTYPE_I32, from, DTYPE_I32, COUNT));
    assert_ok(device_read(device, back, (struct operand){block, 0}, COUNT * 4));
    assert_memory_equal(from, back, COUNT * 4);
    assert_int_equal(device->counters.writes, 4);
    memory_free(from);
    memory_free(back);
    device_close(device);
}

/* The value of the run before the read, although another one is enqueued after it; and nothing waits for that one. Seen to fail
 * with one pinned buffer for both slots, and with cuda_wait in cuda_read_wait. */
static void a_read_for_later_is_of_the_run_before_it(void **state)
{
    (void)state;
    struct sums s;
    float x[2 * SUMS] = {0};
    const void *seen;
    prepare_sums(&s, open_device());
    assert_ok(device_later_open(s.device, 4 * SUMS));
    run_sums(&s, 1);
    struct device_counters before = s.device->counters;
    long long pinned = simulator_count("pinned_allocs");
    for (int run = 0; run < 5; run++) {
        for (int i = 0; i < SUMS; i++)
            x[i] = (float)(100 * run + i);
        assert_ok(device_write(s.device, (struct operand){s.block, 0}, DTYPE_F32, x, DTYPE_F32, 2 * SUMS));
        assert_ok(device_run(s.device, s.prepared));
        assert_ok(device_read_later(s.device, run % DEVICE_LATER, (struct operand){s.block, 12 * SUMS}, 4 * SUMS));
        if (!run)
            continue;
        assert_ok(device_read_wait(s.device, (run - 1) % DEVICE_LATER, &seen));
        assert_float_equal(((const float *)seen)[9], (float)(2 * (100 * (run - 1) + 9)), 0);
    }
    const void *last;
    assert_ok(device_read_wait(s.device, 4 % DEVICE_LATER, &last));
    for (int i = 0; i < SUMS; i++) {
        assert_float_equal(((const float *)last)[i], (float)(2 * (100 * 4 + i)), 0);
        assert_float_equal(((const float *)seen)[i], (float)(2 * (100 * 3 + i)), 0);
    }
    assert_int_equal(s.device->counters.syncs, before.syncs);
    assert_int_equal(s.device->counters.waits, before.waits + 5);
    assert_int_equal(s.device->counters.reads, before.reads + 5);
    assert_int_equal(simulator_count("pinned_allocs"), pinned);
    drop_sums(&s);
}

/* --- matmuls -------------------------------------------------------------------------------------------------------------- */

/* The product goes to the workspace, and a kernel that was loaded with it adds and rounds. Seen to fail with a workspace of 0 in
 * gemm_query, and without the launch in issue_step. */
static void a_bias_is_added_by_its_matmul(void **state)
{
    (void)state;
    static const int64_t size[] = {5, 67, 33};
    struct gemm g = product_form(size, DTYPE_BF16, DTYPE_BF16, 12), other = product_form(size, DTYPE_BF16, DTYPE_F32, 12);
    struct command command = {.kind = COMMAND_GEMM, .gemm = other};
    struct prepared *prepared;
    int64_t workspace;
    struct device *device = open_device();
    device->options.cuda_graph = DEVICE_GRAPH_ON;
    assert_ok(device_gemm_query(device, &g, &workspace));
    assert_int_equal(workspace, 5 * 67 * 4);
    assert_ok(device_gemm_query(device, &other, &workspace));
    assert_int_equal(workspace, 0);
    product_rounds_once(device, &g);
    device->sealed = true;
    product_rounds_once(device, &g);
    assert_int_equal(device->counters.compiled + device->counters.loaded, 1);
    assert_int_equal(device->counters.graph_launches, 2);
    assert_int_equal(device->counters.launches, 0);
    assert_fails(device_prepare(device, &command, 1, &prepared), ERR_INTERNAL, "kernel gemm_bias would be compiled");
    device_close(device);
    assert_int_equal(warnings, 0);
}

/* cuBLAS has other kernels for addresses that are no multiples of 16, as the adapters of rank 4 in 16 bits have them. Seen to
 * fail with only device_same_gemm in has_run. */
static void a_product_runs_once_at_every_alignment_before_it_is_captured(void **state)
{
    (void)state;
    struct command commands[4];
    struct prepared *prepared;
    int32_t block;
    struct device *device = open_device();
    assert_ok(device_alloc(device, 4096, &block));
    for (int i = 0; i < 4; i++)
        commands[i] = (struct command){
            .kind = COMMAND_GEMM,
            .operand = {{block, 8 * i}, {block, 1024}, {block, 2048 + i % 2 * 8}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}},
            .gemm = {.m = 8, .n = 8, .k = 4, .lda = 12, .a = DTYPE_BF16, .b = DTYPE_BF16, .c = DTYPE_F32, .alpha = 1}};
    assert_ok(device_warm(device, commands, 4));
    int64_t run = device->counters.gemms;
    assert_int_equal(run, 2);
    assert_ok(device_prepare(device, commands, 4, &prepared));
    assert_ok(device_run(device, prepared));
    assert_int_equal(device->counters.gemms, run);
    assert_int_equal(device->counters.graph_launches, 1);
    assert_int_equal(warnings, 0);
    device_discard(device, prepared);
    device_close(device);
}

static cublasStatus_t refuse_to_start(cublasHandle_t *handle)
{
    (void)handle;
    return 1;
}

/* Seen to fail with the status of start() returned by cuda_gemm_open, and with c->workspace left by stop(). */
static void products_are_right_if_cublas_does_not_start(void **state)
{
    (void)state;
    static const int64_t size[] = {5, 67, 33};
    struct gemm g = product_form(size, DTYPE_F32, DTYPE_F32, 12);
    find_libraries();
    long long kept = simulator_count("allocs") - simulator_count("frees");
    cu.cublasCreate_v2 = refuse_to_start;
    struct device *device = open_device();
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "cuBLAS: starting: error 1; matrix products run on hone's own kernels"));
    product_rounds_once(device, &g);
    struct device_costs costs;
    device_costs(device, 0, 0, &costs);
    assert_int_equal(costs.workspace, 0);
    device_close(device);
    assert_int_equal(simulator_count("allocs") - simulator_count("frees"), kept);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
    const struct CMUnitTest tests[] = {
        TEST(a_number_chooses_among_the_cards),
        TEST(an_id_chooses_among_the_cards),
        TEST(a_list_is_one_launch_unless_told_otherwise),
        TEST(a_run_allocates_loads_and_waits_for_nothing),
        TEST(a_second_start_compiles_nothing_and_a_damaged_entry_is_made_again),
        TEST(writes_larger_than_the_ring_arrive_whole),
        TEST(a_read_for_later_is_of_the_run_before_it),
        TEST(a_bias_is_added_by_its_matmul),
        TEST(a_product_runs_once_at_every_alignment_before_it_is_captured),
        TEST(products_are_right_if_cublas_does_not_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
